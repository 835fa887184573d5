"""Cursor names: one canonical form, from which the znode, the bucket and the record hash follow."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from functools import cached_property
from urllib.parse import quote, unquote

from cursorkeeper.core.errors import Refusal, RefusedError

NAME_BYTES_MAX = 1024
ROOT = "/cursorkeeper/cursors"
_PLAIN = re.compile(r"[A-Za-z0-9_.~:/|-]+")


@dataclass(frozen=True)
class CursorName:
    """topic + subscription.

    Raises RefusedError(NAME_TOO_LONG | BAD_MESSAGE) from `checked`.
    """

    topic: str
    subscription: str

    @classmethod
    def checked(cls, topic: str, subscription: str) -> CursorName:
        """The name, if it can be kept."""
        name = cls(topic, subscription)
        if not topic or not subscription:
            raise RefusedError(
                Refusal.BAD_MESSAGE,
                name.display,
                "topic and subscription must not be empty",
                "send both names",
            )
        size = len(name.canonical.encode())
        if size > NAME_BYTES_MAX:
            raise RefusedError(
                Refusal.NAME_TOO_LONG,
                name.display[:80] + "...",
                f"the encoded name has {size} bytes, {NAME_BYTES_MAX} are allowed",
                "use a shorter topic or subscription name",
            )
        return name

    @cached_property
    def canonical(self) -> str:
        """quote(topic)|quote(subscription); all but `A-Za-z0-9-_.~:/` is percent-encoded in upper
        case.
        """
        return f"{quote(self.topic, safe=':/')}|{quote(self.subscription, safe=':/')}"

    @cached_property
    def znode(self) -> str:
        """The canonical name as one path element: `/` and `:` are encoded too, `|` stays."""
        return self.canonical.replace("/", "%2F").replace(":", "%3A")

    @cached_property
    def _digest(self) -> bytes:
        return hashlib.sha256(self.canonical.encode()).digest()

    @cached_property
    def bucket(self) -> str:
        """The first three hex digits of SHA-256(canonical): 4,096 buckets."""
        return self._digest.hex()[:3]

    @cached_property
    def record_hash(self) -> int:
        """The first 8 bytes of SHA-256(canonical) as a little-endian number; every record carries
        them.
        """
        return int.from_bytes(self._digest[:8], "little")

    def path(self, root: str = ROOT) -> str:
        return f"{root}/{self.bucket}/{self.znode}"

    @property
    def display(self) -> str:
        return f"{self.topic}|{self.subscription}"

    @classmethod
    def from_znode(cls, znode: str) -> CursorName:
        """The inverse of `znode`. Raises ValueError when it is not one of ours."""
        topic, bar, subscription = znode.partition("|")
        if not bar:
            raise ValueError(f"not a cursor's znode: {znode!r}")
        canonical = znode.replace("%2F", "/").replace("%3A", ":")
        if (
            not _PLAIN.fullmatch(canonical)
            or canonical.count("|") > 1
            or "/" in znode
            or ":" in znode
        ):
            return cls(unquote(topic), unquote(subscription))
        # Nearly all names of a fleet: nothing but `/` and `:` is encoded, so the canonical name is
        # at hand and is not derived again.
        topic, _, subscription = canonical.partition("|")
        name = cls(topic, subscription)
        name.__dict__.update(canonical=canonical, znode=znode)
        return name

    def __str__(self) -> str:
        return self.display

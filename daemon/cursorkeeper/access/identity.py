"""Who somebody is to a daemon, and whose cursors are theirs. Serves operators who give each program
its own rights. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

ALL = "*"
_PARTITION = re.compile(r"-partition-[0-9]+\Z")
_TOLD, _TOLD_LETTERS = 3, 128


class Role(StrEnum):
    """What an identity is for. A server gives nothing to a role that it does not know: writer and
    migrator are a gateway's.
    """

    SOURCE = "source"
    READER = "reader"
    OPERATOR = "operator"
    WRITER = "writer"
    MIGRATOR = "migrator"


@dataclass(frozen=True, slots=True)
class Topics:
    """Those that somebody may touch. One that ends in `/` is a prefix; every other is a topic, with
    its partitions.
    """

    allowed: tuple[str, ...] = ()

    def hold(self, topic: str) -> bool:
        """Whether it is one of them."""
        whole = _PARTITION.sub("", topic)
        return any(
            one == ALL or (topic.startswith(one) if one.endswith("/") else one in (topic, whole))
            for one in self.allowed
        )

    def __str__(self) -> str:
        """A few of them: it is in messages."""
        told = [one[:_TOLD_LETTERS] for one in self.allowed[:_TOLD]]
        more = len(self.allowed) - len(told)
        return (", ".join(told) or "none") + (f" and {more} more" if more else "")


EVERY_TOPIC = Topics((ALL,))


@dataclass(frozen=True, slots=True)
class Quotas:
    """What one identity may hold at once; 0: as much as the daemon has."""

    streams: int = 0
    cursors: int = 0
    bytes_in_flight: int = 0
    reads: int = 0
    lists: int = 0


@dataclass(frozen=True, slots=True)
class Identity:
    name: str
    roles: frozenset[Role]
    topics: Topics = EVERY_TOPIC
    quotas: Quotas = field(default_factory=Quotas)

    def has(self, roles: Iterable[Role]) -> bool:
        return not self.roles.isdisjoint(roles)


ANYBODY = Identity("anybody", frozenset(Role))
"""Who calls a daemon that asks nobody."""

"""What goes in and out of ZooKeeper: nodes, stats, operations of a multi, session states.

Owns the value types of the port. Does not own their bytes (`codec`), nor what can go wrong
(`errors`).

Invariants: every value is immutable; `Stat` has its fields in the order of the wire, so that a
reader of a million footers can build it from one `struct` call. That, and construction time, is why
`Stat` and `Node` are named tuples and not dataclasses.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple, TypeAlias


class AnyVersion(Enum):
    """The one value that switches the version check off; see `ANY_VERSION`."""

    ANY = -1


ANY_VERSION: Final = AnyVersion.ANY
"""Write whatever the version is. An explicit constant: a stray -1 would silently turn a
compare-and-set into an overwrite.
"""

Version: TypeAlias = int | AnyVersion


def version_on_wire(version: Version) -> int:
    """The number ZooKeeper expects. Raises ValueError for a negative int: only `ANY_VERSION` says
    "any".
    """
    if isinstance(version, AnyVersion):
        return version.value
    if version < 0:
        raise ValueError(
            f"version {version}: a version is 0 or more; to write unconditionally say ANY_VERSION"
        )
    return version


class Stat(NamedTuple):
    """A znode's metadata. Times in milliseconds since 1970, zxids as ZooKeeper counts them, sizes
    in bytes.
    """

    czxid: int
    mzxid: int
    ctime_ms: int
    mtime_ms: int
    version: int
    cversion: int
    aversion: int
    ephemeral_owner: int
    data_bytes: int
    children_count: int
    pzxid: int


class Node(NamedTuple):
    """A znode as one read saw it. `version` is what a compare-and-set of this content has to name
    (the same as `stat.version`).
    """

    data: bytes
    version: int
    stat: Stat


# --- operations and results of a multi ------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Create:
    """Create `path`; fails with NodeExists or, without a parent, NoNode."""

    path: str
    data: bytes
    ephemeral: bool = False


@dataclass(frozen=True, slots=True)
class SetData:
    """Replace the data if the version still matches."""

    path: str
    data: bytes
    version: Version


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete if the version still matches and there are no children."""

    path: str
    version: Version


@dataclass(frozen=True, slots=True)
class Check:
    """Change nothing; fail the whole multi unless the node exists with this version."""

    path: str
    version: Version


Op: TypeAlias = Create | SetData | Delete | Check


OpResult: TypeAlias = int | None
"""The new version of a node that was set; None of every other operation."""


# --- watches and session --------------------------------------------------------------------------


WatchCallback: TypeAlias = Callable[[str], None]
"""Called with the path, once. It may be spurious (after a reconnect), or say that the session
expired and the watch with it; it says nothing about the value: read it.
"""


class SessionState(Enum):
    """Where the session is. SUSPENDED to CONNECTED keeps the session, its ephemerals and watches;
    EXPIRED has lost them all.
    """

    SUSPENDED = "suspended"
    CONNECTED = "connected"
    EXPIRED = "expired"
    CLOSED = "closed"


StateCallback: TypeAlias = Callable[[SessionState], None]

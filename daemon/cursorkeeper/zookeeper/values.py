"""What goes in and out of ZooKeeper: nodes, stats, operations of a multi, watch events, session
states.

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
    sequential: bool = False


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


@dataclass(frozen=True, slots=True)
class Created:
    """`path` is the name the server gave: it differs from the one asked for when sequential."""

    path: str


@dataclass(frozen=True, slots=True)
class DataSet:
    """`version` is the new version."""

    version: int


@dataclass(frozen=True, slots=True)
class Deleted:
    """The node is gone."""


@dataclass(frozen=True, slots=True)
class Checked:
    """The version matched."""


OpResult: TypeAlias = Created | DataSet | Deleted | Checked


# --- watches and session --------------------------------------------------------------------------


class WatchKind(Enum):
    """Why a watch fired. All of them mean the same to a careful caller: read again."""

    CREATED = "created"
    DELETED = "deleted"
    DATA_CHANGED = "data changed"
    LOST = "lost"
    """The session expired and the watch with it: nothing will be heard of this path until it is
    read and watched again.
    """


@dataclass(frozen=True, slots=True)
class WatchFired:
    """One watch, fired once. It may be spurious (after a reconnect) and says nothing about the
    value: read it.
    """

    path: str
    kind: WatchKind


WatchCallback: TypeAlias = Callable[[WatchFired], None]


class SessionState(Enum):
    """Where the session is. SUSPENDED to CONNECTED keeps the session, its ephemerals and watches;
    EXPIRED has lost them all.
    """

    SUSPENDED = "suspended"
    CONNECTED = "connected"
    EXPIRED = "expired"
    CLOSED = "closed"


StateCallback: TypeAlias = Callable[[SessionState], None]
Unsubscribe: TypeAlias = Callable[[], None]

"""The port: what CursorKeeper asks of ZooKeeper, and nothing more.

Owns the interface that `client.ZooKeeperClient` and `fake.FakeZooKeeper` both have, and the
promises they share. Does not own values (`values`) or errors (`errors`).

Promises, checked for both by one contract suite:
- No request is ever repeated by the client. `NotSent`: certainly not done. `OutcomeUnknown`: may
  have been done, or may be done later.
- Every request ends within `request_timeout_s` of the settings; `close` within 2 s; nothing waits
  for ever.
- Paths are absolute, below the chroot, and the chroot never shows in results, errors or watch
  events.
- Callbacks are plain functions, called from the event loop between other work, in order. One that
  raises goes to the loop's exception
  handler and harms nobody else.
- Reads of one client never go back in time, also across a reconnect; they may be older than other
  clients' writes until `sync`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from cursorkeeper.zookeeper.acl import Acl
from cursorkeeper.zookeeper.values import (
    Node,
    Op,
    OpResult,
    SessionState,
    Stat,
    StateCallback,
    Version,
    WatchCallback,
)


class ZooKeeper(Protocol):
    """One session with one ensemble. After an expiry the client goes on with a new session, and
    says so (`SessionState.EXPIRED`).
    """

    async def start(self) -> None:
        """Connect. Raises NotConnected if no server takes us within the settings'
        `start_timeout_s`; the client goes on trying until `close`, and `start` may be called again
        to wait for it.
        """
        ...

    async def close(self) -> None:
        """Best effort, at most 2 s, never raises, may be called again. Ephemerals go at once if the
        server heard it.
        """
        ...

    # --- nodes ------------------------------------------------------------------------------------

    async def get(self, path: str, *, watch: WatchCallback | None = None) -> Node:
        """Read one node. Raises NoNode (and then sets no watch), Disconnected.

        `watch` is called once, at the first change or deletion after this read, perhaps before this
        call has returned; the same function watching the same path twice is called once.
        """
        ...

    async def exists(self, path: str) -> Stat | None:
        """Stat of the node, or None. Raises Disconnected."""
        ...

    async def create(self, path: str, data: bytes, *, ephemeral: bool = False) -> None:
        """Create a node. Raises NodeExists, NoNode (no parent), ValueTooLarge, NotSent,
        OutcomeUnknown.
        """
        ...

    async def set(self, path: str, data: bytes, version: Version) -> int:
        """Compare-and-set; answers the new version. Raises BadVersion, NoNode, ValueTooLarge,
        NotSent, OutcomeUnknown.

        ValueError for a negative version: unconditional writes say `ANY_VERSION`.
        """
        ...

    async def delete(self, path: str, version: Version) -> None:
        """Delete a node without children. Raises BadVersion, NoNode, NotEmpty, NotSent,
        OutcomeUnknown.
        """
        ...

    async def children(self, path: str) -> list[str]:
        """Names (not paths) of the children, sorted. Raises NoNode, Disconnected."""
        ...

    async def sync(self, path: str) -> None:
        """Wait until reads of this client see everything committed before this call. Raises
        Disconnected.
        """
        ...

    async def ensure_path(self, path: str) -> None:
        """Create the node and its ancestors, the chroot's included, where missing; data empty. Safe
        to repeat after any error.
        """
        ...

    async def acl(self, path: str) -> tuple[Acl, Stat]:
        """Who may touch the node, and its Stat, whose `aversion` is the list's version. Raises
        NoNode, AccessDenied, Disconnected.
        """
        ...

    async def set_acl(self, path: str, acl: Acl, version: Version) -> Stat:
        """Compare-and-set of who may touch the node, by the version of the list. The node's own
        version, its times and its watches stay as they are. Raises BadVersion, NoNode,
        AccessDenied, NotSent, OutcomeUnknown.

        ValueError for a negative version.
        """
        ...

    async def multi(self, ops: Sequence[Op]) -> list[OpResult]:
        """All of the operations or none. Raises MultiFailed (nothing done), ValueTooLarge, NotSent,
        OutcomeUnknown. Empty: no request.

        Also one of nothing but `Check` goes through the leader's log: its answer, MultiFailed as
        well, is of an instant between the call and the answer. Neither `sync` and `get` nor a watch
        promise that: a deposed leader answers them.
        """
        ...

    async def multi_read(
        self, paths: Sequence[str], watches: Sequence[WatchCallback | None] = ()
    ) -> list[Node | None]:
        """Read many nodes, None for a missing one, in the order asked. Raises Disconnected,
        AccessDenied.

        Split into several requests by count and size; each request is one instant, the whole is
        not. ZooKeeper 3.6 or newer (op 22). `watches`: none, or one for each path, as of `get`; of
        a node that is missing it is called at once.
        """
        ...

    # --- session ----------------------------------------------------------------------------------

    @property
    def state(self) -> SessionState:
        """SUSPENDED before `start`, while reconnecting; CONNECTED; EXPIRED until there is a new
        session; CLOSED.
        """
        ...

    def on_state(self, callback: StateCallback) -> None:
        """Call `callback` with every new state from now on."""
        ...

    @property
    def session_id(self) -> int:
        """The `ephemeral_owner` of this session's ephemerals; 0 when there is none."""
        ...

"""What a Pulsar cluster has where a cursor is to be written: the topic's layout, and the cursor's
znode if there is one.
"""

from __future__ import annotations

from dataclasses import dataclass

from cursorkeeper.core.errors import DamageError, TooNewError
from cursorkeeper.core.values import LayoutItem
from cursorkeeper.format.pulsar import cursor_info, ledger_info
from cursorkeeper.format.pulsar.layout import layout_items
from cursorkeeper.format.pulsar.values import ManagedCursorInfo
from cursorkeeper.migration import liveness
from cursorkeeper.migration.cluster import PulsarCursorRef, PulsarPorts
from cursorkeeper.migration.errors import MigrationError
from cursorkeeper.migration.patience import Patience
from cursorkeeper.migration.pulsar_reader import LOOK, STATE_BYTES_MAX, UPGRADE
from cursorkeeper.migration.pulsar_writer import ABSENT
from cursorkeeper.problems import Kind
from cursorkeeper.zookeeper import errors as zk
from cursorkeeper.zookeeper.values import Node


@dataclass(frozen=True, slots=True)
class Destination:
    """`version` ABSENT: there is no such cursor. `znode` None: there is none, or it cannot be read
    (`exists` tells). `created_at_ms`: when the znode was made, 0 if there is none.
    """

    ref: PulsarCursorRef
    layout: tuple[LayoutItem, ...]
    version: int
    znode: ManagedCursorInfo | None
    created_at_ms: int = 0

    @property
    def exists(self) -> bool:
        """Whether Pulsar has the cursor."""
        return self.version != ABSENT

    @property
    def cursor_ledger(self) -> int:
        """The ledger that the znode names; -1: none."""
        return self.znode.cursors_ledger if self.znode is not None else -1

    async def signs_of_a_broker(self, ports: PulsarPorts) -> list[str]:
        last = self.layout[-1].ledger if self.layout else None
        return await liveness.signs_of_a_broker(ports, self.ref, last, self.cursor_ledger)

    async def owner(self, ports: PulsarPorts) -> str:
        """The broker's node, if its bundle is owned."""
        return await liveness.bundle_owner(ports, self.ref)


async def destination_of(
    ports: PulsarPorts, ref: PulsarCursorRef, patience: Patience
) -> Destination:
    """Raises MigrationError: the topic is not there, is damaged, or the cursor was written by a
    newer Pulsar.
    """

    async def read(path: str) -> Node | None:
        async def call() -> Node | None:
            await ports.zookeeper.sync(path)
            try:
                return await ports.zookeeper.get(path)
            except zk.NoNode:
                return None

        return await patience.repeat(str(ref), call)

    found = await read(ref.topic_path)
    if found is None:
        remedy = "create the topic first; a cursor cannot be without one"
        raise MigrationError(
            Kind.MISSING, str(ref), ref.topic_path, "Pulsar has no such topic", remedy
        )
    try:
        layout = layout_items(ledger_info.decode(found.data))
    except TooNewError as e:
        raise MigrationError(Kind.TOO_NEW, str(ref), ref.topic_path, e.message, UPGRADE) from e
    except DamageError as e:
        raise MigrationError(Kind.DAMAGED, str(ref), ref.topic_path, e.message, LOOK) from e
    node = await read(ref.path)
    if node is None:
        return Destination(ref, layout, ABSENT, None)
    try:
        raw, _ = cursor_info.unwrap(node.data, limit_bytes=STATE_BYTES_MAX)
        return Destination(ref, layout, node.version, cursor_info.decode(raw), node.stat.ctime_ms)
    except TooNewError as e:
        raise MigrationError(Kind.TOO_NEW, str(ref), ref.path, e.message, UPGRADE) from e
    except DamageError:
        return Destination(ref, layout, node.version, None, node.stat.ctime_ms)

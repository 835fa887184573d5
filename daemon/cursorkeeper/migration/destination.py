"""Serves who goes back to Pulsar: what a Pulsar cluster has where a cursor is to be written, and
whether somebody else is at it.

Owns the topic's layout and the cursor's znode as they were seen; the signs that ZooKeeper and
BookKeeper give of a broker, which would overwrite what is written (each is a sentence; none at all
means that the topic was unloaded in order, or never loaded; a broker that died leaves the same
signs as one that lives, and only a person can tell them apart); and whether Pulsar itself changed a
cursor since the broker plugin held it.
"""

from __future__ import annotations

import re
import zlib
from dataclasses import dataclass
from typing import Final

from cursorkeeper.bookkeeper.errors import NoSuchLedger
from cursorkeeper.core.errors import DamageError, TooNewError
from cursorkeeper.core.values import LayoutItem
from cursorkeeper.format.pulsar import cursor_info, ledger_info, names
from cursorkeeper.format.pulsar.layout import layout_items
from cursorkeeper.format.pulsar.values import ManagedCursorInfo
from cursorkeeper.migration.cluster import PulsarCursorRef, PulsarPorts
from cursorkeeper.migration.errors import MigrationError
from cursorkeeper.migration.patience import Patience
from cursorkeeper.migration.pulsar_reader import STATE_BYTES_MAX, decoding
from cursorkeeper.problems import Kind
from cursorkeeper.zookeeper import errors as zk
from cursorkeeper.zookeeper.synced import read_synced
from cursorkeeper.zookeeper.values import Node

ABSENT: Final = -1
"""Instead of a version: there is no such znode."""
BUNDLES = "/namespace"
"""Ephemeral nodes of brokers: the bundles that they own."""
_NOTE: Final = re.compile(r"(\d+)@(\d+)/(-?\d+)/(\d+)")
"""What the plugin notes (`Imprint` in java/pulsar-plugin) of Pulsar's znode that its state belongs
to: version, time of creation, and what tells who wrote it: cursor ledger, when its writer was last
in use. Both times in ms. A load asks the same of it.
"""


@dataclass(frozen=True, slots=True)
class Destination:
    """`version` is the cursor's, ABSENT: there is none. `topic_version` is that of the topic's
    znode, which was read before. `znode` None: there is none, or it cannot be read (`exists`
    tells). `created_at_ms`: when the znode was made, 0 if there is none.
    """

    ports: PulsarPorts
    ref: PulsarCursorRef
    layout: tuple[LayoutItem, ...]
    topic_version: int
    version: int = ABSENT
    znode: ManagedCursorInfo | None = None
    created_at_ms: int = 0

    @property
    def exists(self) -> bool:
        """Whether Pulsar has the cursor."""
        return self.version != ABSENT

    @property
    def cursor_ledger(self) -> int:
        """The ledger that the znode names; -1: none."""
        return self.znode.cursors_ledger if self.znode is not None else -1

    async def signs_of_a_broker(self) -> list[str]:
        """Raises what the clients raise."""
        owner = await self.owner()
        signs = [f"a broker owns the topic's bundle ({owner})"] if owner else []
        newest = self.layout[-1].ledger if self.layout else -1
        for what, ledger in (("cursor", self.cursor_ledger), ("newest message", newest)):
            if ledger >= 0 and await self._is_open(ledger):
                signs.append(
                    f"its {what} ledger {ledger} is not closed: a broker writes to it, or died"
                )
        return signs

    async def owner(self) -> str:
        """The node of the topic's bundle, if a broker owns it; empty otherwise, or where brokers
        keep ownership elsewhere (the extensible load manager does). Raises ZooKeeperError.
        """
        namespace = names.managed_ledger_name(self.ref.topic).rpartition(f"/{names.DOMAIN}/")[0]
        path = f"{BUNDLES}/{namespace}"
        try:
            bundles = await self.ports.zookeeper.children(path)
        except zk.NoNode:
            return ""
        for bundle in bundles:
            if not _holds(bundle, self.ref.topic):
                continue
            stat = await self.ports.zookeeper.exists(f"{path}/{bundle}")
            if stat is not None and stat.ephemeral_owner:
                return f"{path}/{bundle}"
        return ""

    async def _is_open(self, ledger: int) -> bool:
        try:
            return not (await self.ports.ledgers.end_of(ledger)).closed
        except NoSuchLedger:
            return False

    def gone_past(self, noted: str) -> str:
        """How Pulsar has gone past what the plugin noted, in words; empty: it has not."""
        found = _NOTE.fullmatch(noted)
        if found is None:
            return f"its znode has version {self.version}, and ours belongs to none"
        version, created_at_ms, ledger, active_at_ms = map(int, found.groups())
        if created_at_ms != self.created_at_ms:
            return "its znode was deleted and made again"
        if self.version == version - 1:
            return ""  # the write that was noted did not come
        if self.version != version:
            return f"its znode has version {self.version}, ours belongs to {version}"
        info = self.znode
        if info is not None and (info.cursors_ledger, info.last_active_ms or 0) != (
            ledger,
            active_at_ms,
        ):
            return f"version {version} of its znode is Pulsar's own work"
        return ""


async def destination_of(
    ports: PulsarPorts, ref: PulsarCursorRef, patience: Patience
) -> Destination:
    """Raises MigrationError: the topic is not there, is damaged, or the cursor was written by a
    newer Pulsar.
    """

    async def read(path: str) -> Node | None:
        return await patience.repeat(ref, lambda: read_synced(ports.zookeeper, path))

    found = await read(ref.topic_path)
    if found is None:
        remedy = "create the topic first; a cursor cannot be without one"
        raise MigrationError(Kind.MISSING, ref, ref.topic_path, "Pulsar has no such topic", remedy)
    with decoding(ref, ref.topic_path):
        layout = layout_items(ledger_info.decode(found.data))
    node = await read(ref.path)
    if node is None:
        return Destination(ports, ref, layout, found.version)
    info = None
    with decoding(ref, ref.path):
        try:
            raw, _ = cursor_info.unwrap(node.data, limit_bytes=STATE_BYTES_MAX)
            info = cursor_info.decode(raw)
        except TooNewError:
            raise
        except DamageError:
            pass  # it is there, whatever it is
    return Destination(ports, ref, layout, found.version, node.version, info, node.stat.ctime_ms)


def _holds(bundle: str, topic: str) -> bool:
    """Whether `0xLOW_0xHIGH` covers the CRC-32 of the topic's name, as Pulsar's bundles do. What is
    not a bundle holds nothing.
    """
    low, _, high = bundle.partition("_")
    try:
        first, last = int(low, 16), int(high, 16)
    except ValueError:
        return False
    place = zlib.crc32(topic.encode())
    return first <= place < last or (place == last == 0xFFFFFFFF)

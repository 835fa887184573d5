"""A Pulsar cluster as it lies in ZooKeeper and BookKeeper, on the fakes: topics, cursors, and the
brokers' answers about them.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

from pyroaring import BitMap

from cursorkeeper.bookkeeper.port import LedgerSpec
from cursorkeeper.core import bitmaps
from cursorkeeper.core.positions import Position
from cursorkeeper.format.pulsar import cursor_info, ledger_info, names, position_info
from cursorkeeper.format.pulsar.values import (
    Form,
    LedgerInfo,
    ManagedCursorInfo,
    ManagedLedgerInfo,
    PositionInfo,
)
from cursorkeeper.migration.cluster import PulsarPorts
from cursorkeeper.pulsar_broker.model import Kept, KeptForm
from daemon.tests.fakes.bookkeeper.fake import FakeBookKeeper
from daemon.tests.fakes.zookeeper.fake import FakeZooKeeper, FakeZooKeeperServer

TOPIC = "persistent://t/ns/topic"
Layout = Sequence[tuple[int, int]]


class PulsarCluster:
    """`start` it inside a running loop."""

    def __init__(self) -> None:
        rng = random.Random(4)
        self.server, self.bookkeeper = FakeZooKeeperServer(rng), FakeBookKeeper(rng)

    async def start(self) -> PulsarCluster:
        self.zookeeper: FakeZooKeeper = self.server.session()
        self.gateway = self.bookkeeper.gateway(role="migrator")
        await self.zookeeper.start()
        await self.gateway.start()
        await self.zookeeper.ensure_path(names.ROOT)
        return self

    @property
    def ports(self) -> PulsarPorts:
        return PulsarPorts(self.zookeeper, self.bookkeeper.gateway(role="reader"))

    async def reader(self) -> PulsarPorts:
        ports = self.ports
        await ports.ledgers.start()
        return ports

    async def topic(self, layout: Layout, topic: str = TOPIC) -> None:
        """The last ledger is open."""
        infos = [LedgerInfo(ledger, entries, 0, 1) for ledger, entries in layout]
        path = names.topic_path(topic)
        await self.zookeeper.ensure_path(path.rpartition("/")[0])
        await self.zookeeper.create(
            path, ledger_info.encode(ManagedLedgerInfo((*infos[:-1], LedgerInfo(layout[-1][0]))))
        )

    async def inline(
        self, state: PositionInfo, subscription: str = "sub", topic: str = TOPIC
    ) -> None:
        info = ManagedCursorInfo(
            -1, state.mark_delete, state.acked, state.batches, state.properties, last_active_ms=1
        )
        await self.put(cursor_info.encode(info), subscription, topic)

    async def put(self, data: bytes, subscription: str = "sub", topic: str = TOPIC) -> None:
        await self.zookeeper.create(names.cursor_path(topic, subscription), data)

    async def in_ledger(
        self,
        state: PositionInfo,
        subscription: str = "sub",
        topic: str = TOPIC,
        form: Form = Form.LONG_ARRAY,
    ) -> int:
        """A live cursor: its ledger is open. The ledger's id."""
        custom = {
            "application": b"pulsar",
            "component": b"managed-ledger",
            "pulsar/cursor": names.encode_name(subscription).encode(),
            "pulsar/managed-ledger": names.managed_ledger_name(topic).encode(),
        }
        ledger = await self.gateway.create(LedgerSpec(3, 2, 2), custom)
        await self.gateway.append(ledger, 0, position_info.encode(state, form))
        await self.put(
            cursor_info.encode(ManagedCursorInfo(ledger, Position(state.mark_delete.ledger, -1))),
            subscription,
            topic,
        )
        return ledger

    async def kept(self, kept: Kept, subscription: str = "sub", topic: str = TOPIC) -> None:
        """What the model says a flush leaves."""
        assert kept.state is not None
        if kept.form is KeptForm.ZNODE:
            await self.inline(kept.state, subscription, topic)
        else:
            form = Form.LONG_ARRAY if kept.form is KeptForm.LONG_ARRAY else Form.RANGES
            await self.in_ledger(kept.state, subscription, topic, form)


def told(layout: Layout, cursors: Mapping[str, PositionInfo]) -> dict[str, Any]:
    """A broker's internalStats."""
    return {
        "ledgers": [
            {"ledgerId": ledger, "entries": entries if ledger != layout[-1][0] else 0}
            for ledger, entries in layout
        ],
        "currentLedgerEntries": layout[-1][1],
        "cursors": {
            name: {
                "markDeletePosition": str(info.mark_delete),
                "individuallyDeletedMessages": ranges_text(info.acked),
            }
            for name, info in cursors.items()
        },
    }


def ranges_text(acked: Mapping[int, BitMap]) -> str:
    """As Pulsar's range set prints itself."""
    parts = []
    for ledger, entries in acked.items():
        edges = bitmaps.to_column(entries ^ entries.shift(1)).tolist()
        parts += [
            f"({ledger}:{first - 1}..{ledger}:{end - 1}]"
            for first, end in zip(edges[::2], edges[1::2], strict=True)
        ]
    return f"[{','.join(parts)}]"

"""A source of random acks (`random_acks`) with its truth in plain sets: what was sent, what was
confirmed.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from cursorkeeper_client import Client, Cursor, CursorState
from cursorkeeper_client.ack_stream.connection import SourceConnection
from daemon.tests.source.random_acks import (
    BATCH_SIZE,
    CLOSED_LEDGERS,
    LAYOUT,
    OPEN_LEDGER,
    OPEN_SPAN,
    START,
    Entry,
    make_batch,
)


@dataclass
class Truth:
    """Of one cursor: entries and batch indexes by seq, split into sent and confirmed."""

    sent: set[Entry] = field(default_factory=set)
    confirmed: set[Entry] = field(default_factory=set)
    sent_indexes: dict[Entry, set[int]] = field(default_factory=dict)
    confirmed_indexes: dict[Entry, set[int]] = field(default_factory=dict)
    properties: dict[str, int] = field(default_factory=dict)
    waiting: dict[int, tuple[set[Entry], dict[Entry, set[int]], dict[str, int] | None]] = field(
        default_factory=dict
    )

    def on_durable(self, upto: int) -> None:
        for seq in [t for t in self.waiting if t <= upto]:
            entries, indexes, properties = self.waiting.pop(seq)
            self.confirmed |= entries
            for key, acked in indexes.items():
                self.confirmed_indexes.setdefault(key, set()).update(acked)
            if properties is not None:
                self.properties = properties

    def wholly(self, indexes: dict[Entry, set[int]]) -> set[Entry]:
        return {key for key, acked in indexes.items() if len(acked) == BATCH_SIZE}


class Driver:
    """Sends random batches on one cursor."""

    def __init__(self, cursor: Cursor, seed: int) -> None:
        self.cursor, self.truth, self._seed = cursor, Truth(), seed
        cursor.on_durable = self.truth.on_durable
        self._number = 0

    async def send_some(self, batches: int) -> None:
        for _ in range(batches):
            await self._one()
            await asyncio.sleep(0.002)

    async def _one(self) -> None:
        self._number += 1
        batch, truth = make_batch(self._seed, self._number), self.truth
        truth.sent |= batch.entries
        for key, acked in batch.indexes.items():
            truth.sent_indexes.setdefault(key, set()).update(acked)
        seq = await self.cursor.send(batch.acks)
        truth.waiting[seq] = (batch.entries, batch.indexes, batch.properties)
        truth.on_durable(self.cursor.durable_seq)


def check(state: CursorState, truth: Truth) -> None:
    """Nothing confirmed is lost, nothing un-acked is skipped, index for index."""
    lost = {
        k for k in truth.confirmed | truth.wholly(truth.confirmed_indexes) if not state.is_acked(*k)
    }
    assert not lost, f"{len(lost)} confirmed entries lost, e.g. {sorted(lost)[:5]}"
    may = truth.sent | truth.wholly(truth.sent_indexes)
    for ledger, acked in state.acked.items():
        extra = {(ledger, e) for e in acked} - may
        assert not extra, f"un-acked entries are acked: {sorted(extra)[:5]}"
    # mark-delete itself claims everything below it
    below = {
        (x, e)
        for x, n in [*CLOSED_LEDGERS.items(), (OPEN_LEDGER, OPEN_SPAN)]
        for e in range(n)
        if (x, e) <= state.mark_delete
    }
    assert below <= may, f"mark-delete {state.mark_delete} skips {sorted(below - may)[:5]}"
    for key, confirmed in truth.confirmed_indexes.items():
        if not state.is_acked(*key):
            missing = state.partials[key].missing
            assert not (confirmed & set(missing)), (
                f"{key}: confirmed indexes {sorted(confirmed & set(missing))[:5]} are missing"
            )
    for key, partial in state.partials.items():
        never = set(range(BATCH_SIZE)) - truth.sent_indexes.get(key, set())
        assert never <= set(partial.missing), f"{key}: indexes that were never acked are gone"
    if truth.properties:
        assert state.mark_delete_properties.get("n", 0) >= truth.properties["n"]


async def recovered(address: str, topic: str, subscription: str = "sub") -> CursorState:
    """Open as a new owner, and leave again."""
    async with SourceConnection(address) as session:
        return await session.open(topic, subscription, create=False, takeover=True).opened()


async def driving(address: str, topic: str, seed: int) -> tuple[Client, Driver]:
    """A source with one cursor, opened."""
    source = Client(address)
    await source.start()
    driver = Driver(source.cursor(topic, "sub", layout=LAYOUT, start=START), seed)
    await driver.cursor.opened()
    return source, driver

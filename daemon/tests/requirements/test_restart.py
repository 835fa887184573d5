"""R21: the scenario of issue #25985 on real systems: 50 M entries, all but the oldest acked, `kill -9`, no redelivery.

The acks travel as ranges, so the test is quick; `make demo` sends them one by one, with holes.
"""

from __future__ import annotations

import random

import pytest
from cursorkeeper.core import bitmaps
from cursorkeeper.demo.plays import acked_in
from cursorkeeper_clients.ack_stream import Acks, LayoutItem, LayoutState, LedgerAcks, Position, ResumingSource
from cursorkeeper_clients.stack import Standalone

from daemon.tests.end_to_end.conftest import Daemons
from daemon.tests.end_to_end.workload import recovered

pytestmark = [pytest.mark.jvm, pytest.mark.slow]
BACKLOG = 50_000_000
BATCHES = 20


def batches(ledgers: int) -> list[list[LedgerAcks]]:
    """Everything but the oldest entry, in a shuffled order of pieces that are cut across ledger borders or inside of one."""
    size, pieces = BACKLOG // ledgers, max(ledgers, 200)
    per_ledger = pieces // ledgers
    cut = size // per_ledger
    made = []
    for ledger in range(ledgers):
        for piece in range(per_ledger):
            first, last = piece * cut, (piece + 1) * cut - 1 if piece < per_ledger - 1 else size - 1
            made.append(LedgerAcks(10 + 2 * ledger, ranges=[max(first, 1) if ledger == 0 else first, last]))
    random.Random(25985).shuffle(made)
    return [made[at::BATCHES] for at in range(BATCHES)]


@pytest.mark.parametrize("ledgers", [1_000, 1], ids=["1,000 ledgers of 50,000", "one ledger of 50 M"])
async def test_r21_fifty_million_acked_but_the_oldest_and_no_redelivery(stack: Standalone, daemons: Daemons, ledgers: int) -> None:
    topic = f"persistent://r21/ns/{ledgers}"
    size = BACKLOG // ledgers
    layout = [LayoutItem(10 + 2 * at, LayoutState.CLOSED, size) for at in range(ledgers)]
    daemon = await daemons.start(stack.gateway, stack.zookeeper)
    source = ResumingSource.dialling(daemon.address)
    await source.start()
    cursor = source.cursor(topic, "sub", layout=layout)
    await cursor.wait_opened()
    for at, pieces in enumerate(batches(ledgers)):
        await cursor.send(Acks(pieces))
        if at == BATCHES // 2:
            await cursor.wait_durable(cursor.last_ticket - 3)
            await daemon.kill()
            await daemon.start()
    await cursor.wait_durable()
    assert cursor.opens == 2, "it was killed in the middle, and the source opened again"
    await daemon.kill()
    await source.close()
    stack.restart()

    new_owner = await daemons.start(stack.gateway, stack.zookeeper)
    state = await recovered(new_owner.address, topic)
    assert state.mark_delete == Position(10, -1), "the oldest entry pins it"
    acked = {item.ledger: acked_in(state, item.ledger, size) for item in layout}
    everything = bitmaps.span(0, size - 1)
    again = {ledger: everything - entries for ledger, entries in acked.items() if len(entries) != size}
    assert {ledger: list(entries) for ledger, entries in again.items()} == {10: [0]}, "only the one that was never acked"
    assert sum(map(len, acked.values())) == BACKLOG - 1

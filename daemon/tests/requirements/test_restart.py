"""R21: the scenario of issue #25985 on real systems: 50 M entries acked out of order, `kill -9`, no
redelivery.

The acks travel as ranges and bitmaps, so the test is quick; `make demo` sends them one by one.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pytest
from pyroaring import BitMap

from cursorkeeper.core import bitmaps
from cursorkeeper.demo.plays import acked_in
from cursorkeeper.demo.stack import Standalone
from cursorkeeper_client import (
    Acks,
    Client,
    CursorState,
    LayoutItem,
    LayoutState,
    LedgerAcks,
    Position,
)
from daemon.tests.end_to_end.conftest import Daemons
from daemon.tests.end_to_end.workload import recovered

pytestmark = [pytest.mark.jvm, pytest.mark.slow]
BACKLOG = 50_000_000
BATCHES = 20
FIRST = 10


@dataclass(frozen=True)
class Case:
    """A backlog over equal ledgers; `hole_share` of it is never acked, and never the oldest
    entry.
    """

    name: str
    ledgers: int
    hole_share: float = 0.0

    @property
    def size(self) -> int:
        return BACKLOG // self.ledgers

    @property
    def layout(self) -> list[LayoutItem]:
        """Ids have gaps, as a topic's have."""
        return [
            LayoutItem(FIRST + 2 * at, LayoutState.CLOSED, self.size) for at in range(self.ledgers)
        ]

    def holes(self, ledger: int) -> BitMap:
        """What is never acked of one ledger."""
        oldest = BitMap([0]) if ledger == FIRST else BitMap()
        if not self.hole_share:
            return oldest
        random_holes = np.flatnonzero(
            np.random.default_rng(ledger).random(self.size) < self.hole_share
        )
        return oldest | bitmaps.from_sorted(random_holes.astype(np.uint32))

    def batches(self) -> list[list[LedgerAcks]]:
        """At least 200 pieces in a shuffled order, cut at ledger borders and inside of ledgers."""
        pieces = []
        per_ledger = max(1, 200 // self.ledgers)
        edges = [self.size * n // per_ledger for n in range(per_ledger + 1)]
        for item in self.layout:
            holes = self.holes(item.ledger)
            for first, end in pairwise(edges):
                if self.hole_share:
                    pieces.append(
                        LedgerAcks(item.ledger, roaring=bitmaps.span(first, end - 1) - holes)
                    )
                else:
                    pieces.append(LedgerAcks(item.ledger, ranges=[max(first, len(holes)), end - 1]))
        random.Random(25985).shuffle(pieces)
        return [pieces[at::BATCHES] for at in range(BATCHES)]

    def redelivered(self, state: CursorState) -> dict[int, BitMap]:
        """What a broker would deliver of this state, per ledger."""
        everything = bitmaps.span(0, self.size - 1)
        return {
            item.ledger: everything - acked_in(state, item.ledger, self.size)
            for item in self.layout
        }


CASES = [
    Case("1,000 ledgers, all but the oldest", 1_000),
    Case("one ledger, all but the oldest", 1),
    Case("10 % random holes", 1_000, 0.1),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
async def test_r21_fifty_million_entries_and_no_acked_one_comes_again(
    stack: Standalone, daemons: Daemons, case: Case
) -> None:
    """The daemon is killed in the middle; at the end the daemon and then ZooKeeper, bookies and
    gateway at once. (Pulsar gives back 99.9 % of the first case with its defaults, and 48.9 % of
    the last one with its limits raised.)
    """
    topic = f"persistent://r21/ns/{CASES.index(case)}"
    daemon = await daemons.start(stack.gateway, stack.zookeeper)
    source = Client(daemon.address)
    await source.start()
    cursor = source.cursor(topic, "sub", layout=case.layout)
    await cursor.opened()
    for at, pieces in enumerate(case.batches()):
        await cursor.send(Acks(pieces))
        if at == BATCHES // 2:
            await cursor.durable(cursor.last_seq - 3)
            await daemon.kill()
            await daemon.start()
    await cursor.durable()
    assert cursor.opens == 2, "it was killed in the middle, and the source opened again"
    await daemon.kill()
    await source.close()
    stack.restart()

    new_owner = await daemons.start(stack.gateway, stack.zookeeper)
    state = await recovered(new_owner.address, topic)
    assert state.mark_delete == Position(FIRST, -1), "the oldest entry pins it"
    assert case.redelivered(state) == {item.ledger: case.holes(item.ledger) for item in case.layout}

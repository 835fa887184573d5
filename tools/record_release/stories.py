"""What the stories share: the topic, random acks from a seed, and how a story ends."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from pyroaring import BitMap

from cursorkeeper_client import AckedIndexes, LayoutItem, LayoutState, LedgerAcks, PartialBatch
from tools.record_release.stage import Cursor, Json, Stage

CLOSED, OPEN, TRIMMED = LayoutState.CLOSED, LayoutState.OPEN, LayoutState.TRIMMED
LAYOUT = [
    LayoutItem(11, CLOSED, 3_000),
    LayoutItem(14, CLOSED, 1),
    LayoutItem(15, CLOSED, 0),
    LayoutItem(20, CLOSED, 5_000),
    LayoutItem(33, OPEN),
]
NEVER = 7
"""Of ledger 11: not acked unless a story says so, so that mark-delete stays in front of it."""


@dataclass(frozen=True, slots=True)
class Ended:
    """A cursor at the end of its story: `killed`, `closed` or `deleted`. `settled`: its gateway
    lived on (`Stage.settle`).

    `truncated_acks`: so many of the newest acks the release said it left out.
    """

    cursor: Cursor
    how: str = "killed"
    settled: bool = True
    truncated_acks: int = 0


Story = Callable[[Stage], Awaitable[Ended]]


def topic(name: str) -> str:
    return f"persistent://recorded/ns/{name}"


def scattered(rng: random.Random, ledger: int, span: int, count: int) -> LedgerAcks:
    """Single entries of a ledger."""
    return LedgerAcks(ledger, sorted({rng.randrange(span) for _ in range(count)} - {NEVER}))


def batches(rng: random.Random, ledger: int, span: int, count: int, size: int = 40) -> LedgerAcks:
    """Partly acked batches, in both ways to say it."""
    partials: list[PartialBatch | AckedIndexes] = []
    for number, entry in enumerate(sorted({rng.randrange(8, span) for _ in range(count)})):
        acked = sorted(rng.sample(range(size), rng.randint(1, size - 1)))
        if number % 2:
            partials.append(PartialBatch(entry, size, BitMap(range(size)) - BitMap(acked)))
        else:
            partials.append(AckedIndexes(entry, size, tuple((index, index) for index in acked)))
    return LedgerAcks(ledger, partials=partials)


async def some_traffic(cursor: Cursor, seed: str, rounds: int = 6) -> None:
    """Acks over the topic's ledgers, each batch confirmed before the next, so that there are as
    many records.
    """
    rng = random.Random(seed)
    for number in range(rounds):
        ledgers = [
            scattered(rng, 11, 3_000, 60),
            scattered(rng, 20, 5_000, 40),
            scattered(rng, 33, 20_000, 30),
        ]
        first = rng.randrange(100, 2_000)
        ledgers.append(LedgerAcks(11, ranges=[first, first + 70]))
        await cursor.acked(*ledgers, batches(rng, 20, 5_000, 5), properties={"number": number})


def has_snapshot(footer: Json) -> bool:
    """Whether the base is one."""
    return "snapshot" in footer["base"]


def newest_ledger(footer: Json) -> int:
    """The last of the chain, -1 without one."""
    return int(footer["chain"][-1]["ledger"]) if footer["chain"] else -1

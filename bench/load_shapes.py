"""The four loads that make Pulsar's cursor state too large (PIP-299): missed acks, mixed delays,
many consumers, many producers.

Owns which entries are acked in which order, and what must be acked at the end; all of it from one
seed, so that every process that asks gets the same. Does not own who sends it (`shapes`, and the
tests with small numbers). Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap

from cursorkeeper.core import bitmaps
from cursorkeeper.demo.workload import Columns, split

Keys = npt.NDArray[np.uint64]
"""Ledger << 32 | entry."""
FIRST_LEDGER = 1_000
LEDGER_STEP = 3
"""Ledger ids of a topic have gaps."""


class Batch(NamedTuple):
    """One message of the source: entries per ledger, perhaps a mark-delete with its properties."""

    columns: Columns
    mark_delete: tuple[int, int] | None = None
    properties: Mapping[str, int] | None = None

    @property
    def acks(self) -> int:
        """Entries it names; a mark-delete counts as one."""
        return sum(values.size for values in self.columns.values()) + (self.mark_delete is not None)


@dataclass(frozen=True)
class Shape:
    """`entries` over ledgers of `ledger_entries`. `order` gives what is acked, in the order of
    acking, as entry numbers.
    """

    name: str
    entries: int
    ledger_entries: int
    batch_acks: int
    order: Callable[[np.random.Generator, int], npt.NDArray[np.int64]]
    producers: int = 0
    seed: int = 299

    def layout(self) -> list[tuple[int, int]]:
        """(ledger id, entries), ascending."""
        full, rest = divmod(self.entries, self.ledger_entries)
        counts = [self.ledger_entries] * full + ([rest] if rest else [])
        return [(FIRST_LEDGER + LEDGER_STEP * at, count) for at, count in enumerate(counts)]

    def _acked_in_order(self) -> npt.NDArray[np.int64]:
        return self.order(np.random.default_rng(self.seed), self.entries)

    def keys(self, numbers: npt.NDArray[np.int64]) -> Keys:
        """Entry numbers of the topic as keys."""
        ledger = FIRST_LEDGER + LEDGER_STEP * (numbers // self.ledger_entries)
        keys: Keys = (ledger.astype(np.uint64) << np.uint64(32)) | (
            numbers % self.ledger_entries
        ).astype(np.uint64)
        return keys

    def batches(self) -> Iterator[Batch]:
        if self.producers:
            yield from self._deduplication()
            return
        numbers = self._acked_in_order()
        for start in range(0, numbers.size, self.batch_acks):
            yield Batch(split(self.keys(numbers[start : start + self.batch_acks])))

    def _deduplication(self) -> Iterator[Batch]:
        """The cursor `pulsar.dedup`: mark-delete moves, and with it the last sequence id of every
        producer.
        """
        rng = np.random.default_rng(self.seed)
        last = {f"producer-{number:05d}": -1 for number in range(self.producers)}
        names = list(last)
        for upto in range(self.batch_acks, self.entries + 1, self.batch_acks):
            for at in rng.integers(0, self.producers, self.batch_acks).tolist():
                last[names[at]] += 1
            key = int(self.keys(np.array([upto - 1]))[0])
            yield Batch({}, (key >> 32, key & 0xFFFFFFFF), dict(last))

    def acked(self) -> dict[int, BitMap]:
        """Entries that are acked at the end, per ledger."""
        numbers = (
            np.arange(self.entries // self.batch_acks * self.batch_acks)
            if self.producers
            else self._acked_in_order()
        )
        return {
            ledger: bitmaps.from_unsorted(values)
            for ledger, values in split(self.keys(numbers)).items()
        }

    def properties(self) -> dict[str, int]:
        """The last sequence ids at the end."""
        found: dict[str, int] = {}
        if self.producers:
            for batch in self._deduplication():
                found = dict(batch.properties or {})
        return found


def missed(
    share: float, window: int
) -> Callable[[np.random.Generator, int], npt.NDArray[np.int64]]:
    """Consumers work in windows, a little out of order, and never ack a share of what they
    received.
    """

    def order(rng: np.random.Generator, entries: int) -> npt.NDArray[np.int64]:
        acked = np.flatnonzero(rng.random(entries) >= share)
        acked = acked[acked != 0]  # the oldest is among the missed: mark-delete stays
        return _by(acked, acked + rng.integers(0, window, acked.size))

    return order


def delayed(
    long_share: float, short: int, long: int
) -> Callable[[np.random.Generator, int], npt.NDArray[np.int64]]:
    """An entry is due `delay` entries after it was published: short delays for most, long ones for
    a share. What is not due when the last entry is published is still un-acked.
    """

    def order(rng: np.random.Generator, entries: int) -> npt.NDArray[np.int64]:
        numbers = np.arange(entries)
        is_long = rng.random(entries) < long_share
        is_long[0] = True
        delay = np.where(
            is_long, rng.integers(long // 2, long, entries), rng.integers(0, short, entries)
        )
        delay[0] = entries
        due = numbers + delay
        ripe = numbers[due < entries]
        return _by(ripe, due[ripe])

    return order


def scattered(consumers: int) -> Callable[[np.random.Generator, int], npt.NDArray[np.int64]]:
    """Each consumer owns the entries of its keys and works at its own speed: the slowest has done a
    fifth when the fastest is through, and the acks of a moment lie all over the backlog.
    """

    def order(rng: np.random.Generator, entries: int) -> npt.NDArray[np.int64]:
        owner = rng.integers(0, consumers, entries)
        speed = rng.uniform(0.2, 1.0, consumers)
        when = np.arange(entries) / speed[owner]
        done = np.flatnonzero(when < entries)
        done = done[done != 0]
        return _by(done, when[done])

    return order


def _by(
    numbers: npt.NDArray[np.int64], when: npt.NDArray[np.int64] | npt.NDArray[np.float64]
) -> npt.NDArray[np.int64]:
    ordered: npt.NDArray[np.int64] = numbers[np.argsort(when, kind="stable")]
    return ordered


def shapes(scale: float = 1.0) -> list[Shape]:
    """All four. `scale` 1 is the benchmark; tests use thousandths of it."""
    entries = max(2_000, int(5_000_000 * scale))
    ledger = max(500, int(50_000 * scale))
    batch = max(50, int(4_096 * scale))
    return [
        Shape("missed acks: 2 % never acked", entries, ledger, batch, missed(0.02, 2 * batch)),
        Shape("mixed delays: 10 % long", entries, ledger, batch, delayed(0.1, batch, entries)),
        Shape("1,000 consumers", entries, ledger, batch, scattered(max(20, int(1_000 * scale)))),
        Shape(
            "2,000 producers",
            entries // 10,
            ledger,
            max(10, int(1_000 * scale)),
            missed(0, 1),
            producers=max(40, int(2_000 * scale)),
        ),
    ]

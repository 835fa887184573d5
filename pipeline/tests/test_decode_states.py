"""States as columns: what comes out is what plain sets say, at every edge of a bitmap."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Iterable
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from pyroaring import BitMap

from cursorkeeper.core.bitmaps import count_runs
from cursorkeeper.core.layout import Layout
from cursorkeeper.core.positions import ENTRY_ID_MAX, Position
from cursorkeeper.core.state import AckState
from cursorkeeper.core.values import Delta, LayoutItem, LayoutState, Partial, PartialKey
from cursorkeeper_pipeline import schemas
from cursorkeeper_pipeline.decode.columns import BATCH_BYTES, Batches, same
from cursorkeeper_pipeline.decode.extents import (
    BLOCK_RUNS,
    Runs,
    extents,
    runs_in_blocks,
)
from cursorkeeper_pipeline.decode.holes import Counts, hole_columns
from cursorkeeper_pipeline.decode.partials import bit_sets, living_partials, partial_columns

SEEDS = range(40)


def random_state(rng: random.Random, *, ledgers: int = 3, entries: int = 300) -> AckState:
    """Acks of any density in a few ledgers, joined as a recovery would; some batches, sometimes a
    mark-delete, sometimes a layout.
    """
    state = AckState()
    for ledger in range(5, 5 + ledgers):
        share = rng.choice([0.0, 0.02, 0.5, 0.98, 1.0])
        acked = BitMap([e for e in range(rng.randint(1, entries)) if rng.random() < share])
        partials = {
            PartialKey(ledger, rng.randrange(entries)): Partial(9, BitMap({rng.randrange(9)}))
            for _ in range(rng.randint(0, 3))
        }
        state.join_delta(
            Delta(
                acks={ledger: acked} if acked else {},
                partials={k: p for k, p in partials.items() if k.entry not in acked},
            )
        )
    if rng.random() < 0.5:
        state.join_delta(
            Delta(mark_delete=Position(rng.randint(5, 5 + ledgers), rng.randint(-1, entries)))
        )
    if rng.random() < 0.3:
        state.join_delta(Delta(layout=(LayoutItem(5 + ledgers - 1, LayoutState.TRIMMED, 0),)))
    state.settle()
    return state


def un_acked(state: AckState) -> set[tuple[int, int]]:
    """One by one."""
    return {
        (ledger, e)
        for ledger, acks in state.ledgers.items()
        for e in range(acks.high_water)
        if not state.is_acked(ledger, e)
    }


def rows_of(state: AckState, key: int = 1) -> list[tuple[int, int, int, int]]:
    return [
        row
        for columns in hole_columns(key, extents(state))
        for row in zip(*(c.tolist() for c in columns), strict=True)
    ]


def counts(state: AckState) -> Counts:
    found = Counts()
    found.add(extents(state))
    return found


@pytest.mark.parametrize("seed", SEEDS)
def test_holes_are_what_was_not_acked_in_maximal_runs(seed: int) -> None:
    state = random_state(random.Random(seed))
    rows = rows_of(state, key=-7)
    assert {
        (ledger, e) for _, ledger, first, last in rows for e in range(first, last + 1)
    } == un_acked(state)
    assert all(
        one[:2] < two[:2] or one[3] + 1 < two[2] for one, two in pairwise(rows)
    ) and rows == sorted(rows)
    assert {row[0] for row in rows} <= {-7}


@pytest.mark.parametrize("seed", SEEDS)
def test_counts_are_those_of_the_rows(seed: int) -> None:
    state = random_state(random.Random(seed))
    rows, found = rows_of(state), counts(state)
    sizes = [last - first + 1 for _, _, first, last in rows]
    assert (found.hole_runs, found.hole_entries, found.longest_run) == (
        len(rows),
        sum(sizes),
        max(sizes, default=0),
    )
    assert found.first_hole == (Position(*rows[0][1:3]) if rows else None)
    living = {
        ledger: acks
        for ledger, acks in state.ledgers.items()
        if not state.layout.is_trimmed(ledger)
    }
    above = {
        (ledger, e)
        for ledger, acks in living.items()
        for e in range(acks.high_water)
        if Position(ledger, e) > state.mark_delete
    }
    assert found.span_entries == len(above) and found.acked_entries == len(above - un_acked(state))
    assert found.data_ledgers == len(living)


@pytest.mark.parametrize(
    "entries",
    [
        [],
        [0],
        [ENTRY_ID_MAX],
        [0, 1, 2],
        [ENTRY_ID_MAX - 1, ENTRY_ID_MAX],
        [65_535, 65_536],
        [65_535],
        [65_536],
        [0, 2, 65_534, 65_537],
        range(100_000),
        range(0, 200_000, 2),
        [*range(70_000), *range(70_001, 140_000)],
    ],
)
def test_runs_at_the_edges_of_containers(entries: list[int] | range) -> None:
    for optimised in (False, True):
        bitmap = BitMap(entries)
        if optimised:
            bitmap.run_optimize()
        values = np.array(list(entries), np.int64)
        starts = values[np.flatnonzero(np.diff(values, prepend=-2) != 1)] if values.size else values
        ends = (
            values[np.flatnonzero(np.diff(values, append=values[-1] + 2) != 1)]
            if values.size
            else values
        )
        found = next(runs_in_blocks(bitmap), Runs(*np.empty((2, 0), np.int64)))
        assert found.first.tolist() == starts.tolist() and found.last.tolist() == ends.tolist()
        assert (
            found.first.dtype == found.last.dtype == np.int64 and count_runs(bitmap) == starts.size
        )


def test_a_trimmed_ledger_has_no_holes_even_where_mark_delete_stands_in_it() -> None:
    state = AckState(Position(5, 2), Layout([LayoutItem(5, LayoutState.TRIMMED, 0)]))
    state.ledgers.own(5).ack(BitMap([7]))
    assert state.hole_count and not rows_of(state) and counts(state) == Counts()


def test_batches_have_the_size_and_the_schema_whatever_comes_in() -> None:
    batches, rng, sent, got = Batches(schemas.HOLES, 1000), random.Random(2), 0, []
    for size in [0, 1, 999, 1000, 1001, 5500, *(rng.randint(0, 300) for _ in range(50))]:
        numbers = np.arange(sent, sent + size, dtype=np.int64)
        got += list(batches.add([same(1, size), same(2, size), numbers, numbers]))
        sent += size
    got += list(batches.rest())
    assert [b.num_rows for b in got[:-1]] == [1000] * (len(got) - 1) and not list(batches.rest())
    assert all(b.schema == schemas.HOLES for b in got)
    assert pa.Table.from_batches(got)["first_entry"].to_pylist() == list(range(sent))


def test_bit_sets_are_little_endian() -> None:
    rng = random.Random(3)
    sets = [BitMap(rng.sample(range(5000), rng.randint(0, 40))) for _ in range(200)] + [
        BitMap(),
        BitMap([0]),
        BitMap([65_535]),
    ]
    found = bit_sets(sets).to_pylist()
    for one, bits in zip(sets, found, strict=True):
        assert int.from_bytes(bits, "little") == sum(1 << index for index in one)
        assert not bits or bits[-1], "zero bytes at the end are left out"


@pytest.mark.parametrize("seed", SEEDS)
def test_partials_come_with_what_they_miss(seed: int) -> None:
    state = random_state(random.Random(seed))
    rows = [
        row
        for c in partial_columns(4, living_partials(state))
        for row in zip(*(x.tolist() for x in c), strict=True)
    ]
    wanted = [
        (4, *key, p.batch_size, sum(1 << i for i in p.missing), len(p.missing))
        for key, p in state.iter_partials()
        if not state.layout.is_trimmed(key.ledger)
    ]
    assert [(*row[:4], int.from_bytes(row[4], "little"), row[5]) for row in rows] == wanted


def peak_mib(work: Iterable[object]) -> float:
    """Of Python's and numpy's memory, while all of it is taken and nothing kept."""
    tracemalloc.start()
    try:
        for _ in work:
            pass
        return tracemalloc.get_traced_memory()[1] / (1 << 20)
    finally:
        tracemalloc.stop()


def test_large_batches_are_packed_a_few_at_a_time() -> None:
    missing = BitMap(range(1, 65_536))
    found = peak_mib(
        partial_columns(1, ((PartialKey(7, at), Partial(65_536, missing)) for at in range(200)))
    )
    assert found < 48, f"{found:.0f} MiB"
    chunks = list(
        partial_columns(1, ((PartialKey(7, at), Partial(65_536, missing)) for at in range(40)))
    )
    assert [row for chunk in chunks for row in chunk[2].tolist()] == list(range(40)) and len(
        chunks
    ) == 3
    small = list(
        partial_columns(1, ((PartialKey(7, at), Partial(9, BitMap([3]))) for at in range(10_000)))
    )
    assert [len(chunk[0]) for chunk in small] == [4096, 4096, 1808]


def test_batches_of_large_rows_are_smaller() -> None:
    batches, rows, got = Batches(schemas.BATCH_PARTIALS), 128, []
    bits = pa.array([b"x" * 8192] * rows)
    for _ in range(100):
        got += list(
            batches.add(
                [
                    same(1, rows),
                    same(2, rows),
                    same(3, rows),
                    np.full(rows, 9, np.int32),
                    bits,
                    np.full(rows, 1, np.int32),
                ]
            )
        )
    got += list(batches.rest())
    assert sum(batch.num_rows for batch in got) == 100 * rows and max(
        batch.nbytes for batch in got
    ) < BATCH_BYTES + (2 << 20)


def test_runs_come_in_blocks_whose_size_is_bounded() -> None:
    rng = np.random.default_rng(5)
    entries = BitMap(np.flatnonzero(rng.random(300_000) < 0.5).astype(np.uint32))
    whole, blocks = next(runs_in_blocks(entries)), list(runs_in_blocks(entries, 1_000))
    assert [block.first.size for block in blocks[:-1]] == [1_000] * (
        len(blocks) - 1
    ) and 0 < blocks[-1].last.size <= 1_000
    for column in ("first", "last"):
        assert (
            np.concatenate([getattr(block, column) for block in blocks]).tolist()
            == getattr(whole, column).tolist()
        )
    every_second = BitMap(range(0, 8 * BLOCK_RUNS, 2))
    found = peak_mib(runs_in_blocks(every_second))
    assert found < 24, f"{found:.0f} MiB, and all of them at once are 32"

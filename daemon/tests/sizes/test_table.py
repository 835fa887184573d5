"""The size table of issue #25985, reproduced; and what follows from it: size follows holes, no
dense form per flush.
"""

from __future__ import annotations

import math
import tracemalloc
from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
from pyroaring import BitMap

from cursorkeeper.core import bitmaps
from cursorkeeper.core.positions import Position
from cursorkeeper.core.state import AckState
from cursorkeeper.format.pulsar import position_info
from cursorkeeper.format.pulsar.values import Form, PositionInfo
from cursorkeeper.pulsar_broker.settings import PulsarSettings
from cursorkeeper.sizes import native
from cursorkeeper.sizes.encodings import ENCODINGS, dense_heap_bytes
from cursorkeeper.sizes.holes import FIRST_LEDGER, Workload, further_acks
from cursorkeeper.sizes.measure import Row, measure

MIB = 1 << 20
FRAME_BYTES = PulsarSettings().frame_bytes_max
"""The largest BookKeeper entry at Pulsar's defaults."""
M = 1_000_000
ISSUE = {1 * M: ("0.16", "0.12"), 10 * M: ("1.63", "1.19"), 100 * M: ("16.3", "11.9")}
"""Backlog -> dense bytes in BookKeeper, transient heap; MiB, as printed in the issue."""


@cache
def row(backlog: int, density: float) -> Row:
    return measure(Workload(backlog, density))


def differs(value: float, printed: str) -> float:
    """By which part a value differs from a printed number, which stands for everything that rounds
    to it.
    """
    number, half = float(printed), 0.5 * 10 ** -len(printed.partition(".")[2])
    return max(0.0, abs(value - number) - half) / number


@pytest.mark.parametrize("density", [0.001, 0.01, 0.1])
@pytest.mark.parametrize("backlog", [1 * M, 10 * M, pytest.param(100 * M, marks=pytest.mark.slow)])
def test_r22_dense_size_and_heap_are_the_issues(backlog: int, density: float) -> None:
    dense, heap = ISSUE[backlog]
    found = row(backlog, density).bytes_by_key
    assert differs(found["dense_bytes"] / MIB, dense) <= 0.02
    assert differs(found["dense_heap_bytes"] / MIB, heap) <= 0.02
    assert len(found) == len(ENCODINGS) and all(found.values())


def test_r22_one_hundred_million_with_few_holes_in_roaring_is_the_issues() -> None:
    """0.43 is megabytes: with MiB, 450,887 bytes, no ledger size between 50,000 entries and one
    ledger for all would fit.
    """
    found = row(100 * M, 0.001).bytes_by_key
    assert found["roaring_bytes"] == pytest.approx(0.43e6, rel=0.005)
    assert found["dense_bytes"] / MIB == pytest.approx(16.4, rel=0.005)
    one_ledger = measure(Workload(100 * M, 0.001, ledger_entries=0)).bytes_by_key
    assert one_ledger["roaring_bytes"] == pytest.approx(0.43e6, rel=0.02)


def test_r22_the_ceiling_of_one_entry_is_thirty_million_whatever_the_holes() -> None:
    for density in (0.001, 0.01, 0.1):
        found = row(10 * M, density)
        ceiling = FRAME_BYTES / (found.bytes_by_key["dense_bytes"] / found.backlog)
        assert 30.4 * M < ceiling < 30.9 * M


@pytest.mark.parametrize(("density", "gaps"), [(0.001, 1_001), (0.01, 101), (0.1, 11)])
def test_r22_no_encoding_claims_less_than_the_gaps_hold(density: float, gaps: int) -> None:
    """Gaps are uniform over so many lengths: that many bits for each hole is what no lossless
    encoding can save.
    """
    found = row(10 * M, density)
    least_bytes = found.holes * math.log2(gaps) / 8
    for encoding in ENCODINGS:
        if encoding.key != "delta_bytes":
            assert found.bytes_by_key[encoding.key] >= least_bytes, encoding.key
    assert found.bytes_by_key["snapshot_bytes"] < 3 * least_bytes
    assert (
        found.delta_acks == 1_000
        and found.bytes_by_key["delta_bytes"] >= 1_000 * math.log2(found.holes / 1_000) / 8
    )


def test_r22_holes_have_the_issues_gaps() -> None:
    holes = Workload(1 * M, 0.01).holes()
    gaps = np.diff(holes)
    assert holes[0] == 0
    assert gaps.min() == 50 and gaps.max() == 150
    assert gaps.mean() == pytest.approx(100, rel=0.02)
    assert gaps.std() == pytest.approx(100 / math.sqrt(12), rel=0.03), "uniform"


def test_the_same_seed_is_the_same_state_and_another_is_another() -> None:
    assert Workload(M, 0.01, 1).states()[0] == Workload(M, 0.01, 1).states()[0]
    assert Workload(M, 0.01, 1).states()[0] != Workload(M, 0.01, 2).states()[0]


@pytest.mark.parametrize("ledger_entries", [0, 1, 7, 50_000])
def test_both_states_hold_the_same_acks(ledger_entries: int) -> None:
    workload = Workload(5_003 if ledger_entries else 99_999, 0.2, ledger_entries=ledger_entries)
    info, state = workload.states()
    assert {ledger: state.acked_of(ledger) for ledger in state.ledgers} == dict(info.acked)
    acked = sum(map(len, info.acked.values()))
    assert acked == workload.entries - workload.holes().size
    assert state.hole_count <= workload.holes().size


@pytest.mark.parametrize(
    "wrong",
    [(0, 0.1, 1), (10, 0.0, 1), (10, 0.6, 1), (10, 0.1, -1), (1 << 33, 0.1, 0), (10, math.nan, 0)],
)
def test_workloads_that_make_no_sense_are_refused(wrong: tuple[int, float, int]) -> None:
    with pytest.raises(ValueError, match=r"\d"):
        Workload(wrong[0], wrong[1], ledger_entries=wrong[2])


def few_holes(entries: int, holes: int) -> BitMap:
    """Acked entries."""
    places = np.sort(np.random.default_rng(1).choice(entries, holes, replace=False)).astype(
        np.uint32
    )
    entries_acked = bitmaps.span(0, entries - 1) - bitmaps.from_sorted(places)
    entries_acked.discard(0)
    return entries_acked


@pytest.mark.parametrize("entries", [50 * M, 250 * M, 1_000 * M])
@pytest.mark.parametrize("holes", [1, 100, 10_000])
def test_r18_a_snapshot_follows_the_holes_and_not_the_backlog(entries: int, holes: int) -> None:
    acked = few_holes(entries, holes)
    state = AckState(Position(FIRST_LEDGER, -1))
    acks = state.ledgers.own(FIRST_LEDGER)
    acks.high_water, acks.holes = acked.max() + 1, bitmaps.span(0, acked.max()) - acked
    size, _ = native.snapshot_records(state)
    assert size < FRAME_BYTES / 50
    # the fixed part: one slice for each segment's range of the backlog
    assert size < 10_000 + 8 * holes
    if entries == 1_000 * M:
        assert size * 100 < entries / 64 * 11, "a hundredth of the dense form"


def peak_bytes(work: Callable[[], object]) -> int:
    """The most that Python and numpy held at once while it ran."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def flush_peak(backlog: int) -> int:
    _, state = Workload(backlog, 0.001).states()
    columns = further_acks(state, 1_000, 1)
    return peak_bytes(lambda: native.flush(state, columns))


def test_r24_a_flush_makes_no_dense_form() -> None:
    small, large = flush_peak(1 * M), flush_peak(50 * M)
    assert large < 2 * MIB
    assert large < 3 * small + 512 * 1024, "fifty times the backlog, the same thousand acks"
    info, _ = Workload(50 * M, 0.001).states()
    assert peak_bytes(lambda: position_info.encode(info, Form.LONG_ARRAY)) > 4 * MIB, (
        "the measure sees what Pulsar's form takes"
    )


def test_r24_a_snapshot_holds_one_segment_at_a_time() -> None:
    states = [Workload(backlog, 0.1).states()[1] for backlog in (10 * M, 50 * M)]
    few, many = (peak_bytes(lambda state=state: native.snapshot_records(state)) for state in states)  # type: ignore[misc]
    assert many < 1.5 * few, "five times as many segments"


@pytest.mark.parametrize(("highest", "words"), [(0, 1), (63, 1), (64, 2), (127, 2), (128, 3)])
def test_the_heap_is_a_word_for_every_64_entries_up_to_the_highest(
    highest: int, words: int
) -> None:
    assert dense_heap_bytes(
        PositionInfo(Position(1, -1), {5: BitMap([highest]), 7: BitMap([0])})
    ) == 8 * (words + 1)


def test_further_acks_are_holes_each_once() -> None:
    _, state = Workload(M, 0.01).states()
    before = state.hole_count
    columns = further_acks(state, 1_000, 3)
    assert all(BitMap(c) <= state.ledgers[ledger].holes for ledger, c in columns.items())
    native.flush(state, columns)
    assert state.hole_count == before - 1_000

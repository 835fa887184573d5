"""The model against the table that was measured with Pulsar's own classes, and against its own
limits.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap

from cursorkeeper.core.positions import Position
from cursorkeeper.core.values import PartialKey
from cursorkeeper.format.pulsar.values import Compression, PositionInfo
from cursorkeeper.pulsar_broker.model import (
    Kept,
    KeptForm,
    Reason,
    count,
    range_count,
    what_pulsar_keeps,
)
from cursorkeeper.pulsar_broker.settings import VERSIONS, PulsarSettings, of_version
from daemon.tests.assess.states import FIRST, backlog

DEFAULT = of_version("4.2.4")
MILESTONE = of_version("5.0.0-M1")
TUNED = replace(DEFAULT, ranges_max=100_000_000)
RAISED = replace(TUNED, long_array=False)
M = 1_000_000


def assert_adds_up(state: PositionInfo, kept: Kept) -> None:
    assert kept.dropped_count + (count(kept.state.acked) if kept.state else 0) == count(state.acked)


@pytest.mark.parametrize(
    ("settings", "entries", "flush_bytes", "lost"),
    [
        (DEFAULT, 1 * M, 8_613, 950_000),
        (DEFAULT, 10 * M, 8_613, 9_950_000),
        (DEFAULT, 50 * M, 8_613, 49_950_000),
        (MILESTONE, 10 * M, 43_013, 9_750_000),
    ],
)
def test_all_but_the_oldest_at_defaults_as_measured(
    settings: PulsarSettings, entries: int, flush_bytes: int, lost: int
) -> None:
    state = backlog(entries)
    kept = what_pulsar_keeps(state, settings)
    assert (kept.form, kept.stored_bytes, kept.dropped_by) == (
        KeptForm.LONG_ARRAY,
        flush_bytes,
        {Reason.ENTRY_CAP: lost},
    )
    assert_adds_up(state, kept)


def test_tuned_all_but_the_oldest_fits_up_to_30_million_as_measured() -> None:
    fits = what_pulsar_keeps(backlog(30_500_000), TUNED)
    assert (fits.form, fits.stored_bytes, fits.dropped_count) == (KeptForm.LONG_ARRAY, 5_246_515, 0)
    saved = what_pulsar_keeps(backlog(31 * M), TUNED)
    assert (
        saved.form is KeptForm.ZNODE and saved.dropped_count == 0 and saved.tried_bytes > 5_253_120
    )
    assert saved.state is not None and range_count(saved.state.acked) == 620


def test_ten_percent_holes_as_measured() -> None:
    """The measured states had other random holes: the same numbers within a thousandth."""
    kept = what_pulsar_keeps(backlog(10 * M, 0.1), TUNED)
    assert kept.form is KeptForm.LONG_ARRAY and kept.dropped_count == 0
    assert kept.stored_bytes == pytest.approx(1_704_437, rel=1e-3)
    wide = what_pulsar_keeps(backlog(50 * M, 0.1), MILESTONE)
    assert wide.stored_bytes == pytest.approx(42_625, rel=1e-3)
    assert wide.dropped_by == {Reason.ENTRY_CAP: pytest.approx(44_775_087, rel=1e-4)}


def test_fifty_million_with_ten_percent_holes_is_written_nowhere_as_measured() -> None:
    state = backlog(50 * M, 0.1)
    kept = what_pulsar_keeps(state, TUNED)
    assert (kept.form, kept.stored_bytes, kept.state) == (KeptForm.NOTHING, 0, None)
    assert kept.dropped_by == {Reason.FRAME: count(state.acked)}


def test_a_raised_frame_takes_a_hundred_million_as_measured() -> None:
    kept = what_pulsar_keeps(backlog(100 * M, 0.1), replace(TUNED, frame_bytes_max=128 << 20))
    assert kept.dropped_count == 0
    assert kept.stored_bytes == pytest.approx(17_045_827, rel=2e-3)


def test_range_list_as_measured() -> None:
    few = what_pulsar_keeps(backlog(10 * M, 0.001), RAISED)
    assert few.form is KeptForm.RANGES and few.dropped_count == 0
    assert few.stored_bytes == pytest.approx(188_650, rel=2e-2)
    assert what_pulsar_keeps(backlog(10 * M, 0.1), RAISED).form is KeptForm.NOTHING


def test_the_cap_of_ranges_is_one_too_many_before_it_was_fixed() -> None:
    state = PositionInfo(
        Position(FIRST, -1), {FIRST: BitMap(range(1, 201, 2)), FIRST + 1: BitMap(range(0, 200, 2))}
    )
    for one_more, expected in ((True, 151), (False, 150)):
        kept = what_pulsar_keeps(
            state, replace(DEFAULT, long_array=False, ranges_max=150, one_range_more=one_more)
        )
        assert kept.state is not None and range_count(kept.state.acked) == expected
        assert kept.dropped_by == {Reason.RANGE_CAP: 200 - expected}
        assert kept.state.acked[FIRST + 1] == BitMap(range(0, 2 * (expected - 100), 2)), (
            "the oldest are kept"
        )


def test_the_ledger_that_crosses_the_cap_is_written_and_the_one_at_the_cap_too() -> None:
    state = PositionInfo(Position(FIRST, -1), {FIRST + n: BitMap(range(1, 101)) for n in range(4)})
    for cap, ledgers in ((0, 1), (99, 1), (100, 2), (199, 2), (200, 3), (400, 4)):
        kept = what_pulsar_keeps(state, replace(DEFAULT, ranges_max=cap))
        assert kept.state is not None and len(kept.state.acked) == ledgers, cap


def test_a_cap_that_counts_the_ledger_itself_falls_back_to_ranges() -> None:
    state = backlog(10 * M)
    later = replace(DEFAULT, cap_counts_ledger=True)
    assert what_pulsar_keeps(state, later).form is KeptForm.RANGES
    assert what_pulsar_keeps(state, later).dropped_count == 0
    four = what_pulsar_keeps(state, replace(later, ranges_max=200_000))
    assert (
        four.form is KeptForm.LONG_ARRAY and four.state is not None and len(four.state.acked) == 4
    )


def test_batches_have_a_cap_and_the_znode_forgets_them() -> None:
    batches = {PartialKey(FIRST, 2 * n): BitMap([1]) for n in range(30)}
    state = PositionInfo(Position(FIRST, -1), {FIRST: BitMap([61])}, batches)
    capped = what_pulsar_keeps(state, replace(DEFAULT, batches_max=20))
    assert len(capped.dropped_batches[Reason.BATCH_CAP]) == 10
    assert capped.dropped_batches[Reason.BATCH_CAP][0] == PartialKey(FIRST, 40)
    closed = what_pulsar_keeps(state, DEFAULT, closing=True)
    assert closed.form is KeptForm.ZNODE and len(closed.dropped_batches[Reason.ZNODE]) == 30
    assert closed.state is not None and not closed.state.batches
    assert not what_pulsar_keeps(
        state, replace(DEFAULT, znode_restores_batches=True), closing=True
    ).dropped_batches
    off = what_pulsar_keeps(state, replace(DEFAULT, batch_index=False))
    assert len(off.dropped_batches[Reason.BATCH_CAP]) == 30


def test_a_graceful_unload_uses_the_znode_only_for_few_ranges() -> None:
    few = what_pulsar_keeps(backlog(10 * M), DEFAULT, closing=True)
    assert (few.form, few.dropped_count) == (KeptForm.ZNODE, 0), "200 ranges fit the znode"
    many = what_pulsar_keeps(backlog(10 * M, 0.001), DEFAULT, closing=True)
    assert many.form is KeptForm.LONG_ARRAY and many.dropped_count > 9 * M, (
        "10,000 ranges do not: the loss is that of a crash"
    )


def test_a_graceful_unload_with_as_many_ranges_as_allowed_uses_the_znode() -> None:
    state = PositionInfo(Position(FIRST, -1), {FIRST: BitMap(range(1, 21, 2))})
    forms = [
        what_pulsar_keeps(state, replace(DEFAULT, znode_ranges_max=n), closing=True).form
        for n in (9, 10)
    ]
    assert forms == [KeptForm.LONG_ARRAY, KeptForm.ZNODE]


def test_a_close_whose_entry_does_not_fit_has_nothing_to_fall_back_to() -> None:
    tight = replace(TUNED, frame_bytes_max=1_000)
    assert what_pulsar_keeps(backlog(1 * M, 0.01), tight).form is KeptForm.ZNODE
    closed = what_pulsar_keeps(backlog(1 * M, 0.01), tight, closing=True)
    assert closed.state is None and list(closed.dropped_by) == [Reason.FRAME]


def test_a_znode_that_does_not_fit_is_a_close_that_fails() -> None:
    kept = what_pulsar_keeps(
        backlog(1 * M, 0.1),
        replace(DEFAULT, ranges_max=10**6, znode_ranges_max=10**6),
        closing=True,
    )
    assert kept.state is None and list(kept.dropped_by) == [Reason.ZNODE]


def test_compression_makes_room_in_the_znode() -> None:
    state = backlog(1 * M, 0.08)
    plain = replace(TUNED, frame_bytes_max=1_000)
    assert what_pulsar_keeps(state, plain).form is KeptForm.NOTHING
    packed = what_pulsar_keeps(state, replace(plain, compression=Compression.ZSTD))
    assert packed.form is KeptForm.ZNODE and packed.dropped_count == 0


@given(
    acked=st.dictionaries(
        st.integers(FIRST, FIRST + 5),
        st.sets(st.integers(1, 300), min_size=1).map(BitMap),
        max_size=4,
    ),
    cap=st.integers(0, 400),
    version=st.sampled_from(sorted(VERSIONS)),
    long_array=st.booleans(),
    closing=st.booleans(),
)
def test_nothing_is_lost_twice_or_forgotten(
    acked: dict[int, BitMap], cap: int, version: str, long_array: bool, closing: bool
) -> None:
    state = PositionInfo(Position(FIRST, -1), dict(sorted(acked.items())))
    kept = what_pulsar_keeps(
        state, replace(VERSIONS[version], ranges_max=cap, long_array=long_array), closing=closing
    )
    assert_adds_up(state, kept)
    found = kept.state.acked if kept.state is not None else {}
    for ledger, entries in state.acked.items():
        parts = [
            found.get(ledger, BitMap()),
            *(dropped.get(ledger, BitMap()) for dropped in kept.dropped.values()),
        ]
        assert sum(map(len, parts)) == len(entries)
        assert BitMap.union(*parts) == entries


def test_a_frame_and_a_znode_have_room_for_what_is_added() -> None:
    """The numbers are measured to about as much; see `ADD_OVERHEAD_BYTES` and
    `SET_OVERHEAD_BYTES`.
    """
    state = PositionInfo(Position(7, 4), {7: BitMap(range(6, 400, 2))})
    tuned = replace(DEFAULT, ranges_max=10_000, znode_ranges_max=10)
    entry = what_pulsar_keeps(state, tuned).stored_bytes
    assert (
        what_pulsar_keeps(state, replace(tuned, frame_bytes_max=entry + 64)).form
        is KeptForm.LONG_ARRAY
    )
    assert (
        what_pulsar_keeps(state, replace(tuned, frame_bytes_max=entry + 63)).form is KeptForm.ZNODE
    )
    znode = what_pulsar_keeps(state, tuned, closing=True, flushed=False)
    assert znode.form is KeptForm.ZNODE, (
        "a ledger that was recovered and not flushed to is not used"
    )
    assert what_pulsar_keeps(state, tuned, closing=True).form is KeptForm.LONG_ARRAY
    for room, form in ((256, KeptForm.ZNODE), (255, KeptForm.NOTHING)):
        tight = replace(tuned, znode_bytes_max=znode.stored_bytes + room)
        assert what_pulsar_keeps(state, tight, closing=True, flushed=False).form is form

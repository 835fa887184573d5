"""A record with a right checksum may say anything: it costs no more than its cursor's budget, and
is refused by name.
"""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap

from cursorkeeper.core import containers
from cursorkeeper.core.budget import StateBudget
from cursorkeeper.core.delta_parts import cut_delta
from cursorkeeper.core.errors import DamageError, OverBudgetError
from cursorkeeper.core.positions import Position
from cursorkeeper.core.sizes import RECORD_CONTAINERS_MAX, delta_containers_max
from cursorkeeper.core.state import AckState
from cursorkeeper.core.values import (
    Delta,
    LayoutItem,
    LayoutState,
    Partial,
    PartialKey,
    Segment,
    Slice,
)
from cursorkeeper.format import delta, sections
from cursorkeeper.format.fields import Containers
from daemon.tests.format import hostile

GROWN_MAX = 4 * hostile.STATE_BYTES_MAX
"""The budget of the state, the record itself (4 MiB of body, twice), its values, and what the
allocator keeps.
"""
EXPECTED = {
    "gaps of a container in many ledgers": "damage",
    "one ack in each of very many ledgers": "damage",
    "one ack in each of many ledgers": "over budget",
    "the last entry of 200 ledgers": "over budget",
    "the last entry of one ledger in each of 3,000 records": "over budget",
    "layout of very many ledgers": "over budget",
    "layout of ever more ledgers": "over budget",
    "partly acked batches": "damage",
    "a partly acked batch that misses everything": "damage",
    "a partly acked batch at the last entry": "over budget",
    "slices of a whole ledger, again and again": "damage",
    "slices of whole ledgers, nothing acked": "over budget",
    "slices at the last entry": "over budget",
    "slices that are sets of everything, again and again": "damage",
    "slices that are sets of everything, in many ledgers": "damage",
    "slices that are sets of an entry, in many ledgers": "over budget",
    "slices that are sets of two in whole ledgers": "over budget",
    "a slice that is more numbers than a set has": "damage",
    "a slice of zeros without a one": "damage",
    "slices that are gaps of a container, in many ledgers": "damage",
    "an end record of very many segments": "damage",
}
LAYOUTS = [name for name in hostile.VECTORS if name.startswith("layout")]
"""A layout has a limit of its own, in ledgers."""


def test_no_record_costs_more_than_the_budget() -> None:
    """In a process of its own, by what the process has grown: much of the memory is not
    Python's.
    """
    names = list(hostile.VECTORS)
    run = subprocess.run(
        [sys.executable, "-m", "daemon.tests.format.hostile", *names],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert run.returncode == 0, run.stderr[-2_000:]
    told = [line.split("|") for line in run.stdout.splitlines()]
    assert [line[0] for line in told] == names
    grown = {name: int(kib) << 10 for name, _, _, kib in told}
    assert {
        name: by for name, by in grown.items() if by > GROWN_MAX * (2 if name in LAYOUTS else 1)
    } == {}
    assert {name: what for name, _, what, _ in told} == {
        name: EXPECTED.get(name, "joined") for name in names
    }


# ---- the state


def acked(*entries: tuple[int, int]) -> Delta:
    return Delta(acks={ledger: BitMap([entry]) for ledger, entry in entries})


SMALL = StateBudget(1 << 20, 10)


@pytest.mark.parametrize(
    "join",
    [
        lambda s: s.join_delta(acked((1, hostile.LAST))),
        lambda s: s.join_segment(
            Segment(slices=(Slice(1, hostile.LAST, hostile.LAST, True, BitMap()),))
        ),
        lambda s: s.join_segment(Segment(slices=(Slice(1, 0, hostile.LAST, False, BitMap([3])),))),
        lambda s: s.join_delta(
            Delta(partials={PartialKey(1, hostile.LAST): Partial(2, BitMap([1]))})
        ),
        lambda s: s.join_segment(
            Segment(partials={PartialKey(1, at): Partial(2, BitMap([1])) for at in range(2_000)})
        ),
        lambda s: s.join_delta(
            Delta(layout=tuple(LayoutItem(at, LayoutState.CLOSED, 1) for at in range(11)))
        ),
    ],
    ids=["acks", "slice of holes", "slice of acks", "batch", "many batches", "layout"],
)
def test_every_join_asks_the_budget_first(join: Callable[[AckState], None]) -> None:
    with pytest.raises(OverBudgetError, match=r"raise (state_bytes_max|layout_ledgers_max)"):
        join(AckState(budget=SMALL))


def test_a_billion_entries_with_a_tenth_of_random_holes_fit() -> None:
    """One ledger of 50,000 stands for the 20,000 of a billion entries."""
    state = AckState()
    rng = np.random.default_rng(7)
    for ledger in range(1, 21):
        state.join_delta(
            Delta(acks={ledger: BitMap(np.flatnonzero(rng.random(50_000) < 0.9).astype(np.uint32))})
        )
    assert state.hole_count > 90_000
    assert state.memory_bytes * 1_000 < 180 << 20 < state.budget.bytes_max


def test_what_was_forgotten_is_counted_no_more() -> None:
    state = AckState()
    empty = state.memory_bytes
    for ledger in range(1, 50):
        state.join_delta(acked((ledger, 1_000_000)))
        state.join_delta(
            Delta(
                partials={
                    PartialKey(ledger, 2_000_000 + at): Partial(9, BitMap([3])) for at in range(10)
                }
            )
        )
    assert state.memory_bytes > 49 * 30 * 78
    state.join_delta(Delta(layout=(LayoutItem(5, LayoutState.TRIMMED, 0),)))
    state.join_delta(Delta(mark_delete=Position(49, 1_999_999)))
    state.join_delta(Delta(acks={49: BitMap(range(2_000_000, 2_000_010))}))
    assert state.partial_count == 0 and not state.hole_count
    assert state.memory_bytes - empty < 500
    state.join_delta(Delta(mark_delete=Position(60, -1)))
    assert state.memory_bytes == 0


def test_acks_near_the_budget_are_kept_compact() -> None:
    """Joined at once they would make 8 KiB of bits of every container."""
    entries = BitMap(list(range(0, 1 << 26, 2_000)))
    state = AckState(budget=StateBudget(1 << 20))
    state.join_delta(Delta(acks={1: entries}))
    assert state.memory_bytes < 1 << 20 and state.acked_of(1) == entries


# ---- sets and bitmaps


def test_a_record_is_cut_by_the_containers_that_a_reader_takes() -> None:
    step = 1 << 16
    one = BitMap([at * step for at in range(1 << 16)])
    whole = Delta(acks=dict.fromkeys(range(1, 7), one))
    parts = cut_delta(whole, 4 << 20)
    assert len(parts) == 2 and all(
        delta_containers_max(part) <= RECORD_CONTAINERS_MAX for part in parts
    )
    assert all(delta.decode(delta.encode(part)) == part for part in parts)


def test_containers_are_counted() -> None:
    room = Containers()
    room.take(RECORD_CONTAINERS_MAX)
    with pytest.raises(DamageError, match="more than 262144 containers"):
        room.take(1)


@given(
    st.integers(0, 70_000),
    st.binary(min_size=1, max_size=300),
    st.integers(0, 20_000),
    st.integers(0, 9),
)
def test_bits_become_the_set_that_they_name(first: int, body: bytes, gap: int, seed: int) -> None:
    dense = random.Random(seed).randbytes(gap)
    bits = body + dense + body
    wanted = BitMap(
        (
            np.flatnonzero(np.unpackbits(np.frombuffer(bits, np.uint8), bitorder="little")) + first
        ).astype(np.uint32)
    )
    assert containers.from_bits(first, bits) == wanted


@given(
    st.lists(st.integers(0, 65_535), min_size=1, max_size=5, unique=True),
    st.integers(0, 9),
    st.sampled_from([1, 3, 4_096, 4_097, 65_536]),
)
def test_members_become_the_set_that_they_are(keys: list[int], seed: int, most: int) -> None:
    chance = np.random.default_rng(seed)
    members = np.concatenate(
        [
            (key << 16) + np.sort(chance.choice(65_536, chance.integers(1, most + 1), False))
            for key in sorted(keys)
        ]
    ).astype(np.uint32)
    found = containers.from_members(members)
    assert containers.checked(found.serialize()) == found == BitMap(members)


@pytest.mark.parametrize("seed", range(8))
def test_long_sections_are_read_piece_by_piece(seed: int) -> None:
    rng, shift = random.Random(seed), seed % 4
    pairs = [(rng.randrange(70_000), rng.randrange(300)) for _ in range(300)]
    body = hostile.number(4, *(value for pair in pairs for value in pair))
    whole = sections.decode(sections.Mode.RUNS, 9, body, 1 << 32)
    gaps = sections.decode(sections.Mode.GAPS, 9, body, 1 << 32)
    before, sections.PIECE_BYTES = sections.PIECE_BYTES, 64 + shift  # type: ignore[misc]
    try:
        assert sections.decode(sections.Mode.RUNS, 9, body, 1 << 32) == whole
        assert sections.decode(sections.Mode.GAPS, 9, body, 1 << 32) == gaps
    finally:
        sections.PIECE_BYTES = before  # type: ignore[misc]
    at, wanted = 9, BitMap()
    wanted.add_range(9, 14)
    at = 13
    for gap, more in pairs:
        wanted.add_range(at + gap + 2, at + gap + 2 + more + 1)
        at += gap + 2 + more
    assert whole == wanted


SHAPES = [
    BitMap(),
    BitMap([5]),
    BitMap(range(0, 60_000, 7)),
    BitMap([*range(0, 60_000, 2), *range(1 << 20, (1 << 20) + 50)]),
    BitMap([*range(70_000), 1 << 31]),
    BitMap([at << 16 for at in range(9)]) | BitMap(range(200_000, 300_000)),
]


@pytest.mark.parametrize("shape", range(len(SHAPES)))
def test_a_sound_bitmap_is_taken(shape: int) -> None:
    bitmap = SHAPES[shape].copy()
    plain = bitmap.serialize()
    bitmap.run_optimize()
    assert containers.checked(plain) == containers.checked(bitmap.serialize()) == bitmap


@given(
    st.integers(0, len(SHAPES) - 1),
    st.booleans(),
    st.lists(st.tuples(st.integers(0, 1 << 20), st.integers(0, 255)), max_size=3),
    st.data(),
)
def test_a_hostile_bitmap_is_refused_or_is_what_it_says(
    shape: int, runs: bool, flips: list[tuple[int, int]], data: st.DataObject
) -> None:
    """What passes has as many values as it says, in order: CRoaring writes them to memory of that
    size.
    """
    bitmap = SHAPES[shape].copy()
    if runs:
        bitmap.run_optimize()
    raw = bytearray(bitmap.serialize())
    for at, byte in flips:
        raw[min(at, 60) % len(raw) if at & 1 else at % len(raw)] = byte
    del raw[data.draw(st.integers(0, len(raw)) | st.just(len(raw))) :]
    try:
        found = containers.checked(bytes(raw))
    except ValueError:
        return
    values = np.frombuffer(found.to_array(), np.uint32)
    assert values.size == len(found) and bool(np.all(values[1:] > values[:-1]))


@pytest.mark.parametrize("seed", range(12))
def test_large_sets_have_the_bytes_of_small_ones(seed: int) -> None:
    """They are written by their runs and containers, not member by member."""
    rng = random.Random(seed)
    times, dense = rng.choice([1, 7, 900]), seed % 2 == 0
    values, at = BitMap(), 5
    for _ in range(200):
        gap, more = rng.randrange(300), rng.randrange(300)
        at += (gap % 3 if dense else gap * times) + 1
        values.add_range(at, at + (more % 3 if dense else more) + 1)
        at += more + 1
    before, sections.MANY = sections.MANY, 100  # type: ignore[misc]
    try:
        large = sections.encode(values)
    finally:
        sections.MANY = before  # type: ignore[misc]
    assert large == sections.encode_members(np.frombuffer(values.to_array(), np.uint32))
    assert containers.from_bits(values.min(), containers.to_bits(values)) == values


def test_billions_of_acks_in_a_few_ranges_are_written_by_their_runs() -> None:
    """A message of eight kilobytes: written member by member they would take seventeen
    gigabytes.
    """
    starts = np.arange(1_000, dtype=np.int64) * 4_294_000
    values = containers.from_runs(starts, starts + 4_293_000)
    assert len(values) > 4_290_000_000
    mode, first, body = sections.encode(values)
    assert mode is sections.Mode.RUNS and len(body) < 8_000
    assert sections.decode(mode, first, body, 1 << 32) == values

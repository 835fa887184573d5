"""The table of ledgers says the same whatever of it is packed, and whenever."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap

from cursorkeeper.core.budget import mixed_bytes
from cursorkeeper.core.entries import as_set
from cursorkeeper.core.ledger_acks import (
    BITS_BYTES,
    CUTS_MAX,
    ONE_BY_ONE_MAX,
    PACKED_BYTES_MAX,
    LedgerTable,
)
from cursorkeeper.core.positions import LEDGER_ID_MAX

IDS = st.sampled_from([0, 1, 5, 6, 1 << 40, LEDGER_ID_MAX])
ACK = st.tuples(st.just("ack"), IDS, st.sets(st.integers(0, 200), min_size=1))
STEPS = st.lists(
    ACK
    | st.tuples(st.just("pack"), st.integers(0, 3))
    | st.tuples(st.just("delete"), IDS)
    | st.tuples(st.just("own"), IDS),
    max_size=30,
)


def described(table: LedgerTable) -> dict[int, set[int]]:
    return {ledger: set(range(acks.high_water)) - set(acks.holes) for ledger, acks in table.items()}


@given(STEPS)
def test_packing_changes_nothing_that_is_seen(steps: list[tuple]) -> None:  # type: ignore[type-arg]
    table = LedgerTable()
    acked: dict[int, set[int]] = {}
    for step in steps:
        match step:
            case "ack", ledger, entries:
                acks = table.own(ledger)
                fresh = acks.ack(BitMap(entries))
                table.count(acks)
                assert set(fresh) == entries - acked.get(ledger, set())
                acked.setdefault(ledger, set()).update(entries)
            case "own", ledger:
                table.own(ledger)
                acked.setdefault(ledger, set())
            case "pack", own_max:
                table.pack(own_max)
            case "delete", ledger if ledger in acked:
                del table[ledger], acked[ledger]
        assert described(table) == acked
        assert list(table) == sorted(acked) and len(table) == len(acked)
        found = dict(table.items())
        assert {ledger: table.high_water(ledger) for ledger in table} == {
            ledger: acks.high_water for ledger, acks in found.items()
        }
        assert table.hole_count == sum(len(acks.holes) for acks in found.values())
        assert table.entry_count == sum(acks.high_water for acks in found.values())
    for ledger in (0, 2, LEDGER_ID_MAX):
        assert (ledger in table) == (ledger in acked) == (table.get(ledger) is not None)
        assert ledger in acked or table.high_water(ledger) == 0


@given(STEPS)
def test_the_count_of_memory_is_of_what_is_held(steps: list[tuple]) -> None:  # type: ignore[type-arg]
    table = LedgerTable()
    for step in steps:
        match step:
            case "ack", ledger, entries:
                table.own(ledger).ack(BitMap(entries))
            case "delete", ledger if ledger in table:
                del table[ledger]
            case "pack", own_max:
                table.pack(own_max)
    table.pack()
    assert table.memory_bytes == sum(acks.measured_bytes() for acks in table.values())
    for ledger in table:
        del table[ledger]
    assert table.memory_bytes == 0


@pytest.mark.parametrize("containers", [1, 3])
@pytest.mark.parametrize("together", [20, 100, 500])
def test_a_ledger_of_few_acks_stays_small_however_many_come_at_once(
    containers: int, together: int
) -> None:
    """Roaring makes 8 KiB of bits of a run that is cut more than some thirty times at once."""
    entries = list(range(containers << 16))
    random.Random(together).shuffle(entries)
    acks = LedgerTable().own(1)
    acks.grow(len(entries))
    for first in range(0, containers * 1_000, together):
        acks.ack(BitMap(entries[first : first + together]))
        runs_bytes, others_bytes = 4 * (first + together), 64 * containers + 4_096
        assert acks.holes.__sizeof__() <= runs_bytes + others_bytes, first
    assert len(acks.holes) == len(entries) - len(range(0, containers * 1_000, together)) * together


def test_what_is_acked_before_all_holes_makes_no_ledger_large() -> None:
    acks = LedgerTable().own(1)
    acks.grow(60_000)
    acks.ack_through(19_999)
    acks.ack(BitMap(range(20_001, 60_000, 400)))
    assert acks.holes.__sizeof__() < 1_000


def test_a_change_pays_for_no_more_containers_than_it_has_acks() -> None:
    """Else a few acks of a ledger of a billion entries would cost what all of it does."""
    acks = LedgerTable().own(1)
    acks.grow(200 << 16)
    few = BitMap(range(1, 60_000, 600))
    acks.ack(few)
    assert len(few) < 200 and acks.holes.__sizeof__() > BITS_BYTES
    acks.ack(BitMap(range(70_001, 200 << 16, 60_000)))
    assert acks.holes.__sizeof__() < BITS_BYTES


def test_what_was_packed_goes_on_when_it_is_taken() -> None:
    table = LedgerTable()
    table.own(7).ack(BitMap([0, 2]))
    table.pack()
    table.own(7).ack(BitMap([1, 5]))
    table.pack()
    assert (set(table[7].holes), table[7].high_water) == ({3, 4}, 6)


def test_holes_of_many_containers_stay_a_bitmap() -> None:
    table = LedgerTable()
    holes = table.own(7).holes = BitMap(range(1, PACKED_BYTES_MAX * 16, 2))
    table.own(7).high_water = PACKED_BYTES_MAX * 16
    table.pack()
    assert table[7].holes is holes and table.own(7).holes is holes


def test_an_unknown_ledger_is_a_key_error() -> None:
    with pytest.raises(KeyError):
        LedgerTable()[7]


@pytest.mark.parametrize("is_packed", [False, True])
@pytest.mark.parametrize("at_once", [1, ONE_BY_ONE_MAX, ONE_BY_ONE_MAX + 1])
def test_acks_of_a_few_at_a_time_take_no_more_memory_than_bits(
    at_once: int, is_packed: bool
) -> None:
    """Each cuts a run in two, which as bits would take 8 KiB and as runs sixteen times as much."""
    table, entries = LedgerTable(), 2 << 16
    mine = table.own(3)
    mine.grow(entries)
    odd = list(range(1, entries, 2))
    for first in range(0, len(odd), at_once):
        if is_packed:
            table.pack()
            mine = table.own(3)
        some = BitMap(odd[first : first + at_once])
        assert as_set(mine.ack(some)) == some and not mine.ack(some)
        if first % 1000 == 0:
            table.count(mine)
            assert mine.counted_bytes <= mixed_bytes(entries) + 2 * 4 * CUTS_MAX
    assert mine.holes == BitMap(range(0, entries, 2))

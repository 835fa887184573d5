"""Sets in three modes: the smallest one, the same from every path, bounded when read, and as small
as promised.
"""

from __future__ import annotations

import numpy as np
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap

from cursorkeeper.core import containers
from cursorkeeper.core.bitmaps import from_sorted, to_column
from cursorkeeper.core.errors import DamageError
from cursorkeeper.core.sizes import EXPANSION_MAX, section_sizes, set_bytes_max
from cursorkeeper.core.values import Delta
from cursorkeeper.format import delta, sections
from cursorkeeper.format.sections import Mode
from daemon.tests.format import reference
from daemon.tests.format.strategies import bitmaps


def written(values: BitMap) -> bytes:
    out = bytearray()
    sections.append(out, values)
    return bytes(out)


@given(bitmaps())
def test_a_set_has_the_bytes_of_the_reference_and_comes_back(values: BitMap) -> None:
    data = written(values)
    assert data == reference.section(values)
    assert sections.read(data + b"junk", 0, EXPANSION_MAX) == (values, len(data))


@given(bitmaps())
def test_all_three_sizes_are_exact_and_the_bound_holds(values: BitMap) -> None:
    members = list(values)
    gaps, runs, bits = section_sizes(to_column(values))
    assert (gaps, runs) == (len(reference.gaps_body(members)), len(reference.runs_body(members)))
    assert bits == (members[-1] - members[0]) // 8 + 1
    assert len(written(values)) <= set_bytes_max(values)


@given(bitmaps())
def test_loop_and_columns_write_the_same(values: BitMap) -> None:
    assert sections.encode_members(to_column(values)) == sections.encode(values)


@pytest.mark.parametrize(
    ("values", "mode"),
    [
        (BitMap([0, 1]), Mode.GAPS),
        (BitMap([0, 7]), Mode.GAPS),
        (BitMap([*range(10), *range(12, 20)]), Mode.RUNS),
        (BitMap([*range(100), *range(102, 110), *range(112, 160), *range(170, 180)]), Mode.RUNS),
        (BitMap([*range(10), *range(12, 15), 16]), Mode.BITS),
    ],
)
def test_ties_go_to_the_lowest_mode(values: BitMap, mode: Mode) -> None:
    sizes = section_sizes(to_column(values))
    assert sections.encode(values)[0] is sections.encode_members(to_column(values))[0] is mode
    assert len(sections.encode(values)[2]) == min(sizes) == sizes[mode]


@given(bitmaps(limit=70_000))
def test_every_mode_can_be_read(values: BitMap) -> None:
    members = list(values)
    for mode, body in enumerate(
        [reference.gaps_body(members), reference.runs_body(members), reference.bits_body(members)]
    ):
        assert sections.decode(mode, members[0], body, len(values)) == values
        with pytest.raises(DamageError, match="are allowed"):
            sections.decode(mode, members[0], body, len(values) - 1)


@given(st.integers(0, 2), st.integers(0, (1 << 32) - 1), st.binary(max_size=200))
def test_garbage_is_damage_or_a_set_inside_its_room(mode: int, first: int, body: bytes) -> None:
    try:
        values = sections.decode(mode, first, body, 100_000)
    except DamageError:
        return
    assert 0 < len(values) <= 100_000
    assert values.min() == first


def test_six_bytes_cannot_claim_more_than_the_room() -> None:
    body = reference.leb((1 << 32) - 1)
    assert len(sections.decode(Mode.RUNS, 0, body, EXPANSION_MAX)) == 1 << 32
    with pytest.raises(DamageError, match="4294967296 acks are claimed"):
        sections.decode(Mode.RUNS, 0, body, EXPANSION_MAX - 1)


@pytest.mark.parametrize(
    ("mode", "first", "body", "words"),
    [
        (Mode.GAPS, (1 << 32) - 1, b"\x00", "no entry id"),
        (Mode.GAPS, 5, b"\x80", "cut off"),
        (Mode.GAPS, 5, b"\x81\x00", "not minimal"),
        (Mode.GAPS, 5, b"\xff\xff\xff\xff\x0f" * 33, "no entry id"),
        (Mode.GAPS, 5, b"\xff\xff\xff\xff\x7f" * 33, "2\\^32"),
        (Mode.RUNS, 5, b"", "cut off"),
        (Mode.RUNS, 5, b"\x01\x01", "cut off"),
        (Mode.RUNS, 5, b"\x01" * 162, "middle of a run"),
        (Mode.RUNS, (1 << 32) - 2, b"\x02", "no entry id"),
        (Mode.BITS, 5, b"", "bitmap section"),
        (Mode.BITS, 5, b"\x02", "bitmap section"),
        (Mode.BITS, 5, b"\x01\x00", "bitmap section"),
        (Mode.BITS, (1 << 32) - 7, b"\xff", "no entry id"),
    ],
)
def test_damage_is_named(mode: Mode, first: int, body: bytes, words: str) -> None:
    with pytest.raises(DamageError, match=words):
        sections.decode(mode, first, body, EXPANSION_MAX)


def test_heads_are_checked() -> None:
    with pytest.raises(DamageError, match="unknown section mode 3"):
        sections.read(b"\x03\x00", 0, 10)
    with pytest.raises(DamageError, match="4 bytes where 1 are left"):
        sections.read(b"\x10\x00\x00", 0, 10)
    with pytest.raises(DamageError, match="no entry id"):
        sections.read(b"\x00" + reference.leb(1 << 32), 0, 10)


# --- the sizes this format was chosen for: body bytes of 1,000 new acks ---------------------------


def acks_of(ledger_entries: int, addresses: np.ndarray) -> dict[int, BitMap]:
    """Addresses in a topic of equally long ledgers."""
    addresses = np.unique(addresses)
    ledgers = addresses // ledger_entries
    return {
        int(g) + 9000: from_sorted((addresses[ledgers == g] % ledger_entries).astype(np.uint32))
        for g in np.unique(ledgers)
    }


def body_of(addresses: np.ndarray, ledger_entries: int = 1 << 32) -> bytes:
    return delta.encode(Delta(acks=acks_of(ledger_entries, addresses)))


RNG = np.random.default_rng(20)


def test_contiguous_acks_take_eleven_bytes() -> None:
    assert len(body_of(np.arange(1000) + 2_000_000)) <= 11


def test_every_fifth_takes_31_bytes_stored() -> None:
    body = body_of(np.arange(0, 5000, 5))
    assert len(body) <= 640
    assert len(zstandard.ZstdCompressor(level=1).compress(body)) <= 35


def test_key_shared_takes_a_third_of_a_byte() -> None:
    addresses = np.flatnonzero(RNG.random(3000) < 0.4)[:1000]
    assert len(body_of(addresses)) <= 345


def test_half_of_a_window_takes_a_quarter_of_a_byte() -> None:
    assert len(body_of(np.sort(RNG.choice(2000, 1000, replace=False)) + 60_000)) <= 265


def test_uniform_takes_two_to_four_bytes() -> None:
    assert len(body_of(RNG.integers(0, 10_000_000, 1000))) <= 2_250
    assert len(body_of(RNG.integers(0, 100_000_000, 1000), 5_000_000)) <= 2_960
    in_small_ledgers = body_of(RNG.integers(0, 100_000_000, 1000), 50_000)
    assert len(in_small_ledgers) <= 4_450
    assert len(zstandard.ZstdCompressor(level=1).compress(in_small_ledgers)) <= 3_850


@given(
    st.lists(
        st.tuples(st.sampled_from([1, 2, 15, 16, 100, 70_000]), st.sampled_from([1, 2, 16, 300])),
        min_size=1,
        max_size=20,
    )
)
def test_runs_long_and_short_with_any_gaps(pieces: list[tuple[int, int]]) -> None:
    starts, lasts, wanted, at = [], [], BitMap(), 3
    for size, gap in pieces:
        starts.append(at)
        lasts.append(at + size - 1)
        wanted.add_range(at, at + size)
        at += size + gap
    assert containers.from_runs(np.array(starts, np.int64), np.array(lasts, np.int64)) == wanted
    wanted.run_optimize()
    assert sections.encode(wanted) == sections.encode_members(to_column(wanted))

"""R1, R3, R4, R6 at the level of bytes: what one flush of Pulsar's form puts into a ledger, and
what is read back.

`daemon/tests/format/pulsar/` has the corners and the bad input; the daemon's tests of `format =
"pulsar"` play it on ledgers.
"""

from __future__ import annotations

import json

import numpy as np
import pytest
from pyroaring import BitMap

from cursorkeeper.core import bitmaps
from cursorkeeper.core.limits import MIB
from cursorkeeper.core.positions import Position
from cursorkeeper.core.values import PartialKey
from cursorkeeper.format.pulsar import position_info
from cursorkeeper.format.pulsar.chunks import (
    ChunkFooter,
    Found,
    entries_of,
    newest_state,
    parse_footer,
)
from cursorkeeper.format.pulsar.errors import PulsarFormatError
from cursorkeeper.format.pulsar.values import Compression, Form, PositionInfo
from cursorkeeper.format.whole_state import WholeStateSettings

CHUNK = 1_000
LIMIT = 64 * MIB
CODECS: list[Compression | None] = [None, *Compression]


def state(ledgers: int, entries: int = 5_000, seed: int = 1) -> PositionInfo:
    """Random holes, half-acked batches, properties."""
    rng = np.random.default_rng(seed)
    acked = {
        10 + 3 * n: bitmaps.from_sorted(np.flatnonzero(rng.random(entries) < 0.7).astype(np.uint32))
        for n in range(ledgers)
    }
    batches = {PartialKey(ledger, entries + 1): BitMap([0, 63, 64]) for ledger in acked}
    return PositionInfo(Position(10, -1), acked, batches, {"sequence": 299}, form=Form.LONG_ARRAY)


def read(entries: list[bytes], codec: Compression | None, *, known: int | None = None) -> Found:
    """Plays the ledger that the reader asks."""
    reader = newest_state(
        len(entries) - 1, compression=codec, max_entry_bytes=known, limit_bytes=LIMIT
    )
    asked = next(reader)
    while True:
        try:
            asked = reader.send(entries[asked.first : asked.last + 1])
        except StopIteration as done:
            found: Found = done.value
            return found


@pytest.mark.parametrize("ledgers", [1, 40, 300])
@pytest.mark.parametrize("form", list(Form))
def test_r01_a_state_of_any_size_is_entries_of_bounded_size_and_a_footer(
    ledgers: int, form: Form
) -> None:
    """Up to 1.5 M entries with 30 % holes: more ranges than any frame holds."""
    info = state(ledgers)
    raw = position_info.encode(info, form)
    entries = entries_of(raw, compression=None, max_entry_bytes=64 * 1024, multiple=True)
    assert max(map(len, entries)) <= 64 * 1024
    assert (len(entries) == 1) == (len(raw) < 64 * 1024)
    found = read(entries, None)
    assert (found.info.mark_delete, found.info.acked, found.info.batches) == (
        info.mark_delete,
        info.acked,
        info.batches,
    )
    assert found.info.properties == info.properties


@pytest.mark.parametrize(
    ("length", "entries"),
    [(CHUNK - 1, 1), (CHUNK, 3), (CHUNK + 1, 3), (2 * CHUNK - 1, 3), (2 * CHUNK, 4)],
)
def test_r01_the_threshold_is_exact(length: int, entries: int) -> None:
    """numParts = 1 + length div size, as PIP-381's code has it: an exact multiple ends with an
    empty chunk.
    """
    assert (
        len(entries_of(bytes(length), compression=None, max_entry_bytes=CHUNK, multiple=True))
        == entries
    )
    assert (
        len(entries_of(bytes(length), compression=None, max_entry_bytes=CHUNK, multiple=False)) == 1
    )


def test_r03_the_footer_is_json_and_its_chunks_are_the_entries_before_it() -> None:
    raw = bytes(range(256)) * 10
    *chunks, footer = entries_of(raw, compression=None, max_entry_bytes=CHUNK, multiple=True)
    assert footer == b'{"numParts":3,"length":2560}'
    assert json.loads(footer) == {"numParts": len(chunks), "length": len(raw)}
    assert [len(c) for c in chunks] == [CHUNK, CHUNK, 560] and b"".join(chunks) == raw
    given = bytes.fromhex("7b226e756d5061727473223a332c226c656e677468223a323530303030307d")
    assert parse_footer(given) == ChunkFooter(3, 2_500_000)


@pytest.mark.parametrize("known", [CHUNK, None], ids=["our own ledger", "a foreign ledger"])
def test_r04_the_last_entry_says_how_to_read(known: int | None) -> None:
    small, large = state(1, 500), state(1, 50_000)
    one = entries_of(
        position_info.encode(small, Form.LONG_ARRAY),
        compression=None,
        max_entry_bytes=CHUNK,
        multiple=True,
    )
    several = entries_of(
        position_info.encode(large, Form.LONG_ARRAY),
        compression=None,
        max_entry_bytes=CHUNK,
        multiple=True,
    )
    assert len(one) == 1 and len(several) > 3
    plain = read([*several, *one], None, known=known)
    assert plain.info.acked == small.acked and plain.first_entry == plain.last_entry == len(
        several
    ), "not JSON: a plain state"
    joined = read([*one, *several], None, known=known)
    assert joined.info.acked == large.acked and (joined.first_entry, joined.last_entry) == (
        1,
        len(several),
    ), "JSON: the chunks"
    crashed = read([*one, *several[:-1]], None, known=known)
    assert crashed.info.acked == small.acked, "a crash before the footer: the state before"
    assert [s.entry for s in crashed.skipped] == list(range(len(several) - 1, 0, -1)), (
        "and every step is told"
    )


def test_r04_chunks_that_disagree_with_their_footer_are_no_state() -> None:
    several = entries_of(
        position_info.encode(state(1, 50_000), Form.LONG_ARRAY),
        compression=None,
        max_entry_bytes=CHUNK,
        multiple=True,
    )
    with pytest.raises(PulsarFormatError):
        read([*several[:2], *several[3:]], None, known=CHUNK)


def test_r06_no_compression_is_the_default_and_adds_not_a_byte() -> None:
    assert WholeStateSettings().compression is Compression.NONE
    raw = position_info.encode(state(1), Form.LONG_ARRAY)
    assert entries_of(raw, compression=None, max_entry_bytes=MIB, multiple=True) == [raw]


@pytest.mark.parametrize("multiple", [True, False])
@pytest.mark.parametrize(
    "codec", CODECS, ids=lambda codec: "no key" if codec is None else codec.name
)
def test_r06_any_codec_in_one_entry_or_in_chunks(codec: Compression | None, multiple: bool) -> None:
    info = state(30)
    raw = position_info.encode(info, Form.LONG_ARRAY)
    entries = entries_of(raw, compression=codec, max_entry_bytes=CHUNK, multiple=multiple)
    assert (len(entries) > 2) == multiple
    assert read(entries, codec).info.acked == info.acked
    if codec not in (None, Compression.NONE):
        assert sum(map(len, entries)) < len(raw)

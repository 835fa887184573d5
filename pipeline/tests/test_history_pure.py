"""Records to rows without a system: every ack once, every kind, damage told; and what a time
selects.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import numpy as np
import pyarrow as pa
import pytest
from google_crc32c import value as crc32c
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap

from cursorkeeper.bookkeeper.errors import GatewayRefused, Outcome
from cursorkeeper.bookkeeper.port import Digest, LedgerInfo, LedgerState
from cursorkeeper.core.errors import DamageError
from cursorkeeper.core.footer import ChainLedger, EmptyBase, Footer, FooterState
from cursorkeeper.core.names import CursorName
from cursorkeeper.core.positions import FIRST, Position
from cursorkeeper.core.values import (
    CursorProperties,
    Delta,
    LayoutItem,
    LayoutState,
    MarkDeleteProperties,
    OpenRecord,
    Partial,
    PartialKey,
    Record,
    Stamp,
)
from cursorkeeper.format import record
from cursorkeeper.inspection.reader import End
from cursorkeeper_pipeline import schemas
from cursorkeeper_pipeline.decode import deltas
from cursorkeeper_pipeline.decode.columns import BATCH_ROWS, Batches
from cursorkeeper_pipeline.decode.deltas import Where
from cursorkeeper_pipeline.decode.extents import runs_in_blocks
from cursorkeeper_pipeline.source.history import LIST_BYTES, ended_us, lists
from cursorkeeper_pipeline.source.window import Window, moment_us

NAME = CursorName("persistent://t/ns/topic", "sub")
WHERE = Where(5, 77, 1_000_000, 3)
LARGEST = (1 << 32) - 1


def entry(delta: Delta, sequence: int = 1) -> bytes:
    return record.encode(Record(NAME.record_hash, 2, 1, sequence, delta))


def table(pieces: list[deltas.Piece]) -> list[dict]:
    batches = Batches(schemas.DELTAS)
    made = [*batches.add(deltas.columns(pieces)), *batches.rest()] if pieces else []
    found = pa.Table.from_batches(made, schema=schemas.DELTAS)
    found.validate(full=True)
    return found.to_pylist()


def read(where: Where, records: list, cursor_hash: int) -> list[deltas.Piece]:
    return [
        piece
        for entry, payload in records
        for piece in deltas.read(where, entry, payload, cursor_hash)
    ]


@given(st.sets(st.one_of(st.integers(0, 300), st.integers(LARGEST - 40, LARGEST)), min_size=1))
def test_runs_are_maximal_and_hold_every_entry_once(entries: set[int]) -> None:
    some = list(runs_in_blocks(BitMap(entries), 3))
    assert max(len(first) for first, _ in some) <= 3
    first, last = (np.concatenate(columns) for columns in zip(*some, strict=True))
    assert [
        x for a, b in zip(first.tolist(), last.tolist(), strict=True) for x in range(a, b + 1)
    ] == sorted(entries)
    assert np.all(first[1:] > last[:-1] + 1)


def test_every_kind_of_row() -> None:
    stamp = Stamp(1, 1)
    delta = Delta(
        Position(7, 3),
        MarkDeleteProperties(stamp, {"a": 1}),
        CursorProperties(stamp, {"b": "c"}),
        (LayoutItem(7, LayoutState.CLOSED, 50), LayoutItem(9, LayoutState.OPEN, 0)),
        {7: BitMap([5, 6, 9]), 9: BitMap([0])},
        {PartialKey(9, 4): Partial(3, BitMap([1]))},
    )
    opening = record.encode(
        Record(NAME.record_hash, 2, 1, 0, OpenRecord(NAME.canonical, 2, 1, "w"))
    )
    found = table(read(WHERE, [(0, opening), (1, entry(delta))], NAME.record_hash))
    said = [(r["kind"], r["ledger_id"], r["first_entry"], r["last_entry"]) for r in found]
    assert said == [
        ("ack", 7, 5, 6),
        ("ack", 7, 9, 9),
        ("ack", 9, 0, 0),
        ("mark_delete", 7, 3, 3),
        ("partial", 9, 4, 4),
        ("properties", None, None, None),
        ("properties", None, None, None),
        ("layout", 7, 0, 49),
        ("layout", 9, 0, -1),
    ]
    shared = {
        (
            r["cursor_key"],
            r["bk_ledger"],
            r["bk_entry"],
            r["sequence"],
            r["epoch"],
            r["generation"],
            r["footer_version"],
        )
        for r in found
    }
    assert shared == {(5, 77, 1, 1, 2, 1, 3)}
    assert {r["at"] for r in found} == {None} and found[0]["ledger_created"].timestamp() == 1


def test_damage_is_raised_before_a_row_is_made() -> None:
    good = entry(Delta(acks={7: BitMap([1])}))
    bad, newer = bytearray(good), bytearray(good)
    bad[-1] ^= 1
    newer[2] = 99
    refused = GatewayRefused("DIGEST_MISMATCH", Outcome.NOT_DONE, ledger=77)
    for payload, kind, said in (
        (bytes(bad), "damaged", "crc32c"),
        (bytes(newer), "too_new", "version 99"),
        (refused, "damaged", "DIGEST_MISMATCH"),
    ):
        with pytest.raises((DamageError, GatewayRefused), match=said) as told:
            deltas.read(WHERE, 2, payload, NAME.record_hash)
        assert deltas.KINDS[deltas.damage(told.value)] == kind
    with pytest.raises(DamageError, match="another cursor"):
        deltas.read(WHERE, 2, good, 1)


def test_a_body_that_makes_no_sense_under_a_right_checksum_is_damage() -> None:
    body = b"\xff\xff\xff"
    head = record.HEADER.pack(
        record.MAGIC, record.VERSION, record.Kind.DELTA, 0, NAME.record_hash, 2, 1, 9, len(body), 0
    )
    odd = head[: record.CRC_AT] + crc32c(head + body).to_bytes(4, "little") + body
    with pytest.raises(DamageError):
        deltas.read(WHERE, 1, odd, NAME.record_hash)


def test_batches_are_bounded_and_lose_nothing() -> None:
    wide = entry(Delta(acks={7: BitMap(range(0, 400_000, 2))}))
    joined = Batches(schemas.DELTAS)
    batches = []
    for at in range(3):
        batches += joined.add(deltas.columns(read(WHERE, [(at, wide)], NAME.record_hash)))
    batches += joined.rest()
    assert (
        sum(b.num_rows for b in batches) == 600_000
        and max(b.num_rows for b in batches) <= BATCH_ROWS
    )
    firsts = np.concatenate([b["first_entry"].to_numpy() for b in batches])
    assert np.array_equal(firsts, np.tile(np.arange(0, 400_000, 2), 3))


async def test_records_that_expand_beyond_measure_are_read_in_bounded_lists() -> None:
    """Each of them is a few dozen stored bytes; together their ranges are a hundred times what may
    be held.
    """
    wide = entry(Delta(acks={7: BitMap(np.arange(0, 1 << 21, 2, dtype=np.uint32))}))
    assert len(wide) < 200
    partials = entry(
        Delta(partials={PartialKey(7, at): Partial(3, BitMap([1])) for at in range(30_000)})
    )

    async def pieces() -> AsyncIterator[deltas.Piece]:
        for at, payload in enumerate([wide, partials, *[wide] * 28]):
            for piece in deltas.read(WHERE, at, payload, NAME.record_hash):
                yield piece

    ranges = 0
    async for some in lists(pieces()):
        ranges += sum(piece.first.size for piece in some)
        assert sum(piece.size_bytes for piece in some) < 2 * LIST_BYTES
        assert len(some) <= LIST_BYTES // deltas.PIECE_BYTES + 1
    assert ranges == 29 * (1 << 20) + 30_000


# ---- times


def test_moments() -> None:
    assert moment_us("since", "") is None
    assert moment_us("since", "1795219200.5") == 1_795_219_200_500_000
    for same in (
        "2026-11-21",
        "20261121",
        "2026-11-21T00:00:00Z",
        "2026-11-21T01:00+01:00",
        "20261121T000000",
        "1795219200",
        "1795219200.0",
    ):
        assert moment_us("since", same) == 1_795_219_200_000_000
    assert moment_us("until", "1970-01-01T01:00:00+01:00") == 0


@pytest.mark.parametrize(
    "text",
    ["yesterday", "nan", "inf", "-1", "0", "2026", "202611", "20261399", "1763719200000", "1e300"],
)
def test_what_may_mean_something_else_is_no_time(text: str) -> None:
    with pytest.raises(ValueError, match=rf"until = '{text}' is no time.*ISO 8601"):
        moment_us("until", text)


def test_only_what_certainly_lies_outside_is_left_out() -> None:
    window = Window(100, 200)
    assert window.may_hold(50, 100) and not window.may_hold(50, 99)
    assert window.may_hold(50, None) and window.may_hold(0, 1_000)
    assert window.may_hold(199, None) and not window.may_hold(200, None)
    assert Window().may_hold(0, 0)


def test_a_ledger_ends_before_the_next_one_is_made_or_its_footer_was_written() -> None:
    def end(created_ms: int) -> End:
        return End(
            5, True, LedgerInfo(0, 3, 3, 2, Digest.CRC32C, LedgerState.CLOSED, 5, 9, created_ms)
        )

    chain = (ChainLedger(1, 5), ChainLedger(2, 5), ChainLedger(3))
    footer = Footer(
        NAME.topic,
        NAME.subscription,
        FooterState.OPEN,
        1,
        "w",
        1,
        1,
        FIRST,
        EmptyBase(FIRST),
        chain,
    )
    ends = {1: end(10), 2: end(20), 3: end(30)}
    assert [ended_us(footer, ledger, ends, 25_000) for ledger in ends] == [20_000, 25_000, None]
    assert ended_us(footer, 1, {1: end(10), 2: End(-1, True, None)}, 99_000) == 99_000

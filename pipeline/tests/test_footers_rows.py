"""Footers as rows: every column says what the footer or its znode says; what cannot be read is a
row and never the end of a batch.
"""

from __future__ import annotations

import string
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cursorkeeper.core.errors import DamageError, TooNewError
from cursorkeeper.core.footer import (
    ChainLedger,
    EmptyBase,
    Footer,
    FooterState,
    InlineBase,
    Previous,
    SnapshotBase,
    Stats,
    Truncation,
)
from cursorkeeper.core.names import CursorName
from cursorkeeper.core.positions import BEFORE_FIRST, Position
from cursorkeeper.core.values import Segment
from cursorkeeper.zookeeper.values import Stat
from cursorkeeper_pipeline.decode import footer_rows
from cursorkeeper_pipeline.decode.columns import Row
from cursorkeeper_pipeline.decode.columns import batches as batches_of
from cursorkeeper_pipeline.decode.footer_rows import Found
from cursorkeeper_pipeline.keys import cursor_key
from cursorkeeper_pipeline.schemas import CURSORS, SEGMENTS
from pipeline.tests.fleet_maker import footer_of, name_of

NAME = CursorName("persistent://tenant/ns/topic-partition-3", "sub|x")
STAT = Stat(1, 2, 1_700_000_000_123, 1_700_000_001_456, 41, 0, 0, 0, 615, 0, 9)
READ_AT = 1_700_000_002_000_007
SNAPSHOT = SnapshotBase(88, 5, 9, 4, 123_456, 7)
FULL = footer_of(
    NAME,
    base=SNAPSHOT,
    chain=(ChainLedger(88, 812), ChainLedger(90, BEFORE_FIRST), ChainLedger(91)),
    mark_delete=Position(7, BEFORE_FIRST),
    previous=Previous(SnapshotBase(70, 1, 3, 2, 999, 8), (ChainLedger(70, 3), ChainLedger(88))),
    writer="w",
    truncated=Truncation(1, 0, 0, "x"),
    stats=Stats(1, 2, 3, 4, 5, 6),
)


def checked(rows: Iterator[Row], schema: pa.Schema) -> list[dict[str, Any]]:
    found = []
    for batch in batches_of(rows, schema, 100):
        batch.validate(full=True)
        assert batch.schema.equals(schema, check_metadata=True)
        found += batch.to_pylist()
    return found


def cursor_rows(*read: Found) -> list[dict[str, Any]]:
    return checked(footer_rows.cursors(read), CURSORS)


def segment_rows(*read: Found) -> list[dict[str, Any]]:
    return checked(footer_rows.segments(read), SEGMENTS)


def test_every_column_of_a_cursor() -> None:
    assert cursor_rows(Found(NAME, FULL, STAT, READ_AT)) == [
        {
            "cursor_key": cursor_key(NAME),
            "cursor": "persistent://tenant/ns/topic-partition-3|sub|x",
            "tenant": "tenant",
            "namespace": "tenant/ns",
            "topic": NAME.topic,
            "subscription": "sub|x",
            "state": "open",
            "epoch": 3,
            "generation": 1,
            "writer": "w",
            "format": "pulsar",
            "footer_version": 41,
            "footer_created": datetime(2023, 11, 14, 22, 13, 20, 123_000, UTC),
            "footer_modified": datetime(2023, 11, 14, 22, 13, 21, 456_000, UTC),
            "footer_bytes": 615,
            "read_at": datetime(2023, 11, 14, 22, 13, 22, 7, UTC),
            "mark_delete_ledger": 7,
            "mark_delete_entry": -1,
            "base": "snapshot",
            "snapshot_bytes": 123_456,
            "snapshot_segments": 4,
            "chain_ledgers": 3,
            "has_previous": True,
            "delta_bytes": 6,
            "data_ledgers": 1,
            "span_entries": 2,
            "hole_entries": 3,
            "hole_runs": 4,
            "partial_batches": 5,
            "truncated": True,
            "status": "OK",
            "error": None,
        }
    ]


def test_what_must_be_read_in_order() -> None:
    rows = segment_rows(Found(NAME, FULL, STAT, READ_AT))
    assert [
        (r["segment_no"], r["role"], r["bk_ledger"], r["first_entry"], r["last_entry"], r["bytes"])
        for r in rows
    ] == [
        (0, "snapshot", 88, 5, 9, 123_456),
        (1, "chain", 88, 0, 812, None),
        (2, "chain", 90, 0, -1, None),
        (3, "chain", 91, 0, None, None),
        (4, "previous_snapshot", 70, 1, 3, 999),
        (5, "previous_chain", 70, 0, 3, None),
        (6, "previous_chain", 88, 0, None, None),
    ]
    assert {(r["cursor_key"], r["footer_version"], r["status"], r["error"]) for r in rows} == {
        (cursor_key(NAME), 41, "OK", None)
    }


@pytest.mark.parametrize(
    ("base", "said"),
    [
        (EmptyBase(Position(7, 4)), "empty"),
        (InlineBase(Segment(), 3, 1, 9), "inline"),
        (SNAPSHOT, "snapshot"),
    ],
)
def test_bases(base: Any, said: str) -> None:
    (row,) = cursor_rows(
        Found(NAME, replace(FULL, base=base, previous=None, chain=()), STAT, READ_AT)
    )
    assert (row["base"], row["snapshot_segments"], row["chain_ledgers"], row["has_previous"]) == (
        said,
        4 * (said == "snapshot"),
        0,
        False,
    )
    assert len(
        segment_rows(Found(NAME, replace(FULL, base=base, previous=None, chain=()), STAT, READ_AT))
    ) == (said == "snapshot")


@pytest.mark.parametrize(
    ("error", "status"),
    [(DamageError("flipped", "footer"), "DAMAGED"), (TooNewError("v99", "footer"), "TOO_NEW")],
)
def test_a_footer_that_cannot_be_read_is_one_row(error: DamageError, status: str) -> None:
    read = Found(NAME, error, STAT, READ_AT)
    row, good = cursor_rows(read, Found(NAME, FULL, STAT, READ_AT))
    assert (row["status"], row["error"]) == (status, str(error)) and str(error).startswith(
        "footer: "
    )
    same = {
        "cursor_key",
        "cursor",
        "tenant",
        "namespace",
        "topic",
        "subscription",
        "footer_version",
        "footer_created",
        "footer_modified",
        "footer_bytes",
        "read_at",
    }
    assert all(row[column] == good[column] for column in same)
    assert {value for column, value in row.items() if column not in same | {"status", "error"}} == {
        None
    }, "a zero would be a number"
    (segment,) = segment_rows(read)
    assert (segment["role"], segment["bk_ledger"], segment["last_entry"], segment["status"]) == (
        None,
        None,
        None,
        status,
    )


def test_tombstones_keep_their_state() -> None:
    (row,) = cursor_rows(Found(NAME, replace(FULL, state=FooterState.DELETED), STAT, READ_AT))
    assert row["state"] == "deleted"


@pytest.mark.parametrize(
    ("topic", "place"),
    [
        ("persistent://t/ns/x", ("t", "t/ns")),
        ("persistent://t/cluster/ns/x", ("t", "t/cluster/ns")),
        ("persistent://t/c/ns/a/b", ("t", "t/c/ns")),
        ("non-persistent://t/ns/x", ("", "")),
        ("t/ns/x", ("", "")),
        ("persistent://t//x", ("", "")),
    ],
)
def test_tenant_and_namespace(topic: str, place: tuple[str, str]) -> None:
    assert footer_rows.place_of(topic) == place


def test_no_text_makes_a_batch_fail() -> None:
    rows = cursor_rows(
        Found(NAME, replace(FULL, writer="\ud800half"), STAT, READ_AT),
        Found(NAME, FULL, STAT, READ_AT),
    )
    assert [row["writer"] for row in rows] == ["?half", "w"]
    (damaged,) = cursor_rows(Found(NAME, DamageError("a \udfff text"), STAT, READ_AT))
    assert damaged["error"] == "a ? text"


def test_numbers_at_their_limits() -> None:
    most = (1 << 63) - 1
    footer = footer_of(
        NAME,
        epoch=most,
        base=SnapshotBase(most, most, most, most, most, 0),
        stats=Stats(*[most] * 6),
    )
    (row,) = cursor_rows(Found(NAME, footer, STAT, READ_AT))
    assert (row["epoch"], row["span_entries"], row["snapshot_segments"]) == (
        most,
        most,
        (1 << 31) - 1,
    )


@given(st.lists(st.tuples(st.text(string.printable, min_size=1), st.text(min_size=1)), max_size=30))
def test_keys_are_those_of_other_tables(names: list[tuple[str, str]]) -> None:
    read = [
        Found(name, footer_of(name), STAT, READ_AT)
        for name in (CursorName(*pair) for pair in names)
    ]
    assert [row["cursor_key"] for row in cursor_rows(*read)] == [
        cursor_key(one.name) for one in read
    ]


def test_batches_are_bounded_and_nothing_is_lost() -> None:
    read = [Found(name_of(at), footer_of(name_of(at), at), STAT, READ_AT) for at in range(1_000)]
    batches = list(batches_of(footer_rows.cursors(read), CURSORS, 256))
    assert [batch.num_rows for batch in batches] == [256, 256, 256, 232]
    assert pa.Table.from_batches(batches)["cursor"].to_pylist() == [
        one.name.display for one in read
    ]
    assert list(batches_of([], CURSORS, 256)) == []


def test_the_footers_of_tests_are_footers() -> None:
    assert (
        isinstance(FULL, Footer)
        and FULL.format == "pulsar"
        and len({name_of(at) for at in range(100)}) == 100
    )

"""The broker's own words: read by columns, never believed."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap

from cursorkeeper.assess.internals import (
    InternalsError,
    TopicInternals,
    parse,
    parse_ranges,
    read_json,
)
from cursorkeeper.core.positions import Position
from cursorkeeper.format.pulsar.values import Form, PositionInfo

LEDGERS = [
    {"ledgerId": 12, "entries": 100, "size": 1, "offloaded": False},
    {"ledgerId": 15, "entries": 0, "size": 0},
]


def told(**cursor: Any) -> dict[str, Any]:
    """One topic's answer with one cursor."""
    full = {
        "markDeletePosition": "12:4",
        "individuallyDeletedMessages": "[]",
        "state": "Open",
    } | cursor
    return {"ledgers": LEDGERS, "currentLedgerEntries": 7, "cursors": {"sub": full}}


def only(value: dict[str, Any]) -> PositionInfo | InternalsError:
    return parse(value).cursors["sub"]


def text_of(acked: dict[int, BitMap]) -> str:
    """As Pulsar's range set prints itself."""
    ranges = []
    for ledger, entries in acked.items():
        runs: list[list[int]] = []
        for entry in entries:
            if runs and runs[-1][1] == entry - 1:
                runs[-1][1] = entry
            else:
                runs.append([entry, entry])
        ranges += [f"({ledger}:{first - 1}..{ledger}:{last}]" for first, last in runs]
    return f"[{','.join(ranges)}]"


def test_what_pulsar_prints_is_read() -> None:
    found = only(told(individuallyDeletedMessages="[(12:5..12:7],(12:8..12:9],(15:-1..15:2]]"))
    assert found == PositionInfo(
        Position(12, 4), {12: BitMap([6, 7, 9]), 15: BitMap([0, 1, 2])}, form=Form.RANGES
    )
    assert parse(told()).entries_by_ledger == {12: 100, 15: 7}


@pytest.mark.parametrize(
    ("text", "fits"),
    [
        ("[(12:5..12:99]]", True),
        ("[(12:5..12:100]]", False),
        ("[(15:-1..15:9000]]", True),
        ("[(15:5..15:4000000000]]", False),
        ("[(16:-1..16:0]]", True),
        ("[(16:-1..16:4000000000]]", False),
        ("[(13:-1..13:5]]", True),
    ],
)
def test_acks_beyond_the_topic_are_refused(text: str, fits: bool) -> None:
    """A ledger that was trimmed may still be named; the open one may have grown meanwhile."""
    assert isinstance(only(told(individuallyDeletedMessages=text)), PositionInfo) is fits


def test_nothing_below_mark_delete_is_kept() -> None:
    found = only(told(individuallyDeletedMessages="[(11:-1..11:5],(12:2..12:6]]"))
    assert isinstance(found, PositionInfo) and found.acked == {12: BitMap([5, 6])}


@given(
    st.dictionaries(
        st.integers(12, 15), st.sets(st.integers(0, 400), min_size=1).map(BitMap), max_size=4
    ),
    st.booleans(),
)
def test_any_set_comes_back(acked: dict[int, BitMap], long: bool) -> None:
    if long:
        for entries in acked.values():
            entries.add_range(1_000, 90_000)
    assert parse_ranges(text_of(dict(sorted(acked.items()))), Position(11, 3)) == acked


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[",
        "]",
        "[]]",
        "[()]",
        "[(12:5..12:7]",
        "[(12:5..12:7],]",
        "[(12:5..12:7] (12:8..12:9]]",
        "[(12:7..12:5]]",
        "[(12:5..12:5]]",
        "[(12:5..13:7]]",
        "[(12:-2..12:7]]",
        "[(12:5..12:99999999999]]",
        "[(12:5..12:]]",
        "[(12:--5..12:7]]",
        "[(1-2:5..12:7]]",
        "[(:..:]]",
        "[(12:5..12:7],(12:5..:7]]",
        "[(12:5..12:99999999999999999999]]",
        "[(12:5‥12:7]]",
        "[(-3:5..-3:7]]",
        None,
        7,
        ["(12:5..12:7]"],
    ],
)
def test_what_is_no_list_of_ranges_is_this_cursors_error(text: Any) -> None:
    found = only(told(individuallyDeletedMessages=text))
    assert isinstance(found, InternalsError) and "individuallyDeletedMessages" in str(found)


@given(st.text(alphabet="[](),.:-0123456789", max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    found = only(told(individuallyDeletedMessages=text))
    if isinstance(found, PositionInfo):
        assert all(found.acked.values())


@pytest.mark.parametrize(
    "text", ["", "12", "12:", ":4", "12:-2", "a:4", "12:4:5", "12:99999999999", None, 12]
)
def test_a_mark_delete_that_is_none(text: Any) -> None:
    found = only(told(markDeletePosition=text))
    assert isinstance(found, InternalsError) and "markDeletePosition" in str(found)


def test_one_bad_cursor_leaves_the_others_alone() -> None:
    value = told()
    value["cursors"] |= {
        "bad": 7,
        "worse": {},
        "fine": {"markDeletePosition": "12:9", "individuallyDeletedMessages": "[]"},
    }
    found = parse(value).cursors
    assert isinstance(found["bad"], InternalsError) and isinstance(found["worse"], InternalsError)
    assert found["fine"] == PositionInfo(Position(12, 9)) and isinstance(found["sub"], PositionInfo)


@pytest.mark.parametrize(
    "change",
    [
        {"ledgers": None},
        {"ledgers": [7]},
        {"ledgers": [{"ledgerId": "12"}]},
        {"ledgers": LEDGERS[::-1]},
        {"ledgers": [{"ledgerId": -1}]},
        {"ledgers": [{"ledgerId": 12, "entries": 1 << 40}]},
        {"ledgers": [{"ledgerId": True}]},
        {"cursors": []},
        {"currentLedgerEntries": -1},
    ],
)
def test_a_broken_answer_is_refused_whole(change: dict[str, Any]) -> None:
    with pytest.raises(InternalsError, match=r"ledgers|cursors|currentLedgerEntries"):
        parse(told() | change)


def test_what_is_no_answer_at_all() -> None:
    with pytest.raises(InternalsError, match="not JSON"):
        read_json(b"<html>", "the answer")
    with pytest.raises(InternalsError, match="not JSON"):
        read_json(b"[" * 100_000, "the answer")
    for value in (7, [], {}, {"cursors": {}}, None):
        with pytest.raises(InternalsError, match="internalStats"):
            parse(value)


@pytest.mark.slow
def test_a_million_ranges_are_read_in_seconds() -> None:
    text = (
        "["
        + ",".join(
            f"({12 + n // 5_000}:{10 * (n % 5_000)}..{12 + n // 5_000}:{10 * (n % 5_000) + 9}]"
            for n in range(1_000_000)
        )
        + "]"
    )
    begin = time.process_time()
    found = parse_ranges(text, Position(11, 0))
    assert time.process_time() - begin < 20
    assert sum(map(len, found.values())) == 9_000_000


def test_an_empty_topic() -> None:
    assert parse({"ledgers": [], "cursors": {}}) == TopicInternals({}, {})

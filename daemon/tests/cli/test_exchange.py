"""The JSON lines by themselves: what goes out comes back, and every way to spoil a file is named
with its line.
"""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap

from cursorkeeper.core.footer import EmptyBase, Footer, FooterState
from cursorkeeper.core.positions import Position
from cursorkeeper.core.state import AckState
from cursorkeeper.core.values import (
    CursorProperties,
    Delta,
    LayoutItem,
    LayoutState,
    MarkDeleteProperties,
    Partial,
    PartialKey,
    Stamp,
)
from cursorkeeper.inspection import state_view
from cursorkeeper.migration import exchange, export_file
from cursorkeeper.migration.exchange import AcksLine, parse
from cursorkeeper.problems import ProblemError
from cursorkeeper.terminal.failure import USAGE, exit_code
from cursorkeeper.terminal.output import Bar

FOOTER = Footer(
    "persistent://t/ns/a",
    "s",
    FooterState.CLOSED,
    3,
    "w",
    1,
    2,
    Position(7, 4),
    EmptyBase(Position(7, 4)),
)


def state(entries: set[int], *, mark_delete: int = -1) -> AckState:
    made = AckState(Position(7, mark_delete))
    made.join_delta(Delta(acks={7: BitMap(entries)} if entries else {}))
    return made


def ranges_of(made: AckState) -> list[list[int]]:
    return [row for rows in state_view.acked_runs(made, 7) for row in rows.tolist()]


@given(st.sets(st.integers(0, 300)), st.integers(-1, 40), st.integers(1, 64))
def test_runs_are_maximal_whatever_the_window(
    entries: set[int], mark_delete: int, window: int
) -> None:
    made = state(entries, mark_delete=mark_delete)
    if 7 not in made.ledgers:
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(state_view, "WINDOW_ENTRIES", window)
        found = ranges_of(made)
    assert [e for first, last in found for e in range(first, last + 1)] == sorted(
        e for e in entries if e > mark_delete
    )
    assert all(second[0] > first[1] + 1 for first, second in pairwise(found))


def test_a_file_reads_well() -> None:
    made = state({5, 6, 9}, mark_delete=3)
    made.join_delta(
        Delta(
            partials={PartialKey(7, 12): Partial(10, BitMap([1, 4]))},
            layout=(LayoutItem(7, LayoutState.CLOSED, 20), LayoutItem(8, LayoutState.OPEN, 0)),
            cursor_properties=CursorProperties(Stamp(1, 1), {"a": "b"}),
            mark_delete_properties=MarkDeleteProperties(Stamp(1, 1), {"n": -3}),
        )
    )
    lines = [json.loads(x) for x in exchange.lines_of(FOOTER, made)]
    assert lines == [
        {
            "type": "cursor",
            "format": 1,
            "topic": "persistent://t/ns/a",
            "subscription": "s",
            "markDelete": [7, 3],
            "epoch": 3,
            "generation": 2,
            "markDeleteProperties": {"n": -3},
            "cursorProperties": {"a": "b"},
            "layout": [[7, "CLOSED", 20], [8, "OPEN", 0]],
        },
        {"type": "acks", "ledger": 7, "ranges": [[5, 6], [9, 9]]},
        {"type": "partial", "ledger": 7, "entry": 12, "missing": [1, 4], "batchSize": 10},
        {"type": "end", "acked": 3, "partials": 1, "lines": 3},
    ]


def test_long_states_take_several_lines() -> None:
    made = state(set(range(0, 60_000, 2)), mark_delete=-1)
    made.join_delta(
        Delta(layout=tuple(LayoutItem(n, LayoutState.CLOSED, 100_000) for n in range(7, 25_007)))
    )
    lines = list(parse(exchange.lines_of(FOOTER, made), "f"))
    acks = [x for x in lines if isinstance(x, AcksLine)]
    assert [len(x.ranges) for x in acks] == [10_000, 10_000, 10_000]
    assert len([x for x in lines if isinstance(x, exchange.LayoutLine)]) == 2
    assert exchange.range_column(acks[0]).dtype == np.uint32


GOOD = [bytes(x) for x in exchange.lines_of(FOOTER, state({5, 6, 9}, mark_delete=3))]


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        ([], "no end line"),
        (GOOD[:-1], "no end line"),
        (GOOD[1:], "line 1: the first line is no header"),
        ([GOOD[0], GOOD[0], *GOOD[1:]], "line 2: the header is not the first line"),
        ([GOOD[0], GOOD[2]], "end line says"),
        ([*GOOD, GOOD[1]], "line 4: there is something after the end line"),
        ([GOOD[0], b"{", *GOOD[2:]], "line 2:"),
        (
            [GOOD[0].replace(b'"format":1', b'"format":2'), *GOOD[1:]],
            "format 2, this program reads 1",
        ),
        ([GOOD[0].replace(b'"format":1', b'"format":1,"colour":1'), *GOOD[1:]], "colour"),
        ([GOOD[0], GOOD[1].replace(b"[9,9]", b"[9,8]"), GOOD[2]], "range [9, 8]"),
        ([GOOD[0], GOOD[1].replace(b"[9,9]", b"[6,9]"), GOOD[2]], "range [6, 9]"),
        ([GOOD[0], GOOD[1].replace(b"[9,9]", b"[9,4294967296]"), GOOD[2]], "range [9, 4294967296]"),
        ([GOOD[0], GOOD[1].replace(b'"ledger":7', b'"ledger":-7'), GOOD[2]], "ledger id -7"),
        ([GOOD[0], GOOD[1].replace(b"[9,9]", b"[9,10]"), GOOD[2]], "holds 2 lines with 4 acked"),
        ([GOOD[0].replace(b"[7,3]", b"[7,-2]"), *GOOD[1:]], "mark-delete entry -2"),
        (
            [GOOD[0], b'{"type":"partial","ledger":7,"entry":1,"missing":[]}', GOOD[2]],
            "misses nothing",
        ),
        (
            [
                GOOD[0],
                b'{"type":"partial","ledger":7,"entry":1,"missing":[3],"batchSize":3}',
                GOOD[2],
            ],
            "no index 3",
        ),
        ([GOOD[0], b'{"type":"noise"}', GOOD[2]], "noise"),
    ],
)
def test_spoilt_files_are_refused_with_the_line(
    lines: list[bytes], says: str, tmp_path: Path
) -> None:
    file = tmp_path / "f.jsonl"
    file.write_bytes(b"\n".join(x.strip() for x in lines))
    with pytest.raises(ProblemError) as error:
        export_file.scan(file, "f.jsonl", None, Bar("t"))
    assert says in error.value.problem.message and "f.jsonl" in error.value.problem.message
    assert exit_code(error.value.problem) == USAGE and error.value.problem.remedy


def test_blank_lines_do_no_harm(tmp_path: Path) -> None:
    file = tmp_path / "f.jsonl"
    file.write_bytes(b"\n\n".join(GOOD))
    assert export_file.scan(file, "f", None, Bar("t")).end.acked == 3

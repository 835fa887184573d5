"""Repair, comparison, journal and limits, each by itself."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap

from cursorkeeper.bookkeeper.port import LedgerSpec
from cursorkeeper.core.positions import Position
from cursorkeeper.core.values import LayoutItem, LayoutState, PartialKey, Stamp
from cursorkeeper.format.pulsar.states import to_ack_state
from cursorkeeper.format.pulsar.values import Form, PositionInfo
from cursorkeeper.migration.compare import Difference, difference
from cursorkeeper.migration.errors import MigrationError
from cursorkeeper.migration.journal import Journal, JournalError
from cursorkeeper.migration.patience import Patience
from cursorkeeper.migration.pulsar_writer import limited
from cursorkeeper.migration.repair import is_beyond, repair
from cursorkeeper.problems import Kind
from cursorkeeper.zookeeper.errors import OutcomeUnknown

LAYOUT = (
    LayoutItem(7, LayoutState.CLOSED, 100),
    LayoutItem(9, LayoutState.CLOSED, 0),
    LayoutItem(12, LayoutState.OPEN, 0),
)


def at(ledger: int, entry: int, **more: object) -> PositionInfo:
    return PositionInfo(Position(ledger, entry), **more)  # type: ignore[arg-type]


# ---- patience


@pytest.mark.parametrize(("failures", "tries"), [(0, 1), (1, 2), (2, 2)])
async def test_a_second_try_follows_however_long_the_first_one_took(
    failures: int, tries: int
) -> None:
    """Its caller may have stood still while it was under way: that its time is over says nothing of
    the system.
    """
    said: list[str] = []
    calls = 0

    async def call() -> int:
        nonlocal calls
        calls += 1
        if calls <= failures:
            raise OutcomeUnknown("no answer within 10 s")
        return calls

    patience = Patience(0, said.append)
    if failures < 2:
        assert await patience.repeat("a cursor", call) == tries
        assert said == (
            ["waiting for ZooKeeper: OutcomeUnknown no answer within 10 s", ""] if failures else []
        )
    else:
        with pytest.raises(MigrationError, match="a cursor: waited 0 s for ZooKeeper") as told:
            await patience.repeat("a cursor", call)
        assert told.value.kind is Kind.AWAY
    assert calls == tries


# ---- repair


@pytest.mark.parametrize(
    ("given_at", "wanted"),
    [
        ((7, 3), (7, 3)),
        ((7, -1), (7, -1)),
        ((7, 99), (7, 99)),
        ((7, 100), (7, 99)),
        ((3, 5), (7, -1)),
        ((8, -1), (9, -1)),
        ((9, -1), (9, -1)),
        ((9, 0), (9, -1)),
        ((10, 4), (12, -1)),
        ((12, 1 << 20), (12, 1 << 20)),
        ((13, 0), (12, 8)),
    ],
)
def test_positions_that_the_topic_does_not_have(
    given_at: tuple[int, int], wanted: tuple[int, int]
) -> None:
    fitted, done = repair(at(*given_at), LAYOUT, Position(12, 8))
    assert fitted.mark_delete == wanted and bool(done) == (given_at != wanted)
    assert is_beyond(Position(*given_at), LAYOUT) == (given_at[0] > 12)


def test_the_end_must_be_known_where_it_counts() -> None:
    with pytest.raises(ValueError, match="behind the topic's last ledger 12"):
        repair(at(13, 0), LAYOUT)


def test_acks_of_entries_that_do_not_exist_are_dropped_and_told() -> None:
    acked = {7: BitMap([5, 99, 100, 300]), 8: BitMap([1]), 12: BitMap([70_000]), 13: BitMap([0, 1])}
    batches = {
        PartialKey(7, 100): BitMap([1]),
        PartialKey(7, 50): BitMap([2]),
        PartialKey(8, 3): BitMap([1]),
        PartialKey(12, 1): BitMap([4]),
    }
    fitted, done = repair(at(7, 3, acked=acked, batches=batches, form=Form.RANGES), LAYOUT)
    assert fitted.acked == {7: BitMap([5, 99]), 12: BitMap([70_000])}
    assert set(fitted.batches) == {PartialKey(7, 50), PartialKey(12, 1)}
    assert len(done) == 5 and "2 acked entries behind the end of ledger 7" in done[0]


def test_a_topic_without_ledgers_changes_nothing() -> None:
    info = at(7, 3)
    assert repair(info, ())[0] is info and not is_beyond(Position(99, 0), ())


@given(
    st.dictionaries(st.sampled_from([7, 12]), st.sets(st.integers(0, 99), min_size=1), max_size=2),
    st.tuples(st.sampled_from([7, 12]), st.integers(-1, 99)),
)
def test_what_fits_is_not_touched(acked: dict[int, set[int]], mark_delete: tuple[int, int]) -> None:
    found = {
        n: BitMap(e for e in entries if (n, e) > mark_delete)
        for n, entries in sorted(acked.items())
        if n >= mark_delete[0]
    }
    info = at(*mark_delete, acked={n: b for n, b in found.items() if b}, form=Form.RANGES)
    assert repair(info, LAYOUT) == (info, [])


# ---- comparison


def compared(
    one: PositionInfo,
    other: PositionInfo,
    properties: dict[str, str] | None = None,
    others: dict[str, str] | None = None,
) -> Difference:
    return difference(
        to_ack_state(one, LAYOUT, stamp=Stamp(1, 0), cursor_properties=properties),
        to_ack_state(other, (), stamp=Stamp(7, 9), cursor_properties=others),
    )


def test_the_same_however_it_is_written() -> None:
    info = at(
        7,
        3,
        acked={7: BitMap([9, 10])},
        batches={PartialKey(7, 20): BitMap([1])},
        properties={"a": 1},
    )
    assert not compared(info, info) and str(compared(info, info)) == "nothing differs"
    assert not compared(at(7, 99), at(12, -1)), (
        "the end of a ledger is the beginning of the next that holds anything"
    )


@pytest.mark.parametrize(
    ("other", "missing", "extra", "batches", "note"),
    [
        (at(7, 3, acked={7: BitMap([9])}), 1, 0, 0, ""),
        (at(7, 3, acked={7: BitMap([9, 10, 50])}), 0, 1, 0, ""),
        (at(7, 4, acked={7: BitMap([9, 10])}), 0, 1, 0, "mark-delete is 7:3 and 7:4"),
        (at(12, -1), 0, 94, 0, "mark-delete is 7:3 and 12:-1"),
        (
            at(7, 3, acked={7: BitMap([9, 10])}, batches={PartialKey(7, 20): BitMap([1])}),
            0,
            0,
            1,
            "",
        ),
        (
            at(7, 3, acked={7: BitMap([9, 10])}, properties={"a": 1}),
            0,
            0,
            0,
            "the mark delete properties differ",
        ),
    ],
)
def test_what_differs_is_counted(
    other: PositionInfo, missing: int, extra: int, batches: int, note: str
) -> None:
    found = compared(at(7, 3, acked={7: BitMap([9, 10])}), other)
    assert (found.missing, found.extra, found.batches) == (missing, extra, batches) and bool(found)
    assert note in str(found)


def test_cursor_properties_count_too() -> None:
    assert "cursor properties" in str(compared(at(7, 3), at(7, 3), {"a": "b"}, {"a": "c"}))
    assert not compared(at(7, 3), at(7, 3), {}, None)


# ---- the journal

HEADER = {"zookeeper": "z", "root": "r"}


def opened(path: Path, command: str = "import-pulsar", **header: str) -> Journal:
    return Journal.open(path, command, {**HEADER, **header})


def test_a_journal_remembers(tmp_path: Path) -> None:
    path = tmp_path / "j"
    journal = opened(path)
    journal.finished("a", "failed", ok=False, seconds=1)
    journal.finished("b", "imported", ok=True)
    journal.close()
    again = opened(path)
    assert again.done == {"b"} and again.token == journal.token
    again.finished("a", "exported", ok=True)
    again.finished("b", "failed", ok=False)
    again.close()
    last = opened(path)
    assert last.done == {"a"}
    last.close()


def test_a_line_that_a_crash_cut_off_is_dropped(tmp_path: Path) -> None:
    path = tmp_path / "j"
    journal = opened(path)
    journal.finished("a", "imported", ok=True)
    journal.close()
    whole = path.read_bytes()
    for size in (*range(0, len(whole), 7), len(whole) - 1):
        path.write_bytes(whole[:size])
        again = opened(path)
        assert again.done == set()
        again.finished("b", "imported", ok=True)
        again.close()
        last = opened(path)
        assert last.done == {"b"}
        last.close()


@pytest.mark.parametrize(
    "content",
    [
        b"hello\n",
        b"[]\n",
        b'{"journal":"export-pulsar","format":1,"zookeeper":"z","root":"r"}\n',
        b"\n",
    ],
)
def test_what_is_not_this_runs_journal_is_refused_and_kept(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "j"
    path.write_bytes(content)
    with pytest.raises(JournalError, match="j"):
        opened(path)
    assert path.read_bytes() == content


def test_a_journal_of_another_cluster_names_what_differs(tmp_path: Path) -> None:
    path = tmp_path / "j"
    opened(path).close()
    with pytest.raises(JournalError, match="zookeeper is 'z' there and 'other' now"):
        opened(path, zookeeper="other")
    journal = opened(path)
    journal.record({"nothing": 1})
    journal.close()
    with pytest.raises(JournalError, match="line 2: names no cursor"):
        opened(path)


# ---- quorums


@pytest.mark.parametrize(
    ("bookies", "wanted"),
    [(5, (3, 3, 2)), (3, (3, 3, 2)), (2, (2, 2, 2)), (1, (1, 1, 1)), (0, (1, 1, 1))],
)
def test_quorums_are_limited_by_the_bookies_there_are(
    bookies: int, wanted: tuple[int, int, int]
) -> None:
    spec = limited(LedgerSpec(3, 3, 2), bookies)
    assert (spec.ensemble, spec.write_quorum, spec.ack_quorum) == wanted

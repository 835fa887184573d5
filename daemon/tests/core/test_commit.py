"""One compare-and-set at a time, and how its outcome is found (ARCHITECTURE rules 1 to 5)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cursorkeeper.core import effects as fx
from cursorkeeper.core import events as ev
from cursorkeeper.core.commit import ABSENT, Committed, FooterCommit, Lost, Purpose
from cursorkeeper.core.footer import (
    ChainLedger,
    EmptyBase,
    Footer,
    FooterState,
    InlineBase,
    Previous,
    SnapshotBase,
)
from cursorkeeper.core.limits import Limits
from cursorkeeper.core.names import CursorName
from cursorkeeper.core.positions import FIRST
from cursorkeeper.core.turn import Turn
from cursorkeeper.core.values import Segment

pytestmark = pytest.mark.interpreted

FOOTER = Footer("t", "s", FooterState.OPEN, 3, "me", 5, 1, FIRST, EmptyBase(FIRST))
NEXT = replace(FOOTER, write=6).written_at(18)
"""As it is sent over version 17: a write says the version that it makes."""


class Commit(FooterCommit):
    """One with a turn of its own."""

    def __init__(self) -> None:
        super().__init__(Turn(CursorName("t", "s"), Limits(retry_max_ms=5_000), "me", 0.0))

    def at(self, now: float) -> list[fx.Effect]:
        """A turn begins; returns its effects."""
        return self._turn.begin(ev.Tick(0), now)

    def driven(self, now: float) -> list[fx.Effect]:
        """What is sent again at this time."""
        out = self.at(now)
        self.drive()
        return out


def proposed() -> Commit:
    commit = Commit()
    commit.adopt(FOOTER, 17)
    out = commit.at(0.0)
    commit.propose(replace(NEXT, written=None), Purpose.NAME_LEDGER)
    assert out == [fx.WriteFooter(1, NEXT, 17)]
    return commit


def asked() -> Commit:
    """One whose write met another version."""
    commit = proposed()
    out = commit.at(0.0)
    commit.on_bad_version()
    assert out == [fx.ReadFooter(2, sync=True)]
    return commit


def test_ok_commits() -> None:
    commit = proposed()
    assert commit.awaits(1) and not commit.awaits(2)
    assert commit.on_written(18) == Committed(Purpose.NAME_LEDGER, FOOTER, NEXT)
    assert (commit.committed, commit.version, commit.outstanding) == (NEXT, 18, None)


def test_only_one_at_a_time() -> None:
    with pytest.raises(AssertionError, match="one compare-and-set"):
        proposed().propose(NEXT, Purpose.RESET)
    with pytest.raises(AssertionError, match="no compare-and-set"):
        Commit().on_written(1)


def test_unknown_repeats_the_same_bytes_at_the_same_version() -> None:
    commit = proposed()
    now = 10.0
    for token, delay in enumerate((0.05, 0.1, 0.2, 0.4), start=2):
        commit.at(now)
        commit.on_unknown("away")
        assert commit.retry_at_s == pytest.approx(now + delay)
        assert commit.driven(now + delay / 2) == []
        now += delay
        assert commit.driven(now) == [fx.WriteFooter(token, NEXT, 17)]
        assert commit.retry_at_s is None and not commit.awaits(token - 1)
    assert commit.version == 17


def test_the_delay_has_an_end() -> None:
    commit = proposed()
    for _ in range(2, 40):
        commit.at(0.0)
        commit.on_unknown("away")
        assert commit.retry_at_s is not None and commit.retry_at_s <= 5.0
        assert commit.driven(5.0)


def test_bad_version_asks_after_a_sync_and_mine_is_mine() -> None:
    commit = asked()
    assert commit.on_read(NEXT, 18) == Committed(Purpose.NAME_LEDGER, FOOTER, NEXT)
    assert (commit.committed, commit.version, commit.outstanding) == (NEXT, 18, None)


@pytest.mark.parametrize(
    "there", [replace(NEXT, epoch=4), replace(NEXT, writer="other"), replace(NEXT, write=5), None]
)
def test_mine_only_if_epoch_writer_and_write_are_equal(there: Footer | None) -> None:
    commit = asked()
    assert commit.on_read(there, 18) == Lost(Purpose.NAME_LEDGER, there, 18)
    assert (commit.committed, commit.version, commit.outstanding) == (FOOTER, 17, None), (
        "the version is never taken over without the content"
    )


def test_a_question_that_fails_is_asked_again() -> None:
    commit = asked()
    commit.at(10.0)
    commit.on_unknown("away")
    assert commit.driven(10.01) == []
    assert commit.driven(10.05) == [fx.ReadFooter(3, sync=True)]


def test_decision_19_absent_is_a_version() -> None:
    commit = Commit()
    commit.adopt(None, ABSENT)
    first = FOOTER.written_at(0)
    out = commit.at(0.0)
    commit.propose(FOOTER, Purpose.CLAIM)
    assert out == [fx.WriteFooter(1, first, ABSENT)]
    assert commit.on_written(0) == Committed(Purpose.CLAIM, None, first)


# ---- the footer as a value


SNAPSHOT = SnapshotBase(9, 1, 40, 3, 1_000, 7)


def test_decision_16_what_a_footer_names() -> None:
    footer = replace(FOOTER, base=SNAPSHOT, chain=(ChainLedger(9), ChainLedger(11)))
    assert footer.named_ledgers() == {9, 11}
    before = Previous(replace(SNAPSHOT, ledger=4), (ChainLedger(4, 8), ChainLedger(5, 2)))
    assert replace(footer, previous=before).named_ledgers() == {4, 5, 9, 11}
    assert replace(FOOTER, base=InlineBase(Segment(), 1, 1, 1)).named_ledgers() == frozenset()


def test_a_recovered_end_goes_wherever_the_ledger_is_named() -> None:
    footer = replace(
        FOOTER,
        chain=(ChainLedger(9), ChainLedger(11)),
        previous=Previous(EmptyBase(FIRST), (ChainLedger(9), ChainLedger(4, 8))),
    )
    mended = footer.with_last_entry(9, 77)
    assert mended.chain == (ChainLedger(9, 77), ChainLedger(11))
    assert mended.previous is not None and mended.previous.chain == (
        ChainLedger(9, 77),
        ChainLedger(4, 8),
    )
    assert mended.with_last_entry(9, 80).chain[0] == ChainLedger(9, 77), "an end does not change"

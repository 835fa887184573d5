"""Verdicts: memory against what is stored, each lost entry put down to one reason, and what is said
when memory is not known.
"""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap

from cursorkeeper.assess import words
from cursorkeeper.assess.judge import Stored, Verdict, judge, missing
from cursorkeeper.core import bitmaps
from cursorkeeper.core.positions import Position
from cursorkeeper.core.values import PartialKey
from cursorkeeper.format.pulsar.values import Form, PositionInfo
from cursorkeeper.pulsar_broker.model import KeptForm, Reason, what_pulsar_keeps
from cursorkeeper.pulsar_broker.settings import of_version
from daemon.tests.assess.states import FIRST, backlog, layout_of

DEFAULT = of_version("4.2.4")
M = 1_000_000


def at(mark_delete: tuple[int, int], **acked: tuple[int, ...]) -> PositionInfo:
    """`at((7, 2), l7=(5, 6))`."""
    return PositionInfo(
        Position(*mark_delete),
        {int(k[1:]): BitMap(v) for k, v in acked.items()},
        form=Form.LONG_ARRAY if acked else None,
    )


def check(verdict: Verdict) -> Verdict:
    assert sum(verdict.by_reason.values()) == verdict.redelivered
    return verdict


def test_the_bad_case_of_the_issue_is_exact_and_named() -> None:
    memory = backlog(1 * M)
    kept = what_pulsar_keeps(memory, DEFAULT)
    assert kept.state is not None
    verdict = check(judge(Stored(kept.state), memory, layout_of(1 * M), DEFAULT))
    assert (verdict.redelivered, verdict.is_exact, verdict.by_reason) == (
        950_000,
        True,
        {Reason.ENTRY_CAP: 950_000},
    )
    assert (verdict.next_flush.bytes, verdict.next_flush.drops, verdict.backlog) == (
        8_613,
        950_000,
        1 * M,
    )
    assert verdict.unload_redelivered == 0, (
        "20 ranges fit the znode when the topic is unloaded in order"
    )
    assert verdict.is_at_risk


def test_what_no_limit_drops_waits_for_the_next_flush() -> None:
    verdict = check(judge(Stored(at((7, 2), l7=(5,))), at((7, 3), l7=(5, 8, 9)), {7: 100}, DEFAULT))
    assert verdict.by_reason == {Reason.WINDOW: 3}, "7:3 by mark-delete, 7:8 and 7:9"
    assert verdict.next_flush.drops == 0


def test_both_at_once() -> None:
    small = replace(DEFAULT, ranges_max=1)
    memory = at((7, 0), l7=(5, 6, 8), l9=(0, 1))
    verdict = check(judge(Stored(at((7, 0), l7=(5, 6))), memory, {7: 10, 9: 10}, small))
    assert verdict.by_reason == {Reason.WINDOW: 1, Reason.ENTRY_CAP: 2}


def test_mark_delete_that_moved_over_ledgers_is_counted_by_the_layout() -> None:
    stored, memory = at((7, 4), l8=(1, 2)), at((9, 1), l9=(3,))
    verdict = check(judge(Stored(stored), memory, {7: 10, 8: 6, 9: None}, DEFAULT))
    assert verdict.redelivered == 5 + 4 + 2 + 1
    assert missing(memory, stored, {7: 10, 8: 6, 9: None})[8] == BitMap([0, 3, 4, 5])


def test_a_trimmed_ledger_cannot_come_back() -> None:
    assert judge(Stored(at((7, 4))), at((9, 1)), {9: 10}, DEFAULT).redelivered == 2
    assert (
        judge(
            Stored(at((7, 4))), at((7, 4), l8=(1, 2), l9=(3,)), {7: 10, 9: 10}, DEFAULT
        ).redelivered
        == 1
    )
    assert (
        judge(Stored(at((7, 4))), at((7, 4), l11=(3,)), {7: 10, 9: 10}, DEFAULT).redelivered == 1
    ), "newer than the layout"


def test_without_a_layout_what_is_known_is_counted() -> None:
    assert judge(Stored(at((9, 0))), at((9, 2), l10=(5,)), {}, DEFAULT).redelivered == 3


def test_where_nothing_is_written_any_more_a_moved_mark_delete_is_lost_for_the_same_reason() -> (
    None
):
    tight = replace(DEFAULT, frame_bytes_max=100, znode_bytes_max=300)
    memory = PositionInfo(Position(7, 9), {7: BitMap(range(11, 2_000, 2))}, form=Form.RANGES)
    verdict = check(judge(Stored(at((7, 4))), memory, {7: 5_000}, tight))
    assert verdict.by_reason == {Reason.FRAME: 5 + len(memory.acked[7])}


def test_stored_that_is_ahead_of_an_older_answer_is_no_risk() -> None:
    assert not judge(Stored(at((7, 9))), at((7, 4), l7=(6,)), {7: 20}, DEFAULT).is_at_risk


def test_nothing_fits_any_more() -> None:
    tuned = replace(DEFAULT, ranges_max=100 * M, frame_bytes_max=2_000, znode_bytes_max=500)
    memory = backlog(100_000, 0.1)
    verdict = check(judge(Stored(at((FIRST, -1))), memory, layout_of(100_000), tuned))
    assert list(verdict.by_reason) == [Reason.FRAME]
    assert verdict.next_flush.form is KeptForm.NOTHING and verdict.next_flush.tried_bytes > 2_000


def test_without_the_brokers_word_the_cap_is_seen_in_what_is_stored() -> None:
    kept = what_pulsar_keeps(backlog(1 * M), DEFAULT)
    assert kept.state is not None
    verdict = check(judge(Stored(kept.state), None, layout_of(1 * M), DEFAULT))
    assert (verdict.redelivered, verdict.is_exact) == (0, False)
    assert verdict.beyond_cap == 950_000 and verdict.is_at_risk
    scenario = verdict.if_all_acked
    assert scenario is not None
    assert (scenario.acked, scenario.redelivered, scenario.by_reason) == (
        999_999,
        950_000,
        {Reason.ENTRY_CAP: 950_000},
    )


@pytest.mark.parametrize("known", [True, False])
def test_what_is_stored_beyond_a_cap_is_lost_by_the_next_flush_and_not_by_a_crash_now(
    known: bool,
) -> None:
    memory = backlog(1 * M)
    verdict = check(
        judge(Stored(memory, inline=True), memory if known else None, layout_of(1 * M), DEFAULT)
    )
    assert (verdict.redelivered, verdict.is_exact, verdict.by_reason) == (0, known, {})
    assert verdict.next_flush.forgets == 950_000 and verdict.is_at_risk
    assert "until the next flush, which would leave out 950,000" in words.why(verdict)


def test_a_flush_forgets_only_what_is_stored_until_then() -> None:
    memory = backlog(1 * M)
    kept = what_pulsar_keeps(memory, DEFAULT).state
    assert kept is not None
    assert judge(Stored(kept), memory, layout_of(1 * M), DEFAULT).next_flush.forgets == 0, (
        "what it drops is lost already"
    )
    tight = replace(DEFAULT, frame_bytes_max=100, znode_bytes_max=300)
    assert judge(Stored(memory), memory, layout_of(1 * M), tight).next_flush.forgets == 0, (
        "a flush that fails leaves what is stored"
    )


def test_a_small_stored_state_is_no_risk_and_the_scenario_says_what_could_be() -> None:
    verdict = judge(
        Stored(at((FIRST, 9), **{f"l{FIRST}": (12,)})), None, layout_of(200_000), DEFAULT
    )
    assert not verdict.is_at_risk
    assert verdict.if_all_acked is not None and verdict.if_all_acked.redelivered == 150_000


def test_a_cap_of_ranges_is_seen_too() -> None:
    lists = replace(DEFAULT, long_array=False, ranges_max=2)
    kept = what_pulsar_keeps(at((7, 0), l7=(2, 4, 6, 8)), lists)
    assert kept.state is not None
    assert judge(Stored(kept.state), None, {7: 10, 9: 5}, lists).beyond_cap == 3 + 5
    two = at((7, 0), l7=(2, 4))
    assert judge(Stored(replace(two, form=Form.RANGES)), None, {7: 10, 9: 5}, lists).beyond_cap == 0


def test_batch_sets_of_a_znode_are_lost_where_recovery_ignores_them() -> None:
    info = replace(at((7, 0), l7=(5,)), batches={PartialKey(7, 3): BitMap([1, 2])})
    assert judge(Stored(info, inline=True), None, {7: 10}, DEFAULT).batches == 1
    assert judge(Stored(info, inline=False), None, {7: 10}, DEFAULT).batches == 0
    assert (
        judge(
            Stored(info, inline=True), None, {7: 10}, replace(DEFAULT, znode_restores_batches=True)
        ).batches
        == 0
    )


def test_a_cursor_ledger_that_is_gone() -> None:
    verdict = check(
        judge(Stored(at((7, 0)), rolled_back=True), at((7, 1), l7=(5, 6)), {7: 10}, DEFAULT)
    )
    assert verdict.by_reason == {Reason.LEDGER_GONE: 3}
    assert (
        judge(Stored(at((7, 0)), rolled_back=True), None, {7: 10, 9: 5}, DEFAULT).beyond_cap == 14
    )


def test_json_has_the_numbers() -> None:
    told = msgspec.to_builtins(judge(Stored(at((7, 2))), at((7, 3)), {7: 100}, DEFAULT))
    assert told["redelivered"] == 1 and told["byReason"] == {"window": 1} and told["exact"] is True
    assert told["markDelete"] == "7:3" and "cursorKeeper" not in told


STATES = st.builds(
    lambda ledger, entry, acked: PositionInfo(
        Position(ledger, entry),
        {
            k: left
            for k, v in sorted(acked.items())
            if k >= ledger and (left := v - bitmaps.span(0, entry) if k == ledger else v)
        },
    ),
    st.integers(1, 4),
    st.integers(-1, 9),
    st.dictionaries(st.integers(1, 5), st.sets(st.integers(0, 9), min_size=1).map(BitMap)),
)


def plain(info: PositionInfo) -> set[tuple[int, int]]:
    return {
        (ledger, entry)
        for ledger in range(1, 6)
        for entry in range(10)
        if Position(ledger, entry) <= info.mark_delete or entry in info.acked.get(ledger, ())
    }


@given(STATES, STATES, st.integers(0, 30))
def test_the_number_is_that_of_plain_sets(
    stored: PositionInfo, memory: PositionInfo, cap: int
) -> None:
    layout: dict[int, int | None] = dict.fromkeys(range(1, 6), 10)
    verdict = check(judge(Stored(stored), memory, layout, replace(DEFAULT, ranges_max=cap)))
    assert verdict.redelivered == len(plain(memory) - plain(stored))


@pytest.mark.parametrize("version", ["4.2", "5.0.0-M1", "5.0"])
def test_every_version_can_be_asked(version: str) -> None:
    check(judge(Stored(at((FIRST, -1))), backlog(300_000), layout_of(300_000), of_version(version)))

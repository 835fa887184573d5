"""Accepted, in flight, durable: which message waits for which record."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable
from types import FrameType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cursorkeeper.core import effects as fx
from cursorkeeper.core import progress as progress_module
from cursorkeeper.core.progress import Progress


def kept(progress: Progress, *seqs: int, attach: int = 1) -> None:
    for seq in seqs:
        progress.accept(attach, seq, 10, float(seq))


def test_decision_02_messages_bind_to_the_record_that_is_taken() -> None:
    progress = Progress()
    kept(progress, 1, 2)
    assert progress.take() == range(1, 2)
    kept(progress, 3)
    assert progress.take() == range(2, 3)
    assert progress.made_durable(1) == [fx.Confirm(1, 2, 20)]
    assert progress.made_durable(2) == [fx.Confirm(1, 3, 10)]
    assert progress.is_clear


def test_decision_02_nothing_new_binds_to_the_newest_record_that_is_not_durable() -> None:
    progress = Progress()
    kept(progress, 1)
    progress.take()
    kept(progress, 2)
    progress.bind_to_newest()
    assert progress.confirmations() == [], "it waits for the record in flight"
    assert progress.made_durable(1) == [fx.Confirm(1, 2, 20)]


def test_decision_02_nothing_new_and_nothing_in_flight_confirms_now() -> None:
    progress = Progress()
    kept(progress, 1)
    progress.bind_to_newest()
    assert progress.confirmations() == [fx.Confirm(1, 1, 10)]


def test_what_is_decided_gives_its_bytes_back_once() -> None:
    progress = Progress()
    kept(progress, 1, 2, 3)
    assert progress.decide_until({(1, 3)}) == [fx.Confirm(1, 2, 20)]
    assert progress.released() == [fx.Confirm(1, 2, 10)] and progress.unconfirmed_bytes == 0


def test_what_is_durable_and_withheld_does_not_wait_for_another_record() -> None:
    progress = Progress()
    kept(progress, 1)
    progress.take()
    progress.withheld = True
    assert progress.made_durable(1) == []
    progress.put_back()
    assert not progress.has_unbound
    progress.withheld = False
    assert progress.confirmations() == [fx.Confirm(1, 1, 10)]


def test_decision_02_a_roll_binds_again() -> None:
    progress = Progress()
    kept(progress, 1)
    progress.take()
    kept(progress, 2)
    progress.take()
    progress.made_durable(1)
    progress.put_back()
    assert progress.has_unbound and progress.taken == 1
    kept(progress, 3)
    assert progress.take() == range(2, 3)
    assert progress.made_durable(2) == [fx.Confirm(1, 3, 20)]


def test_decision_14_a_delta_of_several_records_binds_to_the_last() -> None:
    progress = Progress()
    kept(progress, 1)
    assert progress.take(3) == range(1, 4)
    assert progress.made_durable(2) == []
    assert progress.made_durable(3) == [fx.Confirm(1, 1, 10)]


def test_decision_11_a_reset_decides_what_came_before_it() -> None:
    progress = Progress()
    kept(progress, 1, 2)
    progress.take()
    progress.put_back()
    # 3: the reset that is done; 4: one that waits for the new generation; 5: after it
    kept(progress, 3, 4, 5)
    assert progress.decide_until({(1, 4)}) == [fx.Confirm(1, 3, 30)]
    assert progress.has_unbound
    assert progress.decide_all() == [fx.Confirm(1, 5, 20)]


def test_confirmations_are_per_handle() -> None:
    progress = Progress()
    kept(progress, 1, attach=1)
    kept(progress, 7, attach=2)
    kept(progress, 2, attach=1)
    assert progress.unconfirmed_bytes == 30
    progress.take()
    assert progress.made_durable(1) == [fx.Confirm(1, 2, 20), fx.Confirm(2, 7, 10)]


def test_the_oldest_times() -> None:
    progress = Progress()
    assert progress.oldest_unconfirmed_s is None and progress.oldest_unbound_s is None
    kept(progress, 1)
    progress.take()
    kept(progress, 2, 3)
    assert (progress.oldest_unconfirmed_s, progress.oldest_unbound_s) == (1.0, 2.0)


def test_durable_never_goes_back_nor_beyond_what_was_taken() -> None:
    progress = Progress()
    progress.take(2)
    progress.made_durable(2)
    with pytest.raises(AssertionError, match="goes back"):
        progress.made_durable(1)
    with pytest.raises(AssertionError, match="never taken"):
        progress.made_durable(3)


@given(
    st.lists(st.sampled_from(["accept", "take", "durable", "put_back", "nothing_new"]), max_size=40)
)
def test_every_message_is_confirmed_once_and_in_order(moves: list[str]) -> None:
    progress, seq, confirmed, released = Progress(), 0, 0, 0

    def told(effects: list[fx.Effect]) -> None:
        nonlocal confirmed, released
        for effect in effects:
            assert isinstance(effect, fx.Confirm) and effect.seq > confirmed
            confirmed, released = effect.seq, released + effect.released_bytes

    for move in moves:
        match move:
            case "accept":
                seq += 1
                kept(progress, seq)
            case "take":
                progress.take()
            case "durable" if progress.taken > progress.durable:
                told(progress.made_durable(progress.durable + 1))
            case "put_back":
                progress.put_back()
            case "nothing_new":
                progress.bind_to_newest()
                told(progress.confirmations())
        assert progress.durable <= progress.taken
    told(progress.decide_all())
    assert (confirmed, released) == (seq, 10 * seq)


def steps_of(question: Callable[[], object]) -> int:
    """How many lines of Python an answer takes: a measure of work that a busy machine does not
    change.
    """
    seen = 0

    def trace(frame: FrameType, event: str, _arg: object) -> object:
        nonlocal seen
        # the collector may run anybody's code
        seen += event == "line" and frame.f_code.co_filename == progress_module.__file__
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        question()
    finally:
        sys.settrace(before)
    return seen


def test_a_question_costs_the_same_however_many_messages_wait() -> None:
    def questions(bound: int, unbound: int) -> list[int]:
        progress = Progress()
        kept(progress, *range(1, bound + 1))
        progress.take()
        kept(progress, *range(bound + 1, bound + unbound + 1))
        asked: list[Callable[[], object]] = [
            lambda: progress.oldest_unbound_s,
            lambda: progress.oldest_unconfirmed_s,
            lambda: progress.unconfirmed_bytes,
            lambda: progress.has_unbound,
            lambda: progress.is_clear,
            progress.confirmations,
        ]
        progress.released()
        return [steps_of(question) for question in (*asked, progress.released)]

    assert questions(3_000, 3_000) == questions(1, 1)


def test_what_was_released_gives_no_bytes_back_when_it_is_confirmed() -> None:
    progress = Progress()
    kept(progress, 1)
    progress.take()
    kept(progress, 2)
    assert progress.released() == [fx.Confirm(1, 0, 10)], (
        "only of the message that waits for the next record"
    )
    assert progress.released() == []
    progress.put_back()
    kept(progress, 3)
    assert progress.released() == [fx.Confirm(1, 0, 20)], "what was put back and what is new"
    assert progress.decide_all() == [fx.Confirm(1, 3, 0)] and progress.unconfirmed_bytes == 0


def test_what_is_released_repeats_the_newest_confirmation_of_its_own_handle() -> None:
    progress = Progress()
    kept(progress, 1)
    progress.take()
    kept(progress, 2)
    progress.accept(2, 7, 10, 0.0)
    assert progress.made_durable(1) == [fx.Confirm(1, 1, 10)]
    assert progress.released() == [fx.Confirm(1, 1, 10), fx.Confirm(2, 0, 10)], (
        "nothing of the second was confirmed"
    )


def test_handles_that_came_and_went_leave_nothing_behind() -> None:
    progress, sizes = Progress(), []
    for attach in range(1_000, 2_000):
        progress.accept(attach, 1_000, 10, 0.0)
        assert progress.decide_all() == [fx.Confirm(attach, 1_000, 10)]
        sizes.append(len(pickle.dumps(progress)))
    assert max(sizes) < sizes[0] + 10


def test_messages_bind_to_the_last_of_several_takes() -> None:
    progress = Progress()
    kept(progress, 1, 2)
    assert progress.take(2, is_all=False) == range(1, 3)
    assert progress.made_durable(2) == [] and progress.has_unbound
    assert progress.take() == range(3, 4)
    assert progress.made_durable(3) == [fx.Confirm(1, 2, 20)]

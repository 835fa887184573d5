"""The checker itself, without a container: it counts what is there, and sees one lost or one
phantom ack among thousands, down to a single index of a batch. What it would not see, no story
could show.
"""

from __future__ import annotations

import random
from collections.abc import Iterable

import pytest
from pyroaring import BitMap

from cursorkeeper_client import CursorState, PartialBatch, Position
from daemon.tests.source.random_acks import BATCH_SIZE, KEPT, OPEN_LEDGER, START
from testcontainers_tests.cluster.truth import WHOLE, Ack, Truth, Verdict

SEED = 5
Line = dict[str, list[int]]


def lines(sent: int, durable: int) -> list[Line]:
    """What a source says of its first cursor."""
    return [
        *({"sent": [0, n]} for n in range(1, sent + 1)),
        *({"durable": [0, n]} for n in range(1, durable + 1)),
    ]


def truth_of(sent: int, durable: int, *, moves: bool = False) -> Truth:
    return Truth.of(lines(sent, durable), 0, SEED, moves)


def state_of(acks: Iterable[Ack], mark_delete: Position = START) -> CursorState:
    """A keeper that holds exactly these acks."""
    acked, indexes = dict[int, BitMap](), dict[tuple[int, int], set[int]]()
    for ledger, entry, index in acks:
        if index == WHOLE:
            acked.setdefault(ledger, BitMap()).add(entry)
        else:
            indexes.setdefault((ledger, entry), set()).add(index)
    partials = {
        (ledger, entry): PartialBatch(entry, BATCH_SIZE, BitMap(range(BATCH_SIZE)) - BitMap(found))
        for (ledger, entry), found in indexes.items()
        if entry not in acked.get(ledger, ())
    }
    return CursorState(1, 1, mark_delete, acked, partials)


def judge(truth: Truth, state: CursorState) -> Verdict:
    verdict = Verdict()
    verdict.add("topic", truth, state)
    return verdict


def counts(verdict: Verdict) -> tuple[int, int, int, int]:
    return verdict.confirmed_present, verdict.confirmed_lost, verdict.unconfirmed, verdict.phantom


def only_indexes(acks: set[Ack]) -> list[Ack]:
    """Acks of indexes whose entry is not acked whole by another ack."""
    return sorted(a for a in acks if a[2] != WHOLE and (*a[:2], WHOLE) not in acks)


@pytest.mark.parametrize("moves", [False, True])
def test_everything_confirmed_is_there(moves: bool) -> None:
    truth = truth_of(60, 60, moves=moves)
    verdict = judge(truth, state_of(truth.sent))
    assert verdict.is_good
    assert counts(verdict) == (len(truth.sent), 0, 0, 0)
    assert len(only_indexes(truth.sent)) > 500 < sum(a[2] == WHOLE for a in truth.sent), (
        "both kinds are in it"
    )


def test_each_single_lost_ack_is_seen() -> None:
    truth = truth_of(30, 30)
    whole = sorted(
        a
        for a in truth.sent
        if a[2] == WHOLE and not any((*a[:2], i) in truth.sent for i in range(BATCH_SIZE))
    )
    rng = random.Random(1)
    for lost in [*rng.sample(whole, 20), *rng.sample(only_indexes(truth.sent), 20)]:
        verdict = judge(truth, state_of(truth.sent - {lost}))
        assert not verdict.is_good
        assert counts(verdict) == (len(truth.sent) - 1, 1, 0, 0)
        assert verdict.examples == [f"topic: lost {[lost]}"]


def test_an_entry_that_is_lost_loses_its_indexes() -> None:
    truth = Truth(
        {(11, 20, WHOLE), (11, 20, 3), (11, 21, WHOLE)},
        {(11, 20, WHOLE), (11, 20, 3), (11, 21, WHOLE)},
    )
    assert counts(judge(truth, state_of({(11, 20, 3), (11, 21, WHOLE)}))) == (2, 1, 0, 0)
    assert counts(judge(truth, state_of({(11, 21, WHOLE)}))) == (1, 2, 0, 0)


@pytest.mark.parametrize(
    "phantom", [(11, KEPT, WHOLE), (OPEN_LEDGER, 1_000_000, WHOLE), (99, 0, WHOLE), (11, KEPT, 39)]
)
def test_a_phantom_is_seen(phantom: Ack) -> None:
    truth = truth_of(30, 20)
    assert phantom not in truth.sent
    verdict = judge(truth, state_of(truth.sent | {phantom}))
    assert not verdict.is_good
    assert (verdict.confirmed_lost, verdict.phantom) == (0, 1)
    assert verdict.examples == [f"topic: phantom {[phantom]}"]


def test_one_more_index_of_a_batch_is_a_phantom() -> None:
    truth = truth_of(30, 30)
    ledger, entry, _ = only_indexes(truth.sent)[0]
    never = next(i for i in range(BATCH_SIZE) if (ledger, entry, i) not in truth.sent)
    assert judge(truth, state_of(truth.sent | {(ledger, entry, never)})).phantom == 1
    whole_instead = judge(truth, state_of(truth.sent | {(ledger, entry, WHOLE)}))
    assert whole_instead.phantom == 1 and not whole_instead.confirmed_lost


def test_a_mark_delete_that_went_too_far_skips_messages() -> None:
    truth = truth_of(30, 30)
    never = {(11, e) for e in range(200)} - {a[:2] for a in truth.sent if a[2] == WHOLE}
    assert KEPT in {entry for _, entry in never}
    assert judge(truth, state_of(truth.sent, Position(11, 199))).phantom == len(never)


def test_unconfirmed_acks_may_be_there_or_not() -> None:
    truth, confirmed = truth_of(40, 30), truth_of(30, 30)
    open_still = truth.sent - truth.confirmed
    assert truth.confirmed == confirmed.sent and open_still
    for present in (set[Ack](), open_still, set(sorted(open_still)[::2])):
        verdict = judge(truth, state_of(confirmed.sent | present))
        assert verdict.is_good
        assert counts(verdict) == (len(confirmed.sent), 0, len(open_still), 0)


def test_a_source_that_lies_is_found_out() -> None:
    sent = truth_of(30, 30)
    claims_more = judge(truth_of(31, 31), state_of(sent.sent))
    assert claims_more.confirmed_lost and not claims_more.phantom and not claims_more.is_good
    hides_some = judge(truth_of(29, 29), state_of(sent.sent))
    assert hides_some.phantom and not hides_some.confirmed_lost and not hides_some.is_good
    other_acks = judge(Truth.of(lines(30, 30), 0, SEED + 1, False), state_of(sent.sent))
    assert other_acks.phantom and other_acks.confirmed_lost


def test_a_source_with_two_lives_began_again() -> None:
    first, second = lines(40, 30), lines(10, 8)
    both = Truth.of([*first, *second], 0, SEED, False)
    assert both == truth_of(40, 30)
    assert (both.sent_batches, both.durable_batches) == (40, 30)


def test_what_another_cursor_said_counts_for_that_one() -> None:
    said: list[Line] = [*lines(5, 5), {"sent": [1, 50]}, {"durable": [1, 50]}, {"paused": [0, 7]}]
    assert Truth.of(said, 0, SEED, False) == truth_of(5, 5)


def test_an_entry_of_which_every_index_is_acked_is_acked() -> None:
    indexes = {(14, 0, i) for i in range(BATCH_SIZE)}
    truth = Truth(set(indexes), set(indexes)).completed()
    assert (14, 0, WHOLE) in truth.confirmed
    assert judge(truth, state_of({(14, 0, WHOLE)})).is_good, "the keeper keeps it as an entry"
    assert judge(truth, state_of(indexes - {(14, 0, 7)})).confirmed_lost == 2, (
        "the index, and so the entry"
    )
    by_two = Truth({(14, 0, i) for i in range(20)}) | Truth(
        {(14, 0, i) for i in range(20, BATCH_SIZE)}
    )
    assert (14, 0, WHOLE) in by_two.sent and not by_two.confirmed


def test_nothing_confirmed_proves_nothing() -> None:
    truth = truth_of(10, 0)
    verdict = judge(truth, state_of(truth.sent))
    assert counts(verdict) == (0, 0, len(truth.sent), 0)
    assert not verdict.is_good


def test_cursors_add_up() -> None:
    truth, verdict = truth_of(10, 10), Verdict()
    verdict.add("one", truth, state_of(truth.sent))
    verdict.add("two", truth, state_of(truth.sent - {min(only_indexes(truth.sent))}))
    assert (verdict.cursors, verdict.batches, verdict.confirmed_lost) == (2, 20, 1)
    assert not verdict.is_good and verdict.examples[0].startswith("two: lost")

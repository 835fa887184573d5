"""Arrival validates: every refusal with its code and a remedy, and nothing is changed by a refused
message.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace

import numpy as np
import pytest
from pyroaring import BitMap

from cursorkeeper.core.batch import AckBatch, LedgerColumns
from cursorkeeper.core.errors import RefusedError
from cursorkeeper.core.intake_check import IntakeCheck, Queued
from cursorkeeper.core.layout import Layout
from cursorkeeper.core.limits import Limits
from cursorkeeper.core.positions import ENTRY_ID_MAX, LEDGER_ID_MAX, Position
from cursorkeeper.core.state import AckState
from cursorkeeper.core.values import LayoutItem, LayoutState, Partial
from daemon.tests.core.described import seen
from daemon.tests.support.world import acks, closed, opened, partial, ranges

LIMITS = Limits(
    open_ledger_span_max=1_000,
    batch_size_max=100,
    layout_ledgers_max=4,
    mark_delete_properties_bytes_max=60,
)
CHECK = IntakeCheck("the cursor", LIMITS)


def state() -> AckState:
    found = AckState(Position(10, 1), Layout([closed(10, 8), opened(20)]))
    found.apply([batch(acks(10, 5), acks(20, 50), partial(20, 3, 4, {1}))])
    return found


def batch(
    *ledgers: LedgerColumns,
    mark_delete: Position | None = None,
    properties: dict[str, int] | None = None,
) -> AckBatch:
    return AckBatch(1, 1, mark_delete, ledgers, properties)


def flat(ledger: int, *values: int) -> LedgerColumns:
    return LedgerColumns(ledger, ranges=np.array(values, dtype=np.uint32))


def odd(entry: int) -> LedgerColumns:
    """A partial at an entry id that no uint32 column could hold."""
    return LedgerColumns(20, partials=((entry, Partial(4, BitMap([1]))),))


BAD_BATCHES: dict[str, tuple[AckBatch, str, str]] = {
    "an odd number of range values": (batch(flat(20, 1, 2, 3)), "BAD_MESSAGE", "odd number"),
    "a range that ends before it begins": (batch(flat(20, 9, 2)), "BAD_MESSAGE", "ends before"),
    "a ledger id beyond 2^63": (
        batch(acks(LEDGER_ID_MAX + 1, 1)),
        "POSITION_OUT_OF_RANGE",
        "out of range",
    ),
    "a negative ledger id": (batch(acks(-1, 1)), "POSITION_OUT_OF_RANGE", "out of range"),
    "an entry id beyond 2^32": (
        batch(odd(ENTRY_ID_MAX + 1)),
        "POSITION_OUT_OF_RANGE",
        "out of range",
    ),
    "a negative entry id": (batch(odd(-1)), "POSITION_OUT_OF_RANGE", "out of range"),
    "an entry that a closed ledger does not have": (
        batch(acks(10, 8)),
        "POSITION_OUT_OF_RANGE",
        "8 entries",
    ),
    "a ledger that the layout does not name": (
        batch(acks(30, 0)),
        "POSITION_OUT_OF_RANGE",
        "not in the layout",
    ),
    "an entry far above the highest known": (
        batch(acks(20, 1_052)),
        "POSITION_OUT_OF_RANGE",
        "1000 above",
    ),
    "the end of a range far above it": (
        batch(ranges(20, (60, 1_052))),
        "POSITION_OUT_OF_RANGE",
        "1000 above",
    ),
    "a batch index beyond the batch": (
        batch(partial(20, 7, 4, {4})),
        "BATCH_CONTRADICTS",
        "no index 4",
    ),
    "a batch larger than allowed": (
        batch(partial(20, 7, 101, {4})),
        "BATCH_CONTRADICTS",
        "101 messages",
    ),
    "an index beyond every batch, size unknown": (
        batch(partial(20, 7, 0, {100})),
        "BATCH_CONTRADICTS",
        "no index 100",
    ),
    "another size than known": (
        batch(partial(20, 3, 5, {1})),
        "BATCH_CONTRADICTS",
        "had 4 messages",
    ),
    "two sizes in one message": (
        batch(partial(20, 9, 5, {1}), partial(20, 9, 6, {1})),
        "BATCH_CONTRADICTS",
        "had 5 messages",
    ),
    "a mark-delete beyond a closed ledger": (
        batch(mark_delete=Position(10, 8)),
        "POSITION_OUT_OF_RANGE",
        "8 entries",
    ),
    "a mark-delete in an unknown ledger": (
        batch(mark_delete=Position(30, 0)),
        "POSITION_OUT_OF_RANGE",
        "not in the layout",
    ),
    "a mark-delete far above": (
        batch(mark_delete=Position(20, 2_000)),
        "POSITION_OUT_OF_RANGE",
        "1000 above",
    ),
    "a mark-delete below -1": (
        batch(mark_delete=Position(20, -2)),
        "POSITION_OUT_OF_RANGE",
        "out of range",
    ),
    "a mark-delete beyond 2^32": (
        batch(mark_delete=Position(20, ENTRY_ID_MAX + 1)),
        "POSITION_OUT_OF_RANGE",
        "out of range",
    ),
    "a property that is no int64": (
        batch(acks(20, 1), properties={"a": 1 << 63}),
        "BAD_MESSAGE",
        "int64",
    ),
    "properties over their limit": (
        batch(acks(20, 1), properties={"a" * 60: 1}),
        "TOO_LARGE",
        "60 are allowed",
    ),
}


@pytest.mark.parametrize("name", BAD_BATCHES)
def test_a_bad_batch_is_refused_whole(name: str) -> None:
    bad, code, says = BAD_BATCHES[name]
    good = acks(20, 60)
    both = replace(bad, ledgers=(good, *bad.ledgers))
    here, queued = state(), Queued()
    before = seen(here)
    with pytest.raises(RefusedError, match=says) as refused:
        CHECK.batch(both, here, queued)
    assert refused.value.code == code
    assert refused.value.remedy and refused.value.cursor == "the cursor"
    assert seen(here) == before
    assert asdict(queued) == asdict(Queued()), "nothing of a refused batch is remembered"


@pytest.mark.parametrize(
    "good",
    [
        batch(acks(10, 7), acks(20, 1_051)),
        batch(acks(3, 4_000_000)),  # below mark-delete: a duplicate, whatever it names
        batch(partial(20, 3, 4, {1, 2, 3})),
        batch(partial(20, 3, 0, {1})),
        batch(mark_delete=Position(20, -1)),
        batch(mark_delete=Position(3, 17)),
        batch(properties={"a": -(1 << 63)}),
        batch(flat(20)),
    ],
)
def test_what_is_right_is_kept(good: AckBatch) -> None:
    CHECK.batch(good, state(), Queued())


def test_queued_batches_count_too() -> None:
    """Batches that were kept and not applied yet: their high waters and batch sizes bind those that
    follow.
    """
    here, queued = state(), Queued()
    CHECK.batch(batch(acks(20, 1_000), partial(20, 9, 5, {1})), here, queued)
    CHECK.batch(batch(acks(20, 1_900)), here, queued)
    with pytest.raises(RefusedError, match="had 5 messages"):
        CHECK.batch(batch(partial(20, 9, 6, {1})), here, queued)
    queued = Queued()
    with pytest.raises(RefusedError, match="1000 above"):
        CHECK.batch(batch(acks(20, 1_900)), here, queued)


def test_without_layout_ledgers_are_believed() -> None:
    CHECK.batch(batch(acks(77, 1_000)), AckState(Position(10, 1)), Queued())


def test_acks_of_a_trimmed_ledger_are_duplicates() -> None:
    here = AckState(Position(5, -1), Layout([opened(5)]))
    here.apply_layout([closed(5, 3), LayoutItem(6, LayoutState.TRIMMED, 0), opened(7)])
    CHECK.batch(batch(acks(6, 123_456)), here, Queued())
    assert not here.apply([batch(acks(6, 123_456))])


BAD_RUNS: dict[str, tuple[list[LayoutItem], str]] = {
    "not ascending": ([opened(20), closed(10, 8)], "not the last one|does not come after"),
    "a ledger twice": ([closed(10, 8), closed(10, 8)], "does not come after"),
    "OPEN in the middle": ([opened(10), opened(20)], "OPEN but not the last"),
    "a hole in the run": ([closed(10, 8), opened(30)], "ledger 20 is in one run"),
    "a ledger more": ([closed(10, 8), closed(15, 1), opened(20)], "ledger 15 is in one run"),
    "not touching what is known": ([closed(30, 1), opened(40)], "does not touch"),
    "another count": ([closed(10, 9), opened(20)], "was closed with 8 entries and now has 9"),
    "too many ledgers": ([closed(i, 1) for i in range(10, 15)], "5 ledgers, 4 are allowed"),
    "a negative count": ([LayoutItem(10, LayoutState.CLOSED, -1)], "-1 entries"),
    "an id out of range": (
        [closed(10, 8), closed(20, 60), opened(LEDGER_ID_MAX + 1)],
        "out of range",
    ),
}


@pytest.mark.parametrize("name", BAD_RUNS)
def test_decision_07_a_layout_that_contradicts(name: str) -> None:
    run, says = BAD_RUNS[name]
    here = state()
    before = seen(here)
    with pytest.raises(RefusedError, match=says) as refused:
        CHECK.layout(run, here)
    assert refused.value.code == "LAYOUT_CONTRADICTS" and refused.value.remedy
    assert seen(here) == before


def test_a_count_at_or_below_what_is_acked_counts() -> None:
    """While the ledger was open nobody could tell such an ack from another one."""
    here = state()
    CHECK.layout([closed(10, 8), closed(20, 50)], here)
    assert here.acked_beyond(closed(20, 50)) == 1
    CHECK.layout([closed(10, 7)], AckState(Position(10, 7)))


@pytest.mark.parametrize(
    ("target", "fits"),
    [
        (Position(10, -1), True),
        (Position(3, 9), True),  # before the known layout: the source knows what it still has
        (Position(20, 5_000_000), True),
        (Position(10, 8), False),
        (Position(30, -1), False),
        (Position(10, -2), False),
        (Position(LEDGER_ID_MAX + 1, 0), False),
        (Position(10, ENTRY_ID_MAX + 1), False),
    ],
)
def test_reset_targets(target: Position, fits: bool) -> None:
    def ask() -> None:
        CHECK.reset_target(target, state())

    _refuses(ask, fits)


def _refuses(ask: Callable[[], None], fits: bool) -> None:
    if fits:
        ask()
        return
    with pytest.raises(RefusedError) as refused:
        ask()
    assert refused.value.code == "POSITION_OUT_OF_RANGE" and refused.value.remedy


def test_cursor_properties_have_a_limit() -> None:
    check = IntakeCheck("c", Limits(cursor_properties_bytes_max=20))
    check.cursor_properties({"kéy": "1234567"})
    with pytest.raises(RefusedError, match="cursor properties take 21 bytes") as refused:
        check.cursor_properties({"kéy": "12345678901"})
    assert refused.value.code == "TOO_LARGE"

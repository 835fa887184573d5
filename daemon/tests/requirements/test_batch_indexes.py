"""R15: batch indexes are tracked and persisted, a fully acked batch becomes an acked entry, and a
crash changes nothing.

The judge is a model of one bit per message: a topic is a row of messages, an ack sets bits,
mark-delete is how many entries from the start have all their bits set. Pulsar's rules (4.1 to 4.4
of its reference page) follow from that, or the cursor is wrong.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cursorkeeper.core import events as ev
from cursorkeeper.core.batch import AckBatch
from cursorkeeper.core.limits import Limits
from cursorkeeper.core.positions import Position
from cursorkeeper.core.state import AckState
from cursorkeeper.core.values import LayoutItem, LayoutState
from daemon.tests.requirements.pulsar_acks import Entry, ack_set, cumulative, individual
from daemon.tests.support.machine_bench import Bench, Owner

TOPIC: dict[int, tuple[int, ...]] = {
    10: (1, 3, 64, 65),
    14: (),
    21: (2, 130, 1),
    22: (3,),
    40: (5, 64, 3, 3),
}
"""Ledger -> the batch sizes of its entries. 64, 65 and 130 lie at the ends of the words of an ack
set.
"""
ORDER: list[Entry] = [
    (ledger, entry) for ledger, sizes in TOPIC.items() for entry in range(len(sizes))
]
SIZE = {
    (ledger, entry): size for ledger, sizes in TOPIC.items() for entry, size in enumerate(sizes)
}
START = Position(10, -1)
SNAPSHOTS = {"snapshot_bytes_min": 1, "snapshot_cost_ratio": 0.0, "snapshot_interval_min_s": 0.0}


class Model:
    """Which messages are acked. Nothing else."""

    def __init__(self) -> None:
        self.acked: dict[Entry, set[int]] = {at: set() for at in ORDER}

    def individual(self, at: Entry, indexes: Iterable[int]) -> None:
        self.acked[at] |= set(indexes)

    def cumulative(self, at: Entry, indexes: Iterable[int]) -> None:
        for earlier in ORDER[: ORDER.index(at)]:
            self.acked[earlier] = set(range(SIZE[earlier]))
        self.acked[at] |= set(indexes)

    def remaining(self, at: Entry) -> set[int]:
        return set(range(SIZE[at])) - self.acked[at]

    @property
    def prefix(self) -> int:
        """Entries from the start that are wholly acked."""
        return next((n for n, at in enumerate(ORDER) if self.remaining(at)), len(ORDER))

    def assert_same(self, state: AckState) -> None:
        assert sum(Position(*at) <= state.mark_delete for at in ORDER) == self.prefix, (
            state.mark_delete
        )
        for at in ORDER:
            remaining = self.remaining(at)
            assert remaining_of(state, at) == remaining, at
            untouched = not self.acked[at]
            assert (state.partial(*at) is None) == (not remaining or untouched), (
                f"{at}: an element that says nothing"
            )


def remaining_of(state: AckState, at: Entry) -> set[int]:
    """The indexes that a broker would deliver."""
    if state.is_acked(*at):
        return set()
    partial = state.partial(*at)
    return set(range(SIZE[at])) if partial is None else set(partial.missing)


# ---- histories


@dataclass(frozen=True)
class Ack:
    """One CommandAck. `at` counts entries from the oldest, modulo what the topic has by then."""

    at: int
    indexes: frozenset[int]
    is_cumulative: bool
    with_size: bool


@dataclass(frozen=True)
class Rolled:
    """The topic's last ledger is closed and the next one opened."""


@dataclass(frozen=True)
class Crash:
    """The owner dies; `drained`: after everything it had accepted was durable."""

    drained: bool
    keep_tail: bool


INDEXES = st.frozensets(st.integers(0, 129), max_size=6) | st.integers(0, 130).map(
    lambda n: frozenset(range(n))
)
STEPS = (
    st.builds(
        Ack,
        st.integers(0, len(ORDER) - 1),
        INDEXES,
        st.sampled_from([False, False, False, True]),
        st.booleans(),
    )
    | st.just(Rolled())
    | st.builds(Crash, st.booleans(), st.booleans())
)


class Play:
    """A history on a cursor machine (real records, real footers) and on the model."""

    def __init__(self, limits: Limits) -> None:
        self.bench, self.model, self.owners = Bench(limits), Model(), 0
        self.ledgers = 1
        self.unconfirmed: list[tuple[int, Ack]] = []
        self.owner = self._open()

    def _layout(self) -> tuple[LayoutItem, ...]:
        """From the mark-delete ledger on: what a broker knows of its topic."""
        ids = list(TOPIC)[: self.ledgers]
        closed = [LayoutItem(ledger, LayoutState.CLOSED, len(TOPIC[ledger])) for ledger in ids[:-1]]
        return (*closed, LayoutItem(ids[-1], LayoutState.OPEN, 0))

    def _open(self) -> Owner:
        self.owners += 1
        return self.bench.owner(f"owner-{self.owners}").open(start=START, layout=self._layout())

    def step(self, step: Ack | Rolled | Crash) -> None:
        match step:
            case Ack():
                self._ack(step)
            case Rolled() if self.ledgers < len(TOPIC):
                self.ledgers += 1
                self.owner.seq += 1
                self.owner.step(ev.SetLayout(1, self.owner.seq, 1, self._layout()))
            case Crash():
                self._crash(step)
        assert self.owner.refused is None and self.owner.refused_handle is None, (
            self.owner.refused,
            self.owner.refused_handle,
        )

    def _ack(self, ack: Ack) -> None:
        known = [at for at in ORDER if at[0] in list(TOPIC)[: self.ledgers]]
        at = known[ack.at % len(known)]
        indexes = frozenset(i for i in ack.indexes if i < SIZE[at]) or frozenset(range(SIZE[at]))
        (self.model.cumulative if ack.is_cumulative else self.model.individual)(at, indexes)
        made = Ack(ORDER.index(at), indexes, ack.is_cumulative, ack.with_size)
        self._send(made)

    def _send(self, ack: Ack) -> None:
        at = ORDER[ack.at]
        make = cumulative if ack.is_cumulative else individual
        self.owner.seq += 1
        self.unconfirmed.append((self.owner.seq, ack))
        batch: AckBatch = make(
            self.owner.seq, at, ack_set(SIZE[at], ack.indexes), SIZE[at] if ack.with_size else 0
        )
        self.owner.step(ev.Acks(1, batch))

    def flush(self) -> None:
        self.owner.go()
        assert self.owner.durable == self.owner.seq
        self.unconfirmed.clear()

    def _crash(self, crash: Crash) -> None:
        if crash.drained:
            self.flush()
        self.bench.keep_tail = crash.keep_tail
        lost = [ack for seq, ack in self.unconfirmed if seq > self.owner.durable]
        self.unconfirmed.clear()
        self.owner = self._open()
        if not crash.drained:
            self._assert_between(lost)
            for ack in lost:  # what a source does: send again what was not confirmed
                self._send(ack)
            self.flush()
        self.model.assert_same(self.owner.machine.acks)

    def _assert_between(self, lost: list[Ack]) -> None:
        """Everything confirmed is there; nothing is there that was never sent."""
        for at in ORDER:
            found = set(range(SIZE[at])) - remaining_of(self.owner.machine.acks, at)
            assert found <= self.model.acked[at], (
                f"{at}: {found - self.model.acked[at]} acked by nobody"
            )
            perhaps = {i for ack in lost for i in _acks_of(ack, at)}
            assert self.model.acked[at] - perhaps <= found, f"{at}: confirmed and lost"


def _acks_of(ack: Ack, at: Entry) -> set[int]:
    mine = ORDER[ack.at]
    if at == mine:
        return set(ack.indexes)
    return set(range(SIZE[at])) if ack.is_cumulative and ORDER.index(at) < ack.at else set()


@given(st.lists(STEPS, min_size=1, max_size=25), st.booleans())
@settings(max_examples=150, deadline=None)
def test_r15_batch_indexes_follow_pulsars_rules_over_crashes(
    history: list[Ack | Rolled | Crash], with_snapshots: bool
) -> None:
    play = Play(Limits(**SNAPSHOTS) if with_snapshots else Limits())
    for step in history:
        play.step(step)
    play.flush()
    play.model.assert_same(play.owner.machine.acks)
    play.step(Crash(drained=True, keep_tail=False))


# ---- the rules one by one


def opened() -> Owner:
    return (
        Bench()
        .owner("A")
        .open(
            start=START,
            layout=(LayoutItem(10, LayoutState.CLOSED, 4), LayoutItem(21, LayoutState.OPEN, 0)),
        )
    )


def send(
    owner: Owner, at: Entry, size: int, acked: Iterable[int], *, is_cumulative: bool = False
) -> None:
    owner.seq += 1
    make = cumulative if is_cumulative else individual
    owner.step(ev.Acks(1, make(owner.seq, at, ack_set(size, acked), size)))
    owner.go()
    assert owner.durable == owner.seq


def missing(owner: Owner, at: Entry) -> set[int] | None:
    partial = owner.machine.acks.partial(*at)
    return None if partial is None else set(partial.missing)


def test_r15_one_in_a_bit_means_not_acknowledged() -> None:
    """The example of Pulsar's format: indexes 0 and 3 of ten are acked, the word is 0x3F6."""
    owner = opened()
    owner.seq += 1
    owner.step(ev.Acks(1, individual(owner.seq, (10, 2), [0x3F6], 10)))
    owner.go()
    assert missing(owner, (10, 2)) == {1, 2, 4, 5, 6, 7, 8, 9}


@pytest.mark.parametrize("size", [1, 2, 63, 64, 65, 128, 130])
def test_r15_words_end_where_the_batch_ends(size: int) -> None:
    last = opened()
    send(last, (10, 2), size, [size - 1])
    assert missing(last, (10, 2)) == (set(range(size - 1)) or None), "one message: the whole entry"
    if size > 1:
        all_but_last = opened()
        send(all_but_last, (10, 2), size, range(size - 1))
        assert missing(all_but_last, (10, 2)) == {size - 1}


def test_r15_acks_only_clear_bits_and_the_last_one_promotes() -> None:
    owner = opened()
    send(owner, (10, 0), 3, [1])
    assert missing(owner, (10, 0)) == {0, 2}
    send(owner, (10, 0), 3, [0])
    assert missing(owner, (10, 0)) == {2}, "stored AND given: the given set had bit 1"
    send(owner, (10, 0), 3, [2])
    assert owner.machine.acks.is_acked(10, 0) and missing(owner, (10, 0)) is None
    assert owner.machine.acks.mark_delete == Position(10, 0), "a promoted entry moves mark-delete"
    send(owner, (10, 0), 3, [1])
    assert missing(owner, (10, 0)) is None, "at or below mark-delete: ignored"


def test_r15_a_whole_ack_drops_the_partial_state() -> None:
    owner = opened()
    send(owner, (10, 2), 5, [0, 4])
    send(owner, (10, 2), 5, range(5))
    assert missing(owner, (10, 2)) is None and owner.machine.acks.is_acked(10, 2)


def test_r15_a_cumulative_ack_inside_a_batch() -> None:
    """Mark-delete is the entry before; of this entry remains what neither it nor an earlier
    individual ack acked.
    """
    owner = opened()
    send(owner, (10, 2), 10, [7])
    send(owner, (10, 2), 10, range(4), is_cumulative=True)
    assert owner.machine.acks.mark_delete == Position(10, 1)
    assert missing(owner, (10, 2)) == {4, 5, 6, 8, 9}
    send(owner, (10, 2), 10, range(2), is_cumulative=True)
    assert missing(owner, (10, 2)) == {4, 5, 6, 8, 9}, "one that is less far changes nothing"


def test_r15_mark_delete_crosses_into_the_next_ledger_and_stops_at_a_partial() -> None:
    owner = opened()
    send(owner, (21, 0), 3, range(3))
    send(owner, (21, 1), 3, [0])
    send(owner, (10, 3), 2, [0])
    for entry in range(3):
        send(owner, (10, entry), 1, [0])
    assert owner.machine.acks.mark_delete == Position(10, 2), "10:3 still has an index to deliver"
    send(owner, (10, 3), 2, [1])
    assert owner.machine.acks.mark_delete == Position(21, 0)
    assert missing(owner, (21, 1)) == {1, 2}


def test_r15_a_lone_partial_ack_survives_a_crash() -> None:
    """Pulsar never writes it: it does not even mark the cursor dirty (apache/pulsar #26498)."""
    owner = opened()
    send(owner, (10, 0), 3, [1])
    owner.bench.keep_tail = False
    following = owner.bench.opened("B")
    assert missing(following, (10, 0)) == {0, 2}

"""Random histories of one cursor, and the plainest possible model of what they mean.

A history is a list of steps; `Played` runs it on an `AckState` and on a `Model` (sets of pairs, no
bitmaps, no cleverness) and keeps the deltas. The topic is fixed: five data ledgers with gaps
between their ids, one of them empty.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
from hypothesis import strategies as st
from pyroaring import BitMap

from cursorkeeper.core.batch import AckBatch, LedgerColumns
from cursorkeeper.core.errors import RefusedError
from cursorkeeper.core.intake_check import IntakeCheck, Queued
from cursorkeeper.core.limits import Limits
from cursorkeeper.core.positions import Position
from cursorkeeper.core.state import AckState
from cursorkeeper.core.values import Delta, LayoutItem, LayoutState, Partial

TOPIC = {10: 5, 20: 0, 31: 4, 47: 6, 58: 9}
"""Ledger -> entries it has when it is closed."""
LEDGERS = tuple(TOPIC)
BATCH_SIZE = 3
START = Position(10, -1)


@dataclass(frozen=True)
class Acked:
    """One batch: entries one by one, ranges, partly acked batches, perhaps a cumulative ack."""

    entries: tuple[tuple[int, int], ...] = ()
    ranges: tuple[tuple[int, int, int], ...] = ()
    partials: tuple[tuple[int, int, frozenset[int], bool], ...] = ()
    mark_delete: Position | None = None

    def batch(self) -> AckBatch:
        columns = []
        for ledger in LEDGERS:
            entries = [e for owner, e in self.entries if owner == ledger]
            ranges = [x for owner, a, b in self.ranges if owner == ledger for x in (a, b)]
            partials = tuple(
                (e, Partial(BATCH_SIZE if sized else 0, BitMap(missing)))
                for owner, e, missing, sized in self.partials
                if owner == ledger
            )
            if entries or ranges or partials:
                columns.append(
                    LedgerColumns(
                        ledger,
                        BitMap(entries),
                        np.array(ranges, np.uint32) if ranges else None,
                        partials,
                    )
                )
        return AckBatch(1, 1, self.mark_delete, tuple(columns))


@dataclass(frozen=True)
class Told:
    """A layout run: ledgers below `trimmed` are trimmed, those below `upto` closed, `upto` is the
    last, open or closed.
    """

    trimmed: int
    upto: int
    last_is_open: bool

    def run(self, first: int) -> tuple[LayoutItem, ...]:
        items = []
        for at in range(first, self.upto + 1):
            ledger = LEDGERS[at]
            if at < self.trimmed:
                items.append(LayoutItem(ledger, LayoutState.TRIMMED, 0))
            elif at == self.upto and self.last_is_open:
                items.append(LayoutItem(ledger, LayoutState.OPEN, 0))
            else:
                items.append(LayoutItem(ledger, LayoutState.CLOSED, TOPIC[ledger]))
        return tuple(items)


Step = Acked | Told

_PLACES = st.sampled_from([(ledger, e) for ledger, n in TOPIC.items() for e in range(n)])


@st.composite
def _ranges(draw: st.DrawFn) -> tuple[int, int, int]:
    ledger = draw(st.sampled_from([x for x in LEDGERS if TOPIC[x]]))
    first = draw(st.integers(0, TOPIC[ledger] - 1))
    return ledger, first, draw(st.integers(first, TOPIC[ledger] - 1))


_PARTIALS = st.builds(
    lambda place, missing, sized: (*place, missing, sized),
    _PLACES,
    st.frozensets(st.integers(0, BATCH_SIZE - 1), max_size=BATCH_SIZE),
    st.booleans(),
)
_ACKED = st.builds(
    Acked,
    st.lists(_PLACES, max_size=6).map(tuple),
    st.lists(_ranges(), max_size=2).map(tuple),
    st.lists(_PARTIALS, max_size=3).map(tuple),
    st.none() | st.none() | _PLACES.map(lambda p: Position(*p)),
)
_TOLD = st.builds(Told, st.integers(0, 4), st.integers(0, 4), st.booleans())
HISTORIES = st.lists(_ACKED | _ACKED | _TOLD, min_size=1, max_size=14)


class Model:
    """Pairs (ledger, entry) that are acked, indexes that are missing, what the layout says. Slow
    and obvious.
    """

    def __init__(self) -> None:
        self.mark_delete = START
        self.acked: set[tuple[int, int]] = set()
        self.missing: dict[tuple[int, int], set[int]] = {}
        self.layout: dict[int, LayoutItem] = {}

    def is_acked(self, ledger: int, entry: int) -> bool:
        item = self.layout.get(ledger)
        trimmed = item is not None and item.state is LayoutState.TRIMMED
        return (ledger, entry) <= self.mark_delete or (ledger, entry) in self.acked or trimmed

    def play(self, step: Step) -> None:
        if isinstance(step, Told):
            for item in step.run(0):
                known = self.layout.get(item.ledger)
                if known is None or known.state < item.state:
                    self.layout[item.ledger] = item
        else:
            if step.mark_delete is not None:
                self.mark_delete = max(self.mark_delete, step.mark_delete)
            self.acked |= set(step.entries)
            self.acked |= {(ledger, e) for ledger, a, b in step.ranges for e in range(a, b + 1)}
            for ledger, entry, missing, _ in step.partials:
                left = self.missing.get((ledger, entry), set(range(BATCH_SIZE))) & missing
                self.missing[ledger, entry] = left
                if not left:
                    self.acked.add((ledger, entry))
        self._advance()

    def _advance(self) -> None:
        ledger, entry = self.mark_delete
        while True:
            item = self.layout.get(ledger)
            state = None if item is None else item.state
            if state is not LayoutState.TRIMMED and self.is_acked(ledger, entry + 1):
                entry += 1
                self.mark_delete = Position(ledger, entry)
                continue
            ended = state is LayoutState.TRIMMED or (
                item is not None and state is LayoutState.CLOSED and entry >= item.entries - 1
            )
            after = [x for x in sorted(self.layout) if x > ledger]
            if not ended or not after:
                return
            ledger, entry = after[0], -1

    def assert_same(self, state: AckState) -> None:
        assert state.mark_delete == self.mark_delete
        for ledger, count in TOPIC.items():
            for entry in range(count):
                here = self.is_acked(ledger, entry)
                assert state.is_acked(ledger, entry) == here, (ledger, entry)
                known = state.partial(ledger, entry)
                missing = self.missing.get((ledger, entry))
                if here or missing is None:
                    assert known is None, (ledger, entry)
                else:
                    assert known is not None and set(known.missing) == missing


@dataclass
class Played:
    """A history on a state and on the model. `deltas[i]` is what step i changed; refused steps are
    left out.
    """

    state: AckState = field(default_factory=lambda: AckState(START))
    model: Model = field(default_factory=Model)
    deltas: list[Delta] = field(default_factory=list)
    last_run: tuple[LayoutItem, ...] = ()

    def steps(self, history: Iterable[Step]) -> Iterator[Delta]:
        check = IntakeCheck("c", Limits())
        for step in history:
            try:
                delta = self._step(step, check)
            except RefusedError:
                continue
            self.model.play(step)
            self.deltas.append(delta)
            yield delta

    def _step(self, step: Step, check: IntakeCheck) -> Delta:
        if isinstance(step, Acked):
            batch = step.batch()
            check.batch(batch, self.state, Queued())
            return self.state.apply([batch])
        known = [at for at, ledger in enumerate(LEDGERS) if ledger in self.state.layout]
        first = known[0] if known else LEDGERS.index(self.state.mark_delete.ledger)
        run = step.run(first)
        check.layout(run, self.state)
        self.last_run = run
        return self.state.apply_layout(run)

    def all(self, history: Iterable[Step]) -> Played:
        for _ in self.steps(history):
            pass
        return self

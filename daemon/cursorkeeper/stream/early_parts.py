"""A large state as messages while it is still being read: for sources, whose own work on it then
overlaps the daemon's.

Owns what may leave before the state is known: slices of segments as they were stored, and large
sets of deltas. What else was joined follows at the end. Invariant: what was sent, with `rest`, says
what the parts of the whole state say; where that is not sure `rest` is None, and Opened, which
makes a source forget the parts before it, comes again with everything.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from itertools import chain

from pyroaring import BitMap

from cursorkeeper.core import bitmaps
from cursorkeeper.core.entries import as_set
from cursorkeeper.core.machine import CursorMachine
from cursorkeeper.core.state import AckState
from cursorkeeper.core.values import Delta, Segment, Slice
from cursorkeeper.stream import state_parts
from cursorkeeper_client._proto import acks_pb2 as pb

EARLY_FROM_BYTES = 1 << 20
"""A state of less is sent when it is known."""
SET_BYTES_MIN = 4 << 10
"""A set of a delta that takes less is joined with others of its data ledger first."""
HELD_BYTES_MAX = 32 << 20
"""Slices that the source has not read yet, and small sets. Of more, the rest of the state is sent
when it is known, and what was sent already once more.
"""


class EarlyParts:
    """For one handle, of one machine that is READING."""

    def __init__(self, handle: int, machine: CursorMachine) -> None:
        self.machine, self._handle = machine, handle
        self._generation, self._epoch = machine.generation, machine.epoch
        self._slices: deque[tuple[Slice, int]] = deque()
        self._small: dict[int, BitMap] = {}
        self._small_bytes = self._held_bytes = 0
        self._ledgers: set[int] = set()
        self._batches: dict[int, BitMap] = {}
        """Entries that were told to be partly acked: two records may complete one."""
        self._begun = self._is_queued = self._is_over = False

    def add(self, joined: Sequence[Delta | Segment] | None) -> None:
        """What the state was joined with; None: something that is not told."""
        if joined is None:
            self._give_up()
        for part in joined or ():
            if self._is_over:
                return
            for ledger, entry in part.partials:
                self._batches.setdefault(ledger, BitMap()).add(entry)
            if isinstance(part, Segment):
                for one in part.slices:
                    self._put(one, one.bitmap.__sizeof__())
            else:
                for ledger, acked in part.acks.items():
                    self._add_acked(ledger, as_set(acked))
        if self._held_bytes + self._small_bytes > HELD_BYTES_MAX:
            self._give_up()

    def _give_up(self) -> None:
        self._is_over = True
        self._slices.clear()
        self._small.clear()

    def _add_acked(self, ledger: int, acked: BitMap) -> None:
        if not acked:
            return
        size = acked.__sizeof__()
        if size >= SET_BYTES_MIN:
            self._put(Slice(ledger, acked.min(), acked.max(), False, acked), size)
        elif ledger in self._small:
            before = self._small[ledger].__sizeof__()
            self._small[ledger] |= acked
            self._small_bytes += self._small[ledger].__sizeof__() - before
        else:
            self._small[ledger] = acked.copy()
            self._small_bytes += size

    def _put(self, one: Slice, size: int) -> None:
        self._slices.append((one, size))
        self._held_bytes += size
        self._ledgers.add(one.ledger)

    @property
    def is_due(self) -> bool:
        """Whether `messages` are to be sent: there is something that no earlier ones give."""
        has_more = bool(self._slices) and not self._is_queued
        return has_more and (self._begun or self._held_bytes >= EARLY_FROM_BYTES)

    def messages(self) -> Iterator[pb.KeeperMessage]:
        """Opened, if it was not sent yet, and parts, until nothing is left."""
        self._is_queued = True
        return self._messages()

    def _messages(self) -> Iterator[pb.KeeperMessage]:
        if not self._begun:
            self._begun = True
            yield state_parts.opened(self._handle, self.machine, created=False)
        part, size = pb.StatePart(handle=self._handle), 0
        while self._slices:
            one, taken = self._slices.popleft()
            self._held_bytes -= taken
            size += _add(part, one)
            if size >= state_parts.PART_BYTES or not self._slices:
                yield pb.KeeperMessage(state_part=part)
                part, size = pb.StatePart(handle=self._handle), 0
        self._is_queued = False

    def rest(self, machine: CursorMachine, *, created: bool) -> Iterator[pb.KeeperMessage] | None:
        """What follows, to StateEnd, now that the state is known; None: all of it is to be sent."""
        state = machine.acks
        known = (self._epoch, self._generation) == (machine.epoch, machine.generation)
        if self._is_over or not self._begun or created or not known or self._is_forgotten(state):
            self._give_up()
            return None
        for ledger, entries in self._batches.items():
            if (acks := state.ledgers.get(ledger)) is not None:
                known_of = bitmaps.between(entries, 0, acks.high_water - 1)
                self._add_acked(ledger, known_of - acks.holes)
        for ledger, acked in self._small.items():
            if ledger in state.ledgers:
                self._put(Slice(ledger, acked.min(), acked.max(), False, acked), 0)
        return chain(self._messages(), self._end(state))

    def _is_forgotten(self, state: AckState) -> bool:
        """Acks of a ledger that was trimmed since are not among the state."""
        return any(
            state.layout.is_trimmed(ledger) or ledger not in state.ledgers
            for ledger in self._ledgers | self._small.keys()
            if ledger >= state.mark_delete.ledger
        )

    def _end(self, state: AckState) -> Iterator[pb.KeeperMessage]:
        for part in state_parts.with_partials(pb.StatePart(handle=self._handle), state):
            yield pb.KeeperMessage(state_part=part)
        yield pb.KeeperMessage(state_end=state_parts.end(self._handle, state))


def _add(part: pb.StatePart, one: Slice) -> int:
    """Adds a slice to a part; about its bytes."""
    data = one.bitmap.serialize()
    part.slices.add(
        ledger_id=one.ledger, first=one.first, last=one.last, holes=one.holes, roaring=data
    )
    return len(data) + 32

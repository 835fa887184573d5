"""Serves the cursor's state: what is acked of each data ledger, small where there are many.

A ledger that is worked with is an object with a bitmap. Most ledgers are left alone for long:
`pack` turns them into rows, the holes in roaring's serialized form, with what is often asked in
columns beside it. An object is made again for whoever asks; a change is kept only of one that was
taken by `own`.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import field
from itertools import islice
from typing import Any, Final

from pyroaring import BitMap

from cursorkeeper.core.budget import CONTAINER_BYTES, LEDGER_BYTES, containers_below
from cursorkeeper.core.entries import Entries, last_of
from cursorkeeper.core.shape import component

ONE_BY_ONE_MAX: Final = 16
"""So many acks are taken out of the holes faster one by one."""
CUTS_MAX: Final = 512
"""A run takes 4 bytes: so many more of them are 2 KiB."""
RUNS_MAX: Final = 1_024
"""So many in a container take half of what its bits take."""
HEAD_BYTES: Final = 16
RUN_BYTES: Final = 4
BITS_BYTES: Final = 8_192
"""Of a container, as roaring counts them: of itself, of a run, and of bits."""
PACKED_BYTES_MAX: Final = 16_384
"""Holes that take more stay a bitmap: what an object takes beside them does not show."""


@component
class LedgerAcks:
    """One data ledger: acked = [0, high_water) minus holes."""

    holes: BitMap = field(default_factory=BitMap)
    high_water: int = 0
    counted_bytes: int = 0
    """What it took when it was counted last."""
    _cuts: int = 0
    """Entries that were taken out of the holes one by one since roaring chose how to keep them."""

    def measured_bytes(self) -> int:
        """About how much memory it takes now."""
        holes, containers = self.holes, containers_below(self.high_water)
        if containers > 1:
            containers = min(containers, len(holes))
        elif not holes:  # how many there are is not asked: all runs would be looked at
            containers = 0
        return LEDGER_BYTES + holes.__sizeof__() + CONTAINER_BYTES * containers

    def grow(self, high_water: int) -> None:
        """Entries up to the new high water become known as un-acked."""
        if high_water > self.high_water:
            self.holes.add_range(self.high_water, high_water)
            self.high_water = high_water

    def extend(self, holes: BitMap, high_water: int) -> None:
        """Entries up to the new high water become known: acked, but for these holes."""
        self.holes |= holes
        self.high_water = high_water

    def ack(self, entries: Entries) -> Entries:
        """Returns the newly acked ones, which may be the same set: it must not be changed."""
        if not entries:
            return entries
        high_water = last_of(entries) + 1
        if high_water > self.high_water:
            self.grow(high_water)
        if isinstance(entries, tuple):
            return self._ack_few(entries)
        if len(entries) <= ONE_BY_ONE_MAX:
            return self._ack_few(tuple(entries))
        fresh = entries & self.holes
        # the same as a difference, but a run that is cut some thirty times stays a run instead of 8
        # KiB of bits
        self.holes ^= fresh
        self._keep_runs(len(fresh))
        return fresh

    def _keep_runs(self, changed: int) -> None:
        """Where few are acked between the holes, runs are smaller than the bits that a change may
        have made of them. What was changed pays for the containers that are looked at.
        """
        holes, containers = self.holes, containers_below(self.high_water)
        if containers > changed or not holes:
            return
        between = self.high_water - holes.min() - len(holes)
        runs_bytes = RUN_BYTES * between + HEAD_BYTES * containers
        if between <= RUNS_MAX * containers and holes.__sizeof__() > runs_bytes + BITS_BYTES // 2:
            holes.run_optimize()

    def _ack_few(self, entries: tuple[Any, ...]) -> tuple[int, ...]:
        """One by one: a set operation copies the container, which costs as much as some thirty of
        these. Numbers are handed on as the objects that they are: machine code would make others
        of them.
        """
        holes = self.holes
        fresh = [entry for entry in entries if entry in holes]
        discard = holes.discard  # looked up once
        for entry in fresh:
            discard(entry)
        self._cuts += len(fresh)
        if self._cuts > CUTS_MAX:
            self.settle()
        return entries if len(fresh) == len(entries) else tuple(fresh)

    def settle(self) -> None:
        """Each entry that was taken out by itself may have cut a run in two, and nobody has looked
        whether bits are smaller.
        """
        if self._cuts:
            self._cuts = 0
            self.holes.run_optimize()

    def ack_through(self, entry: int) -> None:
        """Acks everything up to an entry."""
        if entry < 0:
            return
        self.holes.remove_range(0, entry + 1)
        self.high_water = max(self.high_water, entry + 1)

    def first_unacked(self) -> int:
        """The first entry that is not acked: a hole, or the high water."""
        return self.holes.min() if self.holes else self.high_water

    def is_acked(self, entry: int) -> bool:
        """Whether one entry is acked."""
        return entry < self.high_water and entry not in self.holes


class LedgerTable:
    """The ledgers of a state by id, ascending. See the module."""

    __slots__ = (
        "_counted_bytes",
        "_high_waters",
        "_hole_counts",
        "_ids",
        "_own",
        "_packed",
        "memory_bytes",
    )

    def __init__(self) -> None:
        self._own: dict[int, LedgerAcks] = {}
        """Those that may have changed since they were packed, in the order in which they were
        taken.
        """
        self._ids = array("q")
        self._high_waters = array("Q")
        self._hole_counts = array("Q")
        self._counted_bytes = array("Q")
        self._packed: list[bytes | LedgerAcks] = []
        """Rows of all ledgers; of those in `_own` all but the id is 0 or empty."""
        self.memory_bytes = 0
        """What all ledgers took when each was counted last."""

    def __len__(self) -> int:
        return len(self._ids)

    def __iter__(self) -> Iterator[int]:
        return iter(self._ids.tolist())

    def __contains__(self, ledger: int) -> bool:
        return ledger in self._own or self._row(ledger) >= 0

    def __getitem__(self, ledger: int) -> LedgerAcks:
        acks = self.get(ledger)
        if acks is None:
            raise KeyError(ledger)
        return acks

    def __delitem__(self, ledger: int) -> None:
        acks, at = self[ledger], self._row(ledger)
        self.memory_bytes -= acks.counted_bytes
        self._own.pop(ledger, None)
        for column in (self._ids, self._high_waters, self._hole_counts, self._counted_bytes):
            del column[at]
        del self._packed[at]

    def get(self, ledger: int) -> LedgerAcks | None:
        """The ledger, for reading: a change of it may be lost. None: it is not known."""
        acks = self._own.get(ledger)
        if acks is None:
            at = self._row(ledger)
            return None if at < 0 else self._read(at)
        return acks

    def high_water(self, ledger: int) -> int:
        """Of one ledger; 0: it is not known."""
        acks = self._own.get(ledger)
        if acks is not None:
            return acks.high_water
        at = self._row(ledger)
        return 0 if at < 0 else self._high_waters[at]

    @property
    def entry_count(self) -> int:
        """Entries below the high waters of all ledgers."""
        return sum(self._high_waters) + sum(a.high_water for a in self._own.values())

    @property
    def hole_count(self) -> int:
        return sum(self._hole_counts) + sum(len(a.holes) for a in self._own.values())

    def values(self) -> Iterator[LedgerAcks]:
        return (acks for _, acks in self.items())

    def items(self) -> Iterator[tuple[int, LedgerAcks]]:
        return ((ledger, self[ledger]) for ledger in self)

    def own(self, ledger: int) -> LedgerAcks:
        """To be changed, until the next `pack`; made if it is not known."""
        acks = self._own.get(ledger)
        if acks is None:
            at = self._row(ledger)
            if at >= 0:
                acks = self._read(at)
            else:
                acks, at = LedgerAcks(), ~at
                self._ids.insert(at, ledger)
                for column in (self._high_waters, self._hole_counts, self._counted_bytes):
                    column.insert(at, 0)
                self._packed.insert(at, b"")
            self._own[ledger] = acks
            self._put(at, b"", 0, 0, 0)
        return acks

    def count(self, acks: LedgerAcks) -> None:
        """Brings the count of memory up to date after a change of a ledger."""
        now = acks.measured_bytes()
        self.memory_bytes += now - acks.counted_bytes
        acks.counted_bytes = now

    def pack(self, own_max: int = 0) -> None:
        """Leaves only so many objects, those that were taken last."""
        for ledger in list(islice(self._own, max(0, len(self._own) - own_max))):
            acks, at = self._own.pop(ledger), self._row(ledger)
            acks.settle()
            self.count(acks)
            holes, is_small = acks.holes, acks.holes.__sizeof__() <= PACKED_BYTES_MAX
            row = holes.serialize() if is_small else acks
            self._put(at, row, acks.high_water, len(holes), acks.counted_bytes)

    def _put(
        self, at: int, row: bytes | LedgerAcks, high_water: int, holes: int, counted_bytes: int
    ) -> None:
        self._packed[at] = row
        self._high_waters[at], self._hole_counts[at] = high_water, holes
        self._counted_bytes[at] = counted_bytes

    def _row(self, ledger: int) -> int:
        """Where it is; ~ where it would be, if it is not known."""
        at = bisect_left(self._ids, ledger)
        return at if at < len(self._ids) and self._ids[at] == ledger else ~at

    def _read(self, at: int) -> LedgerAcks:
        packed = self._packed[at]
        if isinstance(packed, LedgerAcks):
            return packed
        holes = BitMap.deserialize(packed)
        return LedgerAcks(holes, self._high_waters[at], self._counted_bytes[at])

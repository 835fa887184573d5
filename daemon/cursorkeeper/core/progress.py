"""Accepted, in flight, durable: the three names for progress, and which confirmation follows from
them.

Records are numbered in the order in which they were taken. A source's message is *bound* to the
record that holds what it changed, or (if it changed nothing) to the newest record that is not
durable yet, or to none: then it is confirmed at once. Invariant: durable <= in_flight <= accepted,
as record numbers. Confirmations follow the state, not the message: recovered state is durable, so a
repeated ack of it is confirmed although no record is written.

Every question is asked at every event, so none of them looks at more than one message: bound and
unbound messages stand in queues of their own (all bound ones arrived earlier), and a message moves
between them once per record.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Set
from dataclasses import field

from cursorkeeper.core import effects as fx
from cursorkeeper.core.shape import component


@component
class Binding:
    """A message waits for `record`; None: it waits for the record that the next flush takes."""

    record: int | None
    attach: int
    seq: int
    bytes: int
    at_s: float


@component
class Progress:
    taken: int = 0
    """Number of the newest record taken."""
    durable: int = 0
    """Every record up to this one is durable."""
    _bound: deque[Binding] = field(default_factory=deque)
    """Messages that wait for a record which was taken, oldest first; their records ascend."""
    _unbound: deque[Binding] = field(default_factory=deque)
    """Messages that wait for the next record, oldest first. All of them arrived after the bound
    ones.
    """
    _holding: deque[Binding] = field(default_factory=deque)
    """Those of the unbound that still hold bytes of credit."""
    _bytes: int = 0
    _confirmed: tuple[int, int] = (0, 0)
    """The newest confirmation: its handle and seq. A handle's messages are all decided before
    its successor's are.
    """
    withheld: bool = False
    """What is stored is less than what was durable: a message may repeat what is missing, so
    none is confirmed.
    """

    def withhold(self, *, is_withheld: bool) -> None:
        """Whether nothing is confirmed."""
        self.withheld = is_withheld

    @property
    def oldest_unconfirmed_s(self) -> float | None:
        """When the oldest message that is not confirmed arrived."""
        return self._bound[0].at_s if self._bound else self.oldest_unbound_s

    @property
    def unconfirmed_bytes(self) -> int:
        """Bytes of credit that are held by messages not yet confirmed."""
        return self._bytes

    @property
    def has_unbound(self) -> bool:
        """Some message waits for the next record."""
        return bool(self._unbound)

    @property
    def oldest_unbound_s(self) -> float | None:
        """When the oldest message that waits for the next record arrived."""
        return self._unbound[0].at_s if self._unbound else None

    @property
    def is_clear(self) -> bool:
        """Everything taken is durable and every message was confirmed."""
        return self.durable == self.taken and not self._bound and not self._unbound

    @property
    def is_of_one_handle(self) -> bool:
        """All messages that are not confirmed are of one handle, or there are none."""
        oldest = self._bound[0] if self._bound else self._unbound[0] if self._unbound else None
        newest = self._unbound[-1] if self._unbound else self._bound[-1] if self._bound else None
        return oldest is None or newest is None or oldest.attach == newest.attach

    def accept(self, attach: int, seq: int, size: int, now: float) -> None:
        """A message was kept."""
        binding = Binding(None, attach, seq, size, now)
        self._unbound.append(binding)
        if size:
            self._holding.append(binding)
            self._bytes += size

    def take(self, records: int = 1, *, is_all: bool = True) -> range:
        """Records were taken at one instant: everything accepted until now is in them, or is
        already durable.

        Messages bind to the last one. Not `is_all`: more records of what was accepted will follow,
        and messages bind to the last of those. Returns the records' numbers.
        """
        first = self.taken + 1
        self.taken += records
        if is_all:
            self._bind(self.taken)
        return range(first, self.taken + 1)

    def bind_to_newest(self) -> None:
        """A flush found nothing new."""
        self._bind(self.taken)

    def _bind(self, record: int) -> None:
        for binding in self._unbound:
            binding.record = record
        self._bound += self._unbound
        self._unbound.clear()
        self._holding.clear()

    def made_durable(self, record: int) -> list[fx.Effect]:
        """Every record up to this one is durable; returns the confirmations."""
        if record < self.durable:
            raise AssertionError(f"durable goes back from {self.durable} to {record}")
        if record > self.taken:
            raise AssertionError(f"record {record} was never taken")
        self.durable = record
        return self.confirmations()

    def confirmations(self) -> list[fx.Effect]:
        """What may be confirmed now: one per handle, cumulative."""
        decided: list[Binding] = []
        while self._bound and not self.withheld:
            record = self._bound[0].record
            if record is None or record > self.durable:
                break
            decided.append(self._bound.popleft())
        return self._confirm(decided)

    def _confirm(self, decided: list[Binding]) -> list[fx.Effect]:
        found: dict[int, fx.Confirm] = {}
        for binding in decided:
            self._bytes -= binding.bytes
            self._confirmed = binding.attach, binding.seq
            before = found.get(binding.attach)
            released = binding.bytes + (before.released_bytes if before else 0)
            found[binding.attach] = fx.Confirm(binding.attach, binding.seq, released)
        return list(found.values())

    def released(self) -> list[fx.Effect]:
        """Messages that wait for the next record give their bytes back without being confirmed:
        they are in the state.
        """
        found: dict[int, int] = {}
        for binding in self._holding:
            found[binding.attach] = found.get(binding.attach, 0) + binding.bytes
            self._bytes -= binding.bytes
            binding.bytes = 0
        self._holding.clear()
        newest, seq = self._confirmed
        return [
            fx.Confirm(attach, seq if attach == newest else 0, size)
            for attach, size in sorted(found.items())
        ]

    def put_back(self) -> None:
        """The records that are not durable are taken again: their messages wait for the next
        one.
        """
        self.taken = self.durable
        while self._bound:
            record = self._bound[-1].record
            if record is not None and record <= self.durable:
                break
            binding = self._bound.pop()
            binding.record = None
            self._unbound.appendleft(binding)
            if binding.bytes:
                self._holding.appendleft(binding)

    def decide_until(self, waiting: Set[tuple[int, int]]) -> list[fx.Effect]:
        """Messages that arrived before the first of these (attach, seq) are decided: dropped by a
        reset, as the source asked.
        """
        decided: list[Binding] = []
        for queue in (self._bound, self._unbound):
            while queue and (queue[0].attach, queue[0].seq) not in waiting:
                binding = queue.popleft()
                if self._holding and self._holding[0] is binding:
                    self._holding.popleft()
                decided.append(binding)
            if queue:
                break
        return self._confirm(decided)

    def decide_all(self) -> list[fx.Effect]:
        """Everything kept is decided (by an inline commit or a reset): confirm it."""
        self._bind(self.taken)
        return self.made_durable(self.taken)

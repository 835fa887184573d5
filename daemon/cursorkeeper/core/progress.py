"""Accepted, in flight, durable: the three names for progress, and which confirmation follows from them.

Records are numbered in the order in which they were taken. A source's message is *bound* to the record that holds
what it changed, or (if it changed nothing) to the newest record that is not durable yet, or to none: then it is
confirmed at once. Invariant: durable <= in_flight <= accepted, as record numbers. Confirmations follow the state, not
the message: recovered state is durable, so a repeated ack of it is confirmed although no record is written.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Set
from dataclasses import dataclass

from cursorkeeper.core import effects as fx


@dataclass(slots=True)
class Binding:
    """A message waits for `record`; None: it waits for the record that the next flush takes."""

    record: int | None
    attach: int
    seq: int
    bytes: int
    at_s: float


class Progress:
    """See the module."""

    def __init__(self) -> None:
        self.taken = 0
        """Number of the newest record taken."""
        self.durable = 0
        """Every record up to this one is durable."""
        self._bindings: deque[Binding] = deque()
        self._confirmed: dict[int, int] = {}
        """Handle -> seq of its newest confirmation."""

    @property
    def oldest_unconfirmed_s(self) -> float | None:
        """When the oldest message that is not confirmed arrived."""
        return self._bindings[0].at_s if self._bindings else None

    @property
    def unconfirmed_bytes(self) -> int:
        """Bytes of credit that are held by messages not yet confirmed."""
        return sum(b.bytes for b in self._bindings)

    @property
    def has_unbound(self) -> bool:
        """Some message waits for the next record."""
        return bool(self._bindings) and self._bindings[-1].record is None

    @property
    def oldest_unbound_s(self) -> float | None:
        """When the oldest message that waits for the next record arrived."""
        found = None
        for binding in reversed(self._bindings):
            if binding.record is not None:
                break
            found = binding.at_s
        return found

    @property
    def is_clear(self) -> bool:
        """Everything taken is durable and every message was confirmed."""
        return self.durable == self.taken and not self._bindings

    def accept(self, attach: int, seq: int, size: int, now: float) -> None:
        """A message was kept."""
        self._bindings.append(Binding(None, attach, seq, size, now))

    def take(self, records: int = 1) -> range:
        """Records were taken at one instant: everything accepted until now is in them, or is already durable.

        Messages bind to the last one. Returns the records' numbers.
        """
        first = self.taken + 1
        self.taken += records
        self._bind(self.taken)
        return range(first, self.taken + 1)

    def bind_to_newest(self) -> None:
        """A flush found nothing new."""
        self._bind(self.taken)

    def _bind(self, record: int) -> None:
        for binding in reversed(self._bindings):
            if binding.record is not None:
                break
            binding.record = record

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
        found: dict[int, fx.Confirm] = {}
        while self._bindings:
            head = self._bindings[0]
            if head.record is None or head.record > self.durable:
                break
            self._bindings.popleft()
            self._confirmed[head.attach] = head.seq
            before = found.get(head.attach)
            found[head.attach] = fx.Confirm(head.attach, head.seq, head.bytes + (before.released_bytes if before else 0))
        return list(found.values())

    def released(self) -> list[fx.Effect]:
        """Messages that wait for the next record give their bytes back without being confirmed: they are in the state."""
        found: dict[int, int] = {}
        for binding in reversed(self._bindings):
            if binding.record is not None:
                break
            found[binding.attach] = found.get(binding.attach, 0) + binding.bytes
            binding.bytes = 0
        return [fx.Confirm(attach, self._confirmed.get(attach, 0), size) for attach, size in sorted(found.items()) if size]

    def put_back(self) -> None:
        """The records that are not durable are taken again: their messages wait for the next one."""
        self.taken = self.durable
        for binding in self._bindings:
            if binding.record is not None and binding.record > self.durable:
                binding.record = None

    def decide_until(self, waiting: Set[tuple[int, int]]) -> list[fx.Effect]:
        """Messages that arrived before the first of these (attach, seq) are decided: dropped by a reset, as the source asked."""
        for binding in self._bindings:
            if (binding.attach, binding.seq) in waiting:
                break
            binding.record = self.durable
        return self.confirmations()

    def decide_all(self) -> list[fx.Effect]:
        """Everything kept is decided (by an inline commit or a reset): confirm it."""
        self._bind(self.taken)
        return self.made_durable(self.taken)

"""Random ack histories: what a broker does to a cursor, and the same on plain sets.

Owns the model: entries acked one by one, in bulk, as parts of batches over several rounds, and by
mark-delete with properties. The last step is always an ack of the topic's last entry, because
released Pulsar does not persist a lone partial batch ack (#26498).
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from pyroaring import BitMap

from cursorkeeper.core.positions import Position
from cursorkeeper.core.values import PartialKey
from daemon.tests.interop import states
from daemon.tests.interop.topic import Topic

STEPS_MAX = 8


@dataclass
class History:
    """Acks a real cursor and remembers the truth. `acked` holds every acked entry, `batches` what
    remains of partly acked ones.
    """

    topic: Topic
    cursor: str
    rng: random.Random
    acked: dict[int, BitMap] = field(default_factory=dict)
    batches: dict[PartialKey, BitMap] = field(default_factory=dict)
    properties: dict[str, int] = field(default_factory=dict)
    cursor_properties: dict[str, str] = field(default_factory=dict)

    def play(self, *, texts: bool = True) -> None:
        """The whole history. `texts`: with cursor properties."""
        self.acked = {ledger: BitMap() for ledger in self.topic.ids}
        self.topic.subscribe(self.cursor)
        if texts:
            self.cursor_properties = states.random_texts(self.rng)
            self.topic.set_cursor_properties(self.cursor, self.cursor_properties)
        for _ in range(self.rng.randrange(1, STEPS_MAX)):
            self.rng.choice(
                (
                    self._positions,
                    self._runs,
                    self._runs,
                    self._batches,
                    self._batches,
                    self._mark_delete,
                )
            )()
        last, entries = self.topic.ledgers[-1]
        self._ack([(last, entries - 1)])

    @property
    def settled(self) -> dict[int, BitMap]:
        """As `states.settled`."""
        return self.acked

    def _positions(self) -> None:
        """Scattered, out of order, some of them twice."""
        picked = []
        for _ in range(self.rng.randrange(1, 30)):
            ledger, entries = self.rng.choice(self.topic.ledgers)
            picked.append((ledger, self.rng.randrange(entries)))
        self._ack(picked)

    def _runs(self) -> None:
        ledger, entries = self.rng.choice(self.topic.ledgers)
        acked = states.random_entries(self.rng, 0, entries)
        if acked:
            self.topic.ack(self.cursor, {ledger: acked})
            self._forget(ledger, acked)

    def _batches(self) -> None:
        """Some new, some again: what remains is the intersection, and nothing left means acked."""
        given: dict[tuple[int, int], BitMap] = {}
        for _ in range(self.rng.randrange(1, 6)):
            ledger, entries = self.rng.choice(self.topic.ledgers)
            at = self.rng.choice([*self.batches, PartialKey(ledger, self.rng.randrange(entries))])
            given[at] = states.random_missing(self.rng)
        self.topic.ack(self.cursor, batches=given)
        for (ledger, entry), missing in given.items():
            if entry in self.acked[ledger]:
                continue
            left = self.batches.get(PartialKey(ledger, entry), missing) & missing
            if left:
                self.batches[PartialKey(ledger, entry)] = left
            else:
                self._forget(ledger, BitMap([entry]))

    def _mark_delete(self) -> None:
        """Cumulative, never backwards: Pulsar ignores that."""
        at = states.random_mark_delete(self.rng, self.topic.ledgers[:3])
        if at <= self._contiguous():
            return
        self.properties = states.random_properties(self.rng)
        self.topic.mark_delete(self.cursor, at, self.properties)
        for ledger, entries in self.topic.ledgers:
            if ledger <= at.ledger:
                self._forget(ledger, BitMap(range(entries if ledger < at.ledger else at.entry + 1)))

    def _contiguous(self) -> Position:
        """The last entry of the acked prefix, crossing ledgers."""
        for ledger, entries in self.topic.ledgers:
            missing = BitMap(range(entries)) - self.acked[ledger]
            if missing:
                return Position(ledger, missing.min() - 1)
        return Position(self.topic.ids[-1] + 1, -1)

    def _ack(self, positions: list[tuple[int, int]]) -> None:
        self.topic.ack(self.cursor, positions=positions)
        for ledger, entry in positions:
            self._forget(ledger, BitMap([entry]))

    def _forget(self, ledger: int, acked: BitMap) -> None:
        self.acked[ledger] |= acked
        for key in [key for key in self.batches if key.ledger == ledger and key.entry in acked]:
            del self.batches[key]

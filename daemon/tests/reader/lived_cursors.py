"""Random cursors as daemons leave them, from a seed: keepers on fakes, several owners in turn,
killed or closed, in both formats.

The topic's ledgers close and are trimmed, acks and batches come in any order, snapshots and rolls
happen all the time.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

from cursorkeeper.core import events as ev
from cursorkeeper.core.limits import Limits
from cursorkeeper.core.positions import Position
from cursorkeeper.core.values import LayoutItem, LayoutState
from cursorkeeper.format.whole_state import PulsarStateWriter, WholeStateSettings
from daemon.tests.reader.cases import Case
from daemon.tests.support.virtual_loop import run
from daemon.tests.support.world import NAME, Source, World, acks, partial, ranges

LENGTHS = {3: 9, 4: 0, 8: 12, 20: 7, 21: 30}
"""Data ledger -> entries it has when it is closed."""


class Life:
    """What happens to one cursor."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        restless = {
            "snapshot_bytes_min": 1,
            "snapshot_cost_ratio": self.rng.choice([0.0, 1.0]),
            "snapshot_interval_min_s": 0.0,
        }
        limits = Limits(
            flush_interval_ms=1,
            max_entry_bytes=self.rng.choice([4_096, 1 << 20]),
            inline_state_max_bytes=self.rng.choice([0, 32_768]),
            ledger_bytes_max=self.rng.choice([2_000, 1 << 20]),
            **restless if self.rng.random() < 0.8 else {},  # type: ignore[arg-type]
        )
        self.world = World(seed, limits)
        self.world.bookkeeper.faults.delay_min_s = self.world.bookkeeper.faults.delay_max_s = 0.002
        self.reach = 1
        """How many of the ledgers the topic has so far; all but the last are closed."""
        self.trimmed = 0

    def layout(self) -> tuple[LayoutItem, ...]:
        found = []
        for at, (ledger, entries) in enumerate(list(LENGTHS.items())[: self.reach]):
            is_open = at == self.reach - 1
            state = (
                LayoutState.OPEN
                if is_open
                else LayoutState.TRIMMED
                if at < self.trimmed
                else LayoutState.CLOSED
            )
            found.append(LayoutItem(ledger, state, entries if state is LayoutState.CLOSED else 0))
        return tuple(found)

    def place(self) -> tuple[int, int]:
        ledger = self.rng.choice([x for x in list(LENGTHS)[: self.reach] if LENGTHS[x]])
        return ledger, self.rng.randrange(LENGTHS[ledger])

    async def case(self) -> Case:
        """The whole life; then what it left."""
        for owner in range(self.rng.randint(1, 4)):
            if self.rng.random() < 0.15:
                settings = WholeStateSettings(
                    multiple=True, max_entry_bytes=self.rng.choice([64, 100])
                )
                self.world.state_writer = (
                    None if self.world.state_writer else PulsarStateWriter(settings)
                )
            keeper = await self.world.keeper(f"k{owner}")
            source = Source(keeper)
            await source.open(
                layout=self.layout(),
                cursor_properties={"born": "here"} if self.rng.random() < 0.3 else None,
            )
            assert source.told.refused is None, source.told.refused
            for _ in range(self.rng.randint(2, 14)):
                self.step(source)
                if self.rng.random() < 0.7:
                    await asyncio.sleep(self.rng.choice([0.001, 0.003, 0.01, 0.1]))
            if self.rng.random() < 0.3:
                source.send_close()
                await source.told.until(lambda source=source: bool(source.told.ended))  # type: ignore[misc]
            keeper.abandon()
        node = self.world.zookeeper.tree.get(NAME.path())
        return Case.of(NAME, node.data, self.world.bookkeeper.ledgers.values())

    def step(self, source: Source) -> None:
        """One message of the source."""
        steps: list[Callable[[Source], object]] = [
            self.ack,
            self.ack,
            self.ack,
            self.ack_batch,
            self.ack_upto,
            self.tell_layout,
        ]
        self.rng.choice([*steps, self.reset] if self.rng.random() < 0.1 else steps)(source)

    def ack(self, source: Source) -> None:
        first, second = self.place(), self.place()
        properties = {"horizon": self.rng.randint(0, 99)} if self.rng.random() < 0.2 else None
        source.ack(acks(*first), properties=properties)
        last = self.rng.randrange(second[1], LENGTHS[second[0]])
        source.ack(ranges(second[0], (second[1], last)))

    def ack_batch(self, source: Source) -> None:
        ledger, entry = self.place()
        size = 2 + entry % 3
        source.ack(
            partial(
                ledger,
                entry,
                self.rng.choice([0, size]),
                set(self.rng.sample(range(size), self.rng.randint(1, size - 1))),
            )
        )

    def ack_upto(self, source: Source) -> None:
        if self.rng.random() < 0.5:
            source.ack(mark_delete=Position(*self.place()))

    def tell_layout(self, source: Source) -> None:
        self.reach = min(self.reach + self.rng.randint(0, 2), len(LENGTHS))
        if self.rng.random() < 0.3:
            self.trimmed = self.rng.randint(self.trimmed, self.reach - 1)
        source.seq += 1
        source.send(
            ev.SetLayout(source.attach, source.seq, source.machine.generation, self.layout())
        )

    def reset(self, source: Source) -> None:
        if not source.machine.flow.resets:
            source.seq += 1
            source.send(
                ev.Reset(
                    source.attach, source.seq, source.machine.generation, Position(*self.place())
                )
            )


def lived_case(seed: int) -> Case:
    """The same for the same seed."""
    return run(Life(seed).case())

"""Random cursors that owners acked, moved and left open, read in pieces and as a whole, against
plain sets.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest

from cursorkeeper.core import events as ev
from cursorkeeper.core.positions import Position
from cursorkeeper_pipeline.source.options import Options
from cursorkeeper_pipeline.source.plan import BUCKETS, BucketsPart
from cursorkeeper_pipeline.source.units import Sized, UnitsPart, cut_units
from daemon.tests.cli.conftest import NO_INLINE, CliWorld
from daemon.tests.runtime.virtual import virtual
from daemon.tests.support.world import NAME, Source, closed, opened, partial, ranges
from pipeline.tests.test_states import (
    GIVEN,
    SMALL_SEGMENTS,
    MemorySystems,
    no_snapshot,
    part_rows,
    rows,
    stats,
)

SEEDS = range(12)
LEDGERS = (7, 8, 11)
START = Position(7, -1)
SUMS = (
    "data_ledgers",
    "span_entries",
    "acked_entries",
    "hole_entries",
    "hole_runs",
    "partial_batches",
)


@dataclass
class Sets:
    """What was acked, one by one. `sizes`: of data ledgers that are closed."""

    mark_delete: Position = START
    acked: dict[int, set[int]] = field(
        default_factory=lambda: {ledger: set() for ledger in LEDGERS}
    )
    tops: dict[int, int] = field(default_factory=dict)
    sizes: dict[int, int] = field(default_factory=dict)

    def ack(self, ledger: int, first: int, last: int) -> None:
        self.acked[ledger].update(range(first, last + 1))
        self.tops[ledger] = max(self.tops.get(ledger, 0), last + 1)

    def settle(self) -> None:
        """As Pulsar does: mark-delete takes the acked prefix, and goes to another ledger only for
        an acked entry.
        """
        at, entry = self.mark_delete
        while True:
            while entry + 1 in self.acked[at]:
                entry += 1
            if entry >= 0:
                self.mark_delete = max(self.mark_delete, Position(at, entry))
            behind = [ledger for ledger in LEDGERS if ledger > at]
            if self.sizes.get(at) != entry + 1 or not behind:
                return
            at, entry = behind[0], -1

    def holes(self) -> set[tuple[int, int]]:
        return {(x, e) for x, e in self.described() if e not in self.acked[x]}

    def described(self) -> set[tuple[int, int]]:
        return {
            (x, e)
            for x, top in self.tops.items()
            for e in range(top)
            if Position(x, e) > self.mark_delete
        }


class Story:
    """One cursor's owners, and what they must leave behind."""

    def __init__(self, rng: random.Random, world: CliWorld) -> None:
        self._rng, self._world = rng, world
        self.sets, self.entries = Sets(), rng.choice([600, 5_000, 20_000])
        self.seen: list[tuple[Position, set[tuple[int, int]], int]] = []

    async def live(self) -> None:
        rng, world = self._rng, self._world
        world.limits = SMALL_SEGMENTS
        source = await world.source()
        source.ack(mark_delete=START)
        self.sets.sizes = dict.fromkeys(LEDGERS[:-1], self.entries)
        run = (*(closed(ledger, self.entries) for ledger in LEDGERS[:-1]), opened(LEDGERS[-1]))
        source.seq += 1
        source.send(ev.SetLayout(source.attach, source.seq, source.machine.generation, run))
        for _ in range(rng.randint(3, 6)):
            await self._acks(source, fill=0.1)
            await no_snapshot(source)
        if rng.random() < 0.5:  # else the footer is as old as the snapshot
            await world.close(source)
            world.limits = NO_INLINE
            source = await world.source()
        else:
            source.machine.turn.limits = NO_INLINE
        for _ in range(rng.randint(1, 6)):
            await self._acks(source, fill=0.5)
        if rng.random() < 0.3:
            await world.close(source)

    async def _acks(self, source: Source, fill: float) -> None:
        rng, sets = self._rng, self.sets
        batch = []
        for _ in range(rng.randint(1, 4)):
            ledger = rng.choice(LEDGERS)
            first = rng.randrange(self.entries)
            runs = [
                (at, min(at + rng.randrange(8), self.entries - 1))
                for at in range(first, min(first + 360, self.entries), 9)
            ]
            batch.append(ranges(ledger, *runs))
            for run in runs:
                sets.ack(ledger, *run)
            if rng.random() < 0.3:
                entry = rng.randrange(self.entries)
                batch.append(partial(ledger, entry, 9, {3}))
                sets.tops[ledger] = max(sets.tops.get(ledger, 0), entry + 1)
        # a prefix, so that mark-delete moves far: into a piece that comes later
        if rng.random() < fill:
            ledger = sets.mark_delete.ledger
            last = rng.choice([self.entries - 1, rng.randrange(self.entries)])
            batch.append(ranges(ledger, (0, last)))
            sets.ack(ledger, 0, last)
        sets.settle()
        source.ack(*batch)
        await source.durable()
        now = (sets.mark_delete, sets.holes(), len(sets.described()))
        if [now] != self.seen[-1:]:
            self.seen.append(now)


@pytest.mark.parametrize("seed", SEEDS)
@virtual
async def test_pieces_say_what_plain_sets_say(seed: int) -> None:
    rng = random.Random(seed)
    world = CliWorld(seed=seed, limits=SMALL_SEGMENTS)
    world.record_version = 1 + seed % 2
    story = Story(rng, world)
    await story.live()
    whole = await stats(world)
    found = [
        (row["ledger_id"], e)
        for row in await rows(world, "holes")
        for e in range(row["first_entry"], row["last_entry"] + 1)
    ]
    said = (
        Position(whole["mark_delete_ledger"], whole["mark_delete_entry"]),
        set(found),
        whole["span_entries"],
    )
    assert said in story.seen[-2:], "of an open cursor the last delta may not be visible yet"
    for split in ("40", "300", "4000"):
        cut = await stats(world, splitBytes=split)
        assert {k: v for k, v in cut.items() if v != whole[k]}.keys() <= {
            "read_at",
            "stored_bytes",
        }, split
        assert await rows(world, "holes", splitBytes=split) == await rows(world, "holes")
        options = Options.parse({**GIVEN, "table": "holes", "splitBytes": split})
        made = [
            one.unit
            async for one in cut_units(MemorySystems(world), options, [Sized(NAME, 1 << 30)])
        ]  # type: ignore[arg-type]
        parts = [UnitsPart((unit,)) for unit in made]
        assert [
            one for part in parts for one in await part_rows(world, "holes", part)
        ] == await part_rows(world, "holes", BucketsPart(BUCKETS))
        some = [one for part in parts for one in await part_rows(world, "hole_stats", part)]
        assert {name: sum(one[name] for one in some) for name in SUMS} == {
            name: whole[name] for name in SUMS
        }, (split, said[0])
        assert (
            max(Position(one["mark_delete_ledger"], one["mark_delete_entry"]) for one in some)
            == said[0]
        )
        assert max(one["longest_run"] for one in some) == whole["longest_run"]

"""What a second pass reads: cursors, and pieces of large ones, whose sizes a first pass has seen.

Owns how a cursor of known size becomes units of work, and what a unit weighs. Looking where a large
cursor may be cut is an executor's work, and so is dealing the units out. Invariants: a unit names
its cursor and no footer: it is read as the task finds it; the pieces of a cursor lie side by side
and cover everything, whatever it is by then; they begin at acked entries, so no run of holes is in
two of them: acks are never taken back within a generation, and a cursor of another one is
`MISSING`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import pyarrow as pa

from cursorkeeper.core.names import CursorName
from cursorkeeper_pipeline.decode.footer_rows import Found
from cursorkeeper_pipeline.source.cuts import Splitter, Unit
from cursorkeeper_pipeline.source.options import Options
from cursorkeeper_pipeline.source.plan import BucketsPart, bin_pack
from cursorkeeper_pipeline.source.shards import Reader
from cursorkeeper_pipeline.source.side_by_side import side_by_side
from cursorkeeper_pipeline.source.systems import Systems
from cursorkeeper_pipeline.source.table import Part

OPEN_BYTES: Final = 32 << 10
"""What a cursor costs beside its state, in bytes of state: its footer, and opening its ledgers."""
UNITS: Final = pa.schema([("unit", pa.binary()), ("cost", pa.int64())])
DEALT: Final = pa.schema([("unit", pa.binary()), ("task", pa.int32())])
"""`unit`: a pickled `Unit`."""


@dataclass(frozen=True, slots=True)
class UnitsPart(Part):
    """What one task reads."""

    units: tuple[Unit, ...]


class Sized(NamedTuple):
    """A cursor, and what its state takes unpacked, in bytes."""

    name: CursorName
    size: int


class Weighed(NamedTuple):
    """A unit and its cost, in bytes of state."""

    unit: Unit
    cost: int


def units_of(
    systems: Systems, options: Options, sized: Iterable[Sized], split_bytes: int
) -> Iterator[Weighed]:
    """Small cursors as they are, those above `split_bytes` in pieces. No system is asked where
    there is none. Raises ProblemError, ZooKeeperError.
    """
    large = []
    for one in sized:
        if one.size > split_bytes:
            large.append(one)
        else:
            yield Weighed(Unit(one.name), OPEN_BYTES + one.size)
    if large:
        yield from systems.iterate(cut_units(systems, options, large))


async def cut_units(
    systems: Systems, options: Options, large: Sequence[Sized]
) -> AsyncIterator[Weighed]:
    """Of large cursors, each in pieces of about `splitBytes`, if it can be cut."""
    reader = Reader(await systems.zookeeper(), options)
    splitter = Splitter(await systems.ledgers(), options)
    await reader.sync()

    async def each() -> AsyncIterator[Sized]:
        for one in large:
            yield one

    async def cut(one: Sized) -> AsyncIterator[Weighed]:
        found = await reader.one(one.name)
        units = [Unit(one.name)] if found is None else await splitter.units(found)
        for unit in units:
            yield Weighed(unit, OPEN_BYTES + one.size // len(units))

    async for weighed in side_by_side(each(), cut):
        yield weighed


async def found_in(reader: Reader, part: Part) -> AsyncIterator[tuple[Found, Unit]]:
    """What a part of either kind asks for, as it is now. Raises as `Reader.in_buckets`."""
    if isinstance(part, UnitsPart):
        units: dict[CursorName, list[Unit]] = {}
        for unit in part.units:
            units.setdefault(unit.name, []).append(unit)
        async for batch in reader.named(list(units)):
            for found in batch:
                for unit in units[found.name]:
                    yield found, unit
        return
    assert isinstance(part, BucketsPart)
    async for batch in reader.in_buckets(part.buckets):
        for found in batch:
            yield found, Unit(found.name)


def dealt(costs: Sequence[int], tasks: int) -> list[tuple[int, int]]:
    """(place, task), so that tasks cost about the same. The dearest tasks have the lowest numbers
    and begin first. Pure.
    """
    bins = bin_pack(costs, tasks)
    bins.sort(key=lambda places: -sum(costs[place] for place in places))
    return [(place, task) for task, places in enumerate(bins) for place in places]

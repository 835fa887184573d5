"""`import`: the engine's source of state is a file of JSON lines, which is read twice: checked as a
whole, then sent.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from pyroaring import BitMap

from cursorkeeper.connections import Ports
from cursorkeeper.core.batch import LedgerColumns
from cursorkeeper.core.names import CursorName
from cursorkeeper.core.positions import Position
from cursorkeeper.core.values import LayoutItem, Partial
from cursorkeeper.hold import STALL_S
from cursorkeeper.inspection.progress import Progress
from cursorkeeper.migration import exchange
from cursorkeeper.migration.cursor_maker import Imported, Part, Source, make_cursor
from cursorkeeper.migration.exchange import (
    AcksLine,
    AnyLine,
    EndLine,
    Header,
    LayoutLine,
    PartialLine,
)
from cursorkeeper.problems import ProblemError
from cursorkeeper.settings import Settings

RANGES_PER_BATCH = 20_000
LINES_PER_BATCH = 2_000


@dataclass(frozen=True, slots=True)
class Plan:
    """A file that was checked."""

    path: Path
    shown: str
    name: CursorName
    header: Header
    end: EndLine
    lines: int


def scan(path: Path, shown: str, name: CursorName | None, bar: Progress) -> Plan:
    """Reads and checks the whole file. Raises ProblemError, OSError, RefusedError."""
    header: Header | None = None
    end: EndLine | None = None
    count = 0
    for line in _lines(path, shown):
        count += 1
        bar.advance()
        if isinstance(line, Header):
            header = line
        elif isinstance(line, EndLine):
            end = line
    assert header is not None and end is not None, "parse lets no other file pass"
    return Plan(
        path,
        shown,
        name or CursorName.checked(header.topic, header.subscription),
        header,
        end,
        count,
    )


def _lines(path: Path, shown: str) -> Iterator[AnyLine]:
    with path.open("rb") as source:
        yield from exchange.parse(source, shown)


async def run_import(
    ports: Ports,
    settings: Settings,
    plan: Plan,
    bar: Progress,
    *,
    replace: bool = False,
    stall_s: float = STALL_S,
    rng: random.Random | None = None,
) -> Imported:
    """Makes the cursor that a file describes. Raises ProblemError also if it then holds something
    else than the file.
    """
    done = await make_cursor(
        ports, settings, source_of(plan), bar, replace=replace, stall_s=stall_s, rng=rng
    )
    end = plan.end
    # a file made by hand may let mark-delete move on; one that was exported cannot
    if done.mark_delete == plan.header.mark_delete and (done.acked, done.partials) != (
        end.acked,
        end.partials,
    ):
        raise ProblemError(
            f"{plan.name}: holds {done.acked} acked entries and {done.partials} partial batches, "
            f"the file {end.acked} and {end.partials}",
            "keep the file and report this",
        )
    return done


def source_of(plan: Plan) -> Source:
    """A checked file as the engine wants it."""
    header = plan.header
    layout = list(exchange.layout_items(header.layout))
    return Source(
        plan.name,
        Position(*header.mark_delete),
        _parts(plan, layout),
        layout,
        header.cursor_properties,
        header.mark_delete_properties,
    )


def _parts(plan: Plan, layout: list[LayoutItem]) -> Iterator[Part]:
    """Of a bounded number of lines each; what lines say of the layout is added to it."""
    lines = (x for x in _lines(plan.path, plan.shown) if not isinstance(x, Header | EndLine))
    while batch := list(islice(lines, LINES_PER_BATCH)):
        for line in batch:
            if isinstance(line, LayoutLine):
                layout += exchange.layout_items(line.items)
        for ledgers in _cut(batch):
            yield Part(ledgers, 0)
        yield Part((), len(batch))


def _cut(lines: Sequence[AnyLine]) -> Iterator[tuple[LedgerColumns, ...]]:
    """Columns of bounded size, from lines of any size."""
    part: list[LedgerColumns] = []
    size = 0
    for line in lines:
        if isinstance(line, AcksLine):
            part.append(LedgerColumns(line.ledger, ranges=exchange.range_column(line)))
            size += len(line.ranges)
        elif isinstance(line, PartialLine):
            part.append(
                LedgerColumns(
                    line.ledger,
                    partials=((line.entry, Partial(line.batch_size, BitMap(line.missing))),),
                )
            )
            size += 1 + len(line.missing) // 8
        if size >= RANGES_PER_BATCH:
            yield tuple(part)
            part, size = [], 0
    if part:
        yield tuple(part)

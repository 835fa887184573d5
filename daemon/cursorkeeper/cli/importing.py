"""Importing one cursor through a keeper of our own, in this process: claim, acks, layout, close, as any source would.

Nothing is written past the protocol, so a crash at any point leaves a cursor that is whole by itself (with fewer acks).
The layout is sent last: only then are acks in ledgers that it does not name checked against nothing.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from cursorkeeper.cli import exchange, reading
from cursorkeeper.cli.connect import Ports
from cursorkeeper.cli.exchange import AcksLine, AnyLine, EndLine, Header, LayoutLine, PartialLine
from cursorkeeper.cli.import_listener import ImportListener, QuietTelemetry
from cursorkeeper.cli.output import Bar
from cursorkeeper.cli.problems import AWAY, NO, CommandError, NotFound
from cursorkeeper.core import events as ev
from cursorkeeper.core.batch import AckBatch, LedgerColumns, count_acks
from cursorkeeper.core.footer import FooterState
from cursorkeeper.core.names import CursorName
from cursorkeeper.core.positions import ENTRY_ID_MAX, Position
from cursorkeeper.core.values import LayoutItem, Partial
from cursorkeeper.runtime.keeper import Keeper
from cursorkeeper.settings import Settings
from pyroaring import BitMap

RANGES_PER_BATCH = 20_000
LINES_PER_BATCH = 2_000
BATCHES_AHEAD_MAX = 8
DELETE_MAX_S = 10.0
STALL_S = 60.0
"""Without any progress for so long, the import gives up."""
AGAIN = "run the import again with --replace when it is well"


@dataclass(frozen=True, slots=True)
class Plan:
    """A file that was checked."""

    path: Path
    shown: str
    name: CursorName
    header: Header
    end: EndLine
    lines: int


@dataclass(frozen=True, slots=True)
class Imported:
    """What was made."""

    cursor: str
    epoch: int
    generation: int
    mark_delete: tuple[int, int]
    acked: int
    partials: int
    replaced: bool

    def as_json(self) -> dict[str, Any]:
        """One line."""
        return {"markDelete" if key == "mark_delete" else key: value for key, value in asdict(self).items()}


def scan(path: Path, shown: str, name: CursorName | None, bar: Bar) -> Plan:
    """Reads and checks the whole file. Raises CommandError, OSError, RefusedError."""
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
    return Plan(path, shown, name or CursorName.checked(header.topic, header.subscription), header, end, count)


def _lines(path: Path, shown: str) -> Iterator[AnyLine]:
    with path.open("rb") as source:
        yield from exchange.parse(source, shown)


async def run_import(
    ports: Ports,
    settings: Settings,
    plan: Plan,
    bar: Bar,
    *,
    replace: bool = False,
    stall_s: float = STALL_S,
    rng: random.Random | None = None,
) -> Imported:
    """Raises CommandError; the keeper is gone afterwards in any case."""
    keeper = _keeper(ports, settings, rng or random.Random())
    await keeper.start()
    try:
        done = await _Import(keeper, ports, plan, bar, stall_s).run(replace=replace)
        await keeper.wait_tasks(DELETE_MAX_S)  # else the ledgers it left would wait for garbage collection
        return done
    finally:
        keeper.abandon()


def _keeper(ports: Ports, settings: Settings, rng: random.Random) -> Keeper:
    # the file was accepted once already: only what the format itself cannot hold is refused
    limits = replace(settings.limits, open_ledger_span_max=ENTRY_ID_MAX + 1)
    return Keeper(
        ports.ledgers, ports.zookeeper, QuietTelemetry(), limits=limits, keeper_limits=settings.keeper_limits, policy=settings.policy,
        encode=settings.encode, identity=f"{settings.identity}/import", rng=rng, root=settings.root,
    )  # fmt: skip


class _Import:
    """One import on its way."""

    def __init__(self, keeper: Keeper, ports: Ports, plan: Plan, bar: Bar, stall_s: float) -> None:
        self._keeper, self._ports, self._plan, self._bar, self._stall_s = keeper, ports, plan, bar, stall_s
        self._name = plan.name
        self._attach = keeper.attach_id()
        self._told = ImportListener()
        self._seq = 0
        self._generation = 0

    async def run(self, *, replace: bool) -> Imported:
        epoch, exists = await self._look()
        if exists and not replace:
            raise CommandError(
                f"{self._name} exists already",
                "import under another name with --cursor, or replace it with --replace: whoever has it open is deposed, "
                "and acks that are not in the file are delivered again",
                NO,
            )
        if exists:
            await self._delete()
            epoch, exists = await self._look()
        await self._open(epoch + 1)
        await self._send_all()
        return await self._close(replaced=replace and epoch > 0)

    async def _look(self) -> tuple[int, bool]:
        """(epoch of the footer, 0 if there is none; whether the cursor exists)."""
        try:
            footer, _ = await reading.read_footer(self._ports.footers, self._name)
        except NotFound:
            return 0, False
        return footer.epoch, footer.state is not FooterState.DELETED

    async def _delete(self) -> None:
        self._bar.say(f"taking over and deleting {self._name}")
        gone = ImportListener()
        self._keeper.delete_unopened(self._name, gone)
        await self._until(gone, lambda: False, "deleting the old cursor", ends_well="deleted")

    async def _open(self, epoch: int) -> None:
        self._bar.say(f"creating {self._name}")
        start = Position(*self._plan.header.mark_delete)
        self._keeper.open(self._name, ev.Open(create=True, takeover=False, start=start), self._attach, self._told)
        await self._until(self._told, lambda: self._told.machine is not None, "creating the cursor")
        machine = self._told.machine
        assert machine is not None
        if machine.epoch != epoch:
            raise CommandError(f"{self._name} was created by somebody else meanwhile", AGAIN, NO)
        self._generation = machine.generation

    # ---- the content

    async def _send_all(self) -> None:
        header, layout = self._plan.header, list(exchange.layout_items(self._plan.header.layout))
        self._bar.say(f"importing {self._name}")
        if header.cursor_properties is not None:
            self._dispatch(ev.SetProperties(self._attach, self._next_seq(), self._generation, header.cursor_properties))
        if header.mark_delete_properties is not None:
            self._send_batch(AckBatch(self._next_seq(), self._generation, properties=header.mark_delete_properties))
        lines = (x for x in _lines(self._plan.path, self._plan.shown) if not isinstance(x, Header | EndLine))
        while batch := list(islice(lines, LINES_PER_BATCH)):
            layout += [i for line in batch if isinstance(line, LayoutLine) for i in exchange.layout_items(line.items)]
            for part in _cut(batch):
                self._send_batch(AckBatch(self._next_seq(), self._generation, ledgers=part, acks=count_acks(part)))
                await self._confirmed(self._seq - BATCHES_AHEAD_MAX)
            self._bar.advance(len(batch))
        await self._send_layout(layout)
        await self._confirmed(self._seq)

    async def _send_layout(self, layout: list[LayoutItem]) -> None:
        if layout:
            await self._confirmed(self._seq)
            self._dispatch(ev.SetLayout(self._attach, self._next_seq(), self._generation, tuple(layout)))

    def _next_seq(self) -> int:
        self._seq += 1
        return self._seq

    def _send_batch(self, batch: AckBatch) -> None:
        self._dispatch(ev.Acks(self._attach, batch))

    def _dispatch(self, event: ev.Event) -> None:
        runner = self._keeper.cursors.get(self._name)
        if runner is not None:
            runner.dispatch(event)

    async def _confirmed(self, seq: int) -> None:
        await self._until(self._told, lambda: self._told.durable >= seq, "making acks durable")

    # ---- the end

    async def _close(self, *, replaced: bool) -> Imported:
        machine, end = self._told.machine, self._plan.end
        assert machine is not None
        state = machine.acks
        acked, partials, mark_delete = (
            state.span - state.hole_count,
            state.partial_count,
            (state.mark_delete.ledger, state.mark_delete.entry),
        )
        # a file made by hand may let mark-delete move on; one that was exported cannot
        if mark_delete == self._plan.header.mark_delete and (acked, partials) != (end.acked, end.partials):
            raise CommandError(
                f"{self._name}: holds {acked} acked entries and {partials} partial batches, the file {end.acked} and {end.partials}",
                "keep the file and report this",
                NO,
            )
        self._bar.say(f"closing {self._name}")
        self._dispatch(ev.Close())
        await self._until(self._told, lambda: False, "closing the cursor", ends_well="closed")
        return Imported(self._name.display, machine.epoch, machine.generation, mark_delete, acked, partials, replaced)

    async def _until(self, told: ImportListener, done: Callable[[], bool], what: str, *, ends_well: str = "") -> None:
        """Waits as long as something moves. Raises CommandError."""
        while not done():
            if told.ended:
                if told.ended == ends_well:
                    return
                raise told.error(str(self._name), AGAIN)
            told.changed.clear()
            try:
                async with asyncio.timeout(self._stall_s):
                    await told.changed.wait()
            except TimeoutError:
                raise CommandError(
                    f"{self._name}: {what}: nothing moved for {self._stall_s:.0f} s{self._why(told)}",
                    f"check both systems, then {AGAIN}",
                    AWAY,
                ) from None

    def _why(self, told: ImportListener) -> str:
        runner = self._keeper.cursors.get(self._name)
        why = told.paused or (runner.machine.waiting_for if runner is not None else "")
        return f" ({why})" if why else ""


def _cut(lines: Sequence[AnyLine]) -> Iterator[tuple[LedgerColumns, ...]]:
    """Columns of bounded size, from lines of any size."""
    part: list[LedgerColumns] = []
    size = 0
    for line in lines:
        if isinstance(line, AcksLine):
            part.append(LedgerColumns(line.ledger, ranges=exchange.range_column(line)))
            size += len(line.ranges)
        elif isinstance(line, PartialLine):
            part.append(LedgerColumns(line.ledger, partials=((line.entry, Partial(line.batch_size, BitMap(line.missing))),)))
            size += 1 + len(line.missing) // 8
        if size >= RANGES_PER_BATCH:
            yield tuple(part)
            part, size = [], 0
    if part:
        yield tuple(part)

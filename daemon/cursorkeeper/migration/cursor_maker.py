"""Making one cursor from a source of state, through a keeper of our own in this process: claim, acks, layout, close.

The engine of `import` and `import-pulsar`. Nothing is written past the protocol, so a crash at any point leaves a cursor
that is whole by itself (with fewer acks), and that says so: its footer stays open, and names who was making it. The layout
is sent last: only then are acks in ledgers that it does not name checked against nothing.
"""

from __future__ import annotations

import os
import random
from asyncio import timeout
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple, Protocol

from cursorkeeper.connections import Ports
from cursorkeeper.core import events as ev
from cursorkeeper.core.batch import AckBatch, LedgerColumns, count_acks
from cursorkeeper.core.footer import Footer, FooterState, Mark, mark_of
from cursorkeeper.core.limits import KIB
from cursorkeeper.core.names import CursorName
from cursorkeeper.core.positions import ENTRY_ID_MAX, Position
from cursorkeeper.core.values import LayoutItem
from cursorkeeper.core.whole_states import is_stuck
from cursorkeeper.inspection import reader
from cursorkeeper.migration.listener import ImportListener, QuietTelemetry
from cursorkeeper.problems import Kind, NotFound, ProblemError
from cursorkeeper.runtime.keeper import Keeper
from cursorkeeper.settings import Settings

BATCHES_AHEAD_MAX = 8
DELETE_MAX_S = 10.0
STALL_S = 60.0
"""Without any progress for so long, it gives up."""
AGAIN = "run the import again with --replace when it is well"


class Part(NamedTuple):
    """A batch of acks of bounded size, and how far it brings the bar."""

    ledgers: tuple[LedgerColumns, ...]
    steps: int


class StateSource(Protocol):
    """A whole state that was checked before, in parts."""

    @property
    def name(self) -> CursorName:
        """Under which it is made."""
        ...

    @property
    def mark_delete(self) -> Position: ...

    @property
    def cursor_properties(self) -> Mapping[str, str] | None: ...

    @property
    def mark_delete_properties(self) -> Mapping[str, int] | None: ...

    def parts(self) -> Iterator[Part]:
        """The acks above mark-delete, once, in any order."""
        ...

    def layout(self) -> Sequence[LayoutItem]:
        """The topic's ledgers; asked for after the last part."""
        ...


class Report(Protocol):
    """Is told how it goes, as a `Bar` is."""

    def say(self, what: str) -> None: ...

    def advance(self, count: int = 1) -> None: ...


@dataclass(frozen=True, slots=True)
class Imported:
    """The cursor that was made."""

    cursor: str
    epoch: int
    generation: int
    mark_delete: tuple[int, int]
    acked: int
    partials: int
    replaced: bool

    def as_json(self) -> dict[str, Any]:
        return {"markDelete" if key == "mark_delete" else key: value for key, value in asdict(self).items()}


async def footer_of(ports: Ports, name: CursorName) -> Footer | None:
    """The footer, a tombstone too; None: there never was one. Raises ProblemError, DamageError."""
    try:
        footer, _ = await reader.read_footer(ports.footers, name)
    except NotFound:
        return None
    return footer


def is_left_over(footer: Footer, kind: str, settings: Settings) -> bool:
    """Whether an import of this kind made it and died: nobody else has claimed it since, so nobody else has acked in it.

    A writer is host/pid/kind/nonce, and that of a daemon host/pid/nonce: none can be taken for the other. Of an import
    on another host it is not known whether it lives; if it does it is deposed, and that loses nothing: both have one source.
    """
    if footer.state is not FooterState.OPEN or not is_made_by(footer, kind):
        return False
    host, pid, _, _ = footer.writer.rsplit("/", 3)
    here, own = settings.identity.rsplit("/", 1)
    return host != here or pid == own or not is_running(int(pid))


def is_made_by(footer: Footer, kind: str) -> bool:
    """Whether an import of this kind was the last to claim it: nobody else has acked in it since."""
    parts = footer.writer.rsplit("/", 3)
    return len(parts) == 4 and parts[2] == kind and parts[1].isdecimal()


def is_running(pid: int) -> bool:
    """Whether a process of this host has this id."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


async def make_cursor(
    ports: Ports,
    settings: Settings,
    source: StateSource,
    bar: Report,
    *,
    kind: str = "import",
    replace: bool = False,
    seen: Mark | None = None,
    stall_s: float = STALL_S,
    rng: random.Random | None = None,
) -> Imported:
    """Raises ProblemError; the keeper is gone afterwards in any case. `kind` goes into the footer's writer, see `is_left_over`.

    `replace` is of the footer that is there now, or, with `seen`, of that one alone: what somebody else wrote since is never touched.
    """
    keeper = await _keeper(ports, settings, kind, rng or random.Random())
    await keeper.start()
    try:
        done = await Making(keeper, ports, source, bar, stall_s, kind).run(replace=replace, seen=seen)
        await keeper.wait_tasks(DELETE_MAX_S)  # else the ledgers it left would wait for garbage collection
        return done
    finally:
        keeper.abandon()


async def _keeper(ports: Ports, settings: Settings, kind: str, rng: random.Random) -> Keeper:
    # the state was accepted once already: only what the format itself cannot hold is refused; and nobody acks meanwhile, so
    # that a format that writes whole states need not wait for more
    limits = replace(settings.limits, open_ledger_span_max=ENTRY_ID_MAX + 1, whole_state_interval_ms=settings.flush_interval_ms)
    info = await ports.ledgers.describe()
    return Keeper(
        ports.ledgers, ports.zookeeper, QuietTelemetry(), limits=limits, keeper_limits=settings.keeper_limits, policy=settings.policy,
        encode=settings.encode, identity=f"{settings.identity}/{kind}", rng=rng, root=settings.root,
        state_writer=settings.state_writer(min(info.entry_bytes_max, info.message_bytes_max - 64 * KIB)),
    )  # fmt: skip


class Making:
    def __init__(self, keeper: Keeper, ports: Ports, source: StateSource, bar: Report, stall_s: float, kind: str) -> None:
        self._keeper, self._ports, self._source, self._bar, self._stall_s, self._kind = keeper, ports, source, bar, stall_s, kind
        self._name = source.name
        self._attach = keeper.attach_id()
        self._told = ImportListener()
        self._seq = 0
        self._generation = 0

    async def run(self, *, replace: bool, seen: Mark | None = None) -> Imported:
        """Raises ProblemError."""
        now, footer = await self._look()
        exists = footer is not None
        before = now if seen is None else seen
        if exists and not replace:
            raise ProblemError(
                f"{self._name} exists already",
                "import under another name with --cursor, or replace it with --replace: whoever has it open is deposed, "
                "and acks that are not in the file are delivered again",
            )
        if footer is not None:
            self._check_held(footer)
            await self._delete(before)
            epoch = before.epoch + 1
            before, made = await self._look()
            if made is not None or before.epoch != epoch:  # made since, and perhaps deleted again: by who may have known better
                raise ProblemError(f"{self._name} was created by somebody else meanwhile", AGAIN)
        await self._open(before)
        await self._send_all()
        return await self._close(replaced=replace and before.epoch > 0)

    async def _look(self) -> tuple[Mark, Footer | None]:
        """(the footer's mark; the footer, if the cursor exists)."""
        footer = await footer_of(self._ports, self._name)
        return mark_of(footer), None if footer is None or footer.state is FooterState.DELETED else footer

    def _check_held(self, footer: Footer) -> None:
        """Raises ProblemError. What a source holds by its fencing token is not taken from it by a tool; what an import left open is no
        source's."""
        held = footer.state is FooterState.OPEN and footer.fencing_token and not is_made_by(footer, self._kind)
        if held:
            who = f"it is open (epoch {footer.epoch}, by {footer.writer}), with fencing token {footer.fencing_token}"
            raise ProblemError(f"{self._name}: {who}", "unload the topic, so that its cursors are closed; then run it again")

    async def _delete(self, only: Mark) -> None:
        self._bar.say(f"taking over and deleting {self._name}")
        gone = ImportListener()
        self._keeper.delete_unopened(self._name, gone, only)
        await self._until(gone, lambda: False, "deleting the old cursor", ends_well="deleted")

    async def _open(self, only: Mark) -> None:
        self._bar.say(f"creating {self._name}")
        request = ev.Open(create=True, takeover=False, start=self._source.mark_delete, only=only)
        self._keeper.open(self._name, request, self._attach, self._told)
        await self._until(self._told, lambda: self._told.machine is not None, "creating the cursor")
        machine = self._told.machine
        assert machine is not None
        self._generation = machine.generation

    # ---- the content

    async def _send_all(self) -> None:
        source = self._source
        self._bar.say(f"importing {self._name}")
        if source.cursor_properties is not None:
            self._dispatch(ev.SetProperties(self._attach, self._next_seq(), self._generation, dict(source.cursor_properties)))
        if source.mark_delete_properties is not None:
            self._send_batch(AckBatch(self._next_seq(), self._generation, properties=source.mark_delete_properties))
        for ledgers, steps in source.parts():
            if ledgers:
                self._send_batch(AckBatch(self._next_seq(), self._generation, ledgers=ledgers, acks=count_acks(ledgers)))
                await self._confirmed(self._seq - BATCHES_AHEAD_MAX)
            self._bar.advance(steps)
        await self._send_layout(tuple(source.layout()))
        await self._confirmed(self._seq)

    async def _send_layout(self, layout: tuple[LayoutItem, ...]) -> None:
        if layout:
            await self._confirmed(self._seq)
            self._dispatch(ev.SetLayout(self._attach, self._next_seq(), self._generation, layout))

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
        machine = self._told.machine
        assert machine is not None
        state = machine.acks
        acked, partials, mark_delete = (
            state.span - state.hole_count,
            state.partial_count,
            (state.mark_delete.ledger, state.mark_delete.entry),
        )
        self._bar.say(f"closing {self._name}")
        self._dispatch(ev.Close(self._attach))
        await self._until(self._told, lambda: False, "closing the cursor", ends_well="closed")
        return Imported(self._name.display, machine.epoch, machine.generation, mark_delete, acked, partials, replaced)

    async def _until(self, told: ImportListener, done: Callable[[], bool], what: str, *, ends_well: str = "") -> None:
        """Waits as long as something moves. Raises ProblemError."""
        while not done():
            if told.ended:
                if told.ended == ends_well:
                    return
                raise told.error(str(self._name), AGAIN)
            if stuck := self._stuck(told):
                remedy = "raise the limit, or keep this cursor in the native format, which has none"
                raise ProblemError(f"{self._name} does not fit: {stuck}", remedy)
            told.changed.clear()
            try:
                async with timeout(self._stall_s):
                    await told.changed.wait()
            except TimeoutError:
                raise ProblemError(
                    f"{self._name}: {what}: nothing moved for {self._stall_s:.0f} s{self._why(told)}",
                    f"check both systems, then {AGAIN}",
                    Kind.AWAY,
                ) from None

    def _stuck(self, told: ImportListener) -> str:
        """Why what was sent can never become durable, in a format with limits; empty: it can."""
        machine = told.machine
        return machine.unfit.why.reason if machine is not None and machine.unfit is not None and is_stuck(machine) else ""

    def _why(self, told: ImportListener) -> str:
        runner = self._keeper.cursors.get(self._name)
        why = told.paused or (runner.machine.waiting_for if runner is not None else "")
        return f" ({why})" if why else ""

"""Serves `import` and `import-pulsar`: one cursor is made from a source of state: claim, acks,
layout, close.

Nothing is written past the protocol, so a crash at any point leaves a cursor that is whole by
itself (with fewer acks), and that says so: its footer stays open, and names who was making it. The
layout is sent last: only then are acks in ledgers that it does not name checked against nothing.
"""

from __future__ import annotations

import dataclasses
import os
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple, Protocol

from cursorkeeper.connections import Ports
from cursorkeeper.core import events as ev
from cursorkeeper.core.batch import AckBatch, LedgerColumns, count_acks
from cursorkeeper.core.footer import Footer, FooterState, Mark, mark_of
from cursorkeeper.core.limits import KIB
from cursorkeeper.core.names import CursorName
from cursorkeeper.core.positions import ENTRY_ID_MAX, Position
from cursorkeeper.core.values import LayoutItem
from cursorkeeper.hold import STALL_S, Hold, Purpose, delete, hold
from cursorkeeper.inspection import reader
from cursorkeeper.inspection.progress import Progress
from cursorkeeper.problems import NotFound, ProblemError
from cursorkeeper.settings import Settings

BATCHES_AHEAD_MAX = 8
CONFIRMING = "making acks durable"
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
        return {
            "markDelete" if key == "mark_delete" else key: value
            for key, value in asdict(self).items()
        }


async def footer_of(ports: Ports, name: CursorName) -> Footer | None:
    """The footer, a tombstone too; None: there never was one. Raises ProblemError, DamageError."""
    try:
        footer, _ = await reader.read_footer(ports.footers, name)
    except NotFound:
        return None
    return footer


def is_left_over(footer: Footer, kind: str, settings: Settings) -> bool:
    """Whether an import of this kind made it and died: nobody else has claimed it since, so nobody
    else has acked in it.

    A writer is host/pid/kind/nonce, and that of a daemon host/pid/nonce: none can be taken for the
    other. Of an import on another host it is not known whether it lives; if it does it is deposed,
    and that loses nothing: both have one source.
    """
    if footer.state is not FooterState.OPEN or not is_made_by(footer, kind):
        return False
    host, pid, _, _ = footer.writer.rsplit("/", 3)
    here, own = settings.identity.rsplit("/", 1)
    return host != here or pid == own or not is_running(int(pid))


def is_made_by(footer: Footer, kind: str) -> bool:
    """Whether an import of this kind was the last to claim it: nobody else has acked in it
    since.
    """
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
    progress: Progress,
    *,
    kind: str = "import",
    replace: bool = False,
    seen: Mark | None = None,
    stall_s: float = STALL_S,
    rng: random.Random | None = None,
) -> Imported:
    """Raises ProblemError. `kind` goes into the footer's writer, see `is_left_over`.

    `replace` is of the footer that is there now, or, with `seen`, of that one alone: what somebody
    else wrote since is never touched.
    """
    return await Making(
        ports, settings, source, progress, Purpose(kind, "imported", AGAIN), stall_s, rng
    ).run(replace=replace, seen=seen)


class Making:
    def __init__(
        self,
        ports: Ports,
        settings: Settings,
        source: StateSource,
        progress: Progress,
        purpose: Purpose,
        stall_s: float,
        rng: random.Random | None,
    ) -> None:
        self._ports, self._settings, self._source, self._progress = (
            ports,
            settings,
            source,
            progress,
        )
        self._purpose, self._stall_s, self._rng, self._name = purpose, stall_s, rng, source.name
        self._seq = 0

    async def run(self, *, replace: bool, seen: Mark | None = None) -> Imported:
        """Makes the cursor, or replaces the one that `seen` was read of. Raises ProblemError: what
        is there already keeps its acks.
        """
        now, footer = await self._look()
        before = now if seen is None else seen
        if footer is not None:
            if not replace:
                raise ProblemError(
                    f"{self._name} exists already",
                    "import under another name with --cursor, or replace it with --replace: "
                    "whoever has it open is deposed, "
                    "and acks that are not in the file are delivered again",
                )
            self._check_held(footer)
            self._progress.say(f"taking over and deleting {self._name}")
            deleting = "deleting the old cursor"
            await delete(
                self._name,
                self._ports,
                self._settings,
                self._purpose,
                only=before,
                what=deleting,
                stall_s=self._stall_s,
            )
            epoch = before.epoch + 1
            before, made = await self._look()
            # made since, and perhaps deleted again: by who may have known better
            if made is not None or before.epoch != epoch:
                raise ProblemError(f"{self._name} was created by somebody else meanwhile", AGAIN)
        # the state was accepted once already: only what the format itself cannot hold is refused;
        # and nobody acks meanwhile, so that a format that writes whole states need not wait for
        # more
        limits = dataclasses.replace(
            self._settings.limits,
            open_ledger_span_max=ENTRY_ID_MAX + 1,
            whole_state_interval_ms=self._settings.flush_interval_ms,
        )
        info = await self._ports.ledgers.describe()
        writer = self._settings.state_writer(
            min(info.entry_bytes_max, info.message_bytes_max - 64 * KIB)
        )
        async with hold(
            self._name,
            self._ports,
            self._settings,
            self._purpose,
            only=before,
            start=self._source.mark_delete,
            limits=limits,
            state_writer=writer,
            rng=self._rng,
            stall_s=self._stall_s,
        ) as held:
            await self._open(held)
            await self._send_all(held)
            return await self._close(held, replaced=replace and before.epoch > 0)

    async def _look(self) -> tuple[Mark, Footer | None]:
        """(the footer's mark; the footer, if the cursor exists)."""
        footer = await footer_of(self._ports, self._name)
        return mark_of(
            footer
        ), None if footer is None or footer.state is FooterState.DELETED else footer

    def _check_held(self, footer: Footer) -> None:
        """Raises ProblemError. What a source holds by its fencing token is not taken from it by a
        tool; what an import left open is no source's.
        """
        if (
            footer.state is FooterState.OPEN
            and footer.fencing_token
            and not is_made_by(footer, self._purpose.kind)
        ):
            who = (
                f"it is open (epoch {footer.epoch}, by {footer.writer}), with fencing token "
                f"{footer.fencing_token}"
            )
            raise ProblemError(
                f"{self._name}: {who}",
                "unload the topic, so that its cursors are closed; then run it again",
            )

    async def _open(self, held: Hold) -> None:
        self._progress.say(f"creating {self._name}")
        await held.claimed("creating the cursor")

    async def _send_all(self, held: Hold) -> None:
        source, generation = self._source, held.machine.generation
        self._progress.say(f"importing {self._name}")
        if source.cursor_properties is not None:
            held.send(
                ev.SetProperties(
                    held.attach, self._next_seq(), generation, dict(source.cursor_properties)
                )
            )
        if source.mark_delete_properties is not None:
            held.send(
                ev.Acks(
                    held.attach,
                    AckBatch(
                        self._next_seq(), generation, properties=source.mark_delete_properties
                    ),
                )
            )
        for ledgers, steps in source.parts():
            if ledgers:
                batch = AckBatch(
                    self._next_seq(), generation, ledgers=ledgers, acks=count_acks(ledgers)
                )
                held.send(ev.Acks(held.attach, batch))
                await held.confirmed(self._seq - BATCHES_AHEAD_MAX, CONFIRMING)
            self._progress.advance(steps)
        await self._send_layout(held, tuple(source.layout()))
        await held.confirmed(self._seq, CONFIRMING)

    async def _send_layout(self, held: Hold, layout: tuple[LayoutItem, ...]) -> None:
        if layout:
            await held.confirmed(self._seq, CONFIRMING)
            held.send(ev.SetLayout(held.attach, self._next_seq(), held.machine.generation, layout))

    def _next_seq(self) -> int:
        self._seq += 1
        return self._seq

    async def _close(self, held: Hold, *, replaced: bool) -> Imported:
        machine, state = held.machine, held.machine.acks
        done = Imported(
            self._name.display,
            machine.epoch,
            machine.generation,
            (state.mark_delete.ledger, state.mark_delete.entry),
            state.span - state.hole_count,
            state.partial_count,
            replaced,
        )
        self._progress.say(f"closing {self._name}")
        await held.close("closing the cursor")
        return done

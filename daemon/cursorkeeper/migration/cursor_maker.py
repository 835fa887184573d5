"""Serves `import` and `import-pulsar`: one cursor is made from a source of state: claim, acks,
layout, close.

Nothing is written past the protocol, so a crash at any point leaves a cursor that is whole by
itself (with fewer acks), and that says so: its footer stays open, and names who was making it. The
layout is sent last: only then are acks in ledgers that it does not name checked against nothing.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec

from cursorkeeper.connections import Ports
from cursorkeeper.core import events as ev
from cursorkeeper.core.batch import AckBatch, LedgerColumns, count_acks
from cursorkeeper.core.footer import Footer, FooterState, Mark, mark_of
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


@dataclass(frozen=True, slots=True)
class Source:
    """A whole state that was checked before, and the name under which it is made. `parts`: the acks
    above mark-delete, read once, in any order; `layout`: the topic's ledgers, complete once the
    parts are read.
    """

    name: CursorName
    mark_delete: Position
    parts: Iterable[Part]
    layout: Sequence[LayoutItem]
    cursor_properties: Mapping[str, str] | None = None
    mark_delete_properties: Mapping[str, int] | None = None


class Imported(msgspec.Struct, frozen=True, rename={"mark_delete": "markDelete"}):
    """The cursor that was made."""

    cursor: str
    epoch: int
    generation: int
    mark_delete: tuple[int, int]
    acked: int
    partials: int
    replaced: bool


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
    here, _ = settings.daemon.identity.rsplit("/", 1)
    return is_half_made(footer, kind) and (host_of(footer) != here or is_gone(footer))


def is_half_made(footer: Footer, kind: str) -> bool:
    """Whether an import of this kind has it open: it works on it, or died. Nobody else can have
    acked in it.
    """
    return footer.state is FooterState.OPEN and is_made_by(footer, kind)


def host_of(footer: Footer) -> str:
    """Of the import that made it."""
    return footer.writer.rsplit("/", 3)[0]


def pid_of(footer: Footer) -> int:
    """Of the import that made it."""
    return int(footer.writer.rsplit("/", 3)[1])


def is_gone(footer: Footer) -> bool:
    """Whether the import that made it, on this host, runs no more: this process has ended it."""
    return pid_of(footer) == os.getpid() or not is_running(pid_of(footer))


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
    source: Source,
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
    name, purpose = source.name, Purpose(kind, "imported", AGAIN)
    now, footer = await _look(ports, name)
    before = now if seen is None else seen
    if footer is not None:
        if not replace:
            raise ProblemError(
                f"{name} exists already",
                "import under another name with --cursor, or replace it with --replace: "
                "whoever has it open is deposed, "
                "and acks that are not in the file are delivered again",
            )
        _check_held(name, footer, kind)
        progress.say(f"taking over and deleting {name}")
        what = "deleting the old cursor"
        await delete(name, ports, settings, purpose, only=before, what=what, stall_s=stall_s)
        epoch = before.epoch + 1
        before, made = await _look(ports, name)
        # made since, and perhaps deleted again: by who may have known better
        if made is not None or before.epoch != epoch:
            raise ProblemError(f"{name} was created by somebody else meanwhile", AGAIN)
    # the state was accepted once already: only what the format itself cannot hold is refused; and
    # nobody acks meanwhile, so that a format that writes whole states need not wait for more
    settings = settings.but(
        open_ledger_span_max=ENTRY_ID_MAX + 1, flush_interval_ms=settings.cursor.flush_interval_ms
    )
    writer = settings.state_writer(await ports.ledgers.describe())
    async with hold(
        name,
        ports,
        settings,
        purpose,
        only=before,
        start=source.mark_delete,
        state_writer=writer,
        rng=rng,
        stall_s=stall_s,
    ) as held:
        progress.say(f"creating {name}")
        await held.claimed("creating the cursor")
        progress.say(f"importing {name}")
        await _send(held, source, progress)
        machine, state = held.machine, held.machine.acks
        done = Imported(
            name.display,
            machine.epoch,
            machine.generation,
            (state.mark_delete.ledger, state.mark_delete.entry),
            state.span - state.hole_count,
            state.partial_count,
            replace and before.epoch > 0,
        )
        progress.say(f"closing {name}")
        await held.close("closing the cursor")
    return done


async def _look(ports: Ports, name: CursorName) -> tuple[Mark, Footer | None]:
    """(the footer's mark; the footer, if the cursor exists)."""
    footer = await footer_of(ports, name)
    is_there = footer is not None and footer.state is not FooterState.DELETED
    return mark_of(footer), footer if is_there else None


def _check_held(name: CursorName, footer: Footer, kind: str) -> None:
    """Raises ProblemError. What a source holds by its fencing token is not taken from it by a tool;
    what an import left open is no source's.
    """
    if footer.state is FooterState.OPEN and footer.fencing_token and not is_made_by(footer, kind):
        raise ProblemError(
            f"{name}: it is open (epoch {footer.epoch}, by {footer.writer}), with fencing token "
            f"{footer.fencing_token}",
            "unload the topic, so that its cursors are closed; then run it again",
        )


async def _send(held: Hold, source: Source, progress: Progress) -> None:
    """All of it; returns when it is durable."""
    generation, seq = held.machine.generation, 0

    def acks(**what: Any) -> None:
        nonlocal seq
        seq += 1
        held.send(ev.Acks(held.attach, AckBatch(seq, generation, **what)))

    if source.cursor_properties is not None:
        seq += 1
        held.send(ev.SetProperties(held.attach, seq, generation, dict(source.cursor_properties)))
    if source.mark_delete_properties is not None:
        acks(properties=source.mark_delete_properties)
    for ledgers, steps in source.parts:
        if ledgers:
            acks(ledgers=ledgers, acks=count_acks(ledgers))
            await held.confirmed(seq - BATCHES_AHEAD_MAX, CONFIRMING)
        progress.advance(steps)
    await held.confirmed(seq, CONFIRMING)
    if source.layout:
        held.send(ev.SetLayout(held.attach, seq + 1, generation, tuple(source.layout)))
        await held.confirmed(seq + 1, CONFIRMING)

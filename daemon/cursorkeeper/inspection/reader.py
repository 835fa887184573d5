"""Reading one cursor without claiming it: its footer, the ends of its ledgers, its entries, its
state.

Never fences: an open ledger is read up to the last add confirmed that a reader may see, which is
"at least" (the newest entries may be missing). What may succeed later is retried for `WAIT_S` and
then told.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from cursorkeeper.bookkeeper import errors as bk
from cursorkeeper.bookkeeper.port import LedgerInfo, LedgerState, LedgerStore
from cursorkeeper.connections import Ports
from cursorkeeper.core import events as ev
from cursorkeeper.core.budget import StateBudget
from cursorkeeper.core.errors import DamageError, TooNewError
from cursorkeeper.core.footer import ChainLedger, Footer, FooterState, SnapshotBase, is_pulsar
from cursorkeeper.core.limits import LAYOUT_LEDGERS_MAX, STATE_BYTES_MAX
from cursorkeeper.core.names import CursorName
from cursorkeeper.core.positions import ENTRY_ID_MAX
from cursorkeeper.core.window import WHOLE, StateWindow
from cursorkeeper.inspection import entry_view
from cursorkeeper.inspection.entry_view import EntryView
from cursorkeeper.inspection.progress import Progress
from cursorkeeper.problems import Kind, NotFound, ProblemError
from cursorkeeper.runtime.chain import ChainReader, from_previous
from cursorkeeper.runtime.footers import FooterStore
from cursorkeeper.runtime.pulsar_ledger import Written, written_by
from cursorkeeper.settings import ENVIRONMENT_PREFIX
from cursorkeeper_client.back_off import BackOff

WAIT_S = 30.0
PAUSE_MIN_S, PAUSE_MAX_S = 0.05, 2.0
READ_BYTES = 4 << 20
MOVED_MAX = 5
"""How often a footer may change under a reader before it gives up."""

T = TypeVar("T")


class Moved(Exception):
    """A ledger is gone that the footer named: the footer may have moved on meanwhile."""

    def __init__(self, ledger: int) -> None:
        super().__init__(f"ledger {ledger} does not exist")
        self.ledger = ledger


@dataclass(frozen=True, slots=True)
class End:
    """Where a ledger ends. `is_final` False: it is being written, or was not recovered yet. `info`
    None: it is gone, or was not asked for.
    """

    last_entry: int
    is_final: bool
    info: LedgerInfo | None


async def read_footer(footers: FooterStore, name: CursorName) -> tuple[Footer, int]:
    """Footer and znode version. Raises ProblemError, DamageError."""
    answer = await footers.read(name, 0, sync=True)
    match answer:
        case ev.FooterRead(footer=None):
            raise NotFound(
                f"{name}: there is no such cursor",
                "`cursorkeeper ls` lists them; check --zookeeper and --root",
            )
        case ev.FooterRead(footer=footer, version=version) if footer is not None:
            return footer, version
        case ev.FooterUnreadable(reason=reason, too_new=too_new):
            raise (TooNewError if too_new else DamageError)(reason, str(name))
    assert isinstance(answer, ev.FooterReadFailed)
    raise ProblemError(
        f"{name}: its footer cannot be read: {answer.reason}",
        "check ZooKeeper, then run it again",
        Kind.AWAY,
    )


async def live_footer(footers: FooterStore, name: CursorName) -> tuple[Footer, int]:
    """Does as `read_footer` does; a tombstone counts as absent."""
    footer, version = await read_footer(footers, name)
    if footer.state is FooterState.DELETED:
        raise NotFound(
            f"{name}: this cursor was deleted", "`cursorkeeper ls --deleted` lists tombstones"
        )
    return footer, version


async def steadily(
    footers: FooterStore, name: CursorName, work: Callable[[Footer, int], Awaitable[T]]
) -> T:
    """`work(footer, version)`; again with the new footer if it moved on meanwhile. Raises
    ProblemError, what `work` raises.
    """
    for _ in range(MOVED_MAX):
        footer, version = await live_footer(footers, name)
        try:
            return await work(footer, version)
        except Moved as e:
            now, _ = await live_footer(footers, name)
            if now.is_same_write(footer):
                raise ProblemError(
                    f"{e}, and the footer names it",
                    "find out who deleted it (the footer shows which snapshot needs it: "
                    "`cursorkeeper inspect --no-records`); "
                    "unless only the previous snapshot needs it, a cursor opened now is refused",
                    where=str(name),
                ) from e
    raise ProblemError(
        f"{name}: its footer changes faster than it can be read",
        "run it again when it is quieter",
        Kind.AWAY,
    )


async def ends_of(
    ledgers: LedgerStore, footer: Footer, *, missing_ok: bool = False, unknown_only: bool = False
) -> dict[int, End]:
    """Of every ledger that the footer names, ascending. `unknown_only`: BookKeeper is not asked for
    those whose end the footer says (whether they exist, their reader finds out). Raises Moved
    (unless `missing_ok`), GatewayError.
    """
    known = {c.ledger: c.last_entry for c in _chain(footer) if c.last_entry is not None}
    found = {}
    whole = whole_state_ledgers(footer)
    for ledger in sorted(footer.named_ledgers()):
        if unknown_only and ledger in known:
            found[ledger] = End(known[ledger], True, None)
            continue
        try:
            info = await ledgers.metadata(ledger)
            if ledger in known:
                found[ledger] = End(known[ledger], True, info)
            elif info.state is LedgerState.CLOSED:
                found[ledger] = End(info.last_entry, True, info)
            elif ledger in whole:
                found[ledger] = End(await _last_visible(ledgers, ledger), False, info)
            else:
                found[ledger] = End(await _last_confirmed(ledgers, ledger), False, info)
        except bk.NoSuchLedger as e:
            if not missing_ok:
                raise Moved(ledger) from e
            found[ledger] = End(-1, True, None)
    return found


def whole_state_ledgers(footer: Footer) -> frozenset[int]:
    """Those that hold whole states in Pulsar's form."""
    return frozenset(c.ledger for c in _chain(footer) if is_pulsar(c))


def _chain(footer: Footer) -> tuple[ChainLedger, ...]:
    """All ledgers that hold records or states of it, now or as of the previous snapshot."""
    return footer.chain + (footer.previous.chain if footer.previous is not None else ())


async def _last_visible(ledgers: LedgerStore, ledger: int) -> int:
    """Beyond the last add confirmed too: a whole state ends with its last entry, which readers are
    shown only when another one follows. A state that was not confirmed is as true as one that was.
    """
    last = await _last_confirmed(ledgers, ledger)
    async for chunk in ledgers.read(ledger, max(0, last), unconfirmed=True, max_bytes=READ_BYTES):
        last = max(last, chunk.last_add_confirmed, chunk.first_entry + len(chunk.payloads) - 1)
    return last


async def _last_confirmed(ledgers: LedgerStore, ledger: int) -> int:
    """A read beyond every entry answers with the last add confirmed alone."""
    async for chunk in ledgers.read(ledger, ENTRY_ID_MAX, ENTRY_ID_MAX):
        return chunk.last_add_confirmed
    return -1


def pinned(footer: Footer, ends: dict[int, End]) -> Footer:
    """The footer with every end filled in, so that each read of it reads the same entries."""
    for ledger, end in ends.items():
        footer = footer.with_last_entry(ledger, end.last_entry)
    return footer


def visible(footer: Footer, ends: dict[int, End]) -> tuple[Footer, bool]:
    """A pinned footer whose base a reader can see, and whether that is the newest base. Raises
    ProblemError.

    The newest entry of an open ledger is not shown to readers; if that is the end of the newest
    snapshot, the state is read from the previous one, which is the same state.
    """
    full = pinned(footer, ends)
    base = footer.base
    if (
        not isinstance(base, SnapshotBase)
        or ends[base.ledger].is_final
        or ends[base.ledger].last_entry >= base.last_entry
    ):
        return full, True
    older = from_previous(full)
    if older is None:
        raise ProblemError(
            f"{footer.topic}|{footer.subscription}: its snapshot was just written, and readers "
            f"cannot see its end yet",
            "run it again after its next acks, or when it is closed",
            Kind.AWAY,
        )
    return older, False


def is_at_least(footer: Footer, ends: dict[int, End]) -> bool:
    """Whether the state may be more than what is read."""
    return footer.state is FooterState.OPEN and any(not end.is_final for end in ends.values())


def written_in(footer: Footer, name: CursorName, ledger: int, end: End) -> Written | None:
    """What is known of a ledger of whole states, which exists; None: it holds records. Raises
    DamageError: it is not the cursor's.
    """
    if ledger not in whole_state_ledgers(footer):
        return None
    assert end.info is not None
    return written_by(end.info.custom_metadata, name)


def views(
    ledgers: LedgerStore,
    name: CursorName,
    ledger: int,
    end: End,
    written: Written | None,
    say: Callable[[str], None],
    wait_s: float = WAIT_S,
) -> AsyncIterator[EntryView]:
    """Every entry by itself. Raises as `entries`."""
    found = entries(
        ledgers,
        ledger,
        end.last_entry,
        say=say,
        wait_s=wait_s,
        unconfirmed=written is not None and not end.is_final,
    )
    return entry_view.views(ledger, found, name.record_hash, written)


async def entries(
    ledgers: LedgerStore,
    ledger: int,
    last: int,
    *,
    say: Callable[[str], None] = lambda _why: None,
    wait_s: float = WAIT_S,
    unconfirmed: bool = False,
    first: int = 0,
) -> AsyncIterator[tuple[int, bytes | bk.GatewayError]]:
    """Every entry first..last: its bytes, or why BookKeeper will not give it. Ends early where the
    ledger does. `unconfirmed`: also beyond what is confirmed.

    Raises Moved, ProblemError.
    """
    at, back_off = first, BackOff(PAUSE_MIN_S, PAUSE_MAX_S, limit_s=wait_s)
    while at <= last:
        try:
            came = False
            async for chunk in ledgers.read(
                ledger, at, last, max_bytes=READ_BYTES, unconfirmed=unconfirmed
            ):
                for payload in chunk.payloads:
                    came = True
                    back_off.reset()
                    yield at, payload
                    at += 1
            if not came or at <= last:
                return
        except bk.NoSuchLedger as e:
            raise Moved(ledger) from e
        except bk.GatewayRefused as e:
            # somewhere in the range: everything before it came already, or is read one by one now
            async for entry, payload_or_error in _one(ledgers, ledger, at, e):
                yield entry, payload_or_error
            at += 1
        except bk.GatewayError as e:
            if back_off.is_over():
                raise _waited(
                    f"ledger {ledger} cannot be read for {wait_s:.0f} s now: {e.said}"
                ) from e
            say(f"waiting for BookKeeper: {e.reason}")
            await asyncio.sleep(back_off.next_s())


async def _one(
    ledgers: LedgerStore, ledger: int, entry: int, error: bk.GatewayError
) -> AsyncIterator[tuple[int, bytes | bk.GatewayError]]:
    try:
        async for chunk in ledgers.read(ledger, entry, entry, max_bytes=READ_BYTES):
            for payload in chunk.payloads:
                yield entry, payload
                return
    except bk.GatewayRefused as e:
        error = e
    yield entry, error


def _waited(why: str) -> ProblemError:
    return ProblemError(
        why, "start the missing bookies and run it again; this is not damage", Kind.AWAY
    )


async def replay(
    ledgers: LedgerStore,
    name: CursorName,
    footer: Footer,
    *,
    count: Callable[[int], None] = lambda _n: None,
    wait_s: float = WAIT_S,
    window: StateWindow = WHOLE,
) -> ev.ChainRead | ev.ChainDamaged:
    """What a recovery would find, of a pinned footer, or the part of it in a window. Raises Moved,
    ProblemError.
    """
    back_off = BackOff(0.0, 0.0, limit_s=wait_s)

    def waiting(why: str) -> None:
        if not why:
            back_off.reset()
        elif back_off.is_over():
            raise _waited(why)

    reader = ChainReader(
        name, ledgers, waiting, count, unconfirmed=True, window=window, budget=reading_budget()
    )
    answer = await reader.read(0, footer)
    if isinstance(answer, ev.ChainMissing):
        raise Moved(answer.ledger)
    assert isinstance(answer, ev.ChainRead | ev.ChainDamaged)
    return answer


def reading_budget() -> StateBudget:
    """What a state may take here: the daemon's settings, where the environment says them, else the
    defaults.
    """
    told = [
        os.environ.get(ENVIRONMENT_PREFIX + name, "")
        for name in ("STATE_BYTES_MAX", "LAYOUT_LEDGERS_MAX")
    ]
    state, layout = (
        int(text) if text.isdigit() else limit
        for text, limit in zip(told, (STATE_BYTES_MAX, LAYOUT_LEDGERS_MAX), strict=True)
    )
    return StateBudget.reading(state, layout)


async def read_state(
    ports: Ports, name: CursorName, progress: Progress, wait_s: float = WAIT_S
) -> tuple[Footer, ev.ChainRead, bool]:
    """(footer, state, whether the state may be more). Raises ProblemError, DamageError."""

    async def once(footer: Footer, _version: int) -> tuple[Footer, ev.ChainRead, bool]:
        ends = await ends_of(ports.ledgers, footer)
        progress.grow(sum(end.info.length for end in ends.values() if end.info is not None))
        readable, _ = visible(footer, ends)
        answer = await replay(ports.ledgers, name, readable, count=progress.advance, wait_s=wait_s)
        if isinstance(answer, ev.ChainDamaged):
            raise ProblemError(
                f"{name}: its state cannot be read: {answer.reason}",
                "`cursorkeeper verify` names everything that is damaged",
            )
        return footer, answer, is_at_least(footer, ends)

    return await steadily(ports.footers, name, once)

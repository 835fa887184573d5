"""The compaction of one cursor, in a task: claim it like any owner, let it take a snapshot, close
it, read it back, compare.

Owns the order of the steps and what is done when somebody else comes. Does not own which cursors
(`transforms.cold`) nor the protocol (`cursorkeeper.core`). It goes in two claims. The first leaves
what was there as the snapshot's fall-back; when what it wrote was read back and is the same state,
the second takes another snapshot (or closes a small state into the footer), which drops what was
there. So there is never a moment without something proven to fall back to, and the stored bytes end
at two snapshots.

Invariants: nothing is written but by a keeper's machine, whose claim is a compare-and-set on the
very footer that was looked at; a footer that says open is deposed only if a compaction wrote it,
which loses nothing because a compaction acks nothing; who was deposed once never claims again;
every wait has a limit, and what is given up is closed if it can be. A crash at any point leaves a
whole cursor, and a footer that says how far it came: the next compaction goes on from there.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, NoReturn

from cursorkeeper import connections
from cursorkeeper.bookkeeper.errors import GatewayError
from cursorkeeper.connections import Ports
from cursorkeeper.core import events as ev
from cursorkeeper.core.errors import CursorKeeperError, Refusal
from cursorkeeper.core.footer import Footer, FooterState, SnapshotBase, mark_of
from cursorkeeper.core.limits import Limits
from cursorkeeper.core.names import CursorName
from cursorkeeper.core.sizes import RECORD_HEADER_BYTES
from cursorkeeper.core.snapshot_plan import SnapshotPlan
from cursorkeeper.core.state import AckState
from cursorkeeper.core.values import Record
from cursorkeeper.format import record
from cursorkeeper.format.record import EncodeSettings
from cursorkeeper.hold import STALL_S, Hold, Lost, Purpose, hold
from cursorkeeper.inspection import reader
from cursorkeeper.inspection.footer_view import base_kind
from cursorkeeper.inspection.state_view import differences
from cursorkeeper.migration.cursor_maker import footer_of
from cursorkeeper.problems import Kind, NotFound, ProblemError, problem_of
from cursorkeeper.settings import Settings
from cursorkeeper_pipeline.source.side_by_side import side_by_side
from cursorkeeper_pipeline.transforms.cold import FIRST, OURS, SECOND, Rule

COMPACTED, ALREADY, BUSY, GONE = "COMPACTED", "ALREADY", "BUSY", "GONE"
REFUSED, DIFFERENT, AWAY = "REFUSED", "DIFFERENT", "AWAY"
AT_ONCE = 4
"""Cursors of a task at once; each holds its state in memory, twice while it is compared."""
CLAIM_MAX_S = 3600.0
"""One claim takes no longer, whatever moves: systems that fail and come back all the time must not
hold a task for ever.
"""
GIVE_UP_S = 20.0
"""For so long a cursor that is given up is closed, if it can be: while its footer says open, a
source without takeover is refused.
"""
POLL_S = 0.1
AGAIN = "run compact again: the cursor is whole"

Say = Callable[[str], None]
"""Told each step: looked, claimed, snapshot, closed, compared; and given up, before it is closed
all the same.
"""


class Chosen(NamedTuple):
    """A row of `schemas.CHOSEN`, as far as it is needed. `footer_version`: of the footer that was
    chosen.
    """

    name: CursorName
    footer_version: int
    why: str


class Ended(Exception):
    """The compaction ends here, with this outcome."""

    def __init__(self, outcome: str, why: str = "") -> None:
        super().__init__(why)
        self.outcome, self.why = outcome, why


@dataclass(frozen=True, slots=True)
class Look:
    """A cursor as it is stored. `state` None: its footer says open, so there may be more than can
    be read.
    """

    footer: Footer
    version: int
    state: AckState | None
    stored_bytes: int

    @property
    def kind(self) -> str:
        """Which claim of a compaction wrote the footer; empty: somebody else did."""
        found = re.search(OURS, self.footer.writer)
        return found[1] if found else ""

    @property
    def is_half_done(self) -> bool:
        """The first claim has done its work; one that was given up was closed without its
        snapshot.
        """
        is_snapshot = (
            isinstance(self.footer.base, SnapshotBase) and not self.footer.stats.delta_bytes
        )
        return self.kind == FIRST and self.footer.state is FooterState.CLOSED and is_snapshot

    @property
    def snapshot_bytes(self) -> int:
        return self.footer.base.length if isinstance(self.footer.base, SnapshotBase) else 0

    @property
    def columns(self) -> tuple[str, int, int]:
        """Base, bytes that an owner reads, bytes stored."""
        return (
            base_kind(self.footer.base),
            self.snapshot_bytes + self.footer.stats.delta_bytes,
            self.stored_bytes,
        )


class Compaction:
    """One cursor. `say` is told each step."""

    def __init__(
        self, ports: Ports, settings: Settings, chosen: Chosen, rule: Rule, say: Say, stall_s: float
    ) -> None:
        self._ports, self._settings, self._chosen, self._rule, self._say = (
            ports,
            settings,
            chosen,
            rule,
            say,
        )
        self._name, self._stall_s = chosen.name, stall_s
        self.before: Look | None = None
        self.after: Look | None = None

    async def run(self) -> str:
        """The outcome. Raises Ended for every other one, ProblemError when something is away."""
        look = self.before = self.after = await self._look()
        self._say("looked")
        self._check(look)
        if look.footer.state is FooterState.CLOSED and look.kind == SECOND:
            return ALREADY
        if look.kind != SECOND and not look.is_half_done:
            look = self.after = await self._claimed(look, FIRST)
        self.after = await self._claimed(look, SECOND)
        return COMPACTED

    def _check(self, look: Look) -> None:
        """Raises Ended if it is not, or no longer, to be compacted."""
        footer = look.footer
        if look.kind:
            return
        if footer.state is FooterState.OPEN:
            raise Ended(BUSY, f"epoch {footer.epoch} of {footer.writer} has it open")
        if look.version != self._chosen.footer_version:
            raise Ended(BUSY, "its footer has moved on since it was chosen")
        if not self._rule.is_heavy(look.snapshot_bytes, footer.stats.delta_bytes):
            raise Ended(ALREADY, "its deltas do not outweigh its snapshot")
        # deltas of acks that never overlap are as dense as a snapshot: writing them again would
        # only take room
        would_take = (
            snapshot_bytes_of(self._name, look.state, self._settings.encode)
            if look.state is not None
            else 0
        )
        if not self._rule.is_heavy(would_take, footer.stats.delta_bytes):
            raise Ended(
                ALREADY,
                f"its deltas do not outweigh the snapshot that would replace them, "
                f"{would_take:,} bytes",
            )

    async def _look(self) -> Look:
        async def work(footer: Footer, version: int) -> Look:
            ends = await reader.ends_of(self._ports.ledgers, footer)
            stored = sum(end.info.length for end in ends.values() if end.info is not None)
            if footer.state is FooterState.OPEN:
                return Look(footer, version, None, stored)
            answer = await reader.replay(
                self._ports.ledgers, self._name, reader.pinned(footer, ends), wait_s=self._stall_s
            )
            if isinstance(answer, ev.ChainDamaged):
                raise Ended(REFUSED, answer.reason)
            if answer.fell_back:
                raise Ended(
                    REFUSED,
                    "its snapshot cannot be trusted: open it once, and its owner repairs it",
                )
            return Look(footer, version, answer.state, stored)

        try:
            return await reader.steadily(self._ports.footers, self._name, work)
        except NotFound as e:
            raise Ended(GONE, str(e)) from e

    # ---- one claim

    async def _claimed(self, look: Look, kind: str) -> Look:
        """Claim, snapshot, close; what is stored then, compared with what was."""
        # whoever has looked and decided must not act on what came since; an open footer gets here
        # only if it is a compaction's
        async with hold(
            self._name,
            self._ports,
            self._settings,
            Purpose(kind, "compacted", AGAIN),
            only=mark_of(look.footer),
            limits=limits_of(self._settings.limits, kind),
            stall_s=self._stall_s,
            max_s=CLAIM_MAX_S,
        ) as held:
            try:
                state, epoch = await self._rewritten(held)
            except Lost as e:
                await self._lost(e)
            except ProblemError:
                self._say("given up")
                await held.give_up(GIVE_UP_S)
                raise
        self._say("closed")
        now = await self._look()
        if now.footer.epoch != epoch or now.state is None:
            raise Ended(
                BUSY, f"epoch {now.footer.epoch} of {now.footer.writer} came when it was closed"
            )
        compare(look, state, now.state)
        self._say("compared")
        return now

    async def _rewritten(self, held: Hold) -> tuple[AckState, int]:
        """The state that was recovered and the epoch that recovered it, when its snapshot is
        written and it is closed.
        """
        machine = await held.claimed("claiming it")
        state, epoch = machine.acks, machine.epoch
        self._say("claimed")
        await held.snapshot("writing its snapshot")
        self._say("snapshot")
        await held.close("closing it")
        return state, epoch

    async def _lost(self, lost: Lost) -> NoReturn:
        """Raises Ended."""
        if lost.code == Refusal.NOT_FOUND:
            raise Ended(GONE, str(lost))
        if lost.code and lost.code not in (Refusal.OPEN_ELSEWHERE, Refusal.ALREADY_OPEN):
            raise Ended(REFUSED, lost.problem.told)
        raise Ended(await self._done_by_another(), str(lost))

    async def _done_by_another(self) -> str:
        """ALREADY if another compaction (a second attempt of this task, or another job) ends it
        soon, else BUSY.
        """
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + self._stall_s
        while loop.time() < deadline_s:
            footer = await footer_of(self._ports, self._name)
            if footer is None or footer.state is FooterState.DELETED:
                return GONE
            kind = re.search(OURS, footer.writer)
            if kind is None:
                return BUSY
            if footer.state is FooterState.CLOSED and kind[1] == SECOND:
                return ALREADY
            await asyncio.sleep(POLL_S)
        return BUSY


def compare(look: Look, held: AckState, now: AckState) -> None:
    """What was stored, what the owner recovered of it, and what is stored now are one state. Raises
    Ended.
    """
    odd = differences(held, now, ("its owner", "what it wrote"))
    if look.state is not None:
        odd += differences(look.state, now, ("what was stored", "what is stored now"))
    if odd:
        raise Ended(DIFFERENT, "; ".join(odd))


def snapshot_bytes_of(name: CursorName, state: AckState, encode: EncodeSettings) -> int:
    """What the segments of a snapshot of this state take, by making them, one at a time."""
    plan, stored = SnapshotPlan(state, encode.max_entry_bytes - RECORD_HEADER_BYTES), 0
    while not plan.is_done:
        stored += len(record.encode(Record(name.record_hash, 1, 1, 0, plan.take(state)), encode))
    return stored


def limits_of(limits: Limits, kind: str) -> Limits:
    """The first claim never closes into the footer, which would drop what was there before anything
    was compared.
    """
    return replace(limits, inline_state_max_bytes=0) if kind == FIRST else limits


async def compact(
    ports: Ports,
    settings: Settings,
    chosen: Chosen,
    rule: Rule,
    *,
    say: Say = lambda _step: None,
    stall_s: float = STALL_S,
) -> dict[str, Any]:
    """A row of `schemas.COMPACTED` but for `cursor_key`. Everything that happens to one cursor is
    its row.
    """
    started = time.monotonic()
    run = Compaction(ports, settings, chosen, rule, say, stall_s)
    error: str | None = None
    try:
        outcome = await run.run()
    except Ended as e:
        outcome, error = e.outcome, e.why or None
    except (CursorKeeperError, GatewayError) as e:
        problem = problem_of(e)
        outcome, error = AWAY if problem.kind is Kind.AWAY else REFUSED, problem.told
    none = ("", 0, 0)
    before, after = (look.columns if look is not None else none for look in (run.before, run.after))
    return {
        "cursor": chosen.name.display,
        "outcome": outcome,
        "why": chosen.why,
        "epoch": run.after.footer.epoch if run.after is not None else 0,
        "base_before": before[0],
        "read_bytes_before": before[1],
        "stored_bytes_before": before[2],
        "base_after": after[0],
        "read_bytes_after": after[1],
        "stored_bytes_after": after[2],
        "took_s": time.monotonic() - started,
        "error": error,
    }


def compact_all(
    settings: Settings, chosen: Sequence[Chosen], rule: Rule, *, at_once: int = AT_ONCE
) -> Iterator[tuple[Chosen, dict[str, Any]]]:
    """Each with its row, a few at once, in no order; synchronous, for a task. Raises ProblemError
    if a system is away from the start.
    """

    async def all_of_them() -> list[tuple[Chosen, dict[str, Any]]]:
        async def each() -> AsyncIterator[Chosen]:
            for one in chosen:
                yield one

        async with connections.ports(settings, "writer") as ports:

            async def work(one: Chosen) -> AsyncIterator[tuple[Chosen, dict[str, Any]]]:
                yield one, await compact(ports, settings, one, rule)

            return [done async for done in side_by_side(each(), work, at_once)]

    yield from asyncio.run(all_of_them())

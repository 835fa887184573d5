"""One cursor's state as a task reads it: the chain's replay as a recovery would find it, without
claiming anything.

Owns what a task makes of what it meets: damage, missing ledgers, footers that move on, systems that
are away. Does not own the replay (`runtime.chain`) nor the rows (`states`). Invariants: nothing is
fenced; a footer whose ledger is gone is read again before anything is called missing; a later piece
of a cursor that was cut is read at the footer that is there by then: acks only grow within a
generation, so it holds at least what the first one was of and is never wrong, while a reset or a
deletion in between is `MISSING`; damage and a BookKeeper that does not answer for one cursor are
values in permissive mode and errors that name cursor and remedy in failfast mode; too many cursors
in a row that it does not answer for are an error; every wait ends after `waitS`.
"""

from __future__ import annotations

from dataclasses import dataclass

from cursorkeeper.bookkeeper.port import LedgerStore
from cursorkeeper.core import events as ev
from cursorkeeper.core.errors import DamageError, TooNewError
from cursorkeeper.core.footer import Footer, SnapshotBase
from cursorkeeper.core.names import CursorName
from cursorkeeper.core.state import AckState
from cursorkeeper.core.window import WHOLE, StateWindow
from cursorkeeper.inspection import reader
from cursorkeeper.problems import Kind, ProblemError
from cursorkeeper_pipeline import schemas
from cursorkeeper_pipeline.decode.footer_rows import Found, status_of
from cursorkeeper_pipeline.source.away import AwayCount, named
from cursorkeeper_pipeline.source.cuts import Unit
from cursorkeeper_pipeline.source.options import Options
from cursorkeeper_pipeline.source.shards import Reader, is_tombstone
from cursorkeeper_pipeline.source.state_size import base_bytes

FELL_BACK = (
    "the newest snapshot is damaged, this is read from the one before it; `cursorkeeper "
    "verify` names the place"
)
GONE = -1
"""The version of a footer that is not there."""
LOST = (
    "if it was reset or deleted, run it again; else find out who deleted it: `cursorkeeper "
    "inspect --no-records` shows what the footer needs, `cursorkeeper verify` what is left"
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one cursor. `state` None: it cannot be read, `status` and `error` say why.
    `window`: where `state` counts. `stored_bytes`: read from BookKeeper, or held by the footer (an
    inline state: at most so many).
    """

    footer_version: int
    status: str
    error: str | None = None
    state: AckState | None = None
    stored_bytes: int = 0
    window: StateWindow = WHOLE


class StateReader:
    """Reads states for one task."""

    def __init__(self, footers: Reader, ledgers: LedgerStore, options: Options) -> None:
        self._footers, self._ledgers = footers, ledgers
        self._patience, self._strict = options.patience, options.is_strict
        self._away = AwayCount()

    async def read(self, found: Found, unit: Unit) -> Outcome | None:
        """None: the cursor was deleted meanwhile, and was to be read whole.

        Raises ProblemError (ZooKeeper is away, or BookKeeper for too many); in failfast mode
        DamageError and ProblemError for what is a status else.
        """
        name, window = found.name, unit.window
        now: Found | None = found
        for _ in range(reader.MOVED_MAX):
            if now is None or is_tombstone(now):
                if window.is_whole:
                    return None
                return self._lost(name, GONE, "was deleted while it was read")
            footer, version = now.footer, now.stat.version
            if isinstance(footer, DamageError):
                return self._damaged(now, footer)
            if not window.is_whole and footer.generation != unit.generation:
                return self._lost(name, version, "was reset while it was read")
            try:
                return await self._replayed(now, footer, window)
            except reader.Moved as e:
                await self._footers.sync()
                now = await self._footers.one(name)
                if (
                    now is not None
                    and isinstance(now.footer, Footer)
                    and now.footer.is_same_write(footer)
                ):
                    return self._lost(name, now.stat.version, f"{e}, and the footer names it")
            except ProblemError as e:
                if e.kind is not Kind.AWAY:
                    raise
                if self._strict:
                    raise named(name, e) from e
                self._away.missed(name, e)
                return Outcome(version, schemas.AWAY, str(e))
        version = now.stat.version if now is not None else GONE
        return self._lost(name, version, "its footer changes faster than it can be read")

    async def _replayed(self, found: Found, footer: Footer, window: StateWindow) -> Outcome:
        """Raises Moved."""
        version = found.stat.version
        ends = await self._patience.repeat(
            str(found.name), lambda: reader.ends_of(self._ledgers, footer, unknown_only=True)
        )
        try:
            full, _ = reader.visible(footer, ends)
        except ProblemError as e:  # its end was just written, and nothing older is there
            if self._strict:
                raise
            return Outcome(version, schemas.AT_LEAST, str(e))
        read: list[int] = [0 if isinstance(footer.base, SnapshotBase) else base_bytes(footer)]
        answer = await reader.replay(
            self._ledgers,
            found.name,
            full,
            count=read.append,
            wait_s=self._patience.wait_s,
            window=window,
        )
        if full.named_ledgers():
            self._away.answered()
        if isinstance(answer, ev.ChainDamaged):
            damage = (TooNewError if answer.too_new else DamageError)(answer.reason)
            return self._damaged(found, damage)
        status = schemas.AT_LEAST if reader.is_at_least(footer, ends) else schemas.OK
        error = FELL_BACK if answer.fell_back else None
        return Outcome(version, status, error, answer.state, sum(read), window)

    def _damaged(self, found: Found, error: DamageError) -> Outcome:
        if self._strict:
            raise type(error)(f"{found.name}: {error}")
        return Outcome(found.stat.version, status_of(error), str(error))

    def _lost(self, name: CursorName, version: int, why: str) -> Outcome:
        if self._strict:
            raise ProblemError(f"{name}: {why}", LOST)
        return Outcome(version, schemas.MISSING, why)

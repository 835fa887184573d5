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
from typing import NamedTuple

from cursorkeeper.bookkeeper.port import LedgerStore
from cursorkeeper.core import events as ev
from cursorkeeper.core.errors import DamageError, TooNewError
from cursorkeeper.core.footer import Footer, SnapshotBase
from cursorkeeper.core.names import CursorName
from cursorkeeper.core.state import AckState
from cursorkeeper.core.window import WHOLE, StateWindow
from cursorkeeper.inspection import reader
from cursorkeeper.migration.patience import Patience
from cursorkeeper.problems import Kind, ProblemError
from cursorkeeper_pipeline import schemas
from cursorkeeper_pipeline.decode.footer_rows import Found
from cursorkeeper_pipeline.source.away import AwayCount, named
from cursorkeeper_pipeline.source.options import Mode, Options
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


class Piece(NamedTuple):
    """A part of a cursor, cut at a footer of this generation. Of another one (after a reset) it is
    a piece of nothing.
    """

    generation: int
    window: StateWindow


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one cursor. `state` None: it cannot be read, `status` and `error` say why.
    `stored_bytes`: read from BookKeeper, or held by the footer (an inline state: at most so many).
    """

    name: CursorName
    footer_version: int
    status: str
    error: str | None = None
    state: AckState | None = None
    stored_bytes: int = 0
    piece: Piece | None = None

    @property
    def window(self) -> StateWindow:
        """Where `state` counts."""
        return WHOLE if self.piece is None else self.piece.window


class StateReader:
    """Reads states for one task."""

    def __init__(self, footers: Reader, ledgers: LedgerStore, options: Options) -> None:
        self._footers, self._ledgers, self._options = footers, ledgers, options
        self._patience, self._away = Patience(options.wait_s), AwayCount()

    async def read(
        self, name: CursorName, found: Found | None, piece: Piece | None = None
    ) -> Outcome | None:
        """None: the cursor was deleted meanwhile, and was to be read whole.

        Raises ProblemError (ZooKeeper is away, or BookKeeper for too many); in failfast mode
        DamageError and ProblemError for what is a status else.
        """
        now = found
        for _ in range(reader.MOVED_MAX):
            if now is None or is_tombstone(now):
                return (
                    None
                    if piece is None
                    else self._lost(name, GONE, "was deleted while it was read", piece)
                )
            if isinstance(now.footer, DamageError):
                return self._damaged(now, now.footer, piece)
            if piece is not None and now.footer.generation != piece.generation:
                return self._lost(name, now.stat.version, "was reset while it was read", piece)
            try:
                return await self._replayed(now, now.footer, piece)
            except reader.Moved as e:
                before, now = now.footer, await self._again(name)
                if (
                    now is not None
                    and isinstance(now.footer, Footer)
                    and now.footer.is_same_write(before)
                ):
                    return self._lost(
                        name, now.stat.version, f"{e}, and the footer names it", piece
                    )
            except ProblemError as e:
                if e.kind is not Kind.AWAY:
                    raise
                if self._options.mode is Mode.FAILFAST:
                    raise named(name, e) from e
                self._away.missed(name, e)
                return Outcome(name, now.stat.version, schemas.AWAY, str(e), piece=piece)
        return self._lost(
            name,
            now.stat.version if now else GONE,
            "its footer changes faster than it can be read",
            piece,
        )

    async def _again(self, name: CursorName) -> Found | None:
        await self._footers.sync()
        return await self._footers.one(name)

    async def _replayed(self, found: Found, footer: Footer, piece: Piece | None) -> Outcome:
        """Raises Moved."""
        ends = await self._patience.repeat(
            str(found.name), lambda: reader.ends_of(self._ledgers, footer, unknown_only=True)
        )
        try:
            full, _ = reader.visible(footer, ends)
        except ProblemError as e:  # its end was just written, and nothing older is there
            if self._options.mode is Mode.FAILFAST:
                raise
            return Outcome(found.name, found.stat.version, schemas.AT_LEAST, str(e), piece=piece)
        read: list[int] = [0 if isinstance(footer.base, SnapshotBase) else base_bytes(footer)]
        window = WHOLE if piece is None else piece.window
        answer = await reader.replay(
            self._ledgers,
            found.name,
            full,
            count=read.append,
            wait_s=self._options.wait_s,
            window=window,
        )
        if full.named_ledgers():
            self._away.answered()
        if isinstance(answer, ev.ChainDamaged):
            return self._damaged(
                found, (TooNewError if answer.too_new else DamageError)(answer.reason), piece
            )
        status = schemas.AT_LEAST if reader.is_at_least(footer, ends) else schemas.OK
        error = FELL_BACK if answer.fell_back else None
        return Outcome(
            found.name, found.stat.version, status, error, answer.state, sum(read), piece
        )

    def _damaged(self, found: Found, error: DamageError, piece: Piece | None) -> Outcome:
        if self._options.mode is Mode.FAILFAST:
            raise type(error)(f"{found.name}: {error}")
        status = schemas.TOO_NEW if isinstance(error, TooNewError) else schemas.DAMAGED
        return Outcome(found.name, found.stat.version, status, str(error), piece=piece)

    def _lost(self, name: CursorName, version: int, why: str, piece: Piece | None) -> Outcome:
        if self._options.mode is Mode.FAILFAST:
            raise ProblemError(f"{name}: {why}", LOST)
        return Outcome(name, version, schemas.MISSING, why, piece=piece)

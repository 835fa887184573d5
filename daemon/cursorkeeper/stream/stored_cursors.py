"""Cursors that are stored, whoever holds them or nobody: listed by topic, and all those of a topic
deleted. For reconcilers of topics that are gone.

Owns the walk through ZooKeeper's tree of footers and its pace, and which of the cursors that it
finds may be deleted. Does not own how one is deleted (`Keeper.delete_unopened`: claim, fence,
tombstone). Invariants: a walk asks for one bucket after the other and holds a bucket's names at
most; so many walks at once, and no more; without a fencing token nothing is deleted but the footer
that was looked at.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Collection, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cursorkeeper.core import fencing
from cursorkeeper.core.claim import OPEN_ELSEWHERE_REMEDY
from cursorkeeper.core.errors import DamageError, Refusal, RefusedError
from cursorkeeper.core.footer import FooterState, Mark, mark_of
from cursorkeeper.core.names import CursorName
from cursorkeeper.runtime.footers import Stored, batched
from cursorkeeper.runtime.listener import Listener

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cursorkeeper.runtime.keeper import Keeper

WALKS_MAX = 4
"""Of each worker: a tool asks one of them, and finds there what a daemon of one process gives."""
BUCKET_PAUSE_S = 0.001
"""Between two buckets of a walk: it takes some ten seconds, and is a small part of what ZooKeeper
answers meanwhile.
"""
READ_AT_ONCE = 100
DELETES_AT_ONCE = 16
DELETE_WAIT_MAX_S = 60.0
"""For one cursor. The keeper says sooner that ZooKeeper or BookKeeper is away; a turn may take
longer than this.
"""


class TooManyWalks(Exception):
    """So many are under way."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one cursor of a topic. `refused` None: it is deleted."""

    name: CursorName
    refused: Refusal | None = None
    message: str = ""
    remedy: str = ""


class StoredCursors:
    def __init__(self, keeper: Keeper) -> None:
        self._keeper = keeper
        self._walks = 0

    async def walk(self, topics: Collection[str]) -> AsyncGenerator[Stored, None]:
        """Those of these topics, of all if there are none. What is created or deleted meanwhile may
        be among them or not. Raises TooManyWalks, ZooKeeperError.
        """
        footers = self._keeper.footers
        with self._walking():
            await footers.sync()
            async for names in footers.batches(
                lambda name: not topics or name.topic in topics,
                READ_AT_ONCE,
                pause_s=BUCKET_PAUSE_S,
            ):
                for found in await footers.living(names):
                    yield found

    async def delete(
        self,
        topic: str,
        *,
        fencing_token: int,
        takeover: bool,
        besides: Collection[CursorName] = (),
    ) -> AsyncGenerator[Outcome, None]:
        """Every cursor of the topic, but for those `besides`. Raises as `walk`."""
        async with aclosing(self.walk([topic])) as walk:
            wanted = (stored async for stored in walk if stored.name not in besides)
            async for batch in batched(wanted, DELETES_AT_ONCE):
                for outcome in await self._delete_all(batch, fencing_token, takeover=takeover):
                    yield outcome

    async def delete_held(self, topic: str, *, fencing_token: int) -> AsyncGenerator[Outcome, None]:
        """Those that are held here. Raises ZooKeeperError."""
        held = [name for name in self._keeper.cursors if name.topic == topic]
        names = [name for name in held if self._keeper.held(name) is not None]
        for at in range(0, len(names), DELETES_AT_ONCE):
            living = await self._keeper.footers.living(names[at : at + DELETES_AT_ONCE])
            for outcome in await self._delete_all(living, fencing_token, takeover=False):
                yield outcome

    async def _delete_all(
        self, batch: Sequence[Stored], fencing_token: int, *, takeover: bool
    ) -> list[Outcome]:
        return await asyncio.gather(
            *(self._delete(stored, fencing_token, takeover) for stored in batch)
        )

    @contextmanager
    def _walking(self) -> Iterator[None]:
        if self._walks >= WALKS_MAX:
            raise TooManyWalks(
                f"{self._walks} walks through all stored cursors are under way, {WALKS_MAX} are "
                f"allowed: ask again later"
            )
        self._walks += 1
        try:
            yield
        finally:
            self._walks -= 1

    async def _delete(self, stored: Stored, token: int, takeover: bool) -> Outcome:
        name, told = stored.name, _Ear(stored.name)
        try:
            only = None
            if not token and self._keeper.held(name) is None:
                only = _may_go(stored, takeover=takeover)
            self._keeper.delete_unopened(name, told, only, token)
        except RefusedError as e:
            return Outcome(name, e.code, e.message, e.remedy)
        try:
            async with asyncio.timeout(DELETE_WAIT_MAX_S):
                return await told.outcome
        except TimeoutError:
            why = f"not decided within {DELETE_WAIT_MAX_S:g} s: it may be deleted yet"
            return Outcome(
                name, Refusal.UNAVAILABLE, why, "look at ZooKeeper and BookKeeper; then ask again"
            )


def _may_go(stored: Stored, *, takeover: bool) -> Mark:
    """The mark of a cursor's footer that is not held here, if it may be deleted without a token.
    Raises RefusedError.
    """
    footer, display = stored.footer, stored.name.display
    if isinstance(footer, DamageError):
        raise RefusedError(
            Refusal.DAMAGED, display, str(footer), "look at it with `cursorkeeper inspect`"
        )
    assert footer is not None
    if footer.fencing_token:
        raise RefusedError(
            Refusal.FENCED, display, fencing.why_fenced(0, footer.fencing_token), fencing.REMEDY
        )
    if footer.state is FooterState.OPEN and not takeover:
        who = f"epoch {footer.epoch} of {footer.writer} holds it"
        raise RefusedError(Refusal.OPEN_ELSEWHERE, display, who, OPEN_ELSEWHERE_REMEDY)
    return mark_of(footer)


class _Ear(Listener):
    """Hears how a deletion ended; nothing else is told to whoever has no handle."""

    def __init__(self, name: CursorName) -> None:
        self._name = name
        self.outcome: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()

    def _end(self, refused: Refusal | None = None, message: str = "", remedy: str = "") -> None:
        if not self.outcome.done():
            self.outcome.set_result(Outcome(self._name, refused, message, remedy))

    def on_deleted(self) -> None:
        self._end()

    def on_refused(self, code: str, message: str, remedy: str, seq: int = 0) -> None:
        """NOT_FOUND: somebody else has deleted it meanwhile."""
        if code == Refusal.NOT_FOUND:
            self._end()
        else:
            self._end(Refusal(code), message, remedy)

    def on_deposed(self, epoch: int) -> None:
        """Somebody has opened it meanwhile."""
        self._end(
            Refusal.OPEN_ELSEWHERE,
            f"epoch {epoch} has taken it over meanwhile",
            OPEN_ELSEWHERE_REMEDY,
        )

    def on_closed(self) -> None:
        self._end(
            Refusal.SHUTTING_DOWN,
            "the daemon is stopping",
            "ask another one, or this one after the restart",
        )

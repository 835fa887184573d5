"""A source that goes on by itself: it connects again, opens its cursors again, and sends again what
was not confirmed.

Owns: the connection over time, one `ResumingCursor` per cursor. Does not own: what a cursor keeps
(`resuming_cursor`). Invariant: between two attempts there is a pause that grows to a bound; a
refusal that no pause can cure ends everything.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from cursorkeeper_client import tasks
from cursorkeeper_client.ack_stream.connection import SourceConnection, SourceServer
from cursorkeeper_client.ack_stream.session import SourceSession
from cursorkeeper_client.cursor import ResumingCursor
from cursorkeeper_client.errors import (
    AckStreamError,
    HandleClosed,
    KeeperTimeout,
    SessionLost,
)
from cursorkeeper_client.settings import SourceSettings
from cursorkeeper_client.values import LayoutItem, Position


class SessionMaker(Protocol):
    """One attempt to get a session."""

    async def connect(self) -> SourceSession: ...

    async def close(self) -> None: ...


class ResumingSource:
    """`ResumingSource.dialling(address)` connects to a daemon; `ResumingSource.serving(server)`
    waits for one.
    """

    def __init__(
        self,
        make: Callable[[], SessionMaker],
        settings: SourceSettings,
        rng: random.Random | None = None,
    ) -> None:
        self._make, self._settings, self._rng = make, settings, rng or random.Random()
        self._cursors: list[ResumingCursor] = []
        self._session: SourceSession | None = None
        self._task: asyncio.Task[None] | None = None
        self.failed: AckStreamError | None = None
        self.connections = 0

    @classmethod
    def dialling(
        cls, address: str, settings: SourceSettings | None = None, rng: random.Random | None = None
    ) -> ResumingSource:
        """Dials the daemon's `AckSink`."""
        chosen = settings or SourceSettings()
        return cls(lambda: SourceConnection(address, chosen), chosen, rng)

    @classmethod
    def serving(
        cls,
        server: SourceServer,
        settings: SourceSettings | None = None,
        rng: random.Random | None = None,
    ) -> ResumingSource:
        """Takes the daemons that dial into a started `SourceServer`, one after the other."""
        return cls(lambda: _Accepting(server), settings or SourceSettings(), rng)

    async def start(self) -> None:
        """Begin; returns at once. The cursors' `wait_opened` tells how it goes."""
        self._task = asyncio.get_running_loop().create_task(self._run(), name="resuming source")

    def cursor(
        self,
        topic: str,
        subscription: str,
        *,
        layout: Sequence[LayoutItem] = (),
        create: bool = True,
        start: Position | None = None,
        cursor_properties: Mapping[str, str] | None = None,
        on_durable: Callable[[int], None] | None = None,
    ) -> ResumingCursor:
        """Open a cursor, always with takeover; it is opened again after every loss."""
        made = ResumingCursor(
            topic,
            subscription,
            layout,
            create,
            start,
            cursor_properties or {},
            self._settings,
            self._rng,
        )
        made.on_durable = on_durable
        self._cursors.append(made)
        if self.failed:
            made.fail(self.failed)
        elif self._session and self._session.ended is None:
            made.attach(self._session)
        return made

    async def close(self) -> None:
        """Stop; what is not confirmed stays so. Close the cursors first to give them back."""
        for cursor in self._cursors:
            cursor.fail(HandleClosed("the source was closed"))
            await cursor.detach()
        if self._task:
            await tasks.end(self._task)

    async def __aenter__(self) -> ResumingSource:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _run(self) -> None:
        attempt = 0
        while True:
            ended, attempt = await self._one_session(attempt)
            if not isinstance(ended, SessionLost | KeeperTimeout):
                self.failed = ended
                for cursor in self._cursors:
                    cursor.fail(ended)
                return
            await asyncio.sleep(pause_s(self._settings, attempt, self._rng))

    async def _one_session(self, attempt: int) -> tuple[AckStreamError, int]:
        """From connecting to the end; returns why it ended and the number of attempts in a row."""
        maker = self._make()
        try:
            self._session = session = await maker.connect()
            self.connections += 1
            for cursor in self._cursors:
                cursor.attach(session)
            return await session.wait_ended(), 1
        except AckStreamError as failed:
            return failed, attempt + 1
        finally:
            self._session = None
            for cursor in self._cursors:
                await cursor.detach()
            await maker.close()


class _Accepting:
    """A session from a server that others dial."""

    def __init__(self, server: SourceServer) -> None:
        self._server = server

    async def connect(self) -> SourceSession:
        return await self._server.accept()

    async def close(self) -> None:
        """The stream belongs to the keeper that dialled: it ends it."""


def pause_s(settings: SourceSettings, attempt: int, rng: random.Random) -> float:
    """Doubles from the minimum to the maximum; each between half of the step and all of it."""
    step_ms: int = min(
        settings.back_off_min_ms << min(max(attempt - 1, 0), 20), settings.back_off_max_ms
    )
    return step_ms / 1000 * rng.uniform(0.5, 1.0)

"""The client: it connects to a daemon, again and again, and opens its cursors on every connection.

Owns: the connection over time, one `Cursor` per cursor. Does not own: what a cursor keeps
(`cursor`). Invariant: between two attempts there is a pause that grows to a bound; a refusal that
no pause can cure ends everything.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence

from cursorkeeper_client import names, tasks
from cursorkeeper_client.ack_stream.connection import Line, SourceConnection
from cursorkeeper_client.ack_stream.session import SourceSession
from cursorkeeper_client.back_off import BackOff
from cursorkeeper_client.cursor import Cursor
from cursorkeeper_client.errors import (
    AnswerTimeout,
    ConnectionLost,
    CursorClosed,
    CursorKeeperError,
    defect,
)
from cursorkeeper_client.settings import ClientSettings
from cursorkeeper_client.store import CursorStore
from cursorkeeper_client.values import LayoutItem, Position


class Client:
    """Of the daemon at `address` (`host:port` or `unix:path`), or of those that dial into a started
    `SourceServer`, one after the other. `async with Client(address) as client` begins at once and
    does not wait: the cursors say how it goes.
    """

    def __init__(
        self,
        address: str | Line,
        settings: ClientSettings | None = None,
        rng: random.Random | None = None,
    ) -> None:
        if not isinstance(address, str) and not hasattr(address, "connect"):
            raise TypeError(f"an address is a text, and this is {address!r}")
        self._settings, self._rng = settings or ClientSettings(), rng or random.Random()
        where = address if isinstance(address, str) else ""
        self._line: Line = (
            SourceConnection(address, self._settings) if isinstance(address, str) else address
        )
        self.store = CursorStore(where, self._settings)
        """Questions about the daemon's cursors, whoever opened them."""
        self._cursors: dict[Cursor, None] = {}  # in the order in which they were made
        self._session: SourceSession | None = None
        self._task: asyncio.Task[None] | None = None
        self._connected = asyncio.Event()  # or failed
        self.failed: CursorKeeperError | None = None
        self._problem: CursorKeeperError | None = None
        self.connections = 0

    async def start(self) -> None:
        """Begin; returns at once. The cursors' `opened` tells how it goes."""
        self._task = asyncio.get_running_loop().create_task(self._run(), name="client")

    def cursor(
        self,
        topic: str,
        subscription: str,
        *,
        layout: Sequence[LayoutItem] = (),
        create: bool = True,
        start: Position | None = None,
        takeover: bool = True,
        fencing_token: int = 0,
        cursor_properties: Mapping[str, str] | None = None,
        on_durable: Callable[[int], None] | None = None,
    ) -> Cursor:
        """Opens a cursor, and again after every loss.

        `layout`: the topic's data ledgers, as far as they are known; without it mark-delete does
        not move over what is acked. `create`: if there is none, else it is `NoSuchCursor`.
        `start`: mark-delete of a new one; without it it begins before the first ledger of the
        layout. `takeover`: depose whoever has it open; without it that is `HeldElsewhere`. After a
        loss it is opened again with takeover, also from who opened it meanwhile.
        `fencing_token`: grows with every successor of this program; with a lower one than was seen
        it is `Fenced`. 0: none. `cursor_properties`: of a new one.
        """
        names.check(topic, subscription)
        if isinstance(fencing_token, bool) or not isinstance(fencing_token, int):
            raise TypeError(f"a fencing token is a whole number, and this is {fencing_token!r}")
        if not 0 <= fencing_token < 1 << 64:
            raise ValueError(f"a fencing token is {fencing_token}; it is 0 to {(1 << 64) - 1:,}")
        properties = dict(cursor_properties or {})
        if not all(isinstance(text, str) for item in properties.items() for text in item):
            raise TypeError(f"cursor properties are texts by text, and this is {properties!r}")
        opening = {
            "layout": tuple(LayoutItem(*item) for item in layout),
            "create": create,
            "start": None if start is None else Position(*start),
            "takeover": takeover,
            "fencing_token": fencing_token,
            "cursor_properties": properties,
        }
        made = Cursor(topic, subscription, self._settings, self._rng, self.store, opening)
        made.on_durable, made.on_ended = on_durable, self._forget
        self._cursors[made] = None
        if self.failed:
            made.fail(self.failed)
        elif self._session and self._session.ended is None:
            made.attach(self._session)
        return made

    async def connected(self, timeout_s: float | None = None) -> None:
        """Returns when there is a connection, for who does not want to find out by a cursor. Raises
        `AnswerTimeout` after `timeout_s` (None: `connect_timeout_s` of the settings).
        """
        limit_s = self._settings.connect_timeout_s if timeout_s is None else timeout_s
        try:
            async with asyncio.timeout(limit_s):
                await self._connected.wait()
        except TimeoutError:
            why = self._problem or ConnectionLost("nothing was tried")
            raise AnswerTimeout(
                f"no connection within {limit_s:g} s: {why.message}", why.remedy
            ) from None
        if self.failed:
            raise self.failed

    async def delete(self, topic: str, subscription: str, *, fencing_token: int = 0) -> None:
        """Deletes a cursor that is not open here; with a fencing token also one that is open
        somewhere. Raises `NoSuchCursor` if it is gone already.
        """
        names.check(topic, subscription)
        await self.connected()
        if self._session is None:
            raise self.failed or ConnectionLost("the connection broke")
        await self._session.delete(topic, subscription, fencing_token=fencing_token)

    async def close(self) -> None:
        """Stop; what is not confirmed stays so. Close the cursors first to give them back."""
        ended = list(self._cursors)
        self._fail(CursorClosed("the client was closed", "make a new client"))
        try:
            if self._task:
                await tasks.end(self._task)  # first: who is cancelled here leaves none running
            for cursor in ended:
                await cursor.detach()
        finally:
            await self.store.close()

    async def __aenter__(self) -> Client:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def _forget(self, cursor: Cursor) -> None:
        self._cursors.pop(cursor, None)

    async def _run(self) -> None:
        back_off = self._settings.back_off(self._rng)
        while True:
            ended = await self._one_session(back_off)
            if not isinstance(ended, ConnectionLost | AnswerTimeout):
                return self._fail(ended)
            self._problem = ended
            for cursor in self._cursors:
                cursor.problem = ended
            await asyncio.sleep(back_off.next_s())

    def _fail(self, error: CursorKeeperError) -> None:
        self.failed = self.failed or error
        self._connected.set()
        for cursor in list(self._cursors):
            cursor.fail(self.failed)

    async def _one_session(self, back_off: BackOff) -> CursorKeeperError:
        """From connecting to the end; returns why it ended."""
        try:
            self._session = session = await self._line.connect()
            self.connections += 1
            back_off.reset()
            self._connected.set()
            for cursor in list(self._cursors):
                cursor.attach(session)
            return await session.wait_ended()
        except CursorKeeperError as failed:
            return failed
        except Exception as raised:  # a wrong setting, say
            return defect(raised, "correct the address or the settings")
        finally:
            self._session = None
            if self.failed is None:
                self._connected.clear()
            for cursor in list(self._cursors):
                await cursor.detach()
            await self._line.hang_up()

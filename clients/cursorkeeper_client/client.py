"""The client: it connects to a daemon, again and again, and opens its cursors on every connection.

Owns: the connection over time, one to every worker of the daemon, and one `Cursor` per cursor,
which is opened at the worker of its name. Does not own: what a cursor keeps (`cursor`). Invariants:
between two attempts there is a pause that grows to a bound; a refusal that no pause can cure ends
everything; a cursor is attached to one worker's session at most.
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


class _Link:
    """The connection to one worker: its present session, and why there is none."""

    def __init__(self, line: Line) -> None:
        self.line = line
        self.session: SourceSession | None = None
        self.connected = asyncio.Event()  # or the client has failed
        self.problem: CursorKeeperError | None = None
        self.task: asyncio.Task[None] | None = None


class Client:
    """Of the daemon at `address` (`host:port`, or `unix:` and a path), or of those that dial into a
    started `SourceServer`, one after the other. `async with Client(address) as client` begins at
    once and does not wait: the cursors say how it goes.
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
        self._home = _Link(
            SourceConnection(address, self._settings) if isinstance(address, str) else address
        )
        """The connection that was asked for; its Hello says whether there are other workers."""
        self._links = [self._home]
        """The connection to each worker, by the worker's number."""
        self._addresses: tuple[str, ...] = ()
        self.store = CursorStore(where, self._settings)
        """Questions about the daemon's cursors, whoever opened them."""
        self._cursors: dict[Cursor, None] = {}  # in the order in which they were made
        self.failed: CursorKeeperError | None = None
        self.connections = 0

    async def start(self) -> None:
        """Begin; returns at once. The cursors' `opened` tells how it goes."""
        self._begin(self._home)

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
        link = self._link_of(topic, subscription)
        if self.failed:
            made.fail(self.failed)
        elif link.session and link.session.ended is None:
            made.attach(link.session)
        return made

    async def connected(self, timeout_s: float | None = None) -> None:
        """Returns when there is a connection, for who does not want to find out by a cursor. Raises
        `AnswerTimeout` after `timeout_s` (None: `connect_timeout_s` of the settings).
        """
        await self._wait_connected(self._home, timeout_s)

    async def delete(self, topic: str, subscription: str, *, fencing_token: int = 0) -> None:
        """Deletes a cursor that is not open here; with a fencing token also one that is open
        somewhere. Raises `NoSuchCursor` if it is gone already.
        """
        names.check(topic, subscription)
        await self.connected()  # now it is known which workers there are
        link = self._link_of(topic, subscription)
        await self._wait_connected(link)
        if link.session is None:
            raise self.failed or ConnectionLost("the connection broke")
        await link.session.delete(topic, subscription, fencing_token=fencing_token)

    async def close(self) -> None:
        """Stop; what is not confirmed stays so. Close the cursors first to give them back."""
        ended = list(self._cursors)
        self._fail(CursorClosed("the client was closed", "make a new client"))
        try:
            running = [link.task for link in (self._home, *self._links) if link.task]
            for task in running:
                task.cancel()  # first: who is cancelled here leaves none running
            for task in running:
                await tasks.end(task)
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

    def _link_of(self, topic: str, subscription: str) -> _Link:
        return self._links[names.worker_of(topic, subscription, len(self._links))]

    def _cursors_of(self, link: _Link) -> list[Cursor]:
        return [one for one in self._cursors if self._link_of(one.topic, one.subscription) is link]

    def _begin(self, link: _Link) -> None:
        link.task = asyncio.get_running_loop().create_task(self._run(link), name="client")

    async def _wait_connected(self, link: _Link, timeout_s: float | None = None) -> None:
        limit_s = self._settings.connect_timeout_s if timeout_s is None else timeout_s
        try:
            async with asyncio.timeout(limit_s):
                await link.connected.wait()
        except TimeoutError:
            why = link.problem or ConnectionLost("nothing was tried")
            raise AnswerTimeout(
                f"no connection within {limit_s:g} s: {why.message}", why.remedy
            ) from None
        if self.failed:
            raise self.failed

    async def _run(self, link: _Link) -> None:
        back_off = self._settings.back_off(self._rng)
        while True:
            ended = await self._one_session(link, back_off)
            if not isinstance(ended, ConnectionLost | AnswerTimeout):
                return self._fail(ended)
            link.problem = ended
            for cursor in self._cursors_of(link):
                cursor.problem = ended
            await asyncio.sleep(back_off.next_s())

    def _fail(self, error: CursorKeeperError) -> None:
        self.failed = self.failed or error
        for link in self._links:
            link.connected.set()
        for cursor in list(self._cursors):
            cursor.fail(self.failed)

    async def _one_session(self, link: _Link, back_off: BackOff) -> CursorKeeperError:
        """From connecting to the end; returns why it ended."""
        try:
            link.session = session = await link.line.connect()
            self.connections += 1
            back_off.reset()
            if link is self._home:
                await self._know_workers(session)
            link.connected.set()
            for cursor in self._cursors_of(link):
                cursor.attach(session)
            return await session.wait_ended()
        except CursorKeeperError as failed:
            return failed
        except Exception as raised:  # a wrong setting, say
            return defect(raised, "correct the address or the settings")
        finally:
            link.session = None
            if self.failed is None:
                link.connected.clear()
            for cursor in self._cursors_of(link):
                await cursor.detach()
            await link.line.hang_up()

    async def _know_workers(self, session: SourceSession) -> None:
        """What the Hello of the connection that was asked for says; of another number of workers
        than before, or of others, everything is opened anew. Nothing is attached to this session.
        """
        assert session.keeper is not None
        addresses = tuple(session.keeper.worker_addresses)
        if self._addresses == addresses and self._links[session.keeper.worker] is self._home:
            return
        await self._end_others()
        self._addresses = addresses
        self._links = [
            _Link(self._home.line.to_worker(number, address))
            for number, address in enumerate(addresses or ("",))
        ]
        self._links[session.keeper.worker] = self._home
        for link in self._links:
            if link is not self._home:
                self._begin(link)

    async def _end_others(self) -> None:
        for link in self._links:
            if link is not self._home and link.task:
                await tasks.end(link.task)

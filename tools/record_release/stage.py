"""The real stack, daemons of the installed release, and cursors with their truth: what a story is
played on.

Owns processes and their end, the recorder's own clients (readers: they never fence), waiting for
conditions. Does not own what happens (`native_stories`, `pulsar_stories`) nor the files
(`written`). Invariant: every wait ends within its limit with an error that says what was waited
for.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from cursorkeeper.bookkeeper.client import GatewayClient
from cursorkeeper.bookkeeper.errors import GatewayError
from cursorkeeper.bookkeeper.port import LedgerInfo, LedgerState
from cursorkeeper.bookkeeper.settings import GatewayClientSettings
from cursorkeeper.core.names import CursorName
from cursorkeeper.demo.processes import DaemonProcess
from cursorkeeper.demo.stack import JavaProcess, Standalone
from cursorkeeper.demo.stack.ports import free_port
from cursorkeeper.zookeeper import errors as zk_errors
from cursorkeeper.zookeeper.client import ZooKeeperClient
from cursorkeeper.zookeeper.settings import ZooKeeperSettings, parse_servers
from cursorkeeper_client import Acks, CursorState, LayoutItem, LedgerAcks, Position
from cursorkeeper_client.ack_stream.connection import SourceConnection
from cursorkeeper_client.ack_stream.handle import CursorHandle
from cursorkeeper_client.ack_stream.session import SourceSession
from tools.record_release.truth import Truth

NAME = "recorded"
"""Of every daemon: it goes into footers, where the host's name would be otherwise."""
WAIT_MAX_S = 60.0
POLL_S = 0.001
Json = dict[str, Any]


async def until(
    what: str, condition: Callable[[], Awaitable[bool]], limit_s: float = WAIT_MAX_S
) -> None:
    """Looks again and again. Raises TimeoutError, with what was waited for."""
    try:
        async with asyncio.timeout(limit_s):
            while not await condition():  # noqa: ASYNC110  # what another process does announces itself to nobody
                await asyncio.sleep(POLL_S)
    except TimeoutError:
        raise TimeoutError(f"waited {limit_s:g} s until {what}") from None


class Cursor:
    """One cursor and what its source knows of it. `handle` is that of the owner of now."""

    def __init__(self, name: CursorName, handle: CursorHandle, truth: Truth) -> None:
        self.name, self.handle, self.truth = name, handle, truth
        self.flags: list[list[str]] = []
        """Of each daemon that owned it, for people."""

    async def ack(
        self,
        *ledgers: LedgerAcks,
        mark_delete: Position | None = None,
        properties: Mapping[str, int] | None = None,
    ) -> None:
        """Sends acks; they are not confirmed yet."""
        acks = Acks(ledgers, mark_delete, properties)
        self.truth.sent(await self.handle.send(acks), lambda state: state.ack(acks))

    async def acked(self, *ledgers: LedgerAcks, **more: Any) -> None:
        """Send and wait until it is confirmed."""
        await self.ack(*ledgers, **more)
        await self.confirmed()

    def tell_layout(self, *items: LayoutItem) -> None:
        """Sends the layout; it is not confirmed yet."""
        self.truth.sent(self.handle.layout(items), lambda state: state.tell_layout(items))

    def set_properties(self, properties: Mapping[str, str]) -> None:
        """Sends properties of the subscription; they are not confirmed yet."""
        seq = self.handle.set_cursor_properties(properties)
        self.truth.sent(seq, lambda state: setattr(state, "cursor_properties", dict(properties)))

    async def reset(self, target: Position) -> None:
        """Seek, and wait until it is done."""
        seq = self.handle.last_seq + 1
        await self.handle.reset(target)
        self.truth.sent(seq, lambda state: state.reset(target))

    async def confirmed(self) -> None:
        """Until everything that was sent is durable."""
        await self.handle.durable(self.handle.last_seq)


class Daemon:
    """A running daemon and a source's session with it."""

    def __init__(self, process: DaemonProcess, flags: Sequence[str]) -> None:
        self.process, self.flags = process, list(flags)
        self._connection = SourceConnection(process.address)
        self._session: SourceSession | None = None

    async def open(
        self,
        topic: str,
        *,
        subscription: str = "sub",
        layout: Sequence[LayoutItem] = (),
        properties: Mapping[str, str] | None = None,
    ) -> Cursor:
        """A new cursor, from the first entry of its layout on."""
        session = await self._connected()
        handle = session.open(topic, subscription, layout=layout, cursor_properties=properties)
        state = await handle.opened()
        cursor = Cursor(
            CursorName(topic, subscription),
            handle,
            Truth(state.mark_delete, layout, properties or {}),
        )
        cursor.flags.append(self.flags)
        return cursor

    async def take_over(self, cursor: Cursor, *, layout: Sequence[LayoutItem] = ()) -> CursorState:
        """The next owner of a cursor; what the daemon found is returned."""
        session = await self._connected()
        handle = session.open(
            cursor.name.topic, cursor.name.subscription, layout=layout, create=False, takeover=True
        )
        state = await handle.opened()
        cursor.truth.next_owner(cursor.handle.last_seq)
        cursor.handle = handle
        cursor.flags.append(self.flags)
        return state

    async def create_again(self, cursor: Cursor) -> CursorHandle:
        """What a source gets that opens a deleted cursor."""
        handle = (await self._connected()).open(cursor.name.topic, cursor.name.subscription)
        await handle.opened()
        return handle

    async def kill(self) -> None:
        """SIGKILL. What the source heard before counts."""
        await self.process.kill()
        await self._connection.hang_up()

    async def _connected(self) -> SourceSession:
        if self._session is None:
            self._session = await self._connection.connect()
        return self._session


class Stage:
    """A started stack. Use `stage(folder)`."""

    def __init__(
        self, folder: Path, stack: Standalone, zookeeper: ZooKeeperClient, gateway: GatewayClient
    ) -> None:
        self.folder, self.stack, self.zookeeper, self.gateway = folder, stack, zookeeper, gateway
        self._daemons = 0

    @asynccontextmanager
    async def daemon(self, *flags: str, gateway: str = "") -> AsyncIterator[Daemon]:
        """A daemon with these flags, ended with SIGKILL if the story did not do it."""
        self._daemons += 1
        folder = self.folder / f"daemon-{self._daemons}"
        folder.mkdir()
        process = DaemonProcess(
            folder, gateway or self.stack.gateway, self.stack.zookeeper, ["--name", NAME, *flags]
        )
        try:
            await process.start()
            made = Daemon(process, flags)
            yield made
            await made.kill()
        finally:
            await process.kill()

    @asynccontextmanager
    async def second_gateway(self) -> AsyncIterator[tuple[str, JavaProcess]]:
        """A gateway of its own: with it gone, BookKeeper is away for whoever uses it, and for
        nobody else.
        """
        port = free_port()
        where = ["--port", str(port), "--metadata-service-uri", self.stack.metadata_service_uri]
        process = JavaProcess("gateway", where, self.folder / f"gateway-{port}.log", heap_mib=128)
        try:
            await asyncio.to_thread(process.start)
            yield f"127.0.0.1:{port}", process
        finally:
            await asyncio.to_thread(process.kill)

    async def cut_power(self, daemon: Daemon) -> None:
        """Bookies, ZooKeeper, gateway and daemon at once; then the stack comes back on its data."""
        await asyncio.to_thread(self.stack.kill)
        await daemon.kill()
        await asyncio.to_thread(self.stack.start)

        async def answers() -> bool:
            try:
                await self.zookeeper.sync("/")
                await self.gateway.describe()
            except (zk_errors.ZooKeeperError, GatewayError):
                return False
            return True

        await until("the stack answers again", answers)

    async def footer(self, cursor: Cursor) -> Json:
        """As it is committed now; empty: there is none."""
        try:
            await self.zookeeper.sync(cursor.name.path())
            node = await self.zookeeper.get(cursor.name.path())
        except zk_errors.NoNode:
            return {}
        found: Json = json.loads(node.data)
        return found

    async def until_footer(
        self, cursor: Cursor, what: str, condition: Callable[[Json], bool]
    ) -> Json:
        """Until the committed footer is as wanted; returns it."""
        found: Json = {}

        async def holds() -> bool:
            nonlocal found
            found = await self.footer(cursor)
            return bool(found) and condition(found)

        await until(f"the footer of {cursor.name} {what}", holds)
        return found

    async def ledgers(self, cursor: Cursor) -> list[LedgerInfo]:
        """Every ledger of a cursor, named by its footer or not."""
        found = [
            info async for info in self.gateway.list({"cursor": cursor.name.canonical.encode()})
        ]
        return sorted(found, key=lambda info: info.ledger)

    async def settle(self, cursor: Cursor) -> None:
        """After a daemon's death its gateway, if it lives, ends what was on its way and closes the
        ledgers: wait for that.
        """

        async def are_closed() -> bool:
            open_ones = [
                info.ledger
                for info in await self.ledgers(cursor)
                if info.state is not LedgerState.CLOSED
            ]
            return not [ledger for ledger in open_ones if await self.entries(ledger)]

        await until(f"the ledgers of {cursor.name} are closed", are_closed)

    async def entries(self, ledger: int) -> list[bytes]:
        """What the bookies hold, beyond the last add confirmed too; without a recovery."""
        found: list[bytes] = []
        async for chunk in self.gateway.read(ledger, 0, unconfirmed=True):
            found.extend(chunk.payloads)
        return found


@asynccontextmanager
async def stage(folder: Path) -> AsyncIterator[Stage]:
    """The whole stack in a folder; nothing is left running."""
    stack = Standalone(folder / "stack")
    await asyncio.to_thread(stack.start)
    try:
        servers, _ = parse_servers(stack.zookeeper)
        zookeeper = ZooKeeperClient(ZooKeeperSettings(servers=servers))
        gateway = GatewayClient(GatewayClientSettings(address=stack.gateway, role="reader"))
        try:
            await zookeeper.start()
            await gateway.start()
            yield Stage(folder, stack, zookeeper, gateway)
        finally:
            await zookeeper.close()
            await gateway.close()
    finally:
        await asyncio.to_thread(stack.stop)

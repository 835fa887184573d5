"""A TCP proxy that does harm, between a client and a real server.

Owns the connections through it and the faults: cut, reset, mute, stall, refuse, and a hook for each
frame in either direction. It knows the frames' lengths and nothing of what is in them.
"""

from __future__ import annotations

import asyncio
import itertools
import socket
import struct
from collections.abc import Callable

from cursorkeeper.demo.stack.ports import free_port

Hook = Callable[[bytes], bytes | None]
"""Gets a frame without its length; answers what to pass on, or None for nothing."""

_LENGTH = struct.Struct("!i")
_LINGER_RESET = struct.pack("ii", 1, 0)


class Link:
    """One client connection and, unless muted from the start, its server connection."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self.client = writer
        self.server: asyncio.StreamWriter | None = None
        self.tasks: list[asyncio.Task[None]] = []
        self.frames_from_client: list[bytes] = []
        self.frames_from_server: list[bytes] = []

    def cut(self, *, reset: bool = False) -> None:
        """End both sides: FIN, or RST to the client."""
        if reset:
            raw: socket.socket = self.client.get_extra_info("socket")
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_RESET)
            self.client.transport.abort()
        else:
            self.client.close()
        if self.server is not None:
            self.server.transport.abort()
        for task in self.tasks:
            task.cancel()


class FaultProxy:
    """Listens on 127.0.0.1:`port` for servers on 127.0.0.1, one after the other: each connection
    goes to the next of them.
    """

    def __init__(self, *server_ports: int) -> None:
        self._server_ports = itertools.cycle(server_ports)
        self._listener: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.port = 0
        self.links: list[Link] = []
        self.accepted = 0
        self.silent = False
        """Take connections and never answer on them."""
        self.mute = False
        """Swallow what the server says, on all connections."""
        self.on_request: Hook | None = None
        self.on_reply: Hook | None = None
        self._flowing = asyncio.Event()
        self._flowing.set()
        self.cut_reply_bytes: int | None = None
        """Pass on this many bytes of the next reply that is longer, then end the connection."""

    async def listen(self) -> None:
        """Take connections, on the same port each time: one that the kernel gives to no outgoing
        connection meanwhile.
        """
        self.port = self.port or free_port()
        self._listener = await asyncio.start_server(self._accept, "127.0.0.1", self.port)

    def refuse(self) -> None:
        """Take no more, and end the ones there are."""
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        self.cut()

    def stall(self) -> None:
        """Pass nothing on, in either direction, until `flow`; connections stay."""
        self._flowing.clear()

    def flow(self) -> None:
        """Pass on what came meanwhile, and go on."""
        self._flowing.set()

    def cut(self, *, reset: bool = False) -> None:
        """End every connection."""
        links, self.links = self.links, []
        for link in links:
            link.cut(reset=reset)

    async def close(self) -> None:
        self.refuse()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        link = Link(writer)
        self.links.append(link)
        if self.silent:
            return
        try:
            server_reader, link.server = await asyncio.open_connection(
                "127.0.0.1", next(self._server_ports)
            )
        except OSError:
            link.cut()
            return
        link.tasks = [
            asyncio.create_task(self._pump(link, reader, link.server, from_server=False)),
            asyncio.create_task(self._pump(link, server_reader, writer, from_server=True)),
        ]
        self._tasks.update(link.tasks)
        for task in link.tasks:
            task.add_done_callback(self._tasks.discard)

    async def _pump(
        self,
        link: Link,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        *,
        from_server: bool,
    ) -> None:
        try:
            while True:
                (length,) = _LENGTH.unpack(await reader.readexactly(4))
                frame = await reader.readexactly(length)
                (link.frames_from_server if from_server else link.frames_from_client).append(frame)
                await self._flowing.wait()
                hook = self.on_reply if from_server else self.on_request
                passed = hook(frame) if hook is not None else frame
                if passed is None or (from_server and self.mute):
                    continue
                if (
                    from_server
                    and self.cut_reply_bytes is not None
                    and len(passed) > self.cut_reply_bytes
                ):
                    writer.write((_LENGTH.pack(len(passed)) + passed)[: self.cut_reply_bytes])
                    self.cut_reply_bytes = None
                    link.cut()
                    return
                writer.write(_LENGTH.pack(len(passed)) + passed)
        except (EOFError, OSError):
            link.cut()

"""One connection: requests out, answers back in order, a heartbeat, and one end.

Owns xids, the requests that wait for an answer, and the pings. Does not own the session,
reconnecting, or waiting for room.

Invariants:
- A request is *sent* at the moment `send` returns, and then ends in exactly one way: its answer, or
  ConnectionLost when the connection
  ends. Nothing is ever sent twice.
- However the connection ends (EOF, reset, a cut frame, nonsense, a missed ping, `end`), all that
  wait learn it in that same moment.
- Answers come in the order of the requests; an xid that does not fit ends the connection.
"""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from cursorkeeper.zookeeper import codec
from cursorkeeper.zookeeper.codec import Request
from cursorkeeper.zookeeper.errors import (
    AccessDenied,
    ConnectionLost,
    ProtocolBroken,
    ZooKeeperError,
)

T = TypeVar("T")

XID_MAX = 2**31 - 1
_LENGTH = struct.Struct("!i")
_REPLY_HEADER = struct.Struct("!iqi")  # xid, zxid, error
_PING_FRAME = _LENGTH.pack(len(codec.PING)) + codec.PING


@dataclass(slots=True)
class _Waiting:
    """A request without an answer yet."""

    xid: int
    request: Request[Any]
    answer: asyncio.Future[Any]
    on_answer: Callable[[Any], None] | None
    on_end: Callable[[], None] | None


@dataclass(frozen=True, slots=True)
class Listener:
    """Who a connection tells, at once: answers and events in the order of the stream."""

    zxid: Callable[[int], None]
    """The server had applied this much when it answered a request. Events and pings do not count:
    others of the same zxid may follow.
    """
    event: Callable[[int, str], None]
    """What happened, and the path to which."""
    ended: Callable[[], None]
    """It is over. Called before those who wait for answers learn it, so that they find the
    session's state right.
    """


class Connection:
    """A connection after its handshake. `ended` is done, with the reason, when it is over."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        *,
        session_timeout_s: float,
        reply_bytes_max: int,
        listener: Listener,
        authentication: bytes = b"",
    ) -> None:
        """`authentication`: a frame that goes before everything else; empty: none does."""
        self._loop = asyncio.get_running_loop()
        self._reader, self._writer = reader, writer
        self._reply_bytes_max = reply_bytes_max
        self._listener = listener
        self._xid = 1
        self._waiting: deque[_Waiting] = deque()
        self._pong: asyncio.Future[None] | None = None
        self.ended: asyncio.Future[ZooKeeperError] = self._loop.create_future()
        if authentication:
            writer.write(_LENGTH.pack(len(authentication)) + authentication)
        self._tasks = [
            self._loop.create_task(self._read(), name="zookeeper read"),
            self._loop.create_task(self._beat(session_timeout_s / 3), name="zookeeper heartbeat"),
        ]

    @property
    def alive(self) -> bool:
        return not self.ended.done()

    def send(
        self,
        request: Request[T],
        *,
        on_answer: Callable[[T], None] | None = None,
        on_end: Callable[[], None] | None = None,
    ) -> asyncio.Future[T]:
        """Send now; the future is the answer, a ZooKeeperError of the server, or ConnectionLost.
        Only while `alive`.

        `on_answer` is called with a good answer in the order of the stream (a watch must be known
        before its event is read), unless the caller has given up; `on_end` once, when the request
        is no longer in flight, whatever came of it.
        """
        assert self.alive, "the session checks this, without a pause in between"
        xid = self._xid
        frame = request.encode(xid)
        self._xid = 1 if xid >= XID_MAX else xid + 1
        answer: asyncio.Future[T] = self._loop.create_future()
        self._waiting.append(_Waiting(xid, request, answer, on_answer, on_end))
        self._writer.write(_LENGTH.pack(len(frame)) + frame)
        return answer

    def end(self, reason: ZooKeeperError) -> None:
        """The connection is over. May be called again."""
        if self.ended.done():
            return
        self.ended.set_result(reason)
        self._listener.ended()
        for task in self._tasks:
            task.cancel()
        self._writer.transport.abort()
        waiting, self._waiting = self._waiting, deque()
        for one in waiting:
            if not one.answer.done():
                lost = ConnectionLost(reason.message, path=one.request.path)
                lost.__cause__ = reason
                one.answer.set_exception(lost)
            if one.on_end is not None:
                one.on_end()

    # --- reading ----------------------------------------------------------------------------------

    async def _read(self) -> None:
        reason: ZooKeeperError = ConnectionLost("the connection was ended here")
        try:
            while True:
                (length,) = _LENGTH.unpack(await self._reader.readexactly(_LENGTH.size))
                if not _REPLY_HEADER.size <= length <= self._reply_bytes_max:
                    raise ProtocolBroken(
                        f"frame of {length} bytes, at most {self._reply_bytes_max}"
                    )
                self._frame(await self._reader.readexactly(length))
        except asyncio.IncompleteReadError as cut:
            reason = ConnectionLost(
                "the server closed the connection"
                + (" in the middle of a frame" if cut.partial else "")
            )
        except OSError as broken:
            reason = ConnectionLost(f"the connection broke: {broken}")
        except (ProtocolBroken, AccessDenied) as broken:
            reason = broken
        finally:
            self.end(reason)

    def _frame(self, frame: bytes) -> None:
        xid, zxid, code = _REPLY_HEADER.unpack_from(frame)
        if xid == codec.XID_WATCH:
            self._listener.event(*_decoded(codec.watch_event, frame))
        elif xid == codec.XID_PING:
            if self._pong is not None and not self._pong.done():
                self._pong.set_result(None)
        elif xid > 0:
            self._answer(xid, zxid, code, frame)
        elif xid == codec.XID_AUTH and code:
            raise AccessDenied("the server refuses the user of zookeeper_auth_file")
        # Other special xids answer nothing that is sent here.

    def _answer(self, xid: int, zxid: int, code: int, frame: bytes) -> None:
        if not self._waiting or self._waiting[0].xid != xid:
            raise ProtocolBroken(
                f"answer to request {xid}, awaited "
                f"{self._waiting[0].xid if self._waiting else 'none'}"
            )
        one = self._waiting[0]
        result = _decoded(partial(one.request.read, code), frame)
        # Only now: a request whose answer cannot be read is still waiting, and learns that its
        # connection is lost.
        self._waiting.popleft()
        if zxid > 0:
            self._listener.zxid(zxid)
        if one.on_end is not None:
            one.on_end()
        if one.answer.done():
            return
        if isinstance(result, ZooKeeperError):
            one.answer.set_exception(result)
        else:
            if one.on_answer is not None:
                one.on_answer(result)
            one.answer.set_result(result)

    # --- heartbeat --------------------------------------------------------------------------------

    async def _beat(self, every_s: float) -> None:
        """A ping every third of the session timeout, each given a third: a dead peer is noticed
        with a third to spare.
        """
        next_s = self._loop.time() + every_s
        while True:
            await asyncio.sleep(max(0.0, next_s - self._loop.time()))
            next_s = self._loop.time() + every_s
            self._pong = self._loop.create_future()
            self._writer.write(_PING_FRAME)
            try:
                async with asyncio.timeout(every_s):
                    await self._pong
            except TimeoutError:
                self.end(ConnectionLost(f"no answer to a ping within {every_s:.3g} s"))
                return


def _decoded(decode: Callable[[bytes], T], frame: bytes) -> T:
    try:
        return decode(frame[_REPLY_HEADER.size :])
    except (struct.error, ValueError, IndexError) as reason:
        raise ProtocolBroken(
            f"an answer of {len(frame)} bytes makes no sense: {reason}"
        ) from reason

"""One ack stream as a source sees it, whichever side dialled.

Owns: the handles of a stream, Hello, handing messages to handles, the end of all when the stream
ends. Does not own: gRPC (`source`), one cursor (`handle`). Invariant: after the end every handle
has ended too, with the same error.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from cursorkeeper_client._proto import acks_pb2 as pb
from cursorkeeper_client.ack_stream.groups import GROUP_MESSAGES_MAX
from cursorkeeper_client.ack_stream.handle import CursorHandle
from cursorkeeper_client.ack_stream.messages import (
    PROTOCOL_VERSION,
    hello,
    layout_run,
    layout_runs,
    position,
)
from cursorkeeper_client.ack_stream.outbox import Outbox
from cursorkeeper_client.errors import AnswerTimeout, ConnectionRefused, CursorKeeperError
from cursorkeeper_client.settings import ClientSettings
from cursorkeeper_client.values import CursorState, LayoutItem, Position


class SourceSession:
    """Made by `SourceConnection` or `SourceServer`; `keeper` is the daemon's Hello once it came."""

    def __init__(self, settings: ClientSettings) -> None:
        """Raises ConnectionLost where the settings name a token that cannot be read."""
        self._settings = settings
        self.outbox = Outbox(settings.outgoing_bytes_max)
        self.keeper: pb.Hello | None = None
        self.ended: CursorKeeperError | None = None
        self._handles: dict[int, CursorHandle] = {}
        self._next_handle = 1
        self._ready = asyncio.Event()  # Hello came, or the end
        self._over = asyncio.Event()
        first = hello(settings.name, settings.incarnation, settings.token())
        self.outbox.put(pb.SourceMessage(hello=first).SerializeToString())

    def open(
        self,
        topic: str,
        subscription: str,
        *,
        layout: Sequence[LayoutItem] = (),
        create: bool = True,
        start: Position | None = None,
        takeover: bool = False,
        cursor_properties: Mapping[str, str] | None = None,
        resume: CursorState | None = None,
        fencing_token: int = 0,
    ) -> CursorHandle:
        """Ask for a cursor; `opened` of the handle gives its state or says why not.

        `resume`: what an earlier handle of this source got, in the generation of its newest reset.
        A keeper that holds the cursor unchanged lets the new handle go on without a state and
        without ZooKeeper (`CursorHandle.resumed`); any other opens as always. `fencing_token`:
        grows with every successor of this source; with a lower one than was seen it is `Fenced`. 0:
        none.
        """
        message = pb.OpenCursor(
            topic=topic,
            subscription=subscription,
            create=create,
            takeover=takeover,
            fencing_token=fencing_token,
        )
        first, *later = _runs(layout, start, (self.keeper or pb.Hello()).layout_ledgers_max)
        message.layout.CopyFrom(layout_run(first))
        message.cursor_properties.update(cursor_properties or {})
        if start is not None:
            message.start.CopyFrom(position(start))
        if resume is not None:
            message.resume.CopyFrom(
                pb.ResumePoint(epoch=resume.epoch, generation=resume.generation)
            )
        handle = self._new_handle(f"{topic}|{subscription}", resume)
        message.handle, handle.later_layout = handle.number, later
        self.outbox.put(pb.SourceMessage(open_cursor=message).SerializeToString())
        return handle

    async def delete(self, topic: str, subscription: str, *, fencing_token: int = 0) -> None:
        """Delete a cursor that is not open on this stream; with a fencing token also one that is
        open somewhere.
        """
        handle = self._new_handle(f"{topic}|{subscription}")
        message = pb.DeleteCursor(
            handle=handle.number,
            topic=topic,
            subscription=subscription,
            fencing_token=fencing_token,
        )
        await handle.leave(pb.SourceMessage(delete_cursor=message))

    async def wait_ready(self) -> None:
        """Returns when the daemon has said Hello in a version that we speak."""
        try:
            async with asyncio.timeout(self._settings.connect_timeout_s):
                await self._ready.wait()
        except TimeoutError:
            raise AnswerTimeout(
                f"no Hello from the daemon within {self._settings.connect_timeout_s:g} s"
            ) from None
        if self.ended:
            raise self.ended

    async def wait_ended(self) -> CursorKeeperError:
        """Returns, when the stream is over, why it is."""
        await self._over.wait()
        assert self.ended
        return self.ended

    def receive(self, message: pb.KeeperMessage) -> None:
        """One message of the keeper. Raises `ConnectionRefused` on a violation of the protocol."""
        kind = message.WhichOneof("message")
        if kind is None:
            raise ConnectionRefused("the daemon sent an empty message, or one of a newer version")
        if kind == "group":
            for part in message.group.messages:
                if part.HasField("group"):
                    raise ConnectionRefused("the daemon sent a group within a group")
                self.receive(part)
            return
        if kind == "hello":
            if PROTOCOL_VERSION not in message.hello.protocol_versions:
                spoken = list(message.hello.protocol_versions)
                raise ConnectionRefused(
                    f"daemon {message.hello.name} speaks the versions {spoken}, this client "
                    f"{PROTOCOL_VERSION}"
                )
            if message.hello.worker >= max(1, len(message.hello.worker_addresses)):
                raise ConnectionRefused(
                    f"daemon {message.hello.name} says that it is worker {message.hello.worker} of "
                    f"{len(message.hello.worker_addresses)}"
                )
            self.keeper = message.hello
            self.outbox.group_messages_max = min(
                message.hello.group_messages_max, GROUP_MESSAGES_MAX
            )
            self._ready.set()
            return
        handle = self._handles.get(getattr(message, kind).handle)
        if handle is None:
            return  # an answer to a handle that has just ended here
        handle.receive(kind, message)
        if handle.ended:
            del self._handles[handle.number]

    def end(self, error: CursorKeeperError) -> None:
        """Ends every handle with this error; the first call counts."""
        if self.ended is None:
            self.ended = error
            handles, self._handles = self._handles, {}
            for handle in handles.values():
                handle.end(error)
        self._ready.set()
        self._over.set()

    def _new_handle(self, cursor: str, known: CursorState | None = None) -> CursorHandle:
        if self.ended:
            raise self.ended
        handle = CursorHandle(
            self._next_handle, cursor, self._settings, self.outbox, known, self.keeper
        )
        self._handles[handle.number] = handle
        self._next_handle += 1
        return handle


def _runs(
    layout: Sequence[LayoutItem], start: Position | None, ledgers_max: int
) -> list[Sequence[LayoutItem]]:
    """Runs of a layout for an open. The first one names the ledger of `start`, where a new cursor
    begins; those below it follow, downwards, because a cursor that exists may not have come so far.
    """
    runs = layout_runs(layout, ledgers_max)
    at = next(
        (at for at, item in enumerate(layout) if start is not None and item.ledger == start.ledger),
        0,
    )
    if len(runs) == 1 or at < len(runs[0]):
        return runs
    return [
        *layout_runs(layout[at:], ledgers_max),
        *reversed(layout_runs(layout[: at + 1], ledgers_max)),
    ]

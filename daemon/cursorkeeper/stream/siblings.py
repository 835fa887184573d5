"""The other workers of this daemon, for whoever asks one of them and wants the whole answer.

Owns: who is to be asked, and proving that it is one of them that asks: whoever asked first was let
in there. Does not own: what the answers mean together (`store_service`). Invariants: what a sibling
asks is answered by one worker alone, so that no question goes round; a sibling that does not answer
ends the whole with its status, because a part would look like the whole.
"""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import grpc

from cursorkeeper_client._proto import acks_pb2 as pb
from cursorkeeper_client._proto import acks_pb2_grpc as rpc
from cursorkeeper_client.channels import Dialled

ASKED_BY_A_SIBLING = "cursorkeeper-worker"
"""In the metadata of a question: the number of the worker that asks it."""
SECRET = "cursorkeeper-worker-secret"
"""In the metadata, too: what only workers of one daemon know."""
OPTIONS = [("grpc.max_receive_message_length", -1), ("grpc.max_reconnect_backoff_ms", 1_000)]


class Sibling:
    """One of them. The connection begins with the first question."""

    def __init__(self, number: int, dialled: Dialled, own: int, secret: str) -> None:
        self._number, self._dialled = number, dialled
        self._said = ((ASKED_BY_A_SIBLING, str(own)), (SECRET, secret))

    def call(self, method: str, request: Any, context: Any) -> Any:
        """The question that came with `context`, asked there."""
        stub = rpc.CursorStoreStub(self._dialled.renewed())  # type: ignore[no-untyped-call]
        return getattr(stub, method)(request, timeout=context.time_remaining(), metadata=self._said)

    async def answer(self, method: str, request: Any, context: Any) -> Any:
        """Its one answer. Ends the question with its status."""
        try:
            return await self.call(method, request, context)
        except grpc.aio.AioRpcError as failed:
            await self.abort(failed, context)

    async def answers(self, method: str, request: Any, context: Any) -> AsyncIterator[Any]:
        """The same for one that answers with many messages."""
        call = self.call(method, request, context)
        try:
            async for message in call:
                yield message
        except grpc.aio.AioRpcError as failed:
            await self.abort(failed, context)
        finally:
            call.cancel()

    async def info(
        self, cursor: pb.CursorRef, context: Any
    ) -> pb.CursorInfo | grpc.aio.AioRpcError | None:
        """What it says of a cursor that it holds, or how it failed; None: it does not hold it."""
        try:
            found: pb.CursorInfo = await self.call("Get", pb.GetRequest(cursor=cursor), context)
        except grpc.aio.AioRpcError as failed:
            return failed if failed.code() is not grpc.StatusCode.NOT_FOUND else None
        return found

    async def close(self) -> None:
        await self._dialled.close()

    async def abort(self, failed: grpc.aio.AioRpcError, context: Any) -> None:
        await context.abort(failed.code(), f"worker {self._number}: {failed.details()}")


class Siblings:
    """Those of worker `own`, by the addresses of all; none: the daemon is one process. `secret`:
    what all of them know.
    """

    def __init__(
        self,
        addresses: Sequence[str] = (),
        own: int = 0,
        secret: str = "",
        dial: Callable[[str], Dialled] = lambda address: Dialled(address, OPTIONS),
    ) -> None:
        self._secret = secret.encode()
        self._all = [
            Sibling(number, dial(address), own, secret)
            for number, address in enumerate(addresses)
            if number != own
        ]

    def to_ask(self, context: Any) -> list[Sibling]:
        """For a question that came with this context: all, or none if it is one of them that
        asks.
        """
        return [] if self.is_asking(context) else self._all

    def is_asking(self, context: Any) -> bool:
        """Whether it is one of them that asks, and knows what only they know."""
        if not self._secret:
            return False
        said = dict(context.invocation_metadata() or ())
        if ASKED_BY_A_SIBLING not in said:
            return False
        given = said.get(SECRET, "")
        return hmac.compare_digest(
            given.encode() if isinstance(given, str) else given, self._secret
        )

    async def holder(
        self, cursor: pb.CursorRef, context: Any
    ) -> tuple[Sibling, pb.CursorInfo] | None:
        """Who of them holds a cursor, and what it says of it; of two, one of whom does not know yet
        that it was deposed, the later owner. Ends the question if none does, and one of them does
        not answer.
        """
        asked = self.to_ask(context)
        said = await asyncio.gather(*(each.info(cursor, context) for each in asked))
        answers = list(zip(asked, said, strict=True))
        found = [(each, info) for each, info in answers if isinstance(info, pb.CursorInfo)]
        if not found:
            for each, failed in answers:
                if isinstance(failed, grpc.aio.AioRpcError):
                    await each.abort(failed, context)
        return max(found, key=lambda pair: pair[1].epoch, default=None)

    async def close(self) -> None:
        for each in self._all:
            await each.close()

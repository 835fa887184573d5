"""Questions about cursors, and the deletion of a topic's, without opening any: `CursorStore` of the
protocol, for programs that look.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from typing import Any

from cursorkeeper_client import names
from cursorkeeper_client._proto import acks_pb2 as pb
from cursorkeeper_client._proto import acks_pb2_grpc as rpc
from cursorkeeper_client.ack_stream.columns import missing_of
from cursorkeeper_client.ack_stream.messages import position_of
from cursorkeeper_client.ack_stream.recovered import RecoveredParts
from cursorkeeper_client.channels import Dialled, RpcFailed
from cursorkeeper_client.errors import (
    AnswerTimeout,
    ConnectionLost,
    CursorKeeperError,
    CursorRefused,
    KeeperBusy,
    NoSuchCursor,
    call_ended,
    refused,
)
from cursorkeeper_client.open_batch import entries_of, ledger_of
from cursorkeeper_client.settings import ClientSettings
from cursorkeeper_client.values import U32, CursorState, PartialBatch, Position

ACKED, PARTLY = 1, 2


@dataclass(frozen=True, slots=True)
class CursorInfo:
    """One cursor, as the daemon believes, or as its footer says if it is not `held` there (then
    `mark_delete` is a lower bound). The fields are those of the protocol's `CursorInfo`.
    """

    topic: str
    subscription: str
    state: str
    epoch: int
    generation: int
    mark_delete: Position
    holes: int
    acked_entries: int
    partial_batches: int
    accepted_acks: int
    pending_bytes: int
    appends_in_flight: int
    chain_ledgers: int
    waiting_for: str
    format: str
    cursor_metadata_size_in_memory_bytes: int
    truncated_acks: int
    paused_for: str
    flush_interval_ms: int
    held: bool
    fencing_token: int
    problem: str


class CursorStore:
    """Of the daemon at `address`. `Client.store` is one; the channel opens with the first
    question. Raises what a `Client` does; `NoSuchCursor` where the daemon does not hold the cursor.
    """

    def __init__(self, address: str, settings: ClientSettings | None = None) -> None:
        self._address, self._settings = address, settings or ClientSettings()
        limit = [
            ("grpc.max_receive_message_length", self._settings.receive_bytes_max),
            ("grpc.max_reconnect_backoff_ms", self._settings.back_off_max_ms),
        ]
        self._dialled = Dialled(address, limit, self._settings.tls, self._settings.tls_server_name)

    async def get(self, topic: str, subscription: str) -> CursorInfo:
        """A cursor that is held there."""
        return _info(await self._ask("Get", pb.GetRequest(cursor=_ref(topic, subscription))))

    async def list(self, *topics: str, stored: bool = False) -> AsyncIterator[CursorInfo]:
        """The cursors that are held there, or all `stored` ones (which takes some ten seconds); of
        these topics only, if any are named.
        """
        async for info in self._each("List", pb.ListRequest(topics=topics, stored=stored)):
            yield _info(info)

    async def ack_state(
        self, topic: str, subscription: str, ledger: int, entries: Iterable[int] | U32
    ) -> dict[int, bool | PartialBatch]:
        """Of each entry whether it is acked, or what is missing of its batch."""
        request = pb.AckStateRequest(
            cursor=_ref(topic, subscription),
            ledger_id=ledger_of(ledger),
            entries=entries_of(entries).tolist(),
        )
        reply = await self._ask("AckState", request)
        partly = {
            part.entry: PartialBatch(part.entry, part.batch_size, missing_of(part.ack_set))
            for part in reply.partials
        }
        return {
            entry: partly[entry] if mark == PARTLY else mark == ACKED
            for entry, mark in zip(request.entries, reply.acked, strict=True)
        }

    async def export(self, topic: str, subscription: str) -> CursorState:
        """The whole state of a cursor that is held there; what it has taken and not confirmed yet
        is among it.
        """
        parts: RecoveredParts | None = None
        async for message in self._each(
            "Export", pb.ExportRequest(cursor=_ref(topic, subscription))
        ):
            if message.HasField("opened"):
                parts = RecoveredParts(message.opened)
            elif parts and message.HasField("state_part"):
                parts.add(message.state_part)
            elif parts and message.HasField("state_end"):
                return parts.end(message.state_end)
        raise ConnectionLost(f"the state of {topic}|{subscription} ended before its end")

    async def delete_topic(
        self, topic: str, *, fencing_token: int = 0, takeover: bool = False
    ) -> AsyncIterator[tuple[str, CursorRefused | None]]:
        """Deletes every cursor of a topic that is gone: each subscription, with why it is still
        there, if it is. Ask until nothing comes.
        """
        names.check(topic, "any")
        request = pb.DeleteTopicRequest(topic=topic, fencing_token=fencing_token, takeover=takeover)
        async for one in self._each("DeleteTopic", request):
            code, name = pb.RefusedCode.Name(one.refused), f"{topic}|{one.cursor.subscription}"
            problem = refused(code, name, one.message, one.remedy) if one.refused else None
            yield one.cursor.subscription, problem

    async def close(self) -> None:
        """Questions under way fail."""
        await self._dialled.close()

    async def __aenter__(self) -> CursorStore:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def _call(self, method: str, request: Any) -> Any:
        if not self._address:
            raise ValueError(
                "the daemon dials this client, which knows no address to ask; make a CursorStore "
                "of its own"
            )
        settings = self._settings
        token = settings.token()
        stub = rpc.CursorStoreStub(self._dialled.renewed())  # type: ignore[no-untyped-call]
        return getattr(stub, method)(
            request,
            timeout=settings.answer_timeout_s,
            metadata=(("authorization", b"Bearer " + token),) if token else (),
        )

    async def _ask(self, method: str, request: Any) -> Any:
        try:
            return await self._call(method, request)
        except RpcFailed as failed:
            raise _unanswered(method, failed, is_tls=self._settings.tls is not None) from None

    async def _each(self, method: str, request: Any) -> AsyncIterator[Any]:
        call = self._call(method, request)
        try:
            async for message in call:
                yield message
        except RpcFailed as failed:
            raise _unanswered(method, failed, is_tls=self._settings.tls is not None) from None
        finally:
            call.cancel()


def _ref(topic: str, subscription: str) -> pb.CursorRef:
    names.check(topic, subscription)
    return pb.CursorRef(topic=topic, subscription=subscription)


def _info(message: pb.CursorInfo) -> CursorInfo:
    same = {
        name: getattr(message, name)
        for name in CursorInfo.__slots__
        if name not in ("topic", "subscription", "mark_delete")
    }
    ref = message.cursor
    return CursorInfo(
        ref.topic, ref.subscription, mark_delete=position_of(message.mark_delete), **same
    )


def _unanswered(method: str, failed: Exception, *, is_tls: bool) -> CursorKeeperError:
    rpc: Any = failed
    status, details, what = rpc.code().name, rpc.details() or "", f"CursorStore.{method}"
    match status:
        case "NOT_FOUND":
            return NoSuchCursor(
                status, what, details, "open it here, or ask the daemon that holds it"
            )
        case "RESOURCE_EXHAUSTED":
            return KeeperBusy(status, what, details, "ask again later")
        case "DEADLINE_EXCEEDED":
            return AnswerTimeout(f"{what}: no answer in time")
    return call_ended(status, details, what, is_tls=is_tls)

"""`CursorStore`: questions about the cursors this daemon holds, for tools and for dispatch; and
about all stored ones, for reconcilers.

Every worker of a daemon answers for all of them: a tool knows one address, and a cursor may be at
any worker. What a worker does not hold itself it asks of the others.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Any

import grpc

from cursorkeeper.core.errors import DamageError, RefusedError
from cursorkeeper.core.names import CursorName
from cursorkeeper.core.table import OPENING
from cursorkeeper.runtime.footers import Stored
from cursorkeeper.runtime.keeper import Keeper
from cursorkeeper.runtime.runner import CursorRunner, Gone, Unknown
from cursorkeeper.stream import codec, state_parts
from cursorkeeper.stream.siblings import Sibling, Siblings
from cursorkeeper.stream.stored_cursors import StoredCursors, TooManyWalks
from cursorkeeper.zookeeper import errors as zk
from cursorkeeper_client._proto import acks_pb2 as pb
from cursorkeeper_client._proto import acks_pb2_grpc as rpc

ENTRIES_MAX = 100_000
TOPICS_MAX = 1_000
ACKED, UNACKED, PARTLY = 1, 0, 2


def _ref(name: CursorName) -> pb.CursorRef:
    return pb.CursorRef(topic=name.topic, subscription=name.subscription)


def info_of(runner: CursorRunner) -> pb.CursorInfo:
    """What is known of one cursor, now."""
    machine, told = runner.machine, runner.machine.statistics
    return pb.CursorInfo(
        cursor=_ref(runner.name),
        state=str(machine.state),
        epoch=machine.epoch,
        generation=machine.generation,
        mark_delete=codec.position_to(machine.acks.mark_delete),
        holes=machine.acks.hole_count,
        acked_entries=machine.acks.span - machine.acks.hole_count,
        partial_batches=machine.acks.partial_count,
        accepted_acks=machine.counters.accepted_acks,
        pending_bytes=machine.progress.unconfirmed_bytes,
        appends_in_flight=told.appends_in_flight,
        chain_ledgers=len(machine.chain),
        waiting_for=machine.waiting_for,
        format=told.format,
        cursor_metadata_size_in_memory_bytes=told.metadata_bytes,
        truncated_acks=told.truncated_acks,
        paused_for=told.paused_for,
        flush_interval_ms=told.interval_ms,
        held=True,
        fencing_token=told.fencing_token,
    )


def info_of_stored(stored: Stored) -> pb.CursorInfo:
    """What the footer of a cursor says that is not held here."""
    info = pb.CursorInfo(cursor=_ref(stored.name))
    footer = stored.footer
    if isinstance(footer, DamageError):
        info.state, info.problem = "damaged", str(footer)
        return info
    assert footer is not None
    info.state, info.epoch, info.generation = str(footer.state), footer.epoch, footer.generation
    info.mark_delete.CopyFrom(codec.position_to(footer.mark_delete))
    info.holes, info.acked_entries = footer.stats.holes, footer.stats.span - footer.stats.holes
    info.partial_batches, info.chain_ledgers = footer.stats.partial_batches, len(footer.chain)
    info.format, info.fencing_token = footer.format, footer.fencing_token
    return info


class CursorStoreService(rpc.CursorStoreServicer):
    """See the module. A cursor that is not held here is NOT_FOUND: its footer says who has it."""

    def __init__(self, keeper: Keeper, siblings: Siblings | None = None) -> None:
        self._keeper, self._siblings = keeper, siblings or Siblings()
        self._stored = StoredCursors(keeper)

    async def _runner(self, ref: pb.CursorRef, context: Any) -> CursorRunner:
        name = CursorName(ref.topic, ref.subscription)
        runner = self._keeper.cursors.get(name)
        if runner is None:
            await context.abort(
                grpc.StatusCode.NOT_FOUND,
                f"{name}: not held by this daemon; `cursorkeeper inspect` reads it from the "
                f"ledgers",
            )
        assert runner is not None
        return runner

    async def _elsewhere(
        self, ref: pb.CursorRef, context: Any
    ) -> tuple[Sibling, pb.CursorInfo] | None:
        """The worker that holds a cursor which this one does not hold."""
        if CursorName(ref.topic, ref.subscription) in self._keeper.cursors:
            return None
        return await self._siblings.holder(ref, context)

    async def _proved(self, ref: pb.CursorRef, context: Any) -> CursorRunner:
        """A cursor of which something may be told: its state is there, because before that every
        entry would look un-acked and be delivered again; and it was held here after the question
        came.
        """
        runner = await self._runner(ref, context)
        if runner.machine.state in OPENING:
            waits = runner.machine.waiting_for
            await context.abort(
                grpc.StatusCode.UNAVAILABLE,
                f"{runner.name}: being opened ({runner.machine.state}"
                f"{f', waiting for {waits}' if waits else ''}): ask again when its state is "
                f"recovered",
            )
        proof = await self._keeper.proof(runner)
        if isinstance(proof, Unknown):
            await context.abort(
                grpc.StatusCode.UNAVAILABLE,
                f"{runner.name}: {proof.reason}: ask again, here or elsewhere",
            )
        if isinstance(proof, Gone):
            await context.abort(
                grpc.StatusCode.NOT_FOUND,
                f"{runner.name}: not held by this daemon any more: look who holds it now",
            )
        return runner

    async def Get(self, request: pb.GetRequest, context: Any) -> pb.CursorInfo:  # noqa: N802
        """One cursor, as this daemon believes: it may be held elsewhere since."""
        if (found := await self._elsewhere(request.cursor, context)) is not None:
            return found[1]
        return info_of(await self._runner(request.cursor, context))

    async def List(self, request: pb.ListRequest, context: Any) -> AsyncIterator[pb.CursorInfo]:  # noqa: N802
        """All that are held, as this daemon believes; or all that are stored."""
        topics = frozenset(request.topics)
        if len(request.topics) > TOPICS_MAX:
            text = (
                f"{len(request.topics)} topics, {TOPICS_MAX} are allowed: ask in parts, or for all"
            )
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, text)
        if not request.stored:
            for runner in list(self._keeper.cursors.values()):
                if not topics or runner.name.topic in topics:
                    yield info_of(runner)
            async for info in self._held_by_siblings(request.topics, context):
                yield info
            return
        theirs: dict[tuple[str, str], pb.CursorInfo] | None = None
        async with _walking(context), aclosing(self._stored.walk(topics)) as walk:
            async for stored in walk:
                if theirs is None:  # kept only for as many as may walk
                    theirs = {
                        (info.cursor.topic, info.cursor.subscription): info
                        async for info in self._held_by_siblings(request.topics, context)
                    }
                held, name = self._keeper.cursors.get(stored.name), stored.name
                known = theirs.get((name.topic, name.subscription))
                yield info_of(held) if held is not None else known or info_of_stored(stored)

    async def _held_by_siblings(
        self, topics: Sequence[str], context: Any
    ) -> AsyncIterator[pb.CursorInfo]:
        for sibling in self._siblings.to_ask(context):
            async for info in sibling.answers("List", pb.ListRequest(topics=topics), context):
                yield info

    async def DeleteTopic(  # noqa: N802
        self, request: pb.DeleteTopicRequest, context: Any
    ) -> AsyncIterator[pb.TopicCursorDeleted]:
        """Every cursor of a topic, with what came of it."""
        if not request.topic:
            await context.abort(
                grpc.StatusCode.INVALID_ARGUMENT,
                "the topic is empty: name the one whose cursors are to be deleted",
            )
        try:
            token = codec.fencing_token_of(request)
        except RefusedError as e:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"{e.message}: {e.remedy}")
        if self._siblings.is_asking(context):
            deleted = self._stored.delete_held(request.topic, fencing_token=token)
        else:
            # of cursors that a worker holds it knows whether a source has them open
            told = set()
            for sibling in self._siblings.to_ask(context):
                async for outcome in sibling.answers("DeleteTopic", request, context):
                    told.add(CursorName(outcome.cursor.topic, outcome.cursor.subscription))
                    yield outcome
            deleted = self._stored.delete(
                request.topic, fencing_token=token, takeover=request.takeover, besides=told
            )
        async with _walking(context), aclosing(deleted) as outcomes:
            async for one in outcomes:
                yield pb.TopicCursorDeleted(
                    cursor=_ref(one.name),
                    refused=str(one.refused) if one.refused is not None else None,
                    message=one.message,
                    remedy=one.remedy,
                )

    async def AckState(self, request: pb.AckStateRequest, context: Any) -> pb.AckStateReply:  # noqa: N802
        """Of each entry asked: acked, not, or partly, with the indexes that remain."""
        if len(request.entries) > ENTRIES_MAX:
            await context.abort(
                grpc.StatusCode.INVALID_ARGUMENT,
                f"{len(request.entries)} entries, {ENTRIES_MAX} are allowed: ask in parts",
            )
        if (found := await self._elsewhere(request.cursor, context)) is not None:
            answer: pb.AckStateReply = await found[0].answer("AckState", request, context)
            return answer
        state = (await self._proved(request.cursor, context)).machine.acks
        reply = pb.AckStateReply()
        marks = bytearray()
        for entry in request.entries:
            partial = state.partial(request.ledger_id, entry)
            if partial is not None:
                reply.partials.add(
                    ledger_id=request.ledger_id,
                    entry=entry,
                    batch_size=partial.batch_size,
                    ack_set=codec.words_of(partial.missing),
                )
            marks.append(
                PARTLY
                if partial is not None
                else ACKED
                if state.is_acked(request.ledger_id, entry)
                else UNACKED
            )
        reply.acked = bytes(marks)
        return reply

    async def Export(  # noqa: N802
        self, request: pb.ExportRequest, context: Any
    ) -> AsyncIterator[pb.KeeperMessage]:
        """The state as an opened source gets it; accepted acks included, so it may be ahead of what
        is durable.
        """
        if (found := await self._elsewhere(request.cursor, context)) is not None:
            async for message in found[0].answers("Export", request, context):
                yield message
            return
        runner = await self._proved(request.cursor, context)
        for message in list(state_parts.messages(0, runner.machine)):
            yield message


@asynccontextmanager
async def _walking(context: Any) -> AsyncIterator[None]:
    """Ends the call with a status when a walk through what is stored ends early."""
    try:
        yield
    except TooManyWalks as e:
        await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, str(e))
    except zk.ZooKeeperError as e:
        await context.abort(
            grpc.StatusCode.UNAVAILABLE, f"ZooKeeper: {e}: ask again; what was told holds"
        )

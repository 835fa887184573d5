"""What waits to be sent: bounded, and never a trouble for whoever puts something into it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import grpc
import pytest
from cursorkeeper.stream.credits import CreditPool
from cursorkeeper.stream.outbox import Outbox, OutboxFull
from cursorkeeper.stream.servers import AckSinkService
from cursorkeeper.stream.session import Session
from cursorkeeper_clients._proto import acks_pb2 as pb
from cursorkeeper_clients.ack_stream.groups import GROUP_BYTES

from daemon.tests.support.world import World

PAUSE = pb.KeeperMessage(pause=pb.Pause(handle=1))


class Context:
    """A call that was answered with a status."""

    def __init__(self) -> None:
        self.status: tuple[grpc.StatusCode, str] | None = None

    async def abort(self, code: grpc.StatusCode, details: str) -> None:
        self.status = (code, details)
        raise grpc.aio.AbortError(details)


async def test_a_full_outbox_tells_the_reader_and_not_the_writer() -> None:
    told: list[bool] = []
    outbox = Outbox(3, lambda: told.append(True))
    for _ in range(5):
        outbox.put(PAUSE)
    outbox.put_durable(1, 9)
    outbox.put_credit(1, 9)
    outbox.put_state(1, iter([PAUSE]))
    with pytest.raises(OutboxFull, match="3 messages"):
        await outbox.next()
    await asyncio.sleep(0)
    assert told == [True]


async def test_cumulative_messages_are_merged_and_bounded() -> None:
    outbox = Outbox(2)
    for seq in range(1, 10):
        outbox.put_durable(1, seq)
        outbox.put_credit(1, 100 * seq)
    assert (await outbox.next()) == pb.KeeperMessage(durable=pb.Durable(handle=1, seq=9))
    assert (await outbox.next()) == pb.KeeperMessage(credit=pb.Credit(handle=1, granted_bytes=900))
    for handle in range(3):
        outbox.put_durable(handle, 1)
    with pytest.raises(OutboxFull):
        await outbox.next()


async def test_what_waits_leaves_in_groups_to_whoever_takes_them() -> None:
    outbox = Outbox()
    for handle in range(1, 9):
        outbox.put_durable(handle, 5)
    assert await outbox.next_bytes() == pb.KeeperMessage(durable=pb.Durable(handle=1, seq=5)).SerializeToString()
    outbox.group_messages_max = 3
    sent = [await outbox.next_bytes() for _ in range(3)]
    groups = [[part.durable.handle for part in pb.KeeperMessage.FromString(each or b"").group.messages] for each in sent]
    assert groups == [[2, 3, 4], [5, 6, 7], []], "the last one goes as it is"
    outbox.close()
    assert await outbox.next_bytes() is None


async def test_hello_is_alone_whatever_waits_behind_it() -> None:
    outbox = Outbox()
    outbox.group_messages_max = 100
    hello = pb.KeeperMessage(hello=pb.Hello(name="k"))
    for message in (hello, PAUSE, PAUSE):
        outbox.put(message)
    assert await outbox.next_bytes() == hello.SerializeToString()
    assert await outbox.next_bytes() == pb.KeeperMessage(group=pb.KeeperGroup(messages=[PAUSE, PAUSE])).SerializeToString()


async def test_a_state_is_not_gathered_in_one_group() -> None:
    parts = [pb.KeeperMessage(state_part=pb.StatePart(handle=1, slices=[pb.StateSlice(roaring=b"x" * GROUP_BYTES)])) for _ in range(3)]
    made: list[int] = []

    def messages() -> Iterator[pb.KeeperMessage]:
        for number, part in enumerate(parts):
            made.append(number)
            yield part

    outbox = Outbox()
    outbox.group_messages_max = 100
    outbox.put_state(1, messages())
    assert await outbox.next_bytes() == parts[0].SerializeToString()
    assert made == [0]


async def test_all_cursors_of_a_daemon_fit_one_stream() -> None:
    world = World()
    session = Session(await world.keeper(), CreditPool(), name="k", incarnation="1")
    for handle in range(world.keeper_limits.cursors_max):
        session.outbox.put_state(handle, iter([PAUSE]))
        session.outbox.put_credit(handle, 1)
        session.outbox.put_durable(handle, 1)
        session.outbox.put(PAUSE)
    assert not session.outbox.overflowed


async def test_a_source_that_does_not_read_loses_its_stream_only() -> None:
    world = World()
    keeper = await world.keeper()
    sessions: list[Session] = []
    greeted = asyncio.Event()

    def factory() -> Session:
        made = Session(keeper, CreditPool(), name="k", incarnation="1")
        made.outbox = Outbox(10, made.end)
        sessions.append(made)
        return made

    async def requests() -> AsyncIterator[pb.SourceMessage]:
        yield pb.SourceMessage(hello=pb.Hello(name="t", protocol_versions=[1]))
        yield pb.SourceMessage(
            open_cursor=pb.OpenCursor(handle=1, topic="persistent://t/ns/x", subscription="s", create=True, takeover=True)
        )
        await greeted.wait()
        for _ in range(50):
            yield pb.SourceMessage(ack_batch=pb.AckBatch(handle=99, seq=1, generation=1))
        await asyncio.Event().wait()

    context: Any = Context()
    stream = AckSinkService(factory).publish(requests(), context)
    await anext(stream)
    greeted.set()
    async with asyncio.timeout(60):
        while not sessions[0].outbox.overflowed:  # noqa: ASYNC110
            await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert all(runner.handle is None for runner in keeper.cursors.values()), "its cursors are free before it reads again"
    with pytest.raises(grpc.aio.AbortError):
        while True:
            await anext(stream)
    assert context.status[0] is grpc.StatusCode.RESOURCE_EXHAUSTED and "does not read" in context.status[1]
    assert keeper.failures == []

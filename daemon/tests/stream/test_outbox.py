"""What waits to be sent: bounded, and never a trouble for whoever puts something into it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cursorkeeper.access.callers import Shown
from cursorkeeper.stream.outbox import Outbox, OutboxFull
from cursorkeeper.stream.servers import AckSinkService
from cursorkeeper.stream.session import Session
from cursorkeeper_client._proto import acks_pb2 as pb
from cursorkeeper_client.ack_stream.groups import GROUP_BYTES
from cursorkeeper_client.gap import Gap
from daemon.tests.runtime.virtual import virtual
from daemon.tests.support.guards import guard
from daemon.tests.support.outboxes import next_message
from daemon.tests.support.world import World

PAUSE = pb.KeeperMessage(pause=pb.Pause(handle=1))


class Context:
    """A call that was answered with a status."""

    def __init__(self) -> None:
        self.status: tuple[grpc.StatusCode, str] | None = None

    def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
        return ()

    def auth_context(self) -> dict[str, list[bytes]]:
        return {}

    def peer(self) -> str:
        return "ipv4:127.0.0.1:1"

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
    durable = pb.KeeperMessage(durable=pb.Durable(handle=1, seq=9))
    credit = pb.KeeperMessage(credit=pb.Credit(handle=1, granted_bytes=900))
    assert await outbox.next() == durable.SerializeToString()
    assert await outbox.next() == credit.SerializeToString()
    for handle in range(3):
        outbox.put_durable(handle, 1)
    with pytest.raises(OutboxFull):
        await outbox.next()


@given(
    handle=st.integers(0, 2**32 - 1),
    seq=st.integers(0, 2**64 - 1),
    truncated=st.integers(0, 2**64 - 1),
)
async def test_cumulative_messages_are_those_of_protobuf(
    handle: int, seq: int, truncated: int
) -> None:
    outbox = Outbox()
    outbox.put_durable(handle, seq, truncated)
    outbox.put_credit(handle, seq)
    durable = pb.Durable(handle=handle, seq=seq, truncated_acks=truncated)
    assert await outbox.next() == pb.KeeperMessage(durable=durable).SerializeToString()
    credit = pb.Credit(handle=handle, granted_bytes=seq)
    assert await outbox.next() == pb.KeeperMessage(credit=credit).SerializeToString()


async def test_what_waits_leaves_in_groups_to_whoever_takes_them() -> None:
    outbox = Outbox()
    for handle in range(1, 9):
        outbox.put_durable(handle, 5)
    assert (
        await outbox.next()
        == pb.KeeperMessage(durable=pb.Durable(handle=1, seq=5)).SerializeToString()
    )
    outbox.group_messages_max = 3
    sent = [await outbox.next() for _ in range(3)]
    groups = [
        [part.durable.handle for part in pb.KeeperMessage.FromString(each or b"").group.messages]
        for each in sent
    ]
    assert groups == [[2, 3, 4], [5, 6, 7], []], "the last one goes as it is"
    outbox.close()
    assert await outbox.next() is None


@virtual
async def test_a_message_waits_for_others_the_longer_if_more_follows() -> None:
    more, now = [True], asyncio.get_running_loop().time
    outbox = Outbox(more_follows=lambda: more[0])
    outbox.group_messages_max = 3
    outbox._gap = Gap(5.0)

    async def waits(seq: int) -> float:
        outbox.put_durable(1, seq)
        began = now()
        sent = await next_message(outbox)
        assert sent is not None and sent.durable.seq == seq
        return round(now() - began, 6)

    assert await waits(5) == 0.0, "the first one"
    assert await waits(6) == 0.005
    more[0] = False
    assert await waits(7) == 0.001, "who sent one just now"
    await asyncio.sleep(0.0004)
    assert await waits(8) == 0.0006
    await asyncio.sleep(0.002)
    assert await waits(9) == 0.0


async def test_hello_is_alone_whatever_waits_behind_it() -> None:
    outbox = Outbox()
    outbox.group_messages_max = 100
    hello = pb.KeeperMessage(hello=pb.Hello(name="k"))
    for message in (hello, PAUSE, PAUSE):
        outbox.put(message)
    assert await outbox.next() == hello.SerializeToString()
    assert (
        await outbox.next()
        == pb.KeeperMessage(group=pb.KeeperGroup(messages=[PAUSE, PAUSE])).SerializeToString()
    )


async def test_a_state_is_not_gathered_in_one_group() -> None:
    parts = [
        pb.KeeperMessage(
            state_part=pb.StatePart(handle=1, slices=[pb.StateSlice(roaring=b"x" * GROUP_BYTES)])
        )
        for _ in range(3)
    ]
    made: list[int] = []

    def messages() -> Iterator[pb.KeeperMessage]:
        for number, part in enumerate(parts):
            made.append(number)
            yield part

    outbox = Outbox()
    outbox.group_messages_max = 100
    outbox.put_state(1, messages())
    assert await outbox.next() == parts[0].SerializeToString()
    assert made == [0]


async def test_all_cursors_of_a_daemon_fit_one_stream() -> None:
    world = World()
    session = Session(await world.keeper(), guard(), Shown(), name="k", incarnation="1")
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

    def factory(_shown: Shown) -> Session:
        made = Session(keeper, guard(), Shown(), name="k", incarnation="1")
        made.outbox = Outbox(10, made.end)
        sessions.append(made)
        return made

    async def requests() -> AsyncIterator[bytes]:
        yield pb.SourceMessage(hello=pb.Hello(name="t", protocol_versions=[1])).SerializeToString()
        yield pb.SourceMessage(
            open_cursor=pb.OpenCursor(
                handle=1, topic="persistent://t/ns/x", subscription="s", create=True, takeover=True
            )
        ).SerializeToString()
        await greeted.wait()
        for _ in range(50):
            yield pb.SourceMessage(
                ack_batch=pb.AckBatch(handle=99, seq=1, generation=1)
            ).SerializeToString()
        await asyncio.Event().wait()

    context: Any = Context()
    stream = AckSinkService(factory).publish(requests(), context)
    await anext(stream)
    greeted.set()
    async with asyncio.timeout(60):
        while not sessions[0].outbox.overflowed:  # noqa: ASYNC110
            await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert all(runner.handle is None for runner in keeper.cursors.values()), (
        "its cursors are free before it reads again"
    )
    with pytest.raises(grpc.aio.AbortError):
        while True:
            await anext(stream)
    assert (
        context.status[0] is grpc.StatusCode.RESOURCE_EXHAUSTED
        and "does not read" in context.status[1]
    )
    assert keeper.failures == []


async def test_a_stream_that_has_ended_keeps_no_state_that_it_did_not_send() -> None:
    """A stream and its outbox know each other: they stay until the collector looks."""
    keeper = await World().keeper()
    session = Session(keeper, guard(), Shown(), name="k", incarnation="1")

    async def requests() -> AsyncIterator[bytes]:
        yield pb.SourceMessage(hello=pb.Hello(name="t", protocol_versions=[1])).SerializeToString()
        yield pb.SourceMessage(
            open_cursor=pb.OpenCursor(
                handle=1, topic="persistent://t/ns/x", subscription="s", create=True, takeover=True
            )
        ).SerializeToString()
        await asyncio.Event().wait()

    stream = AckSinkService(lambda _shown: session).publish(requests(), Context())
    await anext(stream)
    await until(lambda: any(isinstance(item, tuple) for item in session.outbox._items))
    await stream.aclose()
    assert not session.outbox._items


async def test_what_waits_is_bounded_by_bytes_too() -> None:
    text = pb.KeeperMessage(refused=pb.Refused(handle=1, cursor="x" * 1_000))
    outbox = Outbox(10)
    for _ in range(3):  # read in between: nothing is counted that has left
        for _ in range(4):
            outbox.put(text)
        assert [await outbox.next() for _ in range(4)] == [text.SerializeToString()] * 4
    outbox.put(pb.KeeperMessage(refused=pb.Refused(handle=1, cursor="x" * 100_000)))
    assert (await outbox.next()) is not None, "one alone is bounded by itself"
    for _ in range(6):
        outbox.put(text)
    with pytest.raises(OutboxFull, match=r"5 messages waited, 6\d\d\d bytes"):
        await outbox.next()


async def test_long_refusals_that_nobody_reads_end_the_stream() -> None:
    world = World()
    session = Session(await world.keeper(), guard(), Shown(), name="k", incarnation="1")
    session.receive(pb.SourceMessage(hello=pb.Hello(name="t", protocol_versions=[1])))
    session.receive(
        pb.SourceMessage(
            open_cursor=pb.OpenCursor(
                handle=1, topic="persistent://t/ns/x", subscription="s", create=True
            )
        )
    )
    asked = pb.OpenCursor(handle=1, topic="t" * (1 << 20), subscription="s", create=True)
    for _ in range(100):
        session.receive(pb.SourceMessage(open_cursor=asked))
    assert session.outbox.overflowed
    await asyncio.sleep(0)
    with pytest.raises(OutboxFull, match="bytes"):
        await session.outbox.next()


async def until(told: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not told():  # noqa: ASYNC110
            await asyncio.sleep(0.005)


async def test_streams_without_a_hello_are_read_a_few_at_a_time() -> None:
    """Each may hold a message as large as any: who waits for a place is not read, and told so when
    its time is over.
    """
    world = World()
    keeper = await world.keeper()
    read: list[int] = []
    silent, held = asyncio.Event(), asyncio.Event()

    class Slow(Context):
        async def abort(self, code: grpc.StatusCode, details: str) -> None:
            self.status = (code, details)
            await held.wait()

    async def requests(number: int) -> AsyncIterator[bytes]:
        read.append(number)
        if number < 3:
            await silent.wait()
        yield pb.SourceMessage(hello=pb.Hello(name="t", protocol_versions=[1])).SerializeToString()
        await asyncio.Event().wait()

    service = AckSinkService(
        lambda shown: Session(keeper, guard(), shown, name="k", incarnation="1"),
        hello_timeout_s=1.0,
        streams_max=9,
        greetings_max=2,
    )
    contexts: list[Any] = [Slow(), Slow(), Context(), Context()]
    started = [
        asyncio.ensure_future(anext(service.publish(requests(n + 1), contexts[n])))
        for n in range(3)
    ]
    with pytest.raises(grpc.aio.AbortError):
        await started[2]
    assert read == [1, 2]
    code, text = contexts[2].status
    assert (
        code is grpc.StatusCode.RESOURCE_EXHAUSTED
        and "2 streams before this one have not said Hello" in text
    )
    await until(lambda: contexts[1].status is not None)
    assert contexts[0].status[0] is grpc.StatusCode.DEADLINE_EXCEEDED
    for each in started[:2]:
        each.cancel()
    await asyncio.gather(*started, return_exceptions=True)
    stream = service.publish(requests(4), contexts[3])
    assert pb.KeeperMessage.FromString(await anext(stream)).HasField("hello"), (
        "their places came back"
    )
    await stream.aclose()


async def test_who_has_said_hello_holds_no_place() -> None:
    world = World()
    keeper = await world.keeper()

    async def requests() -> AsyncIterator[bytes]:
        yield pb.SourceMessage(hello=pb.Hello(name="t", protocol_versions=[1])).SerializeToString()
        await asyncio.Event().wait()

    service = AckSinkService(
        lambda shown: Session(keeper, guard(), shown, name="k", incarnation="1"), greetings_max=1
    )
    contexts: list[Any] = [Context() for _ in range(3)]
    streams = [service.publish(requests(), context) for context in contexts]
    for stream in streams:
        assert pb.KeeperMessage.FromString(await anext(stream)).HasField("hello")
    for stream in streams:
        await stream.aclose()

"""One stream without a transport: when a handle is live, what it may have outstanding, and what its end drops."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from cursorkeeper.core.limits import Limits
from cursorkeeper.core.names import CursorName
from cursorkeeper.runtime.keeper import Keeper
from cursorkeeper.stream import outstanding, state_parts
from cursorkeeper.stream.credits import CreditPool
from cursorkeeper.stream.servers import read_all
from cursorkeeper.stream.session import Session
from cursorkeeper_clients._proto import acks_pb2 as pb

from daemon.tests.support.world import World, small

TOPIC = "persistent://t/ns/session"
LAYOUT = pb.LayoutRun(ids=[5, 9], states=[pb.LAYOUT_CLOSED, pb.LAYOUT_OPEN], entries=[100, 0])


class Stream:
    """A session and its source in one hand. What the source reads, it reads one message at a time."""

    def __init__(self, keeper: Keeper) -> None:
        self.session = Session(keeper, CreditPool(), name="k", incarnation="1")
        self.send(hello=pb.Hello(name="t", protocol_versions=[1]))

    def send(self, **message: Any) -> None:
        self.session.receive(pb.SourceMessage(**message))

    def ask(self, handle: int = 1) -> None:
        self.send(open_cursor=pb.OpenCursor(handle=handle, topic=TOPIC, subscription="s", layout=LAYOUT, create=True, takeover=True))

    async def until(self, kind: str) -> Any:
        async with asyncio.timeout(10):
            while True:
                message = await self.session.outbox.next()
                assert message is not None
                if message.WhichOneof("message") == kind:
                    return getattr(message, kind)

    async def open(self) -> None:
        self.ask()
        await self.until("credit")

    def ack(self, seq: int, *entries: int, generation: int = 1) -> None:
        acks = [pb.LedgerAcks(ledger_id=5, entries=entries)]
        self.send(ack_batch=pb.AckBatch(handle=1, seq=seq, generation=generation, ledgers=acks))

    def layout(self, seq: int) -> None:
        self.send(layout=pb.Layout(handle=1, seq=seq, generation=1, run=LAYOUT))


def code(refused: pb.Refused) -> str:
    return str(pb.RefusedCode.Name(refused.code))


async def test_a_takeover_drops_the_rest_of_a_state() -> None:
    world = World()
    keeper = await world.keeper()
    first, second = Stream(keeper), Stream(keeper)
    await first.open()
    first.ack(1, *range(0, 100, 2))
    await first.until("durable")
    first.session.end()
    again = Stream(keeper)
    again.ask()
    await again.until("opened")  # and reads no further
    await second.open()
    second.send(reset_cursor=pb.ResetCursor(handle=1, seq=1, generation=1, target=pb.Position(ledger=5, entry=99)))
    await second.until("reset_done")
    message = await again.session.outbox.next()
    assert message is not None and message.WhichOneof("message") == "deposed", "no part of what is another state by now"
    assert keeper.failures == []


async def test_parts_of_a_state_that_shrinks_meanwhile() -> None:
    world = World()
    keeper = await world.keeper()
    stream = Stream(keeper)
    await stream.open()
    for seq, ledger in enumerate((5, 9), 1):
        partial = pb.PartialAck(entry=3, batch_size=10, acked=[pb.IntRange(first=0, last=0)])
        stream.send(
            ack_batch=pb.AckBatch(
                handle=1, seq=seq, generation=1, ledgers=[pb.LedgerAcks(ledger_id=ledger, entries=[7], partial=[partial])]
            )
        )
    while (await stream.until("durable")).seq < 2:
        pass
    state = next(iter(keeper.cursors.values())).machine.acks
    size, state_parts.PART_BYTES = state_parts.PART_BYTES, 1
    try:
        made = state_parts.parts(1, state)
        next(made)
        del state.ledgers[9]
        assert len(list(made)) <= 1
    finally:
        state_parts.PART_BYTES = size


async def test_a_state_that_no_message_can_hold_ends_its_handle_and_not_the_stream() -> None:
    world = World()
    keeper = await world.keeper()
    stream = Stream(keeper)
    await stream.open()
    keeper.cursors[CursorName(TOPIC, "s")].machine.generation = 1 << 40
    again = Stream(keeper)
    again.ask()
    refused = await again.until("refused")
    assert code(refused) == "DAMAGED" and "cannot be sent" in refused.message and refused.remedy
    again.send(open_cursor=pb.OpenCursor(handle=3, topic=TOPIC, subscription="third", layout=LAYOUT, create=True))
    assert (await again.until("opened")).handle == 3
    assert keeper.failures == []


async def test_nothing_but_an_end_is_taken_before_state_end() -> None:
    world = World()
    for kind in ("ack", "layout", "set_cursor_properties", "reset_cursor"):
        stream = Stream(await world.keeper())
        stream.ask()
        await stream.until("opened")
        if kind == "ack":
            stream.ack(1, 3)
        elif kind == "layout":
            stream.layout(1)
        elif kind == "reset_cursor":
            stream.send(reset_cursor=pb.ResetCursor(handle=1, seq=1, generation=1, target=pb.Position(ledger=5, entry=1)))
        else:
            stream.send(set_cursor_properties=pb.SetCursorProperties(handle=1, seq=1, generation=1))
        refused = await stream.until("refused")
        assert code(refused) == "BAD_MESSAGE" and "before StateEnd" in refused.message
    stream = Stream(await world.keeper())
    stream.ask()
    await stream.until("state_end")
    stream.layout(1)
    assert (await stream.until("durable")).seq == 1
    stream.send(close_cursor=pb.CloseCursor(handle=1))
    await stream.until("closed")


async def test_a_forgotten_generation_is_refused_and_nothing_is_confirmed() -> None:
    world = World()
    for kind in ("ack_batch", "layout", "set_cursor_properties", "reset_cursor"):
        stream = Stream(await world.keeper())
        await stream.open()
        messages: dict[str, Any] = {
            "ack_batch": pb.AckBatch(handle=1, seq=1, ledgers=[pb.LedgerAcks(ledger_id=5, entries=[3])]),
            "layout": pb.Layout(handle=1, seq=1, run=LAYOUT),
            "set_cursor_properties": pb.SetCursorProperties(handle=1, seq=1),
            "reset_cursor": pb.ResetCursor(handle=1, seq=1, target=pb.Position(ledger=5, entry=1)),
        }
        stream.send(**{kind: messages[kind]})
        message = await stream.session.outbox.next()
        assert message is not None and message.WhichOneof("message") == "refused", kind
        refused = message.refused
        assert (code(refused), refused.message, refused.remedy) == (
            "BAD_MESSAGE",
            "generation is required",
            "use that of Opened or ResetDone",
        )


NO_INLINE = small(Limits(), inline_state_max_bytes=0)


async def test_control_messages_are_bounded_while_bookkeeper_is_away() -> None:
    world = World(limits=NO_INLINE)
    stream = Stream(await world.keeper())
    await stream.open()
    for seq in range(1, outstanding.CONTROL_MESSAGES_MAX + 2):
        stream.layout(seq)
        if seq % 500 == 0:
            while (await stream.until("durable")).seq < seq:
                pass  # what is confirmed does not count
    world.bookkeeper.stall_acks()
    for seq in range(2_001, 2_002 + outstanding.CONTROL_MESSAGES_MAX):
        stream.layout(seq)
    refused = await stream.until("refused")
    assert code(refused) == "CREDIT_EXCEEDED" and "control messages" in refused.message and "Durable" in refused.remedy
    assert next(iter(stream.session.keeper.cursors.values())).handle is None, "the cursor itself lives on"


async def test_small_batches_are_bounded_while_bookkeeper_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outstanding, "MESSAGES_MAX", 50)
    world = World(limits=NO_INLINE)
    stream = Stream(await world.keeper())
    await stream.open()
    world.bookkeeper.stall_acks()
    for seq in range(1, 51):
        stream.ack(seq, seq)
    assert stream.session._handles, "all of them are taken"
    stream.ack(51, 51)
    refused = await stream.until("refused")
    assert code(refused) == "CREDIT_EXCEEDED" and "50 messages" in refused.message


async def test_ten_thousand_messages_of_one_stream_take_turns_with_another_stream() -> None:
    """All of one stream's opens are there at once. Another stream's message comes after a few of them, not after all."""
    keeper = await World().keeper()
    busy, other = Stream(keeper), Stream(keeper)

    async def opens() -> AsyncIterator[pb.SourceMessage]:
        for number in range(500):
            asked = pb.OpenCursor(handle=number, topic=TOPIC, subscription=f"s-{number}", create=True, takeover=True)
            yield pb.SourceMessage(open_cursor=asked)

    async def one() -> AsyncIterator[pb.SourceMessage]:
        yield pb.SourceMessage(open_cursor=pb.OpenCursor(handle=1, topic=TOPIC, subscription="other", create=True, takeover=True))

    reading = asyncio.ensure_future(read_all(busy.session, opens()))
    await read_all(other.session, one())
    assert len(keeper.cursors) < 50, "the other one's cursor is among the first"
    await other.until("credit")
    assert len(keeper.cursors) < 500, "and it is open before all of the first stream's messages were taken"
    await reading
    assert len(keeper.cursors) == 501
    keeper.abandon()
    await keeper.wait_tasks(10)

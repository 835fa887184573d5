"""One stream without a transport: when a handle is live, what it may have outstanding, and what its
end drops.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from cursorkeeper.access.callers import Shown
from cursorkeeper.core import flow, native_form
from cursorkeeper.core.delta_parts import cut_delta
from cursorkeeper.core.errors import RefusedError
from cursorkeeper.core.limits import Limits
from cursorkeeper.core.names import CursorName
from cursorkeeper.core.values import Delta
from cursorkeeper.runtime.keeper import Keeper
from cursorkeeper.stream import outstanding, state_parts
from cursorkeeper.stream.credits import CreditPool
from cursorkeeper.stream.servers import read_all
from cursorkeeper.stream.session import Session
from cursorkeeper.stream.wire import source_message
from cursorkeeper_client._proto import acks_pb2 as pb
from daemon.tests.runtime.virtual import until, virtual
from daemon.tests.support.guards import guard
from daemon.tests.support.outboxes import next_message
from daemon.tests.support.world import World, small

TOPIC = "persistent://t/ns/session"
LAYOUT = pb.LayoutRun(ids=[5, 9], states=[pb.LAYOUT_CLOSED, pb.LAYOUT_OPEN], entries=[100, 0])


class Stream:
    """A session and its source in one hand. What the source reads, it reads one message at a
    time.
    """

    def __init__(self, keeper: Keeper, pool: CreditPool | None = None) -> None:
        self.session = Session(keeper, guard(pool), Shown(), name="k", incarnation="1")
        self.send(hello=pb.Hello(name="t", protocol_versions=[1]))

    def send(self, **message: Any) -> None:
        self.session.receive(source_message(pb.SourceMessage(**message).SerializeToString()))

    def ask(self, handle: int = 1) -> None:
        self.send(
            open_cursor=pb.OpenCursor(
                handle=handle,
                topic=TOPIC,
                subscription="s",
                layout=LAYOUT,
                create=True,
                takeover=True,
            )
        )

    async def until(self, kind: str) -> Any:
        async with asyncio.timeout(60):
            while True:
                message = await next_message(self.session.outbox)
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
    second.send(
        reset_cursor=pb.ResetCursor(
            handle=1, seq=1, generation=1, target=pb.Position(ledger=5, entry=99)
        )
    )
    await second.until("reset_done")
    message = await next_message(again.session.outbox)
    assert message is not None and message.WhichOneof("message") == "deposed", (
        "no part of what is another state by now"
    )
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
                handle=1,
                seq=seq,
                generation=1,
                ledgers=[pb.LedgerAcks(ledger_id=ledger, entries=[7], partial=[partial])],
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
    keeper.cursors[CursorName(TOPIC, "s")].machine.ownership.generation = 1 << 40
    again = Stream(keeper)
    again.ask()
    refused = await again.until("refused")
    assert code(refused) == "DAMAGED" and "cannot be sent" in refused.message and refused.remedy
    again.send(
        open_cursor=pb.OpenCursor(
            handle=3, topic=TOPIC, subscription="third", layout=LAYOUT, create=True
        )
    )
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
            stream.send(
                reset_cursor=pb.ResetCursor(
                    handle=1, seq=1, generation=1, target=pb.Position(ledger=5, entry=1)
                )
            )
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
            "ack_batch": pb.AckBatch(
                handle=1, seq=1, ledgers=[pb.LedgerAcks(ledger_id=5, entries=[3])]
            ),
            "layout": pb.Layout(handle=1, seq=1, run=LAYOUT),
            "set_cursor_properties": pb.SetCursorProperties(handle=1, seq=1),
            "reset_cursor": pb.ResetCursor(handle=1, seq=1, target=pb.Position(ledger=5, entry=1)),
        }
        stream.send(**{kind: messages[kind]})
        message = await next_message(stream.session.outbox)
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
    assert (
        code(refused) == "CREDIT_EXCEEDED"
        and "control messages" in refused.message
        and "Durable" in refused.remedy
    )
    assert next(iter(stream.session.keeper.cursors.values())).handle is None, (
        "the cursor itself lives on"
    )


async def test_small_batches_are_bounded_while_bookkeeper_is_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
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


@pytest.mark.parametrize("group_messages", [1, 250])
async def test_ten_thousand_messages_of_one_stream_take_turns_with_another_stream(
    group_messages: int,
) -> None:
    """All of one stream's opens are there at once. Another stream's message comes after a few of
    them, not after all.
    """
    keeper = await World().keeper()
    busy, other = Stream(keeper), Stream(keeper)

    async def opens() -> AsyncIterator[pb.SourceMessage]:
        asked = [
            pb.OpenCursor(
                handle=number, topic=TOPIC, subscription=f"s-{number}", create=True, takeover=True
            )
            for number in range(2_000)
        ]
        messages = [pb.SourceMessage(open_cursor=each) for each in asked]
        for first in range(0, 2_000, group_messages):
            several = messages[first : first + group_messages]
            yield (
                several[0]
                if group_messages == 1
                else pb.SourceMessage(group=pb.SourceGroup(messages=several))
            )

    async def one() -> AsyncIterator[pb.SourceMessage]:
        yield pb.SourceMessage(
            open_cursor=pb.OpenCursor(
                handle=1, topic=TOPIC, subscription="other", create=True, takeover=True
            )
        )

    reading = asyncio.ensure_future(read_all(busy.session, opens()))
    await read_all(other.session, one())
    assert len(keeper.cursors) < 50, "the other one's cursor is among the first"
    await other.until("credit")
    assert len(keeper.cursors) < 2_000, (
        "and it is open before all of the first stream's messages were taken"
    )
    await reading
    assert len(keeper.cursors) == 2_001
    keeper.abandon()
    await keeper.wait_tasks(10)


async def test_hello_says_what_one_message_may_cost_and_more_is_refused_with_the_remedy() -> None:
    world = World()
    stream = Stream(await world.keeper())
    told = await stream.until("hello")
    assert (told.ack_ledgers_max, told.ack_partials_max, told.unconfirmed_parts_max) == (
        1_000,
        1_000,
        65_536,
    )
    assert told.layout_ledgers_max == 10_000
    run = pb.LayoutRun(
        ids=range(1, 10_002), states=[pb.LAYOUT_CLOSED] * 10_001, entries=[1] * 10_001
    )
    stream.send(
        open_cursor=pb.OpenCursor(
            handle=1, topic="persistent://t/n/x", subscription="s", create=True, layout=run
        )
    )
    refused = await stream.until("refused")
    assert (
        code(refused) == "TOO_LARGE"
        and "a layout of 10001 ledgers, 10000 are allowed at once" in refused.message
    )
    many = [pb.LedgerAcks(ledger_id=at + 1, entries=[5]) for at in range(1_001)]
    batches = [
        pb.LedgerAcks(
            ledger_id=5,
            partial=[
                pb.PartialAck(entry=at % 90, batch_size=9, ack_set=[3]) for at in range(1_001)
            ],
        )
    ]
    ranges = [pb.IntRange(first=2 * at, last=2 * at) for at in range(30_000)]
    wide = [
        pb.LedgerAcks(
            ledger_id=5,
            partial=[pb.PartialAck(entry=at, batch_size=60_001, acked=ranges) for at in range(3)],
        )
    ]
    for ledgers, words in (
        (many, "1001 data ledgers, 1000 are allowed (ack_ledgers_max of Hello)"),
        (batches, "1001 partly acked batches, 1000 are allowed (ack_partials_max of Hello)"),
        (wide, "1407 partly acked batches, 1000 are allowed (ack_partials_max of Hello)"),
    ):
        await stream.open()
        stream.send(ack_batch=pb.AckBatch(handle=1, seq=1, generation=1, ledgers=ledgers))
        refused = await stream.until("refused")
        assert (
            code(refused) == "TOO_LARGE"
            and words in refused.message
            and refused.remedy == "split it into several messages"
        )


async def test_unconfirmed_ledgers_and_batches_are_bounded_beside_the_bytes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A ledger of eleven bytes takes hundreds until it is durable. Control messages and single
    messages do not count against it.
    """
    monkeypatch.setattr(outstanding, "UNCONFIRMED_PARTS_MAX", 10)
    held = outstanding.Outstanding()
    held.add(1, control=False, parts=30)
    held.add(2, control=True)
    with pytest.raises(
        RefusedError, match=r"unconfirmed_parts_max of Hello\) are not confirmed, 10 are allowed"
    ):
        held.add(3, control=False, parts=1)
    held.confirm(2)
    held.add(4, control=False, parts=6)
    held.add(5, control=False, parts=4)
    with pytest.raises(RefusedError):
        held.add(6, control=False, parts=1)
    held.confirm(4)
    held.add(7, control=False, parts=6)


@pytest.mark.interpreted
async def test_very_much_becomes_records_in_several_steps_and_is_confirmed_when_all_is_durable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No step takes more than its part of what waits, so that the neighbours have their turn;
    nothing is confirmed early.
    """
    taken: list[int] = []

    def counted(delta: Delta, body_bytes_max: int) -> tuple[Delta, ...]:
        taken.append(len(delta.acks) + len(delta.partials))
        return cut_delta(delta, body_bytes_max)

    monkeypatch.setattr(native_form, "TAKEN_PARTS_MAX", 30)
    monkeypatch.setattr(native_form, "cut_delta", counted)
    world = World()
    keeper = await world.keeper()
    stream = Stream(keeper)
    stream.send(open_cursor=pb.OpenCursor(handle=1, topic=TOPIC, subscription="s", create=True))
    await stream.until("credit")
    for seq in range(1, 6):
        partial = [pb.PartialAck(entry=9, batch_size=4, ack_set=[3])]
        ledgers = [
            pb.LedgerAcks(ledger_id=100 * seq + at, entries=[5], partial=partial)
            for at in range(70)
        ]
        stream.send(ack_batch=pb.AckBatch(handle=1, seq=seq, generation=1, ledgers=ledgers))
    while (await stream.until("durable")).seq < 5:
        assert sum(taken) < 700, "a message whose acks are not all on their way is not confirmed"
    assert sum(taken) == 700 and max(taken) == 30
    state = keeper.cursors[CursorName.checked(TOPIC, "s")].machine
    assert state.progress.is_clear and not state.flow.carried
    await keeper.close()
    again = Stream(await world.keeper())
    again.send(open_cursor=pb.OpenCursor(handle=1, topic=TOPIC, subscription="s"))
    end = await again.until("state_end")
    assert (end.acked_entries, end.partial_batches) == (350, 350)


async def test_a_large_message_is_applied_when_it_comes_and_not_with_all_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(flow, "QUEUED_PARTS_MAX", 20)
    world = World()
    keeper = await world.keeper()
    stream = Stream(keeper)
    stream.send(open_cursor=pb.OpenCursor(handle=1, topic=TOPIC, subscription="s", create=True))
    await stream.until("credit")
    machine = keeper.cursors[CursorName.checked(TOPIC, "s")].machine
    for seq in range(1, 9):
        ledgers = [pb.LedgerAcks(ledger_id=100 * seq + at, entries=[5]) for at in range(19)]
        stream.send(ack_batch=pb.AckBatch(handle=1, seq=seq, generation=1, ledgers=ledgers))
        queued = machine.flow.queued
        assert sum(batch.parts for batch in queued.messages) == queued.parts < 20


async def test_acks_beyond_the_budget_of_a_state_are_refused_by_name() -> None:
    world = World(limits=Limits(state_bytes_max=1 << 20))
    stream = Stream(await world.keeper())
    for ledgers in (
        [pb.LedgerAcks(ledger_id=at, entries=[15_999_999]) for at in range(1, 80)],
        [
            pb.LedgerAcks(
                ledger_id=1,
                partial=[pb.PartialAck(entry=at, batch_size=9, ack_set=[3]) for at in range(900)],
            )
        ]
        * 2,
    ):
        stream.send(
            open_cursor=pb.OpenCursor(
                handle=1, topic=TOPIC, subscription="s", create=True, takeover=True
            )
        )
        await stream.until("credit")
        parts = [
            pb.AckBatch(handle=1, seq=at + 1, generation=1, ledgers=[part])
            for at, part in enumerate(ledgers)
        ]
        for part in parts:
            stream.send(ack_batch=part)
        refused = await stream.until("refused")
        assert (
            code(refused) == "TOO_LARGE"
            and "bytes of memory, 1,048,576 are allowed" in refused.message
        )
        assert refused.cursor == f"{TOPIC}|s" and "state_bytes_max" in refused.remedy


async def test_the_pause_between_messages_is_for_what_is_still_to_be_told() -> None:
    """Of two cursors: while one of them waits for its state or for a confirmation, what is told to
    the other may wait for it.
    """
    world = World()
    keeper = await world.keeper()
    stream = Stream(keeper)
    is_more = stream.session.outbox._more_follows
    assert not is_more()
    stream.ask()
    assert is_more()
    await stream.until("credit")
    assert not is_more()
    world.bookkeeper.stall_acks()
    stream.ack(1, 7)
    stream.layout(2)
    assert is_more()
    world.bookkeeper.stall_acks(False)
    while (await stream.until("durable")).seq < 2:
        assert is_more()
    assert not is_more()
    world.bookkeeper.stall_acks()
    stream.ack(3, 9)
    stream.send(close_cursor=pb.CloseCursor(handle=9))
    assert is_more(), "of another handle"
    stream.ack(3, 9)  # refused: the handle ends
    assert not is_more()


@virtual
async def test_what_is_told_of_many_cursors_leaves_in_few_messages() -> None:
    """250 cursors on one stream: their opens come in one message, and so do their acks. In
    messages, what the daemon says of them.
    """
    world = World()
    keeper = await world.keeper()
    session = Session(keeper, guard(), Shown(), name="k", incarnation="1")
    sent: list[list[pb.KeeperMessage]] = []

    async def read() -> None:
        while (raw := await session.outbox.next()) is not None:
            message = pb.KeeperMessage.FromString(raw)
            sent.append(list(message.group.messages) if message.HasField("group") else [message])

    reader = asyncio.ensure_future(read())

    async def told(together: list[pb.SourceMessage], kind: str) -> int:
        """How many messages left until all 250 had heard this."""
        sent.clear()
        whole = pb.SourceMessage(group=pb.SourceGroup(messages=together))
        for part in session.ungrouped(source_message(whole.SerializeToString())):
            session.receive(part)
        await until(lambda: sum(m.HasField(kind) for parts in sent for m in parts) >= 250)
        return len(sent)

    session.receive(
        pb.SourceMessage(hello=pb.Hello(name="t", protocol_versions=[1], group_messages_max=1_000))
    )
    await until(lambda: bool(sent))
    opens = [
        pb.SourceMessage(
            open_cursor=pb.OpenCursor(handle=n, topic=TOPIC, subscription=f"s{n}", create=True)
        )
        for n in range(1, 251)
    ]
    assert await told(opens, "credit") <= 8
    entries = [pb.LedgerAcks(ledger_id=5, entries=[1, 3])]
    # with the first record each makes its ledger; the second one is only appended
    for seq in (1, 2):
        acks = [
            pb.SourceMessage(
                ack_batch=pb.AckBatch(handle=n, seq=seq, generation=1, ledgers=entries)
            )
            for n in range(1, 251)
        ]
        assert await told(acks, "durable") <= 8
        entries = [pb.LedgerAcks(ledger_id=5, entries=[5])]
    reader.cancel()
    assert keeper.failures == []


@virtual
async def test_a_delete_that_cannot_be_done_in_time_says_of_which_cursor_and_frees_its_number() -> (
    None
):
    world = World(limits=small(Limits(), answer_wait_max_ms=3_000))
    stream = Stream(await world.keeper())
    world.zookeeper.stop()
    stream.send(delete_cursor=pb.DeleteCursor(handle=1, topic=TOPIC, subscription="s"))
    refused = await stream.until("refused")
    assert code(refused) == "UNAVAILABLE" and (refused.handle, refused.cursor) == (1, f"{TOPIC}|s")
    world.zookeeper.start()
    stream.send(delete_cursor=pb.DeleteCursor(handle=1, topic=TOPIC, subscription="s"))
    assert code(await stream.until("refused")) == "NOT_FOUND"

"""Bad input over the wire: each gets a clear refusal that names the cursor and says what to do,
harms no other cursor, and loses nothing that was accepted before.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc
import pytest

from cursorkeeper.stream import codec
from cursorkeeper.stream.session import ProtocolViolation
from cursorkeeper.stream.wire import source_message
from cursorkeeper_client._proto import acks_pb2 as pb
from cursorkeeper_client._proto import acks_pb2_grpc as rpc
from daemon.tests.stream.served import ServedKeeper

TOPIC = "persistent://t/ns/bad"


class Wire:
    """A stream by hand: whatever may be sent, is sent."""

    def __init__(self, address: str) -> None:
        self._channel = grpc.aio.insecure_channel(address)
        self._out: asyncio.Queue[pb.SourceMessage | None] = asyncio.Queue()
        self.call = rpc.AckSinkStub(self._channel).Publish(self._messages())

    async def _messages(self) -> AsyncIterator[pb.SourceMessage]:
        while (message := await self._out.get()) is not None:
            yield message

    def send(self, **message: Any) -> None:
        self._out.put_nowait(pb.SourceMessage(**message))

    async def until(self, kind: str, limit_s: float = 60.0) -> Any:
        async with asyncio.timeout(limit_s):
            while True:
                try:
                    message = await self.call.read()
                except grpc.aio.AioRpcError as e:
                    raise EOFError(f"{e.code()}: {e.details()}") from e
                if message == grpc.aio.EOF:
                    raise EOFError("the stream ended")
                if message.WhichOneof("message") == kind:
                    return getattr(message, kind)

    async def open(self, handle: int = 1, subscription: str = "s", **more: Any) -> Any:
        if handle == 1:
            self.send(hello=pb.Hello(name="t", incarnation="1", protocol_versions=[1]))
        layout = pb.LayoutRun(
            ids=[5, 9], states=[pb.LAYOUT_CLOSED, pb.LAYOUT_OPEN], entries=[100, 0]
        )
        self.send(
            open_cursor=pb.OpenCursor(
                handle=handle,
                topic=TOPIC,
                subscription=subscription,
                layout=layout,
                create=True,
                takeover=True,
                **more,
            )
        )
        opened = await self.until("opened")
        await self.until("credit")
        return opened

    async def close(self) -> None:
        self.call.cancel()
        await self._channel.close()


@pytest.fixture
async def wire(keeper: ServedKeeper) -> AsyncIterator[Wire]:
    made = Wire(keeper.address)
    yield made
    await made.close()


def entries(*numbers: int, ledger: int = 5, **more: Any) -> pb.AckBatch:
    return pb.AckBatch(
        handle=1,
        seq=2,
        generation=1,
        ledgers=[pb.LedgerAcks(ledger_id=ledger, entries=numbers)],
        **more,
    )


def one_partial(**fields: Any) -> pb.AckBatch:
    return pb.AckBatch(
        handle=1,
        seq=2,
        generation=1,
        ledgers=[pb.LedgerAcks(ledger_id=5, partial=[pb.PartialAck(entry=3, **fields)])],
    )


def with_ledger(**fields: Any) -> pb.AckBatch:
    return pb.AckBatch(
        handle=1, seq=2, generation=1, ledgers=[pb.LedgerAcks(ledger_id=5, **fields)]
    )


BAD: dict[str, tuple[Callable[[], pb.AckBatch], str, str]] = {
    "an ack beyond a closed ledger": (
        lambda: entries(100),
        "POSITION_OUT_OF_RANGE",
        "closed with 100 entries",
    ),
    "a ledger that is not in the layout": (
        lambda: entries(1, ledger=77),
        "POSITION_OUT_OF_RANGE",
        "not in the layout",
    ),
    "a ledger between two known ones": (
        lambda: entries(1, ledger=7),
        "POSITION_OUT_OF_RANGE",
        "not in the layout",
    ),
    "an ack far above an open ledger": (
        lambda: entries(4_000_000_000, ledger=9),
        "POSITION_OUT_OF_RANGE",
        "above the highest known",
    ),
    "a ledger id above 2^63": (
        lambda: entries(1, ledger=1 << 63),
        "POSITION_OUT_OF_RANGE",
        "out of range",
    ),
    "a mark-delete before -1": (
        lambda: pb.AckBatch(
            handle=1, seq=2, generation=1, mark_delete=pb.Position(ledger=5, entry=-2)
        ),
        "POSITION_OUT_OF_RANGE",
        "out of range",
    ),
    "a mark-delete beyond the ledger": (
        lambda: pb.AckBatch(
            handle=1, seq=2, generation=1, mark_delete=pb.Position(ledger=5, entry=100)
        ),
        "POSITION_OUT_OF_RANGE",
        "closed with",
    ),
    "a range that ends before it begins": (
        lambda: with_ledger(ranges=[9, 3]),
        "BAD_MESSAGE",
        "ends before it begins",
    ),
    "half a range": (lambda: with_ledger(ranges=[9]), "BAD_MESSAGE", "odd number"),
    "two ranges and a half": (
        lambda: with_ledger(ranges=[1, 2, 3, 4, 9]),
        "BAD_MESSAGE",
        "odd number",
    ),
    "garbage as a bitmap": (lambda: with_ledger(roaring=b"\x01\x02\x03"), "BAD_MESSAGE", "roaring"),
    "bytes after a bitmap": (
        lambda: with_ledger(roaring=b":0\x00\x00\x00\x00\x00\x00junk"),
        "BAD_MESSAGE",
        "roaring",
    ),
    "an index outside the batch": (
        lambda: one_partial(batch_size=10, ack_set=[1 << 12]),
        "BATCH_CONTRADICTS",
        "no index 12",
    ),
    "acked indexes outside the batch": (
        lambda: one_partial(batch_size=10, acked=[pb.IntRange(first=3, last=10)]),
        "BATCH_CONTRADICTS",
        "no indexes 3..10",
    ),
    "acked indexes without a size": (
        lambda: one_partial(acked=[pb.IntRange(first=3, last=3)]),
        "BAD_MESSAGE",
        "batch_size",
    ),
    "neither ack set nor indexes": (
        lambda: one_partial(batch_size=10),
        "BAD_MESSAGE",
        "exactly one",
    ),
    "an ack set of zeros": (
        lambda: one_partial(batch_size=10, ack_set=[0]),
        "BAD_MESSAGE",
        "nothing is missing",
    ),
    "a batch of a million": (
        lambda: one_partial(batch_size=1_000_000, ack_set=[1]),
        "BATCH_CONTRADICTS",
        "more than 65536",
    ),
    "another batch size than before": (
        lambda: one_partial(batch_size=20, ack_set=[6]),
        "BATCH_CONTRADICTS",
        "had 10 messages and now has 20",
    ),
    "a generation that does not exist": (
        lambda: pb.AckBatch(
            handle=1, seq=2, generation=9, ledgers=[pb.LedgerAcks(ledger_id=5, entries=[1])]
        ),
        "WRONG_GENERATION",
        "generation 9",
    ),
    "a seq that does not grow": (
        lambda: pb.AckBatch(
            handle=1, seq=1, generation=1, ledgers=[pb.LedgerAcks(ledger_id=5, entries=[1])]
        ),
        "SEQ_NOT_GROWING",
        "seq 1 after 1",
    ),
    "properties that no record should hold": (
        lambda: entries(
            1,
            properties=pb.MarkDeleteProperties(values={"k" * 1000 + str(i): i for i in range(400)}),
        ),
        "TOO_LARGE",
        "are allowed",
    ),
}


@pytest.mark.parametrize("case", BAD)
async def test_a_bad_batch_refuses_its_handle_and_nothing_else(
    keeper: ServedKeeper, wire: Wire, case: str
) -> None:
    make, code, text = BAD[case]
    await wire.open()
    await wire.open(handle=2, subscription="neighbour")
    good = pb.AckBatch(
        handle=1,
        seq=1,
        generation=1,
        ledgers=[
            pb.LedgerAcks(
                ledger_id=5,
                entries=[40],
                partial=[
                    pb.PartialAck(entry=3, batch_size=10, acked=[pb.IntRange(first=0, last=0)])
                ],
            )
        ],
    )
    wire.send(ack_batch=good)
    wire.send(ack_batch=make())
    refused = await wire.until("refused")
    assert (refused.handle, pb.RefusedCode.Name(refused.code)) == (1, code), refused
    assert text in refused.message
    assert refused.cursor == f"{TOPIC}|s"
    assert refused.remedy
    # the neighbour goes on
    wire.send(
        ack_batch=pb.AckBatch(
            handle=2, seq=1, generation=1, ledgers=[pb.LedgerAcks(ledger_id=5, entries=[7])]
        )
    )
    while (await wire.until("durable")).handle != 2:
        pass
    # what was accepted before is there, what was refused is not
    again = Wire(keeper.address)
    again.send(hello=pb.Hello(name="t", incarnation="2", protocol_versions=[1]))
    again.send(open_cursor=pb.OpenCursor(handle=1, topic=TOPIC, subscription="s"))
    part = await again.until("state_part")
    assert [(p.entry, p.batch_size) for p in part.partials] == [(3, 10)]
    end = await again.until("state_end")
    assert end.acked_entries == 1
    await again.close()


async def test_acks_on_an_unknown_handle(wire: Wire) -> None:
    await wire.open()
    wire.send(ack_batch=pb.AckBatch(handle=99, seq=1, generation=1))
    refused = await wire.until("refused")
    assert (refused.handle, pb.RefusedCode.Name(refused.code)) == (99, "UNKNOWN_HANDLE")


async def test_more_acks_than_the_credit(wire: Wire, keeper: ServedKeeper) -> None:
    keeper.pool.handle_bytes = 1_000
    await wire.open()
    # in one message: no flush gives the room of the first one back before the second is looked at
    more = pb.AckBatch(
        handle=1, seq=3, generation=1, ledgers=[pb.LedgerAcks(ledger_id=5, entries=[1] * 400)]
    )
    wire.send(
        group=group(
            pb.SourceMessage(ack_batch=entries(*range(90))), pb.SourceMessage(ack_batch=more)
        )
    )
    refused = await wire.until("refused")
    assert pb.RefusedCode.Name(refused.code) == "CREDIT_EXCEEDED"


@pytest.mark.parametrize(
    ("first", "text"),
    [
        ({"ack_batch": pb.AckBatch(handle=1)}, "Hello"),
        (
            {
                "group": pb.SourceGroup(
                    messages=[pb.SourceMessage(hello=pb.Hello(protocol_versions=[1]))]
                )
            },
            "Hello",
        ),
        ({"hello": pb.Hello(name="old", protocol_versions=[0])}, "protocol versions"),
        (
            {"hello": pb.Hello(name="x" * 20_000, protocol_versions=[1])},
            "a Hello of 20... bytes: 16384 are allowed",
        ),
        ({}, "Hello"),
    ],
)
async def test_a_violation_of_the_protocol_ends_the_stream_with_a_reason(
    wire: Wire, first: dict[str, Any], text: str
) -> None:
    wire.send(**first)
    with pytest.raises(EOFError, match=text) as caught:
        await wire.until("hello")
    assert "FAILED_PRECONDITION" in str(caught.value)


def group(*messages: pb.SourceMessage) -> pb.SourceGroup:
    return pb.SourceGroup(messages=messages)


LONG = "x" * 1_100_000
MAPS = {
    "acks": pb.SourceMessage(
        ack_batch=pb.AckBatch(handle=1, seq=2, properties=pb.MarkDeleteProperties(values={LONG: 1}))
    ),
    "open": pb.SourceMessage(
        open_cursor=pb.OpenCursor(
            handle=2, topic=TOPIC, subscription="t", cursor_properties={LONG: ""}
        )
    ),
    "set": pb.SourceMessage(
        set_cursor_properties=pb.SetCursorProperties(
            handle=1, seq=2, generation=1, properties=pb.CursorProperties(values={"k": LONG})
        )
    ),
}


@pytest.mark.parametrize("where", [*MAPS, *(f"grouped {name}" for name in MAPS)])
async def test_maps_of_more_than_a_mebibyte_are_not_taken_apart(where: str) -> None:
    """Of a few hundred thousand short names it takes seconds: nobody else would get an answer
    meanwhile.
    """
    message = MAPS[where.removeprefix("grouped ")]
    if where.startswith("grouped"):
        message = pb.SourceMessage(group=group(pb.SourceMessage(hello=pb.Hello(name="t")), message))
    with pytest.raises(
        ProtocolViolation, match=r"properties of 1100... bytes in one message: 1048576 are allowed"
    ):
        source_message(message.SerializeToString())


async def test_a_large_message_is_what_it_was() -> None:
    properties = pb.MarkDeleteProperties(values={"x" * 60_000: 7})
    ledgers = [pb.LedgerAcks(ledger_id=at, entries=range(1_000)) for at in range(900)]
    message = pb.SourceMessage(
        ack_batch=pb.AckBatch(handle=1, seq=2, generation=3, properties=properties, ledgers=ledgers)
    )
    data = source_message(message.SerializeToString()).ack_batch
    assert pb.AckBatch.FromString(data) == message.ack_batch
    assert len(codec.batch_of(codec.sent_acks(data), data).ledgers) == 900


@pytest.mark.parametrize("is_grouped", [False, True])
async def test_acks_that_stand_twice_in_one_message_are_joined(is_grouped: bool) -> None:
    """Protobuf says so of a message that comes twice; of bytes the last would count."""
    twice = b"".join(
        pb.SourceMessage(
            ack_batch=pb.AckBatch(
                handle=1, seq=seq, generation=1, ledgers=[pb.LedgerAcks(ledger_id=seq, entries=[7])]
            )
        ).SerializeToString()
        for seq in (2, 3)
    )
    if is_grouped:
        inside = bytes([1 << 3 | 2, len(twice)]) + twice
        found = source_message(bytes([9 << 3 | 2, len(inside)]) + inside).group.messages[0]
    else:
        found = source_message(twice)
    batch = codec.batch_of(codec.sent_acks(found.ack_batch), found.ack_batch)
    assert (batch.seq, [part.ledger for part in batch.ledgers]) == (3, [2, 3])


async def test_what_comes_before_a_hello_is_not_taken_apart(wire: Wire) -> None:
    wire.send(ack_batch=entries(*range(20_000)))
    with pytest.raises(EOFError, match="the first message must be one"):
        await wire.until("hello")


@pytest.mark.parametrize(
    ("second", "text"),
    [
        (
            group(*[pb.SourceMessage()] * 257),
            "a group of 257 messages: 256 are allowed .group_messages_max",
        ),
        (group(pb.SourceMessage(group=group())), "a group within a group"),
        (group(pb.SourceMessage(hello=pb.Hello(protocol_versions=[1]))), "a second Hello"),
        (group(pb.SourceMessage()), "an empty message"),
    ],
)
async def test_a_wrong_group_ends_the_stream_with_a_reason(
    wire: Wire, second: pb.SourceGroup, text: str
) -> None:
    wire.send(hello=pb.Hello(name="t", protocol_versions=[1]))
    assert (await wire.until("hello")).group_messages_max == 256
    wire.send(group=second)
    with pytest.raises(EOFError, match=text) as caught:
        await wire.until("refused")
    assert "FAILED_PRECONDITION" in str(caught.value)


async def test_every_message_of_a_group_stands_for_itself(wire: Wire) -> None:
    await wire.open()
    await wire.open(handle=2, subscription="neighbour")
    acks = [pb.LedgerAcks(ledger_id=5, entries=[7])]
    batches = [
        pb.AckBatch(handle=handle, seq=1, generation=1, ledgers=acks) for handle in (1, 99, 2)
    ]
    wire.send(group=group(*(pb.SourceMessage(ack_batch=batch) for batch in batches)))
    refused = await wire.until("refused")
    assert (refused.handle, pb.RefusedCode.Name(refused.code)) == (99, "UNKNOWN_HANDLE")
    assert {(await wire.until("durable")).handle for _ in range(2)} == {1, 2}


async def test_wrong_credentials_end_the_stream() -> None:
    keeper = ServedKeeper()
    keeper.credentials = b"secret"
    await keeper.start()
    wire = Wire(keeper.address)
    wire.send(hello=pb.Hello(name="t", protocol_versions=[1], credentials=b"guess"))
    with pytest.raises(EOFError, match="the token is wrong: send the content"):
        await wire.until("hello")
    await wire.close()
    await keeper.kill()


async def test_garbage_bytes_end_that_stream_only(keeper: ServedKeeper, wire: Wire) -> None:
    await wire.open()
    async with grpc.aio.insecure_channel(keeper.address) as channel:
        raw = channel.stream_stream("/cursorkeeper.acks.v1.AckSink/Publish")

        async def garbage() -> AsyncIterator[bytes]:
            yield b"\xff\xfe\xfd this is not a message"

        with pytest.raises(grpc.aio.AioRpcError):
            async for _ in raw(garbage()):
                pass
    wire.send(
        ack_batch=pb.AckBatch(
            handle=1, seq=1, generation=1, ledgers=[pb.LedgerAcks(ledger_id=5, entries=[7])]
        )
    )
    assert (await wire.until("durable")).seq == 1


async def test_a_message_over_the_limit_ends_the_stream_and_loses_nothing(
    keeper: ServedKeeper, wire: Wire
) -> None:
    await wire.open()
    wire.send(
        ack_batch=pb.AckBatch(
            handle=1, seq=1, generation=1, ledgers=[pb.LedgerAcks(ledger_id=5, entries=[7])]
        )
    )
    await wire.until("durable")
    wire.send(
        ack_batch=pb.AckBatch(
            handle=1,
            seq=2,
            generation=1,
            ledgers=[pb.LedgerAcks(ledger_id=5, entries=[1] * 1_200_000)],
        )
    )
    with pytest.raises(EOFError, match="RESOURCE_EXHAUSTED"):
        await wire.until("refused")
    again = Wire(keeper.address)
    await again.open()
    await again.close()


async def test_names_that_cannot_be_kept(wire: Wire) -> None:
    wire.send(hello=pb.Hello(name="t", protocol_versions=[1]))
    for handle, topic, code in ((1, "", "BAD_MESSAGE"), (2, "x" * 2_000, "NAME_TOO_LONG")):
        wire.send(
            open_cursor=pb.OpenCursor(handle=handle, topic=topic, subscription="s", create=True)
        )
        refused = await wire.until("refused")
        assert (refused.handle, pb.RefusedCode.Name(refused.code)) == (handle, code)


async def test_a_fencing_token_that_no_footer_can_hold(wire: Wire) -> None:
    await wire.open()
    token = 1 << 63
    wire.send(
        open_cursor=pb.OpenCursor(
            handle=2, topic=TOPIC, subscription="other", create=True, fencing_token=token
        )
    )
    refused = await wire.until("refused")
    assert (refused.handle, refused.code) == (
        2,
        pb.BAD_MESSAGE,
    ) and f"{token}, at most {token - 1} is possible" in refused.message
    wire.send(
        delete_cursor=pb.DeleteCursor(
            handle=3, topic=TOPIC, subscription="other", fencing_token=token
        )
    )
    assert (await wire.until("refused")).code == pb.BAD_MESSAGE
    await wire.open(4, "other", fencing_token=token - 1)


async def test_layouts_that_contradict(wire: Wire) -> None:
    await wire.open()
    wire.send(
        ack_batch=pb.AckBatch(
            handle=1, seq=1, generation=1, ledgers=[pb.LedgerAcks(ledger_id=5, entries=[40])]
        )
    )
    run = pb.LayoutRun(ids=[5, 9], states=[pb.LAYOUT_CLOSED, pb.LAYOUT_OPEN], entries=[30, 0])
    wire.send(layout=pb.Layout(handle=1, seq=2, generation=1, run=run))
    refused = await wire.until("refused")
    assert pb.RefusedCode.Name(refused.code) == "LAYOUT_CONTRADICTS"
    assert "5" in refused.message
    assert refused.seq == 2


async def test_a_refusal_names_the_message(wire: Wire) -> None:
    """Whether its form is wrong, or what it says: so that the source may send all others again."""
    await wire.open()
    wire.send(
        ack_batch=pb.AckBatch(
            handle=1, seq=4, generation=1, ledgers=[pb.LedgerAcks(ledger_id=5, entries=[40])]
        )
    )
    wire.send(
        ack_batch=pb.AckBatch(
            handle=1, seq=7, generation=1, ledgers=[pb.LedgerAcks(ledger_id=5, entries=[100])]
        )
    )
    refused = await wire.until("refused")
    assert (refused.code, refused.seq) == (pb.POSITION_OUT_OF_RANGE, 7)
    await wire.open(2)
    words = [(1 << 64) - 1] * 1_025
    partial = pb.PartialAck(entry=3, ack_set=words)
    wire.send(
        ack_batch=pb.AckBatch(
            handle=2, seq=9, generation=1, ledgers=[pb.LedgerAcks(ledger_id=5, partial=[partial])]
        )
    )
    refused = await wire.until("refused")
    assert (refused.code, refused.seq) == (pb.BATCH_CONTRADICTS, 9)
    wire.send(open_cursor=pb.OpenCursor(handle=3, topic="", subscription="s"))
    assert (await wire.until("refused")).seq == 0


PUBLISH, GET = "/cursorkeeper.acks.v1.AckSink/Publish", "/cursorkeeper.acks.v1.CursorStore/Get"
HELLO = pb.SourceMessage(hello=pb.Hello(name="t", protocol_versions=[1])).SerializeToString()


@pytest.mark.parametrize(
    ("method", "first", "broken"),
    [
        (GET, b"", b"\x0a\xff\xff\xff"),
        (PUBLISH, b"", b"\x0a\xff\xff\xff"),
        (PUBLISH, HELLO, b"\x0a\xff\xff\xff"),
        (PUBLISH, HELLO, b"\x1a\x03\x0a\xff\xff"),  # a message whose acks are none
    ],
)
async def test_bytes_that_are_no_message_are_an_invalid_argument(
    method: str, first: bytes, broken: bytes
) -> None:
    """Not an error of the daemon's: whoever sent them is told so, and a stream's cursors are given
    back.
    """
    served = await ServedKeeper().start()
    try:
        async with grpc.aio.insecure_channel(served.address) as channel:
            if method == PUBLISH:

                async def messages() -> AsyncIterator[bytes]:
                    if first:
                        yield first
                    yield broken

                call = channel.stream_stream(method)(messages())
                with pytest.raises(grpc.aio.AioRpcError) as told:
                    async with asyncio.timeout(60):
                        while await call.read() != grpc.aio.EOF:
                            pass
                        await call
            else:
                with pytest.raises(grpc.aio.AioRpcError) as told:
                    await channel.unary_unary(method)(broken, timeout=60)
        assert told.value.code() is grpc.StatusCode.INVALID_ARGUMENT, told.value
        assert "no message" in (told.value.details() or "")
    finally:
        await served.kill()

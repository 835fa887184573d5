"""R16: what remains of a batch is handed out, clients filter by it, and permits come out even.

Consumers of a Shared subscription work through a topic of batches while keepers and brokers crash.
The keeper is the real one on fakes, in virtual time; the broker and its clients follow Pulsar's
rules (see `dispatch`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

import grpc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyroaring import BitMap

from cursorkeeper.core import events as ev
from cursorkeeper.core.values import LayoutItem, LayoutState
from cursorkeeper.stream.store_service import ACKED, PARTLY, UNACKED, CursorStoreService
from cursorkeeper_client import AckedIndexes, Acks, LedgerAcks, PartialBatch
from cursorkeeper_client._proto import acks_pb2 as pb
from cursorkeeper_client._proto import acks_pb2_grpc as rpc
from cursorkeeper_client.ack_stream.connection import SourceConnection
from daemon.tests.fakes.bookkeeper.operation import Operation
from daemon.tests.requirements.dispatch import Dispatcher, Message
from daemon.tests.requirements.pulsar_acks import Entry, ack_set, individual
from daemon.tests.stream.served import ServedKeeper
from daemon.tests.support.virtual_loop import run as in_virtual_time
from daemon.tests.support.world import NAME, Source, World

TOPIC: dict[Entry, int] = {
    (3, 0): 1,
    (3, 1): 5,
    (3, 2): 64,
    (7, 0): 3,
    (7, 1): 65,
    (7, 2): 1,
    (9, 0): 10,
    (9, 1): 2,
}
LAYOUT = (
    LayoutItem(3, LayoutState.CLOSED, 3),
    LayoutItem(7, LayoutState.CLOSED, 3),
    LayoutItem(9, LayoutState.OPEN, 0),
)
RECEIVER_QUEUE = 8
CONSUMERS = 2
ROUNDS_MAX = 400


class Cluster:
    """One subscription: its keeper, its broker, its consumers."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.source: Source
        self.broker = Dispatcher(TOPIC, CONSUMERS, RECEIVER_QUEUE, self._remaining, self._send)
        self.broker.confirmed = self.confirmed
        self._done: set[Message] = set()
        self._waiting: dict[int, tuple[Entry, frozenset[int]]] = {}

    async def open(self, *, new_keeper: bool) -> Cluster:
        keeper = await self.world.keeper() if new_keeper else self.source.keeper
        self.source = Source(keeper)
        told = await self.source.open(layout=LAYOUT)
        assert told.refused is None, told.refused
        return self

    def confirmed(self) -> set[Message]:
        for seq in [s for s in self._waiting if s <= self.source.told.durable]:
            entry, indexes = self._waiting.pop(seq)
            self._done |= {(entry, i) for i in indexes}
        return self._done

    async def _remaining(self, entries: list[Entry]) -> list[set[int] | None]:
        """One question per ledger, as a dispatcher would ask."""
        service, found = CursorStoreService(self.source.keeper), dict[Entry, set[int] | None]()
        cursor = pb.CursorRef(topic=NAME.topic, subscription=NAME.subscription)
        for ledger in {ledger for ledger, _ in entries}:
            asked = [e for owner, e in entries if owner == ledger]
            reply = await service.AckState(
                pb.AckStateRequest(cursor=cursor, ledger_id=ledger, entries=asked), None
            )
            partials = {
                p.entry: {i for i in range(64 * len(p.ack_set)) if p.ack_set[i // 64] >> i % 64 & 1}
                for p in reply.partials
            }
            for entry, mark in zip(asked, reply.acked, strict=True):
                found[ledger, entry] = {
                    ACKED: set[int](),
                    UNACKED: None,
                    PARTLY: partials.get(entry),
                }[mark]
        return [found[entry] for entry in entries]

    def _send(self, entry: Entry, indexes: frozenset[int]) -> None:
        self.source.seq += 1
        self._waiting[self.source.seq] = (entry, indexes)
        batch = individual(
            self.source.seq,
            entry,
            ack_set(TOPIC[entry], indexes),
            TOPIC[entry],
            self.source.machine.generation,
        )
        self.source.send(ev.Acks(self.source.attach, batch))

    async def keeper_crashes(self, *, broker_too: bool) -> None:
        """The source sends again what was not confirmed, unless it died too."""
        self.confirmed()
        lost, self._waiting = list(self._waiting.values()), {}
        self.source.keeper.abandon()
        await self.open(new_keeper=True)
        if broker_too:
            self.broker.broker_restarts()
            return
        for entry, indexes in lost:
            self._send(entry, indexes)

    async def broker_restarts(self) -> None:
        """The keeper goes on; the cursor is opened again."""
        self.confirmed()
        self._waiting.clear()
        self.source.keeper.detach(NAME, self.source.attach)
        await self.open(new_keeper=False)
        self.broker.broker_restarts()

    async def finish(self) -> None:
        """Consumers work until nothing is left. A dispatcher without permits never comes to an
        end.
        """
        for _ in range(ROUNDS_MAX):
            await self.broker.dispatch()
            for at, client in enumerate(self.broker.clients):
                self.broker.take(at, RECEIVER_QUEUE)
                self.broker.ack(at, list(client.held))
            await self.source.durable()
            if all(left == set() for left in await self._remaining(list(TOPIC))):
                return
        raise AssertionError(
            f"stuck: {[a.permits for a in self.broker.attached]} permits, entries left"
        )

    def assert_even(self) -> None:
        everything = {(entry, i) for entry, size in TOPIC.items() for i in range(size)}
        assert self.broker.delivered == everything, "an un-acked index was never delivered"
        assert [a.permits for a in self.broker.attached] == [RECEIVER_QUEUE] * CONSUMERS
        assert [a.unacked for a in self.broker.attached] == [0] * CONSUMERS


# ---- random histories


@dataclass(frozen=True)
class Step:
    """One thing that happens; `at` picks a consumer, `count` how much of it."""

    what: str
    at: int
    count: int


KINDS = [
    "dispatch",
    "take",
    "ack",
    "dispatch",
    "take",
    "ack",
    "wait",
    "redeliver",
    "keeper",
    "broker",
    "both",
]
STEPS = st.builds(Step, st.sampled_from(KINDS), st.integers(0, CONSUMERS - 1), st.integers(1, 40))


async def play(history: list[Step]) -> None:
    cluster = await Cluster(World()).open(new_keeper=True)
    broker = cluster.broker
    for step in history:
        match step.what:
            case "dispatch":
                await broker.dispatch()
            case "take":
                broker.take(step.at, step.count)
            case "ack":  # every third of what it holds, so that batches stay half acked
                broker.ack(step.at, broker.clients[step.at].held[step.count % 3 :: 3][: step.count])
            case "wait":
                await cluster.source.durable()
            case "redeliver":
                broker.redeliver(step.at)
            case "keeper":
                await cluster.keeper_crashes(broker_too=False)
            case "both":
                await cluster.keeper_crashes(broker_too=True)
            case "broker":
                await cluster.broker_restarts()
    for at in range(CONSUMERS):
        broker.redeliver(at)  # whatever the history left half done comes again
    await cluster.finish()
    cluster.assert_even()
    for keeper in cluster.world.keepers:
        assert keeper.failures == []


@given(st.lists(STEPS, min_size=8, max_size=60))
@settings(max_examples=120, deadline=None)
def test_r16_no_confirmed_index_comes_again_and_permits_come_out_even(history: list[Step]) -> None:
    in_virtual_time(play(history))


async def half_acked(spoil: Callable[[Dispatcher], None]) -> Cluster:
    """Every batch is acked by halves and asked for again many times."""
    cluster = await Cluster(World()).open(new_keeper=True)
    spoil(cluster.broker)
    for _ in range(30):
        await cluster.broker.dispatch()
        for at, client in enumerate(cluster.broker.clients):
            cluster.broker.take(at, RECEIVER_QUEUE)
            cluster.broker.ack(at, client.held[::2])
        await cluster.source.durable()
        for at in range(CONSUMERS):
            cluster.broker.redeliver(at)
    await cluster.finish()
    return cluster


def test_r16_permits_rise_by_the_acked_indexes() -> None:
    """The balance holds; and the two known ways to break it are seen: a broker that charges acked
    indexes stops for want of permits (PIP-54's reason), a client that credits them makes permits
    grow without bound (apache/pulsar #22091).
    """

    async def balanced() -> None:
        (await half_acked(lambda broker: None)).assert_even()

    async def charged() -> None:
        def spoil(broker: Dispatcher) -> None:
            broker.charges_acked_indexes = True

        with pytest.raises(AssertionError, match="stuck"):
            await half_acked(spoil)

    async def credited() -> None:
        def spoil(broker: Dispatcher) -> None:
            for client in broker.clients:
                client.credits_whole_batches = True

        cluster = await half_acked(spoil)
        assert max(a.permits for a in cluster.broker.attached) > RECEIVER_QUEUE

    for story in (balanced, charged, credited):
        in_virtual_time(story())


# ---- the call itself, over the wire


async def test_r16_the_store_answers_with_what_remains() -> None:
    """`CursorStore.AckState`: acked, un-acked, or the words of the indexes that remain; from
    another process, also after a crash.
    """
    served = await ServedKeeper().start()
    topic = "persistent://t/ns/remaining"
    try:
        async with SourceConnection(served.address) as session:
            handle = session.open(topic, "sub")
            await handle.opened()
            partials = [PartialBatch(2, 100, BitMap([0, 64, 99])), AckedIndexes(3, 4, ((0, 1),))]
            await handle.durable(await handle.send(Acks([LedgerAcks(5, [0, 4], (), partials)])))
            before = await ask(served.address, topic, [0, 1, 2, 3, 4, 9])
            await served.kill()
        await served.start()
        async with SourceConnection(served.address) as session:
            await session.open(topic, "sub", takeover=True).opened()
            after = await ask(served.address, topic, [0, 1, 2, 3, 4, 9])
    finally:
        await served.kill()
    assert list(before.acked) == [ACKED, UNACKED, PARTLY, PARTLY, ACKED, UNACKED]
    assert [(p.entry, p.batch_size, list(p.ack_set)) for p in before.partials] == [
        (2, 100, [1, 1 | 1 << 35]),
        (3, 4, [0b1100]),
    ]
    assert after == before


async def ask(address: str, topic: str, entries: list[int], ledger: int = 5) -> pb.AckStateReply:
    async with grpc.aio.insecure_channel(address) as channel:
        store = rpc.CursorStoreStub(channel)  # type: ignore[no-untyped-call]
        cursor = pb.CursorRef(topic=topic, subscription="sub")
        reply: pb.AckStateReply = await store.AckState(
            pb.AckStateRequest(cursor=cursor, ledger_id=ledger, entries=entries)
        )
        return reply


async def test_r16_there_is_no_answer_before_the_state_is_recovered() -> None:
    """While a cursor is opened nothing of it is known: "un-acked" would deliver everything
    again.
    """
    served = await ServedKeeper().start()
    topic = "persistent://t/ns/early"
    try:
        async with SourceConnection(served.address) as session:
            handle = session.open(topic, "sub")
            await handle.opened()
            await handle.durable(await handle.send(Acks([LedgerAcks(5, [0])])))
        await served.kill()
        served.bookkeeper.faults.refuse(Operation.FENCE, times=1_000_000)
        await served.start()
        async with SourceConnection(served.address) as session:
            session.open(topic, "sub", takeover=True)
            with pytest.raises(
                grpc.aio.AioRpcError, match="ask again when its state is recovered"
            ) as refused:
                async with asyncio.timeout(60):
                    await until_held(served.address, topic)
            assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
    finally:
        await served.kill()


async def until_held(address: str, topic: str) -> None:
    """Asks until the daemon knows the cursor; then the answer is the test's."""
    while True:
        try:
            await ask(address, topic, [0])
        except grpc.aio.AioRpcError as answer:
            if answer.code() is not grpc.StatusCode.NOT_FOUND:
                raise
        else:
            raise AssertionError("answered while it was opened")

"""The source side where a keeper can be told what to do: pauses, credit, versions, refusals, being
dialled.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from dataclasses import replace

import numpy as np
import pytest
import pytest_asyncio
from pyroaring import BitMap

from clients.tests.ack_stream.conftest import SETTINGS, still_waiting, until
from clients.tests.ack_stream.fake_keeper import FakeKeeper
from cursorkeeper_client import (
    Acks,
    AcksTooLarge,
    AnswerTimeout,
    Client,
    ClientSettings,
    ConnectionLost,
    ConnectionRefused,
    CursorClosed,
    CursorDamaged,
    CursorDeposed,
    KeeperBusy,
    LayoutItem,
    LayoutState,
    LedgerAcks,
    Position,
    SourceServer,
)
from cursorkeeper_client._proto import acks_pb2 as pb
from cursorkeeper_client.ack_stream.connection import SourceConnection
from cursorkeeper_client.ack_stream.handle import CursorHandle
from cursorkeeper_client.ack_stream.recovered import RecoveredParts
from cursorkeeper_client.ack_stream.session import SourceSession
from cursorkeeper_client.errors import BY_CODE, call_ended

OPEN = (LayoutItem(7, LayoutState.OPEN),)


def acks(*entries: int) -> Acks:
    return Acks([LedgerAcks(7, list(entries))])


@pytest_asyncio.fixture
async def session(fake_keeper: FakeKeeper) -> AsyncIterator[SourceSession]:
    async with SourceConnection(fake_keeper.address, SETTINGS) as opened:
        yield opened


@pytest_asyncio.fixture
async def handle(session: SourceSession, topic: str) -> CursorHandle:
    made = session.open(topic, "s", layout=OPEN)
    await made.opened()
    return made


def test_every_refused_code_has_an_exception() -> None:
    assert set(BY_CODE) == set(pb.RefusedCode.keys())


@pytest.mark.parametrize(
    "status",
    ["UNAVAILABLE", "CANCELLED", "INTERNAL", "DEADLINE_EXCEEDED", "UNKNOWN", "OK", "SOMETHING_NEW"],
)
def test_a_broken_stream_is_lost(status: str) -> None:
    assert isinstance(call_ended(status, ""), ConnectionLost)


def test_settings_contradictions_are_told() -> None:
    for wrong in (
        {"back_off_min_ms": 9_000},
        {"open_timeout_s": 0.0},
        {"outgoing_bytes_max": 1 << 20},
        {"unconfirmed_bytes_max": 1},
    ):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            ClientSettings(**wrong)  # type: ignore[arg-type]


async def test_confirmation_is_waited_for(fake_keeper: FakeKeeper, handle: CursorHandle) -> None:
    fake_keeper.faults.hold_durable = True
    seqs = [await handle.send(acks(n)) for n in range(3)]
    waits = [asyncio.ensure_future(handle.durable(seq)) for seq in reversed(seqs)]
    with pytest.raises(AnswerTimeout):
        await handle.durable(seqs[-1], timeout_s=0.05)
    assert handle.durable_seq == 0 and not any(wait.done() for wait in waits)
    fake_keeper.release()
    await asyncio.gather(*waits)
    with pytest.raises(ValueError, match="never sent"):
        await handle.durable(seqs[-1] + 1)


async def test_without_credit_senders_wait_in_order(fake_keeper: FakeKeeper, topic: str) -> None:
    fake_keeper.faults.credit_bytes, fake_keeper.faults.hold_durable = 100, True
    async with SourceConnection(fake_keeper.address, SETTINGS) as session:
        handle = session.open(topic, "s", layout=OPEN)
        await handle.opened()
        await handle.send(Acks([LedgerAcks(7, np.arange(20, dtype=np.uint32))]))
        waiting = [asyncio.ensure_future(handle.send(acks(100 + n))) for n in range(3)]
        await still_waiting(waiting)
        await until(
            lambda: fake_keeper.cursors[f"{topic}|s"].pending, what="the first batch arrives"
        )
        fake_keeper.release()
        assert await asyncio.gather(*waiting) == [2, 3, 4]
        assert handle.sent_bytes <= handle.granted_bytes


async def test_who_waits_for_credit_is_told_when_the_stream_ends(
    fake_keeper: FakeKeeper, topic: str
) -> None:
    fake_keeper.faults.credit_bytes, fake_keeper.faults.hold_durable = 1, True
    async with SourceConnection(fake_keeper.address, SETTINGS) as session:
        handle = session.open(topic, "s", layout=OPEN)
        await handle.opened()
        await handle.send(acks(1))  # more than the credit, and alone
        waiting = asyncio.ensure_future(handle.send(acks(2)))
        await still_waiting([waiting])
        await fake_keeper.kill()
        with pytest.raises(ConnectionLost):
            await waiting


async def test_a_batch_no_message_can_hold_is_not_sent(handle: CursorHandle) -> None:
    with pytest.raises(AcksTooLarge):
        await handle.send(Acks([LedgerAcks(7, np.arange(1_100_000, dtype=np.uint32))]))
    assert (handle.last_seq, handle.sent_bytes) == (0, 0)


async def test_pause_is_seen_and_ends(fake_keeper: FakeKeeper, handle: CursorHandle) -> None:
    fake_keeper.pause("BookKeeper is away")
    await handle.durable(await handle.send(acks(1)))  # acks may still be sent
    assert handle.paused_for == "BookKeeper is away"
    fake_keeper.resume()
    await until(lambda: not handle.paused_for, what="it is resumed")


async def test_sending_before_the_state_is_here_is_a_defect(
    session: SourceSession, topic: str
) -> None:
    with pytest.raises(CursorClosed, match="not opened yet"):
        await session.open(topic, "s").send(acks(1))


async def test_nobody_there_and_a_silent_keeper(fake_keeper: FakeKeeper) -> None:
    fake_keeper.faults.silent = True
    with pytest.raises(AnswerTimeout, match="Hello"):
        await SourceConnection(
            fake_keeper.address, replace(SETTINGS, connect_timeout_s=1.0)
        ).connect()
    await fake_keeper.kill()
    with pytest.raises(ConnectionLost, match="UNAVAILABLE"):
        await SourceConnection(fake_keeper.address, SETTINGS).connect()


async def test_a_keeper_of_another_version_is_not_used() -> None:
    session = SourceSession(SETTINGS)
    with pytest.raises(ConnectionRefused, match=r"versions \[2\]"):
        session.receive(pb.KeeperMessage(hello=pb.Hello(name="k", protocol_versions=[2])))


async def test_a_keeper_may_dial_the_source(fake_keeper: FakeKeeper, topic: str) -> None:
    async with SourceServer(settings=SETTINGS) as server:
        dialling = asyncio.ensure_future(fake_keeper.dial(server.address))
        session = await server.connect()
        assert session.keeper and session.keeper.name == "fake-keeper"
        handle = session.open(topic, "s", layout=OPEN)
        await handle.opened()
        await handle.durable(await handle.send(acks(1, 2)))
        dialling.cancel()
        assert isinstance(await session.wait_ended(), ConnectionLost)
        with pytest.raises(ConnectionLost):
            await handle.send(acks(3))


async def test_a_resuming_source_may_be_dialled(fake_keeper: FakeKeeper, topic: str) -> None:
    async with (
        SourceServer(settings=SETTINGS) as server,
        Client(server, SETTINGS, random.Random(1)) as source,
    ):
        cursor = source.cursor(topic, "s", layout=OPEN)
        for opens in (1, 2):
            dialling = asyncio.ensure_future(fake_keeper.dial(server.address))
            await cursor.durable(await cursor.send(acks(opens)))
            assert cursor.opens + cursor.resumes == opens
            dialling.cancel()
            await asyncio.gather(dialling, return_exceptions=True)
        assert list(fake_keeper.cursors[f"{topic}|s"].durable.acked[7]) == [1, 2]


async def test_a_resuming_source_waits_out_a_busy_keeper(
    fake_keeper: FakeKeeper, topic: str
) -> None:
    fake_keeper.faults.refuse_opens = 3
    async with Client(fake_keeper.address, SETTINGS, random.Random(1)) as source:
        cursor = source.cursor(topic, "s", layout=OPEN)
        seq = await cursor.send(acks(1))  # before it is open
        await cursor.opened()
        await cursor.durable(seq)
        assert (cursor.opens, source.connections) == (1, 1)


async def test_a_resuming_source_gives_up_what_no_pause_cures(
    fake_keeper: FakeKeeper, topic: str
) -> None:
    async with Client(fake_keeper.address, SETTINGS, random.Random(1)) as source:
        cursor = source.cursor(topic, "s", create=False)
        with pytest.raises(Exception, match="NOT_FOUND"):
            await cursor.opened()
        with pytest.raises(Exception, match="NOT_FOUND"):
            await cursor.send(acks(1))


async def test_a_resuming_source_stops_when_deposed(
    fake_keeper: FakeKeeper, session: SourceSession, topic: str
) -> None:
    async with Client(fake_keeper.address, SETTINGS, random.Random(1)) as source:
        cursor = source.cursor(topic, "s", layout=OPEN)
        await cursor.opened()
        await session.open(topic, "s", takeover=True).opened()
        with pytest.raises(CursorDeposed):
            while True:
                await cursor.durable(await cursor.send(acks(1)))


async def test_the_memory_of_a_resuming_source_is_bounded(
    fake_keeper: FakeKeeper, topic: str
) -> None:
    fake_keeper.faults.hold_durable = True
    settings = replace(SETTINGS, message_bytes_max=1000, unconfirmed_bytes_max=1000)
    async with Client(fake_keeper.address, settings, random.Random(1)) as source:
        cursor = source.cursor(topic, "s", layout=OPEN)
        await cursor.opened()
        batch = Acks([LedgerAcks(7, np.arange(100, dtype=np.uint32))])  # 400 bytes and a little
        await cursor.send(batch)
        await cursor.send(batch)
        third = asyncio.ensure_future(cursor.send(batch))
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(asyncio.shield(third), 0.05)
        assert cursor.unconfirmed_bytes <= 1000
        fake_keeper.release()
        assert await third == 3
        with pytest.raises(AcksTooLarge):
            await cursor.send(Acks([LedgerAcks(7, np.arange(300, dtype=np.uint32))]))


async def test_acks_from_before_somebodys_reset_are_void(
    fake_keeper: FakeKeeper, topic: str
) -> None:
    async with Client(fake_keeper.address, SETTINGS, random.Random(1)) as source:
        cursor = source.cursor(topic, "s", layout=OPEN)
        await cursor.opened()
        await fake_keeper.kill()
        seq = await cursor.send(acks(1))
        fake_keeper.cursors[f"{topic}|s"].generation += 1  # somebody else's seek
        await fake_keeper.start()
        await cursor.durable(seq)  # decided
        assert not fake_keeper.cursors[f"{topic}|s"].durable.acked
        await cursor.durable(await cursor.send(acks(2)))
        assert list(fake_keeper.cursors[f"{topic}|s"].durable.acked[7]) == [2]


def test_recovered_parts_join() -> None:
    parts = RecoveredParts(
        pb.Opened(epoch=3, generation=2, mark_delete=pb.Position(ledger=1, entry=4))
    )
    part = pb.StatePart()
    part.slices.add(ledger_id=1, first=0, last=99, holes=True, roaring=BitMap([7, 50]).serialize())
    part.slices.add(ledger_id=1, first=0, last=99, holes=False, roaring=BitMap([50]).serialize())
    part.slices.add(ledger_id=2, first=0, last=9, holes=True)
    part.partials.add(ledger_id=1, entry=7, batch_size=0, ack_set=[0b1110])
    part.partials.add(ledger_id=1, entry=7, batch_size=4, ack_set=[0b0111])
    # acked as a whole: not partial
    part.partials.add(ledger_id=1, entry=8, batch_size=4, ack_set=[0b0001])
    parts.add(part)
    state = parts.end(pb.StateEnd(mark_delete=pb.Position(ledger=1, entry=5)))
    assert {k: list(v) for k, v in state.acked.items()} == {
        1: [6, *range(8, 100)],
        2: list(range(10)),
    }
    assert {k: (p.batch_size, list(p.missing)) for k, p in state.partials.items()} == {
        (1, 7): (4, [1, 2])
    }
    assert (
        state.is_acked(1, 8)
        and not state.is_acked(1, 7)
        and state.is_acked(1, 3)
        and not state.is_acked(3, 0)
    )


async def test_busy_and_damaged_are_told_apart(
    session: SourceSession, fake_keeper: FakeKeeper, topic: str
) -> None:
    fake_keeper.faults.refuse_opens = 1
    with pytest.raises(KeeperBusy) as caught:
        await session.open(topic, "s").opened()
    assert caught.value.retry and not CursorDamaged.retry


async def test_a_resuming_source_takes_its_cursor_from_a_stream_that_is_not_known_to_be_dead(
    fake_keeper: FakeKeeper, handle: CursorHandle, topic: str
) -> None:
    """As after a half-open connection: the keeper still believes in the old handle."""
    async with Client(fake_keeper.address, SETTINGS, random.Random(1)) as source:
        cursor = source.cursor(topic, "s", layout=OPEN)
        async with asyncio.timeout(60):
            await cursor.durable(await cursor.send(acks(1)))
        await until(lambda: handle.ended, what="the other stream hears of it")
        assert isinstance(handle.ended, CursorDeposed)


async def test_a_resuming_source_goes_on_while_zookeeper_is_away(
    fake_keeper: FakeKeeper, topic: str
) -> None:
    """Its stream breaks; the keeper holds the cursor and cannot prove it: acks go on all the same,
    each confirmed once.
    """
    async with Client(fake_keeper.address, SETTINGS) as source:
        durable: list[int] = []
        cursor = source.cursor(topic, "s", layout=OPEN, on_durable=durable.append)
        await cursor.opened()
        await cursor.send(acks(1))
        await cursor.durable()
        assert await cursor.reset(Position(7, 0)) == 2
        fake_keeper.faults.zookeeper_away = fake_keeper.faults.hold_durable = True
        await cursor.send(acks(2))
        fake_keeper.break_streams()
        fake_keeper.faults.hold_durable = False
        await cursor.durable(await cursor.send(acks(3)))
        assert (cursor.opens, cursor.resumes, cursor.durable_seq) == (
            1,
            1,
            3,
        ) and durable == sorted(durable)
        # what the keeper ended itself is not resumed
        await fake_keeper.kill()
        fake_keeper.faults.zookeeper_away = False
        await fake_keeper.start()
        await cursor.durable(await cursor.send(acks(4)))
        assert (cursor.opens, cursor.resumes) == (2, 1)
        state = cursor.recovered
        assert state is not None and [state.is_acked(7, entry) for entry in (1, 2, 3)] == [
            False,
            True,
            True,
        ]

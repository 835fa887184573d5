"""What a source is told at a limit, and what it is told when acks are left out."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest
from prometheus_client import generate_latest

from cursorkeeper.core.limits import Limits
from cursorkeeper.stream.credits import CreditPool
from cursorkeeper.stream.store_service import info_of
from cursorkeeper.telemetry.metrics import DaemonTelemetry
from cursorkeeper_client._proto import acks_pb2 as pb
from daemon.tests.stream.test_session import Stream, code
from daemon.tests.support.outboxes import next_message
from daemon.tests.support.whole import writer
from daemon.tests.support.world import World, small

FAST = small(Limits(), whole_state_interval_ms=1)


async def opened(**settings: Any) -> tuple[World, Stream]:
    world = World(limits=FAST, state_writer=writer(**settings))
    stream = Stream(await world.keeper())
    await stream.open()
    return world, stream


def info(world: World) -> pb.CursorInfo:
    [runner] = world.keepers[-1].cursors.values()
    return info_of(runner)


def metrics(world: World) -> str:
    telemetry = DaemonTelemetry()
    telemetry.watch(world.keepers[-1])
    return generate_latest(telemetry.registry).decode()


async def test_r11_pause_with_the_numbers_and_resume_when_it_fits() -> None:
    world, stream = await opened(ranges_max=2)
    stream.ack(1, 2, 4)
    assert (await stream.until("durable")).seq == 1
    stream.ack(2, 6, 8)
    pause = await stream.until("pause")
    assert (
        "4 ranges" in pause.reason and "managedLedgerMaxUnackedRangesToPersist = 2" in pause.reason
    )
    found = info(world)
    assert (found.state, found.paused_for, found.format) == ("NOT_PERSISTABLE", "limit", "pulsar")
    assert found.cursor_metadata_size_in_memory_bytes > 0 and found.flush_interval_ms == 1
    text = metrics(world)
    assert (
        f'cursorkeeper_cursor_metadata_size_in_memory_bytes{{over="max"}} '
        f"{found.cursor_metadata_size_in_memory_bytes:.1f}" in text
    )
    assert (
        f'cursorkeeper_cursor_metadata_size_in_memory_bytes{{over="sum"}} '
        f"{found.cursor_metadata_size_in_memory_bytes:.1f}" in text
    )
    assert (
        "cursorkeeper_limit_crossings_total 1.0" in text
        and "cursorkeeper_cursors_paused 1.0" in text
    )
    assert "cursorkeeper_flush_interval_seconds 0.001" in text
    stream.ack(3, 3, 5, 7)
    await stream.until("resume")
    durable = await stream.until("durable")
    assert durable.seq == 3 and durable.truncated_acks == 0
    assert info(world).paused_for == ""


async def test_a_handle_that_comes_at_a_limit_is_served_what_is_durable_and_the_pause() -> None:
    """The first stream breaks; nobody else has the cursor. It is read again for the second one."""
    world, stream = await opened(ranges_max=2)
    stream.ack(1, 2, 4)
    await stream.until("durable")
    stream.ack(2, 6, 8)
    await stream.until("pause")
    again = Stream(world.keepers[-1])
    again.ask()
    part = await again.until("state_part")
    assert part.slices
    end = await again.until("state_end")
    assert end.acked_entries == 2, "6 and 8 were never confirmed"
    await again.until("credit")
    again.ack(1, 3, 5)
    assert (await again.until("durable")).seq == 1
    assert not world.keepers[-1].failures


async def test_r10_durable_says_how_many_acks_are_not_stored() -> None:
    world, stream = await opened(ranges_max=2, truncate=True)
    stream.ack(1, 2, 4)
    assert (await stream.until("durable")).truncated_acks == 0
    stream.ack(2, 6, 8, 10)
    durable = await stream.until("durable")
    assert (durable.seq, durable.truncated_acks) == (2, 3)
    assert info(world).truncated_acks == 3
    text = metrics(world)
    assert (
        "cursorkeeper_truncated_acks 3.0" in text
        and "cursorkeeper_truncated_flushes_total 1.0" in text
    )
    stream.ack(3, 3, 5, 7, 9)
    assert (await stream.until("durable")).truncated_acks == 0
    assert "cursorkeeper_truncated_acks 0.0" in metrics(world)


async def test_credit_comes_back_at_a_limit_without_a_confirmation() -> None:
    world = World(limits=FAST, state_writer=writer(ranges_max=1))
    stream = Stream(await world.keeper(), CreditPool(handle_bytes=20_000))
    await stream.open()
    granted = stream.session._handles[1].credit.granted
    rng, seq = random.Random(1), 0
    async with asyncio.timeout(60):
        while stream.session._handles[1].credit.spent <= granted:
            for _ in range(20):
                seq += 1
                stream.ack(seq, *sorted(rng.sample(range(1, 100, 2), 40)))
                assert 1 in stream.session._handles, "refused for want of credit"
            await asyncio.sleep(0)
            while stream.session.outbox._items:
                message = await next_message(stream.session.outbox)
                assert message is not None and message.WhichOneof("message") != "durable"
            await asyncio.sleep(0.002)


async def test_a_message_larger_than_the_handles_share_comes_alone_while_the_daemon_has_room() -> (
    None
):
    world = World()
    pool = CreditPool(handle_bytes=4_096, handle_bytes_min=4_096, daemon_bytes=100_000)
    stream = Stream(await world.keeper(), pool)
    await stream.open()
    producers = {f"standalone-1-{number}": number for number in range(3_000)}

    def mark(seq: int) -> None:
        place, properties = (
            pb.Position(ledger=5, entry=3),
            pb.MarkDeleteProperties(values=producers),
        )
        stream.send(
            ack_batch=pb.AckBatch(
                handle=1, seq=seq, generation=1, mark_delete=place, properties=properties
            )
        )

    mark(1)
    assert (await stream.until("durable")).seq == 1
    assert (await stream.until("credit")).granted_bytes > 60_000 and pool.unconfirmed_bytes == 0
    [runner] = world.keepers[-1].cursors.values()
    kept = runner.machine.acks.mark_delete_properties
    assert kept is not None and dict(kept.values) == producers
    world.bookkeeper.stall_acks()
    mark(2)
    assert pool.unconfirmed_bytes > 50_000
    mark(3)  # not alone
    assert code(await stream.until("refused")) == "CREDIT_EXCEEDED"
    assert pool.unconfirmed_bytes == 0
    pool.unconfirmed_bytes = 90_000  # of others
    world.bookkeeper.stall_acks(False)
    await stream.open()
    mark(1)
    assert code(await stream.until("refused")) == "CREDIT_EXCEEDED"


@pytest.mark.parametrize("native", [True, False])
async def test_r17_partial_acks_that_are_not_kept_are_counted(native: bool) -> None:
    world = World(
        limits=small(FAST, batch_index_acks=False), state_writer=None if native else writer()
    )
    stream = Stream(await world.keeper())
    await stream.open()
    partial = pb.PartialAck(entry=7, batch_size=4, ack_set=[0b0110])
    ledgers = [pb.LedgerAcks(ledger_id=5, entries=[1], partial=[partial])]
    stream.send(ack_batch=pb.AckBatch(handle=1, seq=1, generation=1, ledgers=ledgers))
    assert (await stream.until("durable")).seq == 1
    assert info(world).partial_batches == 0 and info(world).acked_entries == 1
    assert "cursorkeeper_partial_acks_ignored_total 1.0" in metrics(world)

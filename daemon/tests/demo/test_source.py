"""The demo's source sends all of its workload, and waits at its gates."""

from __future__ import annotations

import asyncio

import pytest

from clients.tests.ack_stream.fake_keeper import FakeKeeper
from cursorkeeper.demo.source import SUBSCRIPTION, TOPIC, Source, bad_case
from cursorkeeper.demo.workload import BadCase
from cursorkeeper_client import Client, CursorDeposed

CASE = BadCase(entries=60_000, ledgers=4, batch_acks=1_000)
TOTAL = sum(map(len, CASE.acked().values()))


async def test_the_bad_case_is_sent_whole() -> None:
    keeper = FakeKeeper()
    await keeper.start()
    source = Source()
    async with asyncio.timeout(60):
        await source.play(keeper.address, [bad_case(CASE)])
    async with Client(keeper.address) as client:
        state = await client.cursor(TOPIC, SUBSCRIPTION, create=False).opened()
    await keeper.kill()
    figures = source.figures()
    assert source.confirmed == figures["confirmed"] == TOTAL
    assert state.acked == CASE.acked()
    assert 0 < figures["ack_to_durable_ms_p50"] <= figures["ack_to_durable_ms_p99"]
    assert 0 < figures["acks_per_second"] <= figures["acks_per_second_without_outages"]


async def test_it_waits_at_each_gate_until_it_is_told_to_go_on() -> None:
    keeper = FakeKeeper()
    await keeper.start()
    source = Source([10_000, 30_000])
    async with asyncio.timeout(60):
        playing = asyncio.create_task(source.play(keeper.address, [bad_case(CASE)]))
        for gate in (10_000, 30_000):
            await source.wait_confirmed(gate)
            await asyncio.sleep(0.1)
            assert gate <= source.confirmed < gate + 2_000 and not playing.done()
            source.go()
        await playing
    await keeper.kill()
    assert source.confirmed == TOTAL


async def test_a_cursor_that_is_taken_away_is_its_end() -> None:
    keeper = FakeKeeper()
    await keeper.start()
    source = Source([10_000])
    async with asyncio.timeout(60), Client(keeper.address) as other:
        playing = asyncio.create_task(source.play(keeper.address, [bad_case(CASE)]))
        await source.wait_confirmed(10_000)
        await other.cursor(TOPIC, SUBSCRIPTION).opened()
        source.go()
        with pytest.raises(CursorDeposed):
            await playing
    await keeper.kill()

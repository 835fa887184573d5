"""The steady source as a process: it ends when all that it sent is durable, or says what is not."""

from __future__ import annotations

import asyncio
import json
import sys
from asyncio.subprocess import PIPE, Process

from clients.tests.ack_stream.fake_keeper import FakeKeeper
from cursorkeeper.demo.steady import SUBSCRIPTION
from cursorkeeper_client import Client

TOPIC = "persistent://steady/ns/topic"


async def steady(keeper: FakeKeeper, *arguments: str) -> Process:
    command = ["-m", "cursorkeeper.demo.steady", "--daemon", keeper.address, "--topic", TOPIC]
    return await asyncio.create_subprocess_exec(
        sys.executable, *command, "--interval-ms", "1", *arguments, stdout=PIPE
    )


async def test_a_number_of_batches_with_resets_between() -> None:
    keeper = FakeKeeper()
    await keeper.start()
    process = await steady(keeper, "--batches", "50", "--reset-every", "20")
    async with asyncio.timeout(60):
        said, _ = await process.communicate()
    lines = [json.loads(line) for line in said.splitlines()]
    assert process.returncode == 0
    assert lines[0] == {"ready": "steady", "topics": [TOPIC]}
    assert lines[-1] == {"done": True, "unconfirmed_batches": 0}
    async with Client(keeper.address) as client:
        state = await client.cursor(TOPIC, SUBSCRIPTION, create=False).opened()
    await keeper.kill()
    assert state.generation == 3 and 30 <= state.acked_entries <= 10 * 80


async def test_a_sigterm_ends_it_when_all_that_it_sent_is_durable() -> None:
    keeper = FakeKeeper()
    await keeper.start()
    process = await steady(keeper, "--report-s", "0.2")
    assert process.stdout is not None
    said: list[bytes] = []
    async with asyncio.timeout(60):
        while not (said and b'"durable_batches"' in said[-1]):
            said.append(await process.stdout.readline())
        process.terminate()
        said += (await process.stdout.read()).splitlines()
        assert await process.wait() == 0
    await keeper.kill()
    totals = next(json.loads(line) for line in said if b'"durable_batches"' in line)
    assert 0 < totals["durable_batches"] <= totals["sent_batches"]
    assert json.loads(said[-1]) == {"done": True, "unconfirmed_batches": 0}


async def test_what_does_not_become_durable_is_told() -> None:
    keeper = FakeKeeper()
    await keeper.start()
    process = await steady(keeper, "--drain-s", "0.5")
    assert process.stdout is not None
    async with asyncio.timeout(60):
        await process.stdout.readline()
        await keeper.kill()
        await asyncio.sleep(0.5)
        process.terminate()
        said = (await process.stdout.read()).splitlines()
        assert await process.wait() == 1
    last = json.loads(said[-1])
    assert not last["done"] and last["unconfirmed_batches"] > 0 and "durable" in last["problem"]

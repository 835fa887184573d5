"""The source of tests: what it says is the truth, also when several take one cursor from each other
again and again.
"""

from __future__ import annotations

import asyncio
import json
import sys
from functools import partial

import pytest

from clients.tests.ack_stream.conftest import until
from clients.tests.ack_stream.fake_keeper import FakeKeeper
from cursorkeeper.demo.workload import BadCase
from cursorkeeper_client import Client, ClientSettings, CursorDeposed
from cursorkeeper_client.ack_stream.connection import SourceConnection
from daemon.tests.source.__main__ import IN_FLIGHT_MAX, pace
from daemon.tests.source.flow import Flow
from daemon.tests.source.random_acks import LAYOUT, START, make_batch

TOPIC = "persistent://steady/ns/topic"
SETTINGS = ClientSettings(back_off_min_ms=5, back_off_max_ms=20)


async def flow(keeper: FakeKeeper, seed: int, *, retake_ms: float = 20, batches: int = 200) -> Flow:
    """Runs to its end on a connection of its own."""
    async with Client(keeper.address, SETTINGS) as source:
        opens = partial(source.cursor, TOPIC, "s", layout=LAYOUT, start=START)
        made = Flow(0, opens, in_flight_max=IN_FLIGHT_MAX, retake_ms=retake_ms)
        await pace(made, seed, interval_ms=1, batches=batches)
        await made.drain()
    return made


async def test_two_that_never_give_up_both_come_to_an_end(
    capsys: pytest.CaptureFixture[str],
) -> None:
    keeper = FakeKeeper()
    await keeper.start()
    seeds = (100, 200)
    async with asyncio.timeout(60):
        flows = await asyncio.gather(*(flow(keeper, seed) for seed in seeds))
    said = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    takeovers = [line for line in said if "opened" in line]
    assert len(takeovers) > 4, takeovers
    assert [f.durable for f in flows] == [f.sent for f in flows] == [200, 200]
    assert sum("sent" in line for line in said) == 400, (
        "each is said once, however often it was sent"
    )
    async with SourceConnection(keeper.address) as check:
        state = await check.open(TOPIC, "s", takeover=True).opened()
    await keeper.kill()
    acked = {
        key
        for seed in seeds
        for number in range(1, 201)
        for key in make_batch(seed, number).entries
    }
    assert not {key for key in acked if not state.is_acked(*key)}


async def test_without_the_wish_a_takeover_is_its_end() -> None:
    keeper = FakeKeeper()
    await keeper.start()
    waiting = asyncio.create_task(flow(keeper, 1, retake_ms=0, batches=0))
    async with SourceConnection(keeper.address) as other:
        await until(lambda: keeper.holders, what="it is held")
        await other.open(TOPIC, "s", takeover=True).opened()
        with pytest.raises(CursorDeposed):
            async with asyncio.timeout(60):
                await waiting
    await keeper.kill()


async def test_a_sigterm_ends_it_when_all_that_it_sent_is_durable() -> None:
    keeper = FakeKeeper()
    await keeper.start()
    command = ["-m", "daemon.tests.source", "--daemon", keeper.address, "--topic", TOPIC]
    process = await asyncio.create_subprocess_exec(
        sys.executable, *command, "--interval-ms", "1", stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    said: list[bytes] = []
    async with asyncio.timeout(60):
        while not (said and b'"durable"' in said[-1]):
            said.append(await process.stdout.readline())
        process.terminate()
        said += (await process.stdout.read()).splitlines()
        assert await process.wait() == 0
    lines = [json.loads(line) for line in said]
    await keeper.kill()
    sent, durable = (
        max(line[key][1] for line in lines if key in line) for key in ("sent", "durable")
    )
    assert durable == sent
    assert lines[-1] == {"done": True, "unconfirmed_batches": 0}


async def test_the_bad_case_is_sent_whole_and_every_batch_is_said() -> None:
    keeper = FakeKeeper()
    await keeper.start()
    case = BadCase(entries=60_000, ledgers=4)
    command = ["-m", "daemon.tests.source.bad_case", "--daemon", keeper.address]
    command += ["--entries", str(case.entries), "--ledgers", str(case.ledgers)]
    process = await asyncio.create_subprocess_exec(
        sys.executable, *command, stdout=asyncio.subprocess.PIPE
    )
    async with asyncio.timeout(60):
        out, _ = await process.communicate()
    await keeper.kill()
    lines = [json.loads(line) for line in out.splitlines()]
    assert process.returncode == 0
    assert lines[-1]["done"] and lines[-1]["confirmed"] == sum(map(len, case.acked().values()))
    batches = len(list(case.batches()))
    assert [line["sent"] for line in lines if "sent" in line] == [
        [0, number + 1] for number in range(batches)
    ]
    assert [line["durable"] for line in lines if "durable" in line][-1] == [0, batches]

"""The demo's source as a process: it ends when all is durable, or when nobody opens its gates."""

from __future__ import annotations

import asyncio
import json
import sys
from asyncio.subprocess import DEVNULL, PIPE

from clients.tests.ack_stream.fake_keeper import FakeKeeper
from cursorkeeper.demo.workload import BadCase

CASE = BadCase(entries=60_000, ledgers=4)


async def source(keeper: FakeKeeper, *arguments: str, stdin: int) -> asyncio.subprocess.Process:
    size = ["--entries", str(CASE.entries), "--ledgers", str(CASE.ledgers)]
    command = ["-m", "cursorkeeper.demo.source", "--daemon", keeper.address, *size, *arguments]
    return await asyncio.create_subprocess_exec(
        sys.executable, *command, stdin=stdin, stdout=PIPE, stderr=DEVNULL
    )


async def test_the_bad_case_is_sent_whole_and_every_batch_is_said() -> None:
    keeper = FakeKeeper()
    await keeper.start()
    process = await source(keeper, "--ledger", stdin=DEVNULL)
    async with asyncio.timeout(60):
        out, _ = await process.communicate()
    await keeper.kill()
    lines = [json.loads(line) for line in out.splitlines()]
    assert process.returncode == 0
    assert lines[-1]["done"] and lines[-1]["confirmed"] == sum(map(len, CASE.acked().values()))
    batches = len(list(CASE.batches()))
    assert [line["sent"] for line in lines if "sent" in line] == [
        [0, number + 1] for number in range(batches)
    ]
    assert [line["durable"] for line in lines if "durable" in line][-1] == [0, batches]


async def test_a_source_whose_gates_nobody_opens_any_more_ends() -> None:
    keeper = FakeKeeper()
    await keeper.start()
    process = await source(keeper, "--gate", "0.1", stdin=PIPE)
    assert process.stdin is not None
    async with asyncio.timeout(60):
        assert process.stdout is not None
        await process.stdout.readline()
        process.stdin.close()
        await process.stdout.read()
        assert await process.wait() == 1
    await keeper.kill()

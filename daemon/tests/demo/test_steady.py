"""The steady source: what it says is the truth, also when several take one cursor from each other
again and again.
"""

from __future__ import annotations

import asyncio
import json
from functools import partial
from typing import Any

import pytest

from clients.tests.ack_stream.conftest import until
from clients.tests.ack_stream.fake_keeper import FakeKeeper
from cursorkeeper.demo.random_acks import LAYOUT, START, make_batch
from cursorkeeper.demo.steady import Flow, Plan
from cursorkeeper_client.ack_stream import (
    CursorDeposed,
    ResumingSource,
    SourceConnection,
    SourceSettings,
)

TOPIC = "persistent://steady/ns/topic"
SETTINGS = SourceSettings(back_off_min_ms=5, back_off_max_ms=20)


def plan(keeper: FakeKeeper, seed: int, **changed: Any) -> Plan:
    values: dict[str, Any] = {
        "seed": seed,
        "interval_ms": 1,
        "moves": False,
        "ledger": True,
        "batches": 200,
        "reset_every": 0,
        "drain_s": 20,
        "report_s": 0,
        "retake_ms": 20,
        "keepalive_s": 10,
    }
    return Plan(keeper.address, (TOPIC,), **{**values, **changed})


async def flow(plan: Plan) -> Flow:
    """Runs to its end on a connection of its own."""
    async with ResumingSource.dialling(plan.daemon, SETTINGS) as source:
        made = Flow(
            plan, 0, partial(source.cursor, TOPIC, "s", layout=LAYOUT, start=START), asyncio.Event()
        )
        await made.run()
        await made.drain()
    return made


async def test_two_that_never_give_up_both_come_to_an_end(
    capsys: pytest.CaptureFixture[str],
) -> None:
    keeper = FakeKeeper()
    await keeper.start()
    plans = [plan(keeper, seed) for seed in (100, 200)]
    async with asyncio.timeout(60):
        flows = await asyncio.gather(*map(flow, plans))
    said = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    takeovers = [line for line in said if "opened" in line]
    assert len(takeovers) > 4, takeovers
    assert [f.durable for f in flows] == [f.sent for f in flows] == [200, 200]
    assert sum("sent" in line for line in said) == 400, (
        "each is said once, however often it was sent"
    )
    async with SourceConnection(keeper.address) as check:
        state = await check.open(TOPIC, "s", takeover=True).wait_opened()
    await keeper.kill()
    acked = {
        key for p in plans for number in range(1, 201) for key in make_batch(p.seed, number).entries
    }
    assert not {key for key in acked if not state.is_acked(*key)}


async def test_without_the_wish_a_takeover_is_its_end() -> None:
    keeper = FakeKeeper()
    await keeper.start()
    waiting = asyncio.create_task(flow(plan(keeper, 1, retake_ms=0, batches=0)))
    async with SourceConnection(keeper.address) as other:
        await until(lambda: keeper.holders, what="it is held")
        await other.open(TOPIC, "s", takeover=True).wait_opened()
        with pytest.raises(CursorDeposed):
            async with asyncio.timeout(60):
                await waiting
    await keeper.kill()

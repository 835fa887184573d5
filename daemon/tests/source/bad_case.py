"""The bad case of the demo, at a chosen size, once; it ends with 0 when all of it is durable. It
says of every batch what becomes of it, see `flow`. Run as `python -m daemon.tests.source.bad_case`.
"""

from __future__ import annotations

import argparse
import asyncio
from functools import partial

from cursorkeeper.demo.source import IN_FLIGHT_MAX, SUBSCRIPTION, bad_case
from cursorkeeper.demo.workload import BadCase
from cursorkeeper_client import Client, ClientSettings
from daemon.tests.source.flow import LOOK_S, Flow, say


async def run(address: str, case: BadCase) -> None:
    work = bad_case(case)
    async with Client(address, ClientSettings(name="bad-case")) as client:
        opens = partial(client.cursor, work.topic, SUBSCRIPTION, layout=work.layout)
        flow = Flow(0, opens, in_flight_max=IN_FLIGHT_MAX)
        reporter = asyncio.create_task(_report(flow))
        for acks, count in work.batches:
            await flow.send(acks, count)
            await asyncio.sleep(0)
        await flow.drain()
        reporter.cancel()
    say(done=True, confirmed=flow.durable_acks)


async def _report(flow: Flow) -> None:
    while True:
        say(confirmed=flow.durable_acks)
        await asyncio.sleep(LOOK_S)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--daemon", required=True)
    parser.add_argument("--entries", type=int, required=True)
    parser.add_argument("--ledgers", type=int, required=True)
    parser.add_argument("--seed", type=int, default=BadCase.seed)
    parser.add_argument("--hole-share", type=float, default=BadCase.hole_share)
    given = parser.parse_args()
    case = BadCase(given.entries, given.ledgers, given.hole_share, seed=given.seed)
    asyncio.run(run(given.daemon, case))


if __name__ == "__main__":
    main()

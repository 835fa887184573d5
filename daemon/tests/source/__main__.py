"""A source that never stops: random acks on some cursors at a steady pace, until SIGTERM, run as
`python -m daemon.tests.source`.

What it says of its batches, and why that is the whole truth: `flow`. A second life begins at batch
1 again: acks are idempotent.

SIGTERM: no more batches; everything sent becomes durable, or `--drain-s` passes. Exit 0: all
durable. 1: not all.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import random
import signal
import sys
from functools import partial

from cursorkeeper_client import Client, ClientSettings, CursorKeeperError
from cursorkeeper_client.tls import TlsFiles
from daemon.tests.source.flow import LOOK_S, Flow, say
from daemon.tests.source.random_acks import LAYOUT, START, make_batch

SUBSCRIPTION = "steady"
IN_FLIGHT_MAX = 200


async def pace(
    flow: Flow,
    seed: int,
    *,
    interval_ms: float,
    moves: bool = False,
    batches: int = 0,
) -> None:
    """Sends batch after batch, until it is cancelled or there are `batches`. Raises
    CursorKeeperError if the cursor is lost for good.
    """
    rng = random.Random(flow.at)
    while not batches or flow.sent < batches:
        await flow.send(make_batch(seed, flow.sent + 1, moves=moves).acks)
        await asyncio.sleep(interval_ms / 1000 * rng.uniform(0.5, 1.5))


async def run(given: argparse.Namespace) -> int:
    """The whole life; returns the exit code."""
    files = TlsFiles(given.certificate, given.key, given.trust_certs)
    settings = ClientSettings(
        name="steady-source",
        back_off_max_ms=1_000,
        open_timeout_s=60,
        connect_timeout_s=5,
        keepalive_time_ms=int(given.keepalive_s * 1000),
        # of every ping of gRPC's, those for its window included
        keepalive_timeout_ms=int(given.keepalive_s * 500),
        tls=files if files.trust_certs else None,
    )
    async with Client(given.daemon, settings) as client:
        flows = [
            Flow(
                at,
                partial(client.cursor, topic, SUBSCRIPTION, layout=LAYOUT, start=START),
                in_flight_max=IN_FLIGHT_MAX,
                retake_ms=given.retake_ms,
            )
            for at, topic in enumerate(given.topic)
        ]
        sending = asyncio.gather(
            *(
                pace(
                    flow,
                    given.seed + flow.at,
                    interval_ms=given.interval_ms,
                    moves=given.moves,
                    batches=given.batches,
                )
                for flow in flows
            )
        )
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, sending.cancel)
        say(ready="steady", topics=given.topic)
        reporter = asyncio.create_task(_report(flows))
        try:
            with contextlib.suppress(asyncio.CancelledError):
                await sending
            async with asyncio.timeout(given.drain_s):
                await asyncio.gather(*(flow.drain() for flow in flows))
        except (CursorKeeperError, TimeoutError) as e:
            say(
                done=False,
                unconfirmed_batches=sum(flow.sent - flow.durable for flow in flows),
                problem=str(e) or f"not all durable within {given.drain_s} s",
            )
            return 1
        finally:
            reporter.cancel()
        say(done=True, unconfirmed_batches=0)
    return 0


async def _report(flows: list[Flow]) -> None:
    """Says it when the keeper asks to pause, or no longer does."""
    paused = dict.fromkeys(flows, "")
    while True:
        await asyncio.sleep(LOOK_S)
        for flow in flows:
            if (why := flow.cursor.paused_for) != paused[flow]:
                paused[flow] = why
                say(paused=[flow.at, why])


def main() -> None:
    parser = argparse.ArgumentParser(description="random acks at a steady pace, until SIGTERM")
    parser.add_argument("--daemon", required=True, help="host:port of the daemon's ack stream")
    parser.add_argument("--topic", action="append", required=True, help="one cursor per topic")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--interval-ms", type=float, default=20, help="from one batch of a cursor to the next"
    )
    parser.add_argument("--moves", action="store_true", help="with a mark-delete that goes forward")
    parser.add_argument("--batches", type=int, default=0, help="of each cursor; 0: until SIGTERM")
    parser.add_argument("--drain-s", type=float, default=60)
    parser.add_argument(
        "--retake-ms",
        type=float,
        default=0,
        help="take a cursor back from another owner after so long; 0: end then",
    )
    parser.add_argument(
        "--keepalive-s",
        type=float,
        default=10,
        help="of silence, then the daemon is asked; half of it for the answer",
    )
    for name, help in (
        ("--trust-certs", "dial with TLS, and believe these authorities (PEM)"),
        ("--certificate", "shown to the daemon (PEM)"),
        ("--key", "of the certificate (PEM)"),
    ):
        parser.add_argument(name, default="", metavar="FILE", help=help)
    sys.exit(asyncio.run(run(parser.parse_args())))


if __name__ == "__main__":
    main()

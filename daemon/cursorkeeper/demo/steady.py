"""A source that never stops: random acks on some cursors at a steady pace, until SIGTERM. The
compose demo runs it as `python -m cursorkeeper.demo.steady`, and so does whoever wants to see that
a new installation keeps acks.

With `--report-s`: a line of totals every few seconds. SIGTERM: no more batches; everything sent
becomes durable, or `--drain-s` passes. Exit 0: all durable. 1: not all.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import math
import random
import signal
import sys
import time
from collections.abc import Sequence
from typing import Any

import msgspec

from cursorkeeper_client import (
    AckedIndexes,
    Acks,
    Client,
    ClientSettings,
    Cursor,
    CursorKeeperError,
    LayoutItem,
    LayoutState,
    LedgerAcks,
    Position,
)
from cursorkeeper_client.tls import TlsFiles

SUBSCRIPTION = "steady"
ENTRIES = {11: 3_000, 20: 5_000, 33: 20_000}
"""Of each data ledger. The first of each is never acked, so what is acked above it are holes."""
LAYOUT = [LayoutItem(ledger, LayoutState.CLOSED, entries) for ledger, entries in ENTRIES.items()]
START = Position(11, -1)
BATCH_SIZE = 40
"""Messages of an entry that is acked in part."""
IN_FLIGHT_MAX = 200
LOOK_S = 0.2


def say(**line: Any) -> None:
    """Writes one line of JSON to standard output."""
    print(msgspec.json.encode(line).decode(), flush=True)


def random_acks(rng: random.Random) -> Acks:
    """Single entries of a data ledger, a run of them, and some messages of a batch."""
    ledger, entries = rng.choice(list(ENTRIES.items()))
    first = rng.randrange(1, entries - 50)
    indexes = [(index, index) for index in rng.sample(range(BATCH_SIZE), 10)]
    return Acks(
        [
            LedgerAcks(
                ledger,
                rng.sample(range(1, entries), 30),
                (first, first + rng.randrange(50)),
                [AckedIndexes(rng.randrange(1, entries), BATCH_SIZE, tuple(indexes))],
            )
        ]
    )


async def pace(cursor: Cursor, given: argparse.Namespace) -> None:
    """Sends batch after batch, until it is cancelled or there are as many as wanted; the cursor is
    set back to its start now and then, if so wanted. Raises CursorKeeperError if the cursor is lost
    for good.
    """
    rng = random.Random()
    while not given.batches or cursor.last_seq < given.batches:
        seq = await cursor.send(random_acks(rng))
        await cursor.durable(max(0, seq - IN_FLIGHT_MAX), timeout_s=math.inf)
        if given.reset_every and seq % given.reset_every == 0:
            await cursor.durable(timeout_s=math.inf)
            await cursor.reset(START, timeout_s=math.inf)
        await asyncio.sleep(given.interval_ms / 1000 * rng.uniform(0.5, 1.5))


async def run(given: argparse.Namespace) -> int:
    """The whole life; returns the exit code."""
    files = TlsFiles(given.certificate, given.key, given.trust_certs)
    settings = ClientSettings(
        name="steady-source",
        back_off_max_ms=1_000,
        open_timeout_s=60,
        connect_timeout_s=5,
        tls=files if given.trust_certs else None,
    )
    async with Client(given.daemon, settings) as client:
        cursors = [
            client.cursor(topic, SUBSCRIPTION, layout=LAYOUT, start=START) for topic in given.topic
        ]
        sending = asyncio.gather(*(pace(cursor, given) for cursor in cursors))
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, sending.cancel)
        say(ready="steady", topics=given.topic)
        reporter = asyncio.create_task(_report(cursors, given.report_s))
        try:
            with contextlib.suppress(asyncio.CancelledError):
                await sending
            await asyncio.gather(*(cursor.durable(timeout_s=given.drain_s) for cursor in cursors))
        except CursorKeeperError as e:
            left = sum(cursor.last_seq - cursor.durable_seq for cursor in cursors)
            say(done=False, unconfirmed_batches=left, problem=str(e))
            return 1
        finally:
            reporter.cancel()
        say(done=True, unconfirmed_batches=0)
    return 0


async def _report(cursors: Sequence[Cursor], every_s: float) -> None:
    """Says it when the daemon asks to pause, or no longer does; and the totals."""
    began, told = time.monotonic(), [""] * len(cursors)
    while True:
        await asyncio.sleep(LOOK_S)
        for at, cursor in enumerate(cursors):
            if told[at] != cursor.paused_for:
                told[at] = cursor.paused_for
                say(paused=[at, told[at]])
        if every_s and time.monotonic() - began >= every_s:
            began = time.monotonic()
            say(
                sent_batches=sum(cursor.last_seq for cursor in cursors),
                durable_batches=sum(cursor.durable_seq for cursor in cursors),
            )


def main() -> None:
    parser = argparse.ArgumentParser(description="random acks at a steady pace, until SIGTERM")
    parser.add_argument("--daemon", required=True, help="host:port of the daemon's ack stream")
    parser.add_argument("--topic", action="append", required=True, help="one cursor per topic")
    parser.add_argument(
        "--interval-ms", type=float, default=20, help="from one batch of a cursor to the next"
    )
    parser.add_argument("--batches", type=int, default=0, help="of each cursor; 0: until SIGTERM")
    parser.add_argument(
        "--reset-every",
        type=int,
        default=0,
        help="batches after which a cursor begins again; 0: never",
    )
    parser.add_argument("--drain-s", type=float, default=60)
    parser.add_argument("--report-s", type=float, default=0)
    parser.add_argument("--trust-certs", default="", help="authorities, PEM: dial with TLS")
    parser.add_argument("--certificate", default="", help="that is shown, PEM")
    parser.add_argument("--key", default="", help="its key, PEM")
    sys.exit(asyncio.run(run(parser.parse_args())))


if __name__ == "__main__":
    main()

"""CPU of a daemon for one message of a cursor, its record and its confirmation: 1,000 cursors, of
which each sends its next message when its last one is durable, so that nothing gathers and the
daemon has as much to do as it can. And one message about all of them, with one ack each.

The source makes its messages before, so that it takes little; stack and source are on the same
cores.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from itertools import pairwise
from pathlib import Path

import numpy as np

from bench.many_cursors import ACKS, ENTRIES, LEDGER_ENTRIES, WINDOW, Cursor, Load, cpu_s
from bench.rows import Row
from cursorkeeper.demo.processes import DaemonProcess
from cursorkeeper.demo.stack import Standalone
from cursorkeeper_client import Acks, LedgerAcks
from cursorkeeper_client.ack_stream.columns import encode_acks

CURSORS = 1_000
BODIES = 400
"""Messages that are made before; who has sent them all begins again, with the same acks."""
WARM_UP_S, LOAD_S, ROUND_MAX_S = 3.0, 8.0, 60.0
CASES = {
    "uniform": "100 acks over 20 ledgers",
    "window": "100 acks in a window",
    "single": "one ack of each cursor in one message",
}
AIM_US = {"uniform": 150, "window": 150, "single": 20}


def run(stack: Standalone) -> list[Row]:
    return asyncio.run(_run(stack))


async def _run(stack: Standalone) -> list[Row]:
    rows = []
    for pattern, case in CASES.items():
        with tempfile.TemporaryDirectory() as folder:
            daemon = DaemonProcess(Path(folder), stack.gateway, stack.zookeeper)
            await daemon.start()
            try:
                found = await _source_process(daemon, pattern)
            finally:
                await daemon.stop(60)
        rows += [
            Row("in_turn", case, "messages durable in a second", found["per_s"], "/s"),
            Row(
                *("in_turn", case, "daemon's CPU of a message", found["us"], "us"),
                found["us"] / AIM_US[pattern],
                "the aim",
                f"{AIM_US[pattern]} us",
            ),
            Row("in_turn", case, "daemon's CPU", found["cores"], "cores"),
            Row("in_turn", case, "source's CPU", found["source_cores"], "cores"),
            Row("in_turn", case, "source hears in a second", found["heard_per_s"], "messages"),
        ]
    return rows


async def _source_process(daemon: DaemonProcess, pattern: str) -> dict[str, float]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bench.in_turn", daemon.address, str(daemon.pid), pattern),
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    try:
        line = await asyncio.wait_for(process.stdout.readline(), 300)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
    found: dict[str, float] = json.loads(line)
    return found


class InTurn(Load):
    """Each cursor sends when its last message is durable; of single acks, all when all are."""

    def __init__(self, pattern: str) -> None:
        own = f"persistent://bench/ns/turn-{pattern}-{os.getpid()}"  # acks of no run before
        super().__init__(pattern, CURSORS, own)
        self._bodies = [self._body(number) for number in range(BODIES)]
        self.durable = self._waiting = 0
        self.goes_on = False
        self.round_over = asyncio.Event()

    def _body(self, number: int) -> bytes:
        if self.pattern == "single":
            at = np.array([7 * number])
        elif self.pattern == "window":
            at = number * ACKS + self.rng.choice(WINDOW, ACKS, replace=False)
        else:
            at = self.rng.integers(0, ENTRIES, ACKS)
        at = np.unique(at)
        numbers, firsts = np.unique(at // LEDGER_ENTRIES, return_index=True)
        entries = (at % LEDGER_ENTRIES).astype(np.uint32)
        bounds = pairwise([*firsts.tolist(), len(at)])
        columns = [entries[first:end] for first, end in bounds]
        return encode_acks(
            Acks([LedgerAcks(n + 1, c) for n, c in zip(numbers.tolist(), columns, strict=True)])
        )

    def send(self, cursor: Cursor) -> None:
        self._send(cursor, self._bodies[cursor.step % BODIES])
        cursor.step += 1

    def send_all(self) -> None:
        """One message of each cursor, together."""
        self._waiting = len(self.cursors)
        self.round_over.clear()
        for cursor in self.cursors:
            self.send(cursor)

    def _durable(self, cursor: Cursor, seq: int) -> None:
        super()._durable(cursor, seq)
        self.durable += 1
        self._waiting -= 1
        if self._waiting == 0:
            self.round_over.set()
        if self.goes_on and self.pattern != "single":
            self.send(cursor)


async def _source(address: str, daemon_pid: int, pattern: str) -> None:
    load = InTurn(pattern)
    await load.connect(address)
    await load.open_all()
    load.goes_on = True
    if pattern != "single":
        load.send_all()
    await _for(load, WARM_UP_S)
    began, durable, heard = load.now(), load.durable, _heard(load)
    daemon_s, own_s = cpu_s(daemon_pid), cpu_s(os.getpid())
    await _for(load, LOAD_S)
    took_s, count = load.now() - began, load.durable - durable
    daemon_s, own_s = cpu_s(daemon_pid) - daemon_s, cpu_s(os.getpid()) - own_s
    found = {
        "per_s": count / took_s,
        "us": 1e6 * daemon_s / max(1, count),
        "cores": daemon_s / took_s,
        "source_cores": own_s / took_s,
        "heard_per_s": (_heard(load) - heard) / took_s,
    }
    print(json.dumps(found), flush=True)
    load.leave()


def _heard(load: InTurn) -> int:
    return sum(stream.heard for stream in load.streams)


async def _for(load: InTurn, seconds: float) -> None:
    if load.pattern != "single":
        await asyncio.sleep(seconds)
        return
    ends = load.now() + seconds
    while load.now() < ends:
        load.send_all()
        await asyncio.wait_for(load.round_over.wait(), ROUND_MAX_S)


if __name__ == "__main__":
    address, pid, pattern = sys.argv[1:]
    asyncio.run(_source(address, int(pid), pattern))

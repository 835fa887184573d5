"""Many cursors on one daemon, each with a little to write: opening them, a message of acks from
each of them every second, more than the daemon can do, and `kill -9` with all of them open. A
source process, a daemon of one process or of several workers, and the stack on the same cores.

Whether a daemon is busy or the systems behind it are away are different things: a source is to be
paused for the second only. The source sends by the clock and waits for nobody, as consumers do.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import sys
import tempfile
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import grpc
import numpy as np

from bench.rows import Row, quantile
from cursorkeeper.demo.processes import DaemonProcess
from cursorkeeper.demo.stack import LocalCluster, Standalone
from cursorkeeper_client import Acks, LedgerAcks
from cursorkeeper_client._proto import acks_pb2 as pb
from cursorkeeper_client.ack_stream.columns import ack_batch, encode_acks, source_message_of
from cursorkeeper_client.ack_stream.groups import GROUP_MESSAGES_MAX, source_group
from cursorkeeper_client.names import worker_of

ACKS = 100
ENTRIES = 1_000_000
LEDGER_ENTRIES = 50_000
WINDOW = 2_000
VARIANTS = 16
"""Cursors at the same step send one of so many messages: the source shall not be what is measured.
"""
NORMAL_MS = 500.0
OPEN_MAX_S = 120.0
DRAIN_MAX_S = 120.0
AGAIN_S = 1.0
"""Until a cursor whose opening was refused for a while is opened again."""

CASES = (
    ("uniform", 1_000, 1),
    ("window", 1_000, 1),
    ("uniform", 3_000, 1),
    ("window", 3_000, 1),
    ("uniform", 3_000, 2),
    ("window", 10_000, 2),
    ("uniform", 10_000, 2),
)
"""Pattern, cursors, workers of the daemon."""
ONE_PROCESS_MAX = 3_000
HEAP_MIB = 768
"""What ZooKeeper, each bookie and the gateway may take where they are processes of their own."""
LOAD_S = 20.0
TAIL_S = 10.0


async def run(
    stack: Standalone, cases: tuple[tuple[str, int, int], ...] = CASES, load_s: float = LOAD_S
) -> list[Row]:
    """Each case on a daemon and cursors of its own."""
    rows = [Row("many_cursors", "this machine", "five million additions in Python", _pace_s(), "s")]
    for number, (pattern, cursors, workers) in enumerate(cases):
        with (
            tempfile.TemporaryDirectory() as folder,
            _systems(Path(folder), stack, cursors) as (at, pids),
        ):
            several = (
                ("--workers", str(workers), "--worker-port", "0", "--cursors-max", str(2 * cursors))
                if workers > 1
                else ()
            )
            daemon = DaemonProcess(Path(folder), *at, several)
            await daemon.start()
            case = f"{cursors} cursors, {pattern}" + (f", {workers} workers" if several else "")
            try:
                rows += await _case(daemon, pids, case, pattern, cursors, number, load_s)
            finally:
                await daemon.stop(60)
    return rows


def _pace_s() -> float:
    """What this machine takes for something that is always the same: it is shared, and figures of
    two days differ by a factor of two.
    """
    began, total = time.perf_counter(), 0
    for number in range(5_000_000):
        total += number
    return time.perf_counter() - began


@contextmanager
def _systems(
    folder: Path, stack: Standalone, cursors: int
) -> Iterator[tuple[tuple[str, str], list[int]]]:
    """Yields the addresses of gateway and ZooKeeper, and the processes of all systems. Ten thousand
    cursors have them as processes of their own, with Java's quick compiler alone: in half a minute
    the other one of five processes takes more than what it makes faster.
    """
    if cursors <= ONE_PROCESS_MAX:
        yield (stack.gateway, stack.zookeeper), [stack.pid]
    else:
        with LocalCluster(
            folder / "cluster",
            session_ms=30_000,
            heap_mib=HEAP_MIB,
        ) as apart:
            processes = (apart.zookeeper, *apart.bookies, *apart.gateways)
            yield (apart.gateway, apart.zookeeper_address), [one.pid for one in processes]


@asynccontextmanager
async def source(
    daemon: DaemonProcess,
    pattern: str,
    cursors: int,
    number: int,
    load_s: float,
    tail_s: float = TAIL_S,
    *,
    while_opening: bool = False,
) -> AsyncIterator[asyncio.subprocess.Process]:
    """A source process, whose words `said` reads: one after the load and `tail_s` of a tenth of it,
    and one after each line that it is given, which opens all cursors again. `while_opening`: each
    cursor sends from the moment it is open, else from the moment all are.
    """
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bench.many_cursors"),
        *(daemon.address, str(daemon.pid), pattern),
        *map(str, (cursors, number, load_s, tail_s)),
        *(["--while-opening"] if while_opening else []),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def said(process: asyncio.subprocess.Process, load_s: float = 0.0) -> dict[str, float]:
    """Its next word."""
    assert process.stdout is not None
    limit_s = 2 * OPEN_MAX_S + load_s + DRAIN_MAX_S
    found: dict[str, float] = json.loads(await asyncio.wait_for(process.stdout.readline(), limit_s))
    return found


async def _case(
    daemon: DaemonProcess,
    systems: list[int],
    case: str,
    pattern: str,
    cursors: int,
    number: int,
    load_s: float,
) -> list[Row]:
    early = cursors <= 1_000  # the goal of 3,000 is to be open first
    async with source(daemon, pattern, cursors, number, load_s, while_opening=early) as process:
        first = await said(process, load_s)
        work = await daemon.scrape()
        workers = _children(daemon.pid)
        await daemon.kill()
        for worker in workers:
            os.kill(worker, signal.SIGKILL)  # else they would close their cursors
        await daemon.start()
        assert process.stdin is not None
        process.stdin.write(b"again\n")
        started_s, others = cpu_s(daemon.pid), [*systems, process.pid]
        others_s = sum(map(cpu_s, others))
        second = await said(process)
        second["daemon_s"] = cpu_s(daemon.pid) - started_s
        second["all_s"] = second["daemon_s"] + sum(map(cpu_s, others)) - others_s

    def row(
        figure: str,
        value: float,
        unit: str,
        aim: str = "",
        ratio: float | None = None,
        against: str = "",
    ) -> Row:
        return Row("many_cursors", case, figure, value, unit, ratio, against, aim)

    named = sum(v for k, v in work.items() if k.startswith("cursorkeeper_rolls"))
    aim_3x = "3x" if cursors > 1_000 else ""
    seen = {key: first[key] for key in ("p50_ms", "p99_ms", "max_ms")}
    return [
        row(
            "opened and first acks durable",
            first["first_s"],
            "s",
            "15 s" if cursors > 1_000 else "",
        ),
        row("Opened to first acks durable p99", first["settled_ms"], "ms", "500 ms"),
        *(
            row(f"message to durable {key[:-3]}", value, "ms", "500 ms" if key == "p99_ms" else "")
            for key, value in seen.items()
        ),
        row(
            "messages durable under load",
            first["durable_per_s"],
            "/s",
            "",
            first["durable_per_s"] / cursors,
            "what is sent",
        ),
        row(
            "longest wait of a cursor",
            first["worst_cursor_ms"],
            "ms",
            aim_3x,
            first["unfairness"],
            "the median cursor's",
        ),
        row("daemon's CPU under load", first["daemon_cores"], "cores"),
        row(
            "daemon's CPU of a durable message",
            1e6 * first["daemon_cores"] / max(first["durable_per_s"], 1e-9),
            "us",
        ),
        row("source's CPU under load", first["source_cores"], "cores"),
        row("pauses", first["pauses"], "", "0"),
        row("openings refused, and repeated", first["refused"], ""),
        row("until normal after the load", first["normal_s"], "s", "5 s"),
        row("ledgers named", named, "", "1x", named / cursors, "the cursors"),
        row(
            "states into footers",
            sum(v for k, v in work.items() if k.startswith("cursorkeeper_inline")),
            "",
            "0",
        ),
        row(
            "kill -9, all durable again", second["first_s"], "s", "15 s" if cursors > 1_000 else ""
        ),
        row("kill -9, Opened to first acks durable p99", second["settled_ms"], "ms", "500 ms"),
        row("kill -9, openings refused, and repeated", second["refused"], ""),
        row("kill -9, daemon's CPU", second["daemon_s"], "s"),
        row("kill -9, CPU of all processes", second["all_s"], "s"),
    ]


class Stream:
    """The stream to one worker."""

    def __init__(self, address: str, hear: Callable[[Stream, pb.KeeperMessage], None]) -> None:
        self.address = address
        self._hear = hear
        self.out: deque[bytes] = deque()
        self._wake = asyncio.Event()
        self.hello: asyncio.Future[pb.Hello] = asyncio.get_running_loop().create_future()
        self.group_messages_max = 1
        self.heard = 0
        """Messages of gRPC, with all that is in them."""
        self.tasks: list[asyncio.Future[None]] = []

    async def connect(self) -> pb.Hello:
        channel = grpc.aio.insecure_channel(
            self.address, options=[("grpc.max_receive_message_length", -1)]
        )
        await channel.channel_ready()
        call = channel.stream_stream("/cursorkeeper.acks.v1.AckSink/Publish")()
        hello = pb.Hello(
            name="many",
            incarnation="1",
            protocol_versions=[1],
            group_messages_max=GROUP_MESSAGES_MAX,
        )
        self.put(pb.SourceMessage(hello=hello).SerializeToString())
        self.tasks = [
            asyncio.ensure_future(self._write(call)),
            asyncio.ensure_future(self._read(call)),
        ]
        said = await self.hello
        self.group_messages_max = max(1, said.group_messages_max)
        return said

    async def _write(self, call: Any) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self.out:
                together = [
                    self.out.popleft() for _ in range(min(len(self.out), self.group_messages_max))
                ]
                await call.write(source_group(together))

    async def _read(self, call: Any) -> None:
        async for raw in call:
            self.heard += 1
            self._hear(self, pb.KeeperMessage.FromString(raw))

    def put(self, message: bytes) -> None:
        self.out.append(message)
        self._wake.set()


class Cursor:
    """What the source knows of one cursor."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.stream: Stream
        self.generation = 0
        self.seq = 0
        self.waiting: deque[tuple[int, float, bytes]] = deque()
        """Not durable: seq, when it was to be sent, what."""
        self.unsent: deque[bytes] = deque()
        """Those of them that wait for credit."""
        self.granted = self.spent = 0
        self.is_open = False
        self.opened_at = 0.0
        self.settled_ms: float | None = None
        """From Opened to the first message of this stream durable."""
        self.step = 0
        """Messages of acks that it was given to send."""
        self.longest_ms = 0.0


class Load:
    """All cursors, each on the stream to its worker. Times are of the loop's clock."""

    def __init__(self, pattern: str, cursors: int, topic: str) -> None:
        self.pattern, self.topic = pattern, topic
        self.cursors = [Cursor(number) for number in range(cursors)]
        self.rng = np.random.default_rng(11)
        self._made: dict[tuple[int, int], bytes] = {}
        """What was made to be sent, by step and variant; cursors share it."""
        self.waits: list[tuple[float, float]] = []
        """When sent, and how long until durable."""
        self.durable_at: list[float] = []
        self.pauses = self.refused = 0
        self.changed = asyncio.Event()
        self.streams: list[Stream] = []
        self.now = asyncio.get_running_loop().time

    async def connect(self, address: str) -> None:
        """New streams, one to each worker; what was open is open no more."""
        for cursor in self.cursors:
            cursor.is_open, cursor.granted, cursor.spent, cursor.settled_ms = False, 0, 0, None
            cursor.unsent.clear()
        self.leave()
        home = Stream(address, self._hear)
        hello = await home.connect()
        host = address.rpartition(":")[0]
        self.streams = [Stream(host + port, self._hear) for port in hello.worker_addresses or [""]]
        self.streams[hello.worker] = home
        for stream in self.streams:
            if stream is not home:
                await stream.connect()
        for cursor in self.cursors:
            at = worker_of(self._topic(cursor), "s", len(self.streams))
            cursor.stream = self.streams[at]

    def leave(self) -> None:
        """Hears of its streams no more."""
        for stream in self.streams:
            for task in stream.tasks:
                task.cancel()

    def _topic(self, cursor: Cursor) -> str:
        return f"{self.topic}-{cursor.number}"

    def _hear(self, stream: Stream, message: pb.KeeperMessage) -> None:
        match message.WhichOneof("message"):
            case "hello":
                stream.hello.set_result(message.hello)
            case "group":
                for part in message.group.messages:
                    self._hear(stream, part)
            case "opened":
                self.cursors[message.opened.handle].generation = message.opened.generation
            case "credit":
                cursor = self.cursors[message.credit.handle]
                cursor.granted = message.credit.granted_bytes
                if not cursor.is_open and cursor.granted:
                    self._opened(cursor)
                self._send_waiting(cursor)
            case "durable":
                self._durable(self.cursors[message.durable.handle], message.durable.seq)
            case "pause":
                self.pauses += 1
            case "refused" if message.refused.code == pb.UNAVAILABLE:
                # as a broker does: somewhat later again
                self.refused += 1
                cursor = self.cursors[message.refused.handle]
                asyncio.get_running_loop().call_later(AGAIN_S, self._open, cursor)
            case "refused" | "deposed":
                raise SystemExit(f"the daemon said {message}")

    def _opened(self, cursor: Cursor) -> None:
        cursor.is_open, cursor.opened_at = True, self.now()
        self.changed.set()
        if cursor.waiting:  # of the stream before
            again = [body for _, _, body in cursor.waiting]
            cursor.waiting.clear()
            for body in again:
                self._send(cursor, body)
        else:
            self.send(cursor)

    def _durable(self, cursor: Cursor, seq: int) -> None:
        now = self.now()
        if cursor.settled_ms is None:
            cursor.settled_ms = (now - cursor.opened_at) * 1e3
        while cursor.waiting and cursor.waiting[0][0] <= seq:
            _, at, _ = cursor.waiting.popleft()
            self.waits.append((at, now - at))
            self.durable_at.append(now)
            cursor.longest_ms = max(cursor.longest_ms, (now - at) * 1e3)
        self.changed.set()

    def send(self, cursor: Cursor) -> None:
        """The next message of a cursor."""
        at = (cursor.step, cursor.number % VARIANTS)
        cursor.step += 1
        body = self._made.get(at)
        if body is None:
            body = self._made[at] = self._body(cursor.step - 1)
        self._send(cursor, body)

    def _body(self, step: int) -> bytes:
        if self.pattern == "uniform":
            at = self.rng.integers(0, ENTRIES, ACKS)
        else:
            at = step * ACKS + self.rng.choice(WINDOW, ACKS, replace=False)
        at = np.unique(at)
        numbers, firsts = np.unique(at // LEDGER_ENTRIES, return_index=True)
        entries = (at % LEDGER_ENTRIES).astype(np.uint32)
        bounds = [*firsts.tolist(), len(at)]
        columns = [entries[first:end] for first, end in pairwise(bounds)]
        return encode_acks(
            Acks(
                [
                    LedgerAcks(n + 1, column)
                    for n, column in zip(numbers.tolist(), columns, strict=True)
                ]
            )
        )

    def _send(self, cursor: Cursor, body: bytes) -> None:
        cursor.seq += 1
        cursor.waiting.append((cursor.seq, self.now(), body))
        cursor.unsent.append(ack_batch(cursor.number, cursor.seq, cursor.generation, body))
        self._send_waiting(cursor)

    def _send_waiting(self, cursor: Cursor) -> None:
        while cursor.unsent and cursor.spent + len(cursor.unsent[0]) <= cursor.granted:
            message = cursor.unsent.popleft()
            cursor.spent += len(message)
            cursor.stream.put(source_message_of(message))

    async def open_all(self) -> float:
        """Every cursor opened, and its first message durable; seconds."""
        began = self.now()
        for cursor in self.cursors:
            cursor.seq = 0
            self._open(cursor)
        await self.until(lambda: all(c.settled_ms is not None for c in self.cursors), OPEN_MAX_S)
        return self.now() - began

    def _open(self, cursor: Cursor) -> None:
        opening = pb.OpenCursor(
            handle=cursor.number,
            topic=self._topic(cursor),
            subscription="s",
            create=True,
            takeover=True,
        )
        cursor.stream.put(pb.SourceMessage(open_cursor=opening).SerializeToString())

    def settled_ms(self) -> float:
        """From Opened to the first message of a cursor durable, p99."""
        known = [c.settled_ms for c in self.cursors if c.settled_ms is not None]
        return quantile(known or [OPEN_MAX_S * 1e3], 0.99)

    async def until(self, condition: Any, limit_s: float) -> None:
        """Waits for it, or for the limit."""
        ends = self.now() + limit_s
        while self.now() < ends and not condition():
            await asyncio.sleep(0.02)

    async def at_a_rate(self, per_s: float, seconds: float, until: Any = None) -> None:
        """So many messages a second over all open cursors, one after the other, by the clock."""
        began, sent, turn = self.now(), 0, 0
        while self.now() - began < seconds and not (until is not None and until()):
            due = int((self.now() - began) * per_s)
            while sent < due:
                cursor = self.cursors[turn % len(self.cursors)]
                turn += 1
                sent += 1
                if cursor.is_open:
                    self.send(cursor)
            await asyncio.sleep(0.005)


def cpu_s(pid: int) -> float:
    """What a process and those that it has started have spent, user and system."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    own_s = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return own_s + sum(map(cpu_s, _children(pid)))


def _children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


async def _source(
    address: str,
    daemon_pid: int,
    pattern: str,
    cursors: int,
    number: int,
    load_s: float,
    tail_s: float,
    while_opening: bool,
) -> None:
    load = Load(pattern, cursors, f"persistent://bench/ns/many-{number}")
    await load.connect(address)
    opening = asyncio.ensure_future(load.open_all())
    if not while_opening:
        await opening
    load.waits.clear()
    load.durable_at.clear()
    for cursor in load.cursors:
        cursor.longest_ms = 0.0
    began, daemon_s, source_s = load.now(), cpu_s(daemon_pid), cpu_s(os.getpid())
    await load.at_a_rate(cursors, load_s)
    ended, daemon_s, source_s = (
        load.now(),
        cpu_s(daemon_pid) - daemon_s,
        cpu_s(os.getpid()) - source_s,
    )
    settled_ms = load.settled_ms()
    durable = sum(1 for at in load.durable_at if began <= at <= ended)
    # a tenth of the load goes on
    await load.at_a_rate(cursors / 10, tail_s)
    await load.until(lambda: not any(c.waiting for c in load.cursors), DRAIN_MAX_S)
    under_load = [(at, wait) for at, wait in load.waits if at <= ended]
    waits = [wait * 1e3 for _, wait in under_load] or [0.0]
    late = [at + wait for at, wait in load.waits if wait * 1e3 > NORMAL_MS]
    longest = [c.longest_ms for c in load.cursors]
    found = {
        "first_s": await opening,
        "settled_ms": settled_ms,
        "p50_ms": quantile(waits, 0.5),
        "p99_ms": quantile(waits, 0.99),
        "max_ms": max(waits),
        "durable_per_s": durable / (ended - began),
        "worst_cursor_ms": max(longest),
        "unfairness": max(longest) / quantile(longest, 0.5),
        "daemon_cores": daemon_s / (ended - began),
        "source_cores": source_s / (ended - began),
        "pauses": load.pauses,
        "refused": load.refused,
        "normal_s": max(0.0, max(late, default=0.0) - ended),
    }
    print(json.dumps(found), flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    await load.connect(address)
    load.refused = 0
    again = {"first_s": await load.open_all(), "settled_ms": load.settled_ms()}
    print(json.dumps(again | {"refused": load.refused}), flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("address")
    parser.add_argument("daemon_pid", type=int)
    parser.add_argument("pattern")
    parser.add_argument("cursors", type=int)
    parser.add_argument("number", type=int)
    parser.add_argument("load_s", type=float)
    parser.add_argument("tail_s", type=float)
    parser.add_argument("--while-opening", action="store_true")
    asyncio.run(_source(**vars(parser.parse_args())))

"""One cursor of a billion entries on the real stack: opened by a source in Python, from its Open to
the last part of the state. What another cursor waits meanwhile, and what both processes take.

Each case in a process of its own, against a daemon that was just started; what comes back is
compared with what was made.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path

from bench.large_cursor import LargeCursor, make
from bench.rows import Row
from cursorkeeper.core.names import CursorName
from cursorkeeper.demo.processes import DaemonProcess
from cursorkeeper.demo.stack import Standalone
from cursorkeeper.settings import Settings
from cursorkeeper_client import Client, ClientSettings
from cursorkeeper_client._proto import acks_pb2 as pb
from cursorkeeper_client.ack_stream.connection import SINK_METHOD
from cursorkeeper_client.ack_stream.session import SourceSession
from cursorkeeper_client.channels import connection_options, open_channel

ENTRIES = 1_000_000_000
CASES = ((0.1, 20), (0.1, 2_000), (0.01, 20))
"""Share of holes, and data ledgers."""
SUBSCRIPTION = "sub"
SOURCE_MAX_S = 60.0
MB = 1e6


@dataclass(frozen=True, slots=True)
class Opening:
    """What the source saw, in seconds since its Open was sent."""

    opened_s: float
    first_part_s: float
    state_end_s: float
    whole_s: float
    """Time from the Open until the source held the whole state as a value."""
    state_bytes: int
    messages: int
    before_bytes: int
    peak_bytes: int
    holes: int


async def run(stack: Standalone) -> list[Row]:
    """The benchmark ends by itself after about two minutes."""
    rows = []
    for share, ledgers in CASES:
        name = CursorName(f"persistent://bench/ns/recovery-{share}-{ledgers}", SUBSCRIPTION)
        cursor = LargeCursor(name, ledgers, ENTRIES // ledgers, share)
        await make(Settings.of(gateway=stack.gateway, zookeeper=stack.zookeeper), cursor)
        rows += await _opened(stack, cursor)
    return rows


async def _opened(stack: Standalone, cursor: LargeCursor) -> list[Row]:
    case = f"1 B entries, {cursor.ledgers:,} ledgers, {cursor.hole_share:.0%} holes"
    with tempfile.TemporaryDirectory() as folder:
        daemon = DaemonProcess(Path(folder), stack.gateway, stack.zookeeper)
        await daemon.start()
        try:
            async with Client(daemon.address) as client, _neighbour(client) as waits_s:
                before = memory_bytes(daemon.pid)[0]
                recovered = (await daemon.scrape()).get("cursorkeeper_recovery_seconds_sum", 0.0)
                seen = await _source(daemon.address, cursor.name)
            recovered = (await daemon.scrape())["cursorkeeper_recovery_seconds_sum"] - recovered
            after, peak = memory_bytes(daemon.pid)
        finally:
            await daemon.stop()
    if seen.holes < cursor.ledgers * cursor.entries_each * cursor.hole_share * 0.9:
        raise RuntimeError(f"{case}: {seen.holes:,} holes came back")
    figures = [
        ("Open to Opened", seen.opened_s, "s"),
        ("claim to READY in the daemon", recovered, "s"),
        ("Open to the first part", seen.first_part_s, "s"),
        ("Open to the last part", seen.state_end_s, "s"),
        ("Open to the state as a value", seen.whole_s, "s"),
        ("bytes of the state's messages", seen.state_bytes / MB, "MB"),
        ("daemon: resident state", (after - before) / MB, "MB"),
        ("daemon: peak above it", (peak - after) / MB, "MB"),
        ("source: peak above its start", (seen.peak_bytes - seen.before_bytes) / MB, "MB"),
        ("another cursor's ack, longest", max(waits_s), "s"),
    ]
    return [Row("recovery", case, figure, value, unit) for figure, value, unit in figures]


@contextlib.asynccontextmanager
async def _neighbour(client: Client) -> AsyncIterator[list[float]]:
    """Acks on a small cursor, one after the other; how long each waited until it was durable."""
    waits_s: list[float] = []
    cursor = client.cursor("persistent://bench/ns/neighbour", SUBSCRIPTION)
    await cursor.opened()
    await cursor.ack(1, 0)
    await cursor.durable()

    async def ack() -> None:
        entry = 1
        while True:
            began = time.perf_counter()
            await cursor.ack(1, entry)
            await cursor.durable()
            waits_s.append(time.perf_counter() - began)
            entry += 1

    acking = asyncio.get_running_loop().create_task(ack())
    try:
        yield waits_s
    finally:
        acking.cancel()
        await asyncio.gather(acking, return_exceptions=True)


def memory_bytes(pid: int | str) -> tuple[int, int]:
    """Resident memory of a process now, and at its peak."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    found = {key: value for key, _, value in (line.partition(":") for line in lines)}
    now, peak = (int(found[key].split()[0]) << 10 for key in ("VmRSS", "VmHWM"))
    return now, peak


async def _source(address: str, name: CursorName) -> Opening:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bench.recovery", address, name.topic),
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(SOURCE_MAX_S):
            said, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
    return Opening(**json.loads(said))


async def _open(address: str, topic: str) -> dict[str, float]:
    """As the client does it, with the time of each message taken when it comes."""
    settings = replace(ClientSettings(), open_timeout_s=SOURCE_MAX_S)
    session = SourceSession(settings)
    call = open_channel(address, connection_options(settings.receive_bytes_max)).stream_stream(
        SINK_METHOD, response_deserializer=pb.KeeperMessage.FromString
    )()
    times: dict[str, float] = {}
    counts = {"state_bytes": 0, "messages": 0}
    await call.write(await session.outbox.take())
    session.receive(await call.read())
    before = memory_bytes("self")[0]
    handle = session.open(topic, SUBSCRIPTION, create=False)
    await call.write(await session.outbox.take())
    began = time.perf_counter()
    while "state_end" not in times:
        message = await call.read()
        parts = message.group.messages if message.HasField("group") else [message]
        for part in parts:
            times.setdefault(part.WhichOneof("message"), time.perf_counter() - began)
        counts["state_bytes"] += message.ByteSize()
        counts["messages"] += 1
        session.receive(message)
    state = await handle.opened()
    whole_s = time.perf_counter() - began
    span = sum(bitmap.max() + 1 for bitmap in state.acked.values())
    if state.acked_entries != sum(map(len, state.acked.values())):
        raise RuntimeError(f"{topic}: the acks of its state are not as many as are told")
    call.cancel()
    return {
        "opened_s": times["opened"],
        "first_part_s": times["state_part"],
        "state_end_s": times["state_end"],
        "whole_s": whole_s,
        "before_bytes": before,
        "peak_bytes": memory_bytes("self")[1],
        "holes": span - state.acked_entries,
        **counts,
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("address")
    parser.add_argument("topic")
    given = parser.parse_args()
    print(json.dumps(asyncio.run(_open(given.address, given.topic))))

"""Cursors that are open and have nothing to do: what each takes of the daemon's memory, what all of
them take of a core, and for how long the daemon's loop does not listen. One source, one daemon
process, no acks.

`python -m bench.idle_cursors [CURSORS ...]` measures so many cursors instead.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from pathlib import Path

import grpc

from bench.many_cursors import Cursor, Load, cpu_s
from bench.rows import Row, show
from cursorkeeper.demo.processes import DaemonProcess
from cursorkeeper.demo.stack import Standalone
from cursorkeeper_client._proto import acks_pb2 as pb

CASES = (2_000, 10_000)
OPEN_MAX_S = 900.0
SETTLE_S = 5.0
FIRST_LOOK_S = 65.0
"""After an opening the daemon reads each footer once more, spread over `footer_poll_s`."""
IDLE_S = 30.0
ASKED_S, ASK_GAP_S = 15.0, 0.01
"""For the longest answer, the daemon is asked a question of no cost so often, after the CPU was
measured.
"""


class Idle(Load):
    """A source that opens cursors and acks nothing."""

    def _opened(self, cursor: Cursor) -> None:
        cursor.is_open = True


async def run(stack: Standalone, cases: tuple[int, ...] = CASES) -> list[Row]:
    """Each case on a daemon and cursors of its own."""
    rows: list[Row] = []
    for number, cursors in enumerate(cases):
        with tempfile.TemporaryDirectory() as folder:
            daemon = DaemonProcess(Path(folder), stack.gateway, stack.zookeeper)
            await daemon.start()
            try:
                rows += await _case(daemon, cursors, number)
            finally:
                await daemon.kill()
    return rows


async def _case(daemon: DaemonProcess, cursors: int, number: int) -> list[Row]:
    load = Idle("", cursors, f"persistent://bench/ns/idle-{number}")
    await load.connect(daemon.address)
    await asyncio.sleep(SETTLE_S)
    before, began = _resident_bytes(daemon.pid), load.now()
    for cursor in load.cursors:
        opening = pb.OpenCursor(
            handle=cursor.number,
            topic=f"{load.topic}-{cursor.number}",
            subscription="s",
            create=True,
            takeover=True,
        )
        cursor.stream.put(pb.SourceMessage(open_cursor=opening).SerializeToString())
    await load.until(lambda: all(cursor.is_open for cursor in load.cursors), OPEN_MAX_S)
    assert all(cursor.is_open for cursor in load.cursors)
    opened_s = load.now() - began
    await asyncio.sleep(SETTLE_S)
    each = (_resident_bytes(daemon.pid) - before) / cursors
    await asyncio.sleep(FIRST_LOOK_S)
    spent_s, began = cpu_s(daemon.pid), load.now()
    await asyncio.sleep(IDLE_S)
    share = (cpu_s(daemon.pid) - spent_s) / (load.now() - began)
    longest_s = await _longest_answer_s(daemon.address)
    load.leave()
    case = f"{cursors:,} cursors, idle"
    return [
        Row("idle_cursors", case, "opened", opened_s, "s"),
        Row("idle_cursors", case, "resident growth", each / 1024, "KiB each", aim="16 KiB"),
        Row("idle_cursors", case, "daemon's CPU", 100 * share, "% of a core", aim="1 %"),
        Row("idle_cursors", case, "longest answer", 1e3 * longest_s, "ms"),
    ]


async def _longest_answer_s(address: str) -> float:
    """To a question that costs nothing: no longer than the loop was busy with something else."""
    now = asyncio.get_running_loop().time
    async with grpc.aio.insecure_channel(address) as channel:
        ask = channel.unary_unary("/cursorkeeper.acks.v1.CursorStore/Get")
        nobody = pb.CursorRef(topic="persistent://bench/ns/none", subscription="s")
        body = pb.GetRequest(cursor=nobody).SerializeToString()
        longest, ends = 0.0, now() + ASKED_S
        while (began := now()) < ends:
            try:
                await ask(body)
            except grpc.aio.AioRpcError as e:
                if e.code() is not grpc.StatusCode.NOT_FOUND:
                    raise
            longest = max(longest, now() - began)
            await asyncio.sleep(ASK_GAP_S)
    return longest


def _resident_bytes(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) * 1024
    return 0


def _main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("cursors", type=int, nargs="*", default=CASES)
    cases = tuple(parser.parse_args().cursors)
    with (
        tempfile.TemporaryDirectory() as folder,
        Standalone(Path(folder) / "stack", heap_mib=1536, bookies=1) as stack,
    ):
        show(asyncio.run(run(stack, cases)), as_json=False)


if __name__ == "__main__":
    _main()

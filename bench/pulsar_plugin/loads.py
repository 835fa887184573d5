"""Loads of topics, in one JVM with Pulsar's managed ledgers and the plugin: what a large state
adds, what thousands of loads leave behind, what a kept cursor takes of the heap. `LoadsMain`, of
the plugin's tests, does it.

Managed ledgers and no whole broker: what a broker adds to a load is the same for all topics, and
would hide the difference.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median
from typing import Any

from bench.rows import Row
from cursorkeeper.demo.processes import DaemonProcess, LineProcess
from cursorkeeper.demo.stack import BOTH_COMPILERS, Standalone
from daemon.tests.pulsar_plugin.jar import class_path

FULL_ENTRIES, LEDGER_ENTRIES, FULL_TIMES = 11_111_112, 50_000, 7
"""Of which 10 million are acked."""
LOADS, TOPICS = (1_000, 10_000), 16
CURSORS = 1_000
SILENCE_MAX_S = 480.0
_MAIN = "org.apache.bookkeeper.mledger.impl.LoadsMain"
_OPENS = ("java.nio", "jdk.internal.misc", "java.io")


@asynccontextmanager
async def _daemon() -> AsyncIterator[tuple[Path, Standalone, DaemonProcess]]:
    with tempfile.TemporaryDirectory(prefix="cursorkeeper-bench-") as name:
        folder = Path(name)
        stack = Standalone(folder / "stack", bookies=2, heap_mib=768, java_options=BOTH_COMPILERS)
        try:
            await asyncio.to_thread(stack.start)
            daemon = DaemonProcess(folder, stack.gateway, stack.zookeeper)
            await daemon.start()
            try:
                yield folder, stack, daemon
            finally:
                await daemon.kill()
        finally:
            await asyncio.to_thread(stack.kill)


async def _said(
    folder: Path, stack: Standalone, daemon: DaemonProcess, *arguments: object
) -> list[dict[str, Any]]:
    """The lines of LoadsMain. Raises StackError."""
    opens = [
        word for package in _OPENS for word in ("--add-opens", f"java.base/{package}=ALL-UNNAMED")
    ]
    java = [
        "java",
        "-Xmx768m",
        "-XX:+UseSerialGC",
        "-Djava.net.preferIPv4Stack=true",
        f"-Djava.io.tmpdir={folder}",
        *opens,
    ]
    command = [
        *java,
        "-cp",
        class_path("4.2"),
        _MAIN,
        stack.zookeeper,
        daemon.address,
        *map(str, arguments),
    ]
    process = LineProcess("LoadsMain", command, folder / "loads.log")
    await process.start()
    lines = []
    try:
        while not (line := await process.line(SILENCE_MAX_S)).get("done"):
            lines.append(line)
    finally:
        await process.kill()
    return lines


def _row(
    case: str,
    figure: str,
    value: float,
    unit: str,
    ratio: float | None = None,
    against: str = "",
    aim: str = "",
) -> Row:
    return Row("pulsar_plugin", case, figure, value, unit, ratio, against, aim)


async def full(entries: int = FULL_ENTRIES, times: int = FULL_TIMES) -> list[Row]:
    """`entries` below 0: all of them are written, instead of one of each data ledger."""
    async with _daemon() as (folder, stack, daemon):
        made, *loads = await _said(folder, stack, daemon, "full", entries, LEDGER_ENTRIES, times)
    case = f"load, {made['acked'] / 1e6:.1f} M acked, {made['ranges'] / 1e6:.2f} M ranges"
    empty, ours = (median(each[name] for each in loads) for name in ("empty_s", "full_s"))
    beyond = median(each["full_s"] - 1.2 * each["empty_s"] for each in loads)
    spread = (
        f"an empty topic's ({min(each['full_s'] for each in loads):.2f} to "
        f"{max(each['full_s'] for each in loads):.2f} s)"
    )
    return [
        _row(case, "load of an empty topic", empty, "s"),
        _row(case, "load", ours, "s", ours / empty, spread),
        _row(case, "beyond 1.2 loads of an empty topic", beyond, "s", aim="1 s"),
    ]


async def again(marks: tuple[int, ...] = LOADS, topics: int = TOPICS) -> list[Row]:
    """The first mark is the baseline."""
    async with _daemon() as (folder, stack, daemon):
        first, *later = await _said(folder, stack, daemon, "loads", topics, *marks)
    rows = []
    for line in (first, *later):
        case = f"{line['loads']} loads and unloads"
        for name, unit, scale in (
            ("threads", "", 1),
            ("classes", "", 1),
            ("heap_bytes", "MB", 1e6),
            ("load_ms", "ms", 1),
        ):
            ratio, against = (
                (None, "")
                if line is first
                else (line[name] / first[name], f"after {first['loads']} loads")
            )
            rows.append(
                _row(
                    case,
                    name.removesuffix("_bytes").removesuffix("_ms"),
                    line[name] / scale,
                    unit,
                    ratio,
                    against,
                )
            )
        rows.extend(
            _row(case, f"{name} that are left", line[name], "", aim="0")
            for name in ("ledgers", "cursors")
        )
        rows.append(_row(case, "objects of ours", line["objects"], ""))
    return rows


async def memory(cursors: int = CURSORS) -> list[Row]:
    async with _daemon() as (folder, stack, daemon):
        lines = await _said(folder, stack, daemon, "memory", cursors)
    stock, ours = (
        median(each["bytes_a_cursor"] for each in lines if each["kept"] is kept)
        for kept in (False, True)
    )
    return [
        _row(
            f"{cursors} cursors without acks",
            "heap of a kept cursor",
            ours / 1e3,
            "kB",
            ours / stock,
            "Pulsar's own",
        )
    ]

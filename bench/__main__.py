"""`python -m bench [--json] [NAME ...]`: all benchmarks, or some of them; `ALL` has their names."""

from __future__ import annotations

import asyncio
import os
import platform
import sys
import tempfile
from pathlib import Path

from bench import (
    ack_message,
    delta_bytes,
    latency,
    loads,
    many_cursors,
    memory,
    pulsar_codec,
    receipt_latency,
    throughput,
)
from bench.rows import show
from cursorkeeper.demo.stack import Standalone

ALL = [
    "delta_bytes",
    "ack_message",
    "memory",
    "pulsar_codec",
    "latency",
    "receipt_latency",
    "throughput",
    "loads",
    "many_cursors",
    "footers",
    "report",
    "pipeline",
    "pulsar_plugin",
]


def main() -> None:
    """Runs what was asked for."""
    as_json = "--json" in sys.argv
    wanted = [a for a in sys.argv[1:] if not a.startswith("-")] or ALL
    if not as_json:
        print(f"{platform.platform()}, {os.cpu_count()} cores, Python {platform.python_version()}")
    if "delta_bytes" in wanted:
        show(delta_bytes.run(), as_json)
    if "ack_message" in wanted:
        show(ack_message.run(), as_json)
    if "memory" in wanted:
        show(memory.run(), as_json)
    if "pulsar_codec" in wanted:
        show(pulsar_codec.run(), as_json)
    if {"latency", "receipt_latency", "throughput", "loads"} & set(wanted):
        with (
            tempfile.TemporaryDirectory() as folder,
            Standalone(Path(folder) / "stack", heap_mib=512) as stack,
        ):
            if "latency" in wanted:
                show(asyncio.run(latency.run(stack)), as_json)
            if "receipt_latency" in wanted:
                show(asyncio.run(receipt_latency.run(stack)), as_json)
            if "throughput" in wanted:
                show(asyncio.run(throughput.run(stack)), as_json)
            if "loads" in wanted:
                show(asyncio.run(loads.run(stack)), as_json)
    if "many_cursors" in wanted:
        with (
            tempfile.TemporaryDirectory() as folder,
            Standalone(Path(folder) / "stack", heap_mib=1536) as stack,
        ):
            show(asyncio.run(many_cursors.run(stack)), as_json)
    if "footers" in wanted:
        from bench import footers  # needs PySpark

        with (
            tempfile.TemporaryDirectory() as folder,
            Standalone(Path(folder) / "stack", bookies=1, heap_mib=768) as stack,
        ):
            show(footers.run(stack), as_json)
    if "report" in wanted:
        from bench import report

        with (
            tempfile.TemporaryDirectory() as folder,
            Standalone(Path(folder) / "stack", bookies=1, heap_mib=768) as stack,
        ):
            show(report.run(stack), as_json)
    if "pipeline" in wanted:
        from bench import pipeline  # needs PySpark

        with (
            tempfile.TemporaryDirectory() as folder,
            Standalone(Path(folder) / "stack", heap_mib=768) as stack,
        ):
            show(pipeline.run(stack), as_json)
    if "pulsar_plugin" in wanted:
        # needs brokers' classes and the plugin's jar
        from bench.pulsar_plugin.__main__ import shown

        asyncio.run(shown(as_json))


if __name__ == "__main__":
    main()

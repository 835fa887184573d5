"""The play: messages, acks with receipts, kill -9 of the broker right after the last receipt, a new
start, and a count of what comes again.

Owns: the order of the steps, the brokers' settings. Does not own: processes (`stack`, `traffic`),
words and numbers for people (`report`). Invariant: whatever happens, nothing that was started is
left behind, and the folder goes unless it is to be kept.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    SpinnerColumn,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
)

from cursorkeeper.demo.processes import DaemonProcess
from cursorkeeper.demo.pulsar.report import Half, Report
from cursorkeeper.demo.pulsar.traffic import Consumed, Counted, Produced, Topic, compiled, last_line
from cursorkeeper.demo.stack import PulsarBroker, PulsarCluster, Standalone
from cursorkeeper.demo.stack.pulsar import QUICK

T = TypeVar("T")
STORAGE_CLASS = "io.cursorkeeper.pulsar.CursorKeeperStorage"
_JAVA = Path(__file__).resolve().parents[4] / "java"
RECEIPTS = _JAVA / "pulsar-receipts/target/cursorkeeper-pulsar-receipts.nar"
"""For brokers before 5.0, which do not make receipts wait by themselves."""
NAMESPACE = "public/default"


@dataclass(frozen=True, slots=True)
class Case:
    """What is played. `plugin`: a jar for the broker's class path; without one, the broker as it is
    plays alone.
    """

    version: str
    messages: int
    entries_per_ledger: int
    plugin: Path | None = None
    plugin_conf: Mapping[str, str] = field(default_factory=dict)

    def broker_conf(self) -> dict[str, str]:
        """Of both brokers. Nothing about how cursors are kept: only that batch indexes count, as
        they do by default since 4.1.
        """
        return {
            "acknowledgmentAtBatchIndexLevelEnabled": "true",
            "managedLedgerMaxEntriesPerLedger": str(self.entries_per_ledger),
            "managedLedgerMinLedgerRolloverTimeMinutes": "0",
        }


def find_plugin(version: str) -> Path | None:
    """The jar that this checkout has built, if it is made for this version."""
    line = "4.0" if version.startswith("4.0") else "4.2"
    jar = _JAVA / f"pulsar-plugin/pulsar-{line}/target/cursorkeeper-pulsar-plugin-{line}.jar"
    return jar if jar.is_file() and RECEIPTS.is_file() else None


def plugin_conf(version: str, address: str) -> dict[str, str]:
    """Lines of broker.conf: cursors are kept by the daemon there, and receipts wait for it."""
    lines = {"managedLedgerStorageClassName": STORAGE_CLASS, "cursorKeeperAddress": address}
    if version.startswith("4."):
        lines |= {
            "brokerInterceptors": "cursorkeeper-receipts",
            "brokerInterceptorsDirectory": str(RECEIPTS.parent),
        }
    return lines


async def play(case: Case, *, data_dir: Path | None, keep: bool, console: Console) -> Report:
    """Raises StackError or ProcessFailed when a process does not do its part."""
    began = time.monotonic()
    folder = data_dir or Path(tempfile.mkdtemp(prefix="cursorkeeper-demo-pulsar-"))
    folder.mkdir(parents=True, exist_ok=True)
    stack = Standalone(folder / "stack", bookies=2, heap_mib=384)
    try:
        with _progress(console) as progress:
            stage = _Stage(case, folder, stack, progress)
            report = await stage.play()
    finally:
        await asyncio.to_thread(stack.stop)
        if keep or data_dir is not None:
            console.print(f"  kept: {folder}", markup=False)
        else:
            shutil.rmtree(folder, ignore_errors=True)
    report.seconds = time.monotonic() - began
    return report


def _progress(console: Console) -> Progress:
    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(30),
        TaskProgressColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=console.quiet,
    )


class _Stage:
    """One stack, and on it one half after the other: each has a broker and a topic of its own."""

    def __init__(self, case: Case, folder: Path, stack: Standalone, progress: Progress) -> None:
        self._case, self._folder, self._stack, self._progress = case, folder, stack, progress
        self._console = progress.console
        self._classes = folder / "traffic"

    async def play(self) -> Report:
        # while the stack starts
        compiling = asyncio.create_task(compiled(self._case.version, self._classes))
        try:
            return await self._play(compiling)
        finally:
            compiling.cancel()
            await asyncio.wait([compiling])

    async def _play(self, compiling: asyncio.Task[Path]) -> Report:
        report = Report(version=self._case.version, messages=self._case.messages)
        with self._waiting("ZooKeeper and two bookies start"):
            await asyncio.to_thread(self._stack.start)
        cluster = PulsarCluster(
            self._folder / "pulsar",
            self._stack.zookeeper,
            version=self._case.version,
            java_options=QUICK,
        )
        try:
            with self._waiting("Pulsar's metadata"):
                await asyncio.to_thread(cluster.set_up)
                await compiling
            stock = cluster.broker("stock", conf=self._case.broker_conf())
            report.without = await self._half(stock, "as it is")
            if self._case.plugin is not None:
                # in order: the next one would wait for this one's session to end
                with self._waiting("the broker stops"):
                    await asyncio.to_thread(stock.stop)
                report.plugin = await self._with_plugin(cluster, self._case.plugin)
        finally:
            await asyncio.to_thread(cluster.kill)
        return report

    async def _with_plugin(self, cluster: PulsarCluster, plugin: Path) -> Half:
        daemon = DaemonProcess(self._folder, self._stack.gateway, self._stack.zookeeper)
        try:
            await daemon.start()
            ours = plugin_conf(self._case.version, daemon.address) | dict(self._case.plugin_conf)
            return await self._half(
                cluster.broker(
                    "kept", conf={**self._case.broker_conf(), **ours}, extra_class_path=[plugin]
                ),
                "with the plugin",
            )
        finally:
            await daemon.stop()

    async def _half(self, broker: PulsarBroker, words: str) -> Half:
        self._console.print(f"\n[bold]A broker {words}[/bold]: Pulsar {broker.version}")
        topic = Topic(
            broker.version,
            broker.service_url,
            f"persistent://{NAMESPACE}/{broker.name}",
            self._case.messages,
            self._folder / f"traffic-{broker.name}.log",
            self._classes,
        )
        with self._waiting("the broker starts"):
            await asyncio.to_thread(broker.start)
        produced = await self._traffic(topic, "produce", Produced, "messages sent")
        ledgers = await asyncio.to_thread(_data_ledgers, broker)
        self._say(
            f"{produced.count:,} messages in {ledgers} data ledgers; a tenth of them in batches"
        )
        consumed = await self._traffic(
            topic, "consume", Consumed, "received and acked", broker.kill
        )
        self._say(
            f"{consumed.acked:,} acks, each with its receipt; kill -9: the broker, after the "
            f"last one"
        )
        began = time.monotonic()
        with self._waiting("the broker starts again"):
            await asyncio.to_thread(broker.start)
        back_s = time.monotonic() - began
        counted = await self._traffic(topic, "count", Counted, "delivered again")
        self._say(
            f"it is back after {back_s:.1f} s: {counted.confirmed_again:,} confirmed messages "
            f"delivered again"
        )
        return Half(
            data_ledgers=ledgers,
            acked=consumed.acked,
            acks_per_second=consumed.acked / consumed.seconds,
            receipt_ms_p50=consumed.receipt_ms_p50,
            receipt_ms_p99=consumed.receipt_ms_p99,
            restart_seconds=back_s,
            redelivered=counted.confirmed_again,
            unacked=counted.unacked,
            unacked_not_delivered=counted.unacked_not_delivered,
        )

    async def _traffic(
        self,
        topic: Topic,
        command: str,
        shape: type[T],
        label: str,
        at_once: Callable[[], None] | None = None,
    ) -> T:
        """Runs a command to its last line; then `at_once`, before the process ends."""
        process = topic.process(command)
        bar = self._progress.add_task(label, total=topic.messages, rate="")
        began = time.monotonic()

        def progress(count: int) -> None:
            self._progress.update(
                bar, completed=count, rate=f"{count / max(0.1, time.monotonic() - began):,.0f}/s"
            )

        try:
            await process.start()
            last = await last_line(process, shape, progress)
            if at_once is not None:
                await asyncio.to_thread(at_once)
            return last
        finally:
            await process.kill()
            self._progress.remove_task(bar)

    @contextlib.contextmanager
    def _waiting(self, label: str) -> Iterator[None]:
        bar = self._progress.add_task(label, total=None, rate="")
        try:
            yield
        finally:
            self._progress.remove_task(bar)

    def _say(self, text: str) -> None:
        self._console.print(f"  [dim]{text}[/dim]")


def _data_ledgers(broker: PulsarBroker) -> int:
    found = json.loads(broker.get(f"/admin/v2/persistent/{NAMESPACE}/{broker.name}/internalStats"))
    return len(found["ledgers"])

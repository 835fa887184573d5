"""The play: messages, acks with receipts, kill -9 of the broker right after the last receipt, a new
start, and a count of what comes again.

Owns: the order of the steps, the brokers' settings. Does not own: processes (`stack`, `traffic`),
words and numbers for people (`report`). Invariant: whatever happens, nothing that was started is
left behind.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from cursorkeeper.demo.stage import Stage
from tools.brokers.cluster import PulsarBroker
from tools.brokers.grounds import Ground, Plain, SecuredGround
from tools.brokers.report import Half, Report
from tools.brokers.traffic import Consumed, Counted, Produced, Topic, compiled, last_line

T = TypeVar("T")
STORAGE_CLASS = "io.cursorkeeper.pulsar.CursorKeeperStorage"
_JAVA = Path(__file__).resolve().parents[2] / "java"
RECEIPTS = _JAVA / "pulsar-receipts/target/cursorkeeper-pulsar-receipts.nar"
"""For brokers before 5.0, which do not make receipts wait by themselves."""
NAMESPACE = "public/default"


@dataclass(frozen=True, slots=True)
class Case:
    """What is played. `plugin`: a jar for the broker's class path; without one, the broker as it is
    plays alone. `is_secured`: on a cluster where everybody asks who calls.
    """

    version: str
    messages: int
    entries_per_ledger: int
    plugin: Path | None = None
    plugin_conf: Mapping[str, str] = field(default_factory=dict)
    is_secured: bool = False

    def ground(self, stage: Stage) -> Ground:
        if self.is_secured:
            return SecuredGround(stage.folder, self.version)
        return Plain(stage.folder, self.version, stage.stack)

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


async def play(case: Case, stage: Stage) -> Report:
    """One half after the other: each has a broker and a topic of its own. Raises StackError when a
    process does not do its part.
    """
    report = Report(version=case.version, messages=case.messages)
    ground = case.ground(stage)
    try:
        with stage.bar(ground.words):
            classes = await asyncio.to_thread(compiled, case.version, stage.folder / "traffic")
            await asyncio.to_thread(ground.start)
        with stage.bar("Pulsar's metadata"):
            await asyncio.to_thread(ground.set_up)
        stock = ground.broker("stock", case.broker_conf(), None)
        report.without = await _half(case, stage, ground, stock, classes, "as it is")
        if case.plugin is not None:
            # in order: the next one would wait for this one's session to end
            with stage.bar("the broker stops"):
                await asyncio.to_thread(stock.stop)
            link = await ground.start_daemon()
            ours = plugin_conf(case.version, link["cursorKeeperAddress"]) | dict(link)
            conf = case.broker_conf() | ours | dict(case.plugin_conf)
            kept = ground.broker("kept", conf, case.plugin)
            report.plugin = await _half(case, stage, ground, kept, classes, "with the plugin")
    finally:
        await ground.stop()
    return report


async def _half(
    case: Case, stage: Stage, ground: Ground, broker: PulsarBroker, classes: Path, words: str
) -> Half:
    stage.progress.console.print(f"\n[bold]A broker {words}[/bold]: Pulsar {broker.version}")
    with stage.bar("the broker starts"):
        await asyncio.to_thread(broker.start)
        client = await asyncio.to_thread(ground.admit, broker, NAMESPACE)
    topic = Topic(
        broker.version,
        broker.service_url,
        f"persistent://{NAMESPACE}/{broker.name}",
        case.messages,
        stage.folder / f"traffic-{broker.name}.log",
        classes,
        client,
    )
    produced = await _traffic(stage, topic, "produce", Produced, "messages sent")
    ledgers = await asyncio.to_thread(_data_ledgers, broker)
    stage.say(f"{produced.count:,} messages in {ledgers} data ledgers; a tenth of them in batches")
    consumed = await _traffic(stage, topic, "consume", Consumed, "received and acked", broker.kill)
    stage.say(
        f"{consumed.acked:,} acks, each with its receipt; kill -9: the broker, after the last one"
    )
    began = time.monotonic()
    with stage.bar("the broker starts again"):
        await asyncio.to_thread(broker.start)
    back_s = time.monotonic() - began
    counted = await _traffic(stage, topic, "count", Counted, "delivered again")
    stage.say(
        f"it is back after {back_s:.1f} s: {counted.confirmed_again:,} confirmed messages "
        f"delivered again"
    )
    return Half(ledgers, back_s, consumed, counted)


async def _traffic(
    stage: Stage,
    topic: Topic,
    command: str,
    shape: type[T],
    label: str,
    at_once: Callable[[], None] | None = None,
) -> T:
    """Runs a command to its last line; then `at_once`, before the process ends."""
    process = topic.process(command)
    with stage.bar(label, topic.messages) as update:
        try:
            await process.start()
            last = await last_line(process, shape, update)
            if at_once is not None:
                await asyncio.to_thread(at_once)
            return last
        finally:
            await process.kill()


def _data_ledgers(broker: PulsarBroker) -> int:
    found = json.loads(broker.get(f"/admin/v2/persistent/{NAMESPACE}/{broker.name}/internalStats"))
    return len(found["ledgers"])

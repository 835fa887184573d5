"""The way back after a crash, as docs/run/broker/leaving.md tells it: a broker with the plugin is killed, `export-pulsar` writes what the
daemon has, and the broker goes on with Pulsar's own cursors. What was confirmed does not come again."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest

from cursorkeeper.demo.processes import DaemonProcess
from cursorkeeper.demo.pulsar.play import plugin_conf
from cursorkeeper.demo.pulsar.traffic import Counted, Produced, Topic
from cursorkeeper.demo.stack import PulsarCluster, Standalone
from cursorkeeper.demo.stack.pulsar import QUICK
from daemon.tests.pulsar_plugin.jar import JAR
from daemon.tests.pulsar_plugin.one_topic import consumed, traffic

pytestmark = pytest.mark.jvm
VERSION = "5.0.0-M1"
"""Its receipts mean durable by themselves."""
MESSAGES = 10_000
LEDGERS = {"managedLedgerMaxEntriesPerLedger": "2000", "managedLedgerMinLedgerRolloverTimeMinutes": "0"}
EXPORT_MAX_S = 120


def exported(stack: Standalone, conf: Path) -> list[dict[str, object]]:
    """A line for each cursor, and one of totals."""
    command = [sys.executable, "-m", "cursorkeeper.cli.main", "export-pulsar", "--all", "--replace", "--broker-is-stopped", "--json"]
    command += ["--zookeeper", stack.zookeeper, "--gateway", stack.gateway, "--pulsar-broker-conf", str(conf), "--target-version", VERSION]
    done = subprocess.run(command, capture_output=True, text=True, timeout=EXPORT_MAX_S, check=False, cwd=conf.parent)
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.timeout(400)
async def test_after_a_crash_pulsar_goes_on_with_what_the_daemon_had(tmp_path: Path) -> None:
    name = "persistent://public/default/leaving"
    with Standalone(tmp_path / "stack", bookies=2, arguments=["--migrator"]) as stack:
        (tmp_path / "daemon").mkdir()
        daemon = DaemonProcess(tmp_path / "daemon", stack.gateway, stack.zookeeper)
        cluster = PulsarCluster(tmp_path / "pulsar", stack.zookeeper, version=VERSION, name="leaving", java_options=QUICK)
        await asyncio.gather(daemon.start(), asyncio.to_thread(cluster.set_up))
        broker = cluster.broker(conf=LEDGERS | plugin_conf(VERSION, daemon.address), extra_class_path=[JAR])
        try:
            await asyncio.to_thread(broker.start)
            topic = Topic(VERSION, broker.service_url, name, MESSAGES, tmp_path / "traffic.log")
            await traffic(topic, "produce", Produced)
            async with consumed(topic) as receipts:
                await asyncio.to_thread(broker.kill)
            await daemon.stop()
            *cursors, _ = await asyncio.to_thread(exported, stack, broker.folder / f"{broker.name}.conf")
            broker.conf["cursorKeeperMode"] = "off"
            await asyncio.to_thread(broker.start)
            counted = await traffic(topic, "count", Counted)
        finally:
            await asyncio.to_thread(cluster.kill)
            await daemon.kill()
    assert [cursor["status"] for cursor in cursors if name in str(cursor["cursor"])] == ["replaced"]
    assert receipts.acked > MESSAGES // 2
    assert counted.confirmed_again == 0
    assert counted.unacked == MESSAGES - receipts.acked and counted.unacked_not_delivered == 0

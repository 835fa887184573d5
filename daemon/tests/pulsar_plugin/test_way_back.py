"""The way back after a crash, as docs/run/broker/leaving.md tells it: a broker with the plugin is
killed, `export-pulsar` writes what the daemon has, and the broker goes on with Pulsar's own
cursors. What was confirmed does not come again.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest

from cursorkeeper.demo.processes import DaemonProcess
from cursorkeeper.demo.stack import QUICK, Standalone
from daemon.tests.pulsar_plugin.jar import jar_of
from daemon.tests.pulsar_plugin.one_topic import consumed, traffic
from tools.brokers.cluster import PulsarBroker, PulsarCluster
from tools.brokers.play import plugin_conf
from tools.brokers.traffic import Counted, Produced, Topic

pytestmark = pytest.mark.jvm
VERSION = "5.0.0-M1"
"""Its receipts mean durable by themselves."""
MESSAGES = 10_000
CONF = {
    "acknowledgmentAtBatchIndexLevelEnabled": "true",  # by default since 4.1
    "managedLedgerMaxEntriesPerLedger": "2000",
    "managedLedgerMinLedgerRolloverTimeMinutes": "0",
}
EXPORT_MAX_S = 120


def exported(stack: Standalone, conf: Path, version: str) -> list[dict[str, object]]:
    """A line for each cursor, and one of totals."""
    command = [
        sys.executable,
        "-m",
        "cursorkeeper.cli.main",
        "export-pulsar",
        "--all",
        "--replace",
        "--broker-is-stopped",
        "--json",
    ]
    command += [
        "--zookeeper",
        stack.zookeeper,
        "--gateway",
        stack.gateway,
        "--pulsar-broker-conf",
        str(conf),
        "--target-version",
        version,
    ]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=EXPORT_MAX_S, check=False, cwd=conf.parent
    )
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"
    return [json.loads(line) for line in done.stdout.splitlines()]


async def goes_on_after_a_crash(folder: Path, version: str) -> None:
    name = "persistent://public/default/leaving"
    with Standalone(folder / "stack", bookies=2, arguments=["--migrator"]) as stack:
        (folder / "daemon").mkdir()
        daemon = DaemonProcess(folder / "daemon", stack.gateway, stack.zookeeper)
        cluster = PulsarCluster(
            folder / "pulsar", stack.zookeeper, version=version, name="leaving", java_options=QUICK
        )
        await asyncio.gather(daemon.start(), asyncio.to_thread(cluster.set_up))
        broker = PulsarBroker(
            cluster,
            conf=CONF | plugin_conf(version, daemon.address),
            extra_class_path=[jar_of(version[:3])],
        )
        try:
            await asyncio.to_thread(broker.start)
            topic = Topic(version, broker.service_url, name, MESSAGES, folder / "traffic.log")
            await traffic(topic, "produce", Produced)
            async with consumed(topic) as receipts:
                await asyncio.to_thread(broker.kill)
            await daemon.stop()
            *cursors, _ = await asyncio.to_thread(
                exported, stack, broker.folder / f"{broker.name}.conf", version
            )
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


@pytest.mark.timeout(400)
async def test_after_a_crash_pulsar_goes_on_with_what_the_daemon_had(tmp_path: Path) -> None:
    await goes_on_after_a_crash(tmp_path, VERSION)

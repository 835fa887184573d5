"""A whole broker in shadow mode: Pulsar keeps its cursors, the daemon's copies are equal, and what
the metrics say a crash would cost is what it then costs.
"""

from __future__ import annotations

import asyncio
import re
import time
from pathlib import Path

import pytest

from cursorkeeper.demo.processes import DaemonProcess
from cursorkeeper.demo.stack import QUICK, Standalone
from daemon.tests.pulsar_plugin.jar import JAR, LINES
from daemon.tests.pulsar_plugin.one_topic import CONF, MESSAGES, consumed, traffic
from tools.brokers.cluster import PulsarBroker, PulsarCluster
from tools.brokers.traffic import Counted, Produced, Topic

pytestmark = pytest.mark.jvm
VERSION = LINES["4.2"]
WAIT_S = 60
SHADOW = {
    "managedLedgerStorageClassName": "io.cursorkeeper.pulsar.CursorKeeperStorage",
    "cursorKeeperMode": "shadow",
    "cursorKeeperShadowCompareMs": "500",
    # Pulsar writes nothing between the last comparison and the kill
    "managedLedgerCursorPositionFlushSeconds": "3600",
}


def figures(broker: PulsarBroker) -> dict[str, int]:
    """Of the shadow, by their names without the beginning."""
    page = broker.get("/metrics/").decode()
    return {
        name: int(float(value))
        for name, value in re.findall(
            r"^pulsar_cursorkeeper_shadow_(\w+)(?:\{.*\})? (\S+)$", page, re.M
        )
    }


def compared(broker: PulsarBroker) -> dict[str, int]:
    """The figures after two comparisons of each cursor from now on."""
    until, first = time.monotonic() + WAIT_S, figures(broker)
    while True:
        now = figures(broker)
        if (
            now["cursors"] > 0
            and now["comparisons_total"] >= first["comparisons_total"] + 2 * now["cursors"] + 1
        ):
            return now
        assert time.monotonic() < until, f"{first}, then {now}"
        time.sleep(0.2)


@pytest.mark.timeout(400)
async def test_a_crash_costs_what_the_shadow_said(tmp_path: Path) -> None:
    with Standalone(tmp_path / "stack", bookies=2) as stack:
        (tmp_path / "daemon").mkdir()
        daemon = DaemonProcess(tmp_path / "daemon", stack.gateway, stack.zookeeper)
        cluster = PulsarCluster(
            tmp_path / "pulsar", stack.zookeeper, version=VERSION, name="shadow", java_options=QUICK
        )
        await asyncio.gather(daemon.start(), asyncio.to_thread(cluster.set_up))
        broker = PulsarBroker(
            cluster,
            conf=CONF | SHADOW | {"cursorKeeperAddress": daemon.address},
            extra_class_path=[JAR],
        )
        try:
            await asyncio.to_thread(broker.start)
            topic = Topic(
                VERSION,
                broker.service_url,
                "persistent://public/default/shadow",
                MESSAGES,
                tmp_path / "traffic.log",
            )
            await traffic(topic, "produce", Produced)
            async with consumed(topic) as receipts:
                said = await asyncio.to_thread(compared, broker)
                await asyncio.to_thread(broker.kill)
            broker.conf["cursorKeeperMode"] = "off"
            await asyncio.to_thread(broker.start)
            counted = await traffic(topic, "count", Counted)
        finally:
            await asyncio.to_thread(cluster.kill)
            await daemon.kill()
    assert said["differences_total"] == said["refused_total"] == said["given_up_total"] == 0, said
    assert receipts.acked > MESSAGES // 2
    assert (
        0
        < said["saved_entries"]
        <= counted.confirmed_again
        <= said["saved_entries"] + MESSAGES // 10
    ), said
    assert counted.unacked_not_delivered == 0

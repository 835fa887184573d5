"""Brokers get another version of the plugin, or daemons another version of themselves, one after
the other, and then the one before again, while messages and acks flow.

`make test-brokers`, with OLDER_PLUGIN_JAR=… for the jar of an earlier version and OLDER_DAEMON=…
for its command `cursorkeeper`; without them both are this one. Each direction is judged by the
ledger of what was confirmed, after kill -9 of all brokers: 0 confirmed delivered again, 0 un-acked
missing.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from cursorkeeper.demo.processes import DaemonProcess
from daemon.tests.pulsar_plugin.field import Field, field, kill, start, stop
from daemon.tests.pulsar_plugin.jar import JAR, LINES
from daemon.tests.pulsar_plugin.outage import page_of
from daemon.tests.pulsar_plugin.two_brokers import (
    WHOLE,
    flows,
    flows_on,
    is_answered,
    is_at,
    judged,
    made,
    settles,
    supervised,
    unload,
)
from tools.brokers.cluster import PulsarBroker

pytestmark = pytest.mark.jvm
OLDER = Path(os.environ.get("OLDER_PLUGIN_JAR", JAR))
OLDER_DAEMON = os.environ.get("OLDER_DAEMON", "")


async def test_brokers_get_another_version_of_the_plugin_and_go_back_to_the_one_before(
    tmp_path: Path,
) -> None:
    async with field(tmp_path, LINES["4.2"]) as at:
        old = [at.broker(name, jar=False, before=[OLDER]) for name in ("old-1", "old-2")]
        new = [at.broker(name) for name in ("new-1", "new-2")]
        await start(*old)
        await made(old[0], "up", "down")
        for name, before, after in (("up", old, new), ("down", new, old)):
            await flows(at, name, *old, *new)
            await flows_on(at, name)
            for gone, come, beside in (
                (before[0], after[0], before[1]),
                (before[1], after[1], after[0]),
            ):
                await stop(gone)
                await flows_on(at, name, more=200)
                await start(come)
                for to in (come, beside, come):
                    await unload(beside, name, WHOLE, to)
                    await flows_on(at, name)
                    await is_at(to, name)
            await settles(at, name)
            await judged(at, after[0], *{"up", name})
            await start(after[1])


async def runs(daemon: DaemonProcess, program: Sequence[str]) -> None:
    """From now on, at the same address."""
    daemon.program = program
    await daemon.start()
    print(
        *program,
        [
            series
            for series in await daemon.scrape()
            if series.startswith("cursorkeeper_build_info")
        ],
    )


async def goes_to_and_fro(at: Field, name: str, own: PulsarBroker, other: PulsarBroker) -> None:
    """Between the daemons of both versions. Whatever the one wrote, the other one reads."""
    for to in (other, own, other):
        await unload(own, name, WHOLE, to)
        await flows_on(at, name)
        await is_at(to, name)
        await is_answered(at, name)


async def test_daemons_get_another_version_and_go_back_to_the_one_before(tmp_path: Path) -> None:
    async with field(tmp_path, LINES["4.2"], daemons=2) as at:
        one, two = at.broker("one"), at.broker("two", daemon=1)
        this = at.daemons[0].program
        older = [OLDER_DAEMON] if OLDER_DAEMON else this
        for daemon in at.daemons:
            await daemon.stop()
            await runs(daemon, older)
        await start(one, two)
        await made(one, "up", "down")
        for name, program in (("up", this), ("down", older)):
            await flows(at, name, one, two)
            for daemon, own, other, end in zip(
                at.daemons,
                (one, two),
                (two, one),
                (DaemonProcess.stop, DaemonProcess.kill),
                strict=True,
            ):
                await unload(own, name, WHOLE, own)
                await is_at(own, name)
                await is_answered(at, name)
                await end(daemon)
                await flows_on(at, name)
                await runs(daemon, program)
                await is_answered(at, name)
                await goes_to_and_fro(at, name, own, other)
                if daemon is at.daemons[0]:
                    # the topic falls from the one daemon to the other, without a word
                    await kill(two)
                    await flows_on(at, name, more=200)
                    await is_answered(at, name)
                    await supervised(two)
            assert [page_of(each).of("changes_refused_total") for each in (one, two)] == [0, 0]
            await settles(at, name)
            await judged(at, one, *{"up", name})
            if name == "up":
                await start(two)
        for daemon in at.daemons:
            assert "bug: " not in daemon.log.read_text(), daemon.log

"""Two brokers get another version of the plugin, one after the other, and then the one before again, while messages and acks flow.

`make test-brokers`, with OLDER_PLUGIN_JAR=… for the jar of an earlier version; without it both are this one. Each direction is judged
by the ledger of what was confirmed, after kill -9 of all brokers: 0 confirmed delivered again, 0 un-acked missing.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from daemon.tests.pulsar_plugin.field import field, start, stop
from daemon.tests.pulsar_plugin.jar import JAR, LINES
from daemon.tests.pulsar_plugin.two_brokers import WHOLE, flows, flows_on, is_at, judged, made, settles, unload

pytestmark = pytest.mark.jvm
OLDER = Path(os.environ.get("OLDER_PLUGIN_JAR", JAR))


@pytest.mark.timeout(500)
async def test_brokers_get_another_version_of_the_plugin_and_go_back_to_the_one_before(tmp_path: Path) -> None:
    async with field(tmp_path, LINES["4.2"]) as at:
        old = [at.broker(name, jar=False, before=[OLDER]) for name in ("old-1", "old-2")]
        new = [at.broker(name) for name in ("new-1", "new-2")]
        await start(*old)
        await made(old[0], "up", "down")
        for name, before, after in (("up", old, new), ("down", new, old)):
            await flows(at, name, *old, *new)
            await flows_on(at, name)
            for gone, come, beside in ((before[0], after[0], before[1]), (before[1], after[1], after[0])):
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

"""What loads and unloads of topics leave behind in a broker's process; 22 s on a busy machine.

`bench/pulsar_plugin` does it ten thousand times, and looks at heap, classes and all threads.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cursorkeeper.demo.processes import DaemonProcess
from cursorkeeper.demo.stack import Standalone
from daemon.tests.pulsar_plugin.test_model import RUN_MAX_S, run

pytestmark = pytest.mark.jvm
TOPICS, LOADS = 8, (96, 304)


@pytest.mark.timeout(RUN_MAX_S + 60)
async def test_loads_and_unloads_leave_nothing_behind(
    stack: Standalone, daemon: DaemonProcess, tmp_path: Path
) -> None:
    said = await run(
        "4.2",
        "LoadsMain",
        tmp_path,
        stack.zookeeper,
        daemon.address,
        "loads",
        *map(str, (TOPICS, *LOADS)),
    )
    first, last = (json.loads(line) for line in said.splitlines()[:2])
    assert (first["loads"], last["loads"]) == LOADS
    for line in (first, last):
        assert line["ledgers"] == line["cursors"] == 0, "what was unloaded is still there"
        assert line["states"] == 0, "an open cursor keeps the state that it had when it was opened"
    assert last["own_threads"] == first["own_threads"]

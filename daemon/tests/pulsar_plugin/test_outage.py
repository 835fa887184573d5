"""A topic while its daemon is away, and what it tells of itself."""

from __future__ import annotations

from pathlib import Path

import pytest
from cursorkeeper.demo.processes import DaemonProcess
from cursorkeeper_clients.stack import Standalone

from daemon.tests.pulsar_plugin.jar import LINES
from daemon.tests.pulsar_plugin.test_model import RUN_MAX_S, run

pytestmark = pytest.mark.jvm


@pytest.mark.parametrize("line", LINES)
@pytest.mark.timeout(RUN_MAX_S + 60)
async def test_stories_of_a_topic_whose_keeper_is_away(stack: Standalone, daemon: DaemonProcess, line: str, tmp_path: Path) -> None:
    assert (await run(line, "OutageMain", tmp_path, stack.zookeeper, daemon.address)).startswith("stories ")

"""One embedded stack and one daemon for the folder. Nothing is left behind."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from cursorkeeper.demo.processes import DaemonProcess
from cursorkeeper.demo.stack import Standalone


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    with Standalone(tmp_path_factory.mktemp("plugin-stack"), bookies=2) as running:
        yield running


@pytest.fixture
async def daemon(stack: Standalone, tmp_path: Path) -> AsyncIterator[DaemonProcess]:
    (tmp_path / "daemon").mkdir()
    running = DaemonProcess(tmp_path / "daemon", stack.gateway, stack.zookeeper)
    await running.start()
    try:
        yield running
    finally:
        await running.kill()

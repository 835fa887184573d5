"""One embedded stack for each file and one daemon for each test. Nothing is left behind."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from cursorkeeper.demo.processes import DaemonProcess
from cursorkeeper.demo.stack import Standalone
from daemon.tests.end_to_end.conftest import kill


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    with Standalone(tmp_path_factory.mktemp("plugin-stack"), bookies=2) as running:
        yield running


@pytest.fixture
async def daemon(
    stack: Standalone, tmp_path: Path, request: pytest.FixtureRequest
) -> AsyncIterator[DaemonProcess]:
    """Its parameter, if it has one: the number of its workers; 0: one, at a socket of the file
    system.
    """
    (tmp_path / "daemon").mkdir()
    workers: int = getattr(request, "param", 1)
    several = ["--workers", str(workers), "--worker-port", "0"] if workers > 1 else []
    running = DaemonProcess(tmp_path / "daemon", stack.gateway, stack.zookeeper, several)
    if workers == 0:
        running.address = f"unix:{tmp_path / 'acks.sock'}"
    await running.start()
    try:
        yield running
    finally:
        await kill(running)

"""Real systems for the stories: one embedded stack per module, and daemons as processes. Nothing is
left behind.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from cursorkeeper.demo.processes import DaemonProcess
from cursorkeeper.demo.stack import Standalone


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    with Standalone(tmp_path_factory.mktemp("stack")) as running:
        yield running


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


async def kill(daemon: DaemonProcess) -> None:
    """SIGKILL to it and to its workers, which would close their cursors else."""
    workers = children(daemon.pid) if daemon.running else []
    await daemon.kill()
    for worker in workers:
        with contextlib.suppress(ProcessLookupError):
            os.kill(worker, signal.SIGKILL)


class Daemons:
    """Starts daemons; all of them are gone at the end of the test."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._all = folder, list[DaemonProcess]()

    async def start(
        self, gateway: str, zookeeper: str, *extra: str, listen: str = ""
    ) -> DaemonProcess:
        """At a port of its own, unless `listen` says where."""
        folder = self._folder / f"daemon-{len(self._all)}"
        folder.mkdir()
        daemon = DaemonProcess(folder, gateway, zookeeper, extra)
        daemon.address = listen or daemon.address
        self._all.append(daemon)
        await daemon.start()
        return daemon

    async def kill_all(self) -> None:
        for daemon in self._all:
            await kill(daemon)


@pytest.fixture
async def daemons(tmp_path: Path) -> AsyncIterator[Daemons]:
    made = Daemons(tmp_path)
    try:
        yield made
    finally:
        await made.kill_all()

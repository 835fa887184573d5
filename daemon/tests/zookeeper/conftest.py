"""Fixtures: a real server (one per run), and the two worlds of the contract suite."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from daemon.tests.zookeeper.server_process import ServerProcess
from daemon.tests.zookeeper.worlds import FakeWorld, RealWorld, World


@pytest.fixture(scope="session")
def zookeeper_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A running server for the whole run; a test that stops it starts it again."""
    folder: Path = tmp_path_factory.mktemp("zookeeper")
    server = ServerProcess(folder)
    server.start()
    yield server
    server.stop()


@pytest.fixture(params=["fake", pytest.param("real", marks=pytest.mark.jvm)])
def _server(request: pytest.FixtureRequest) -> ServerProcess | None:
    server: ServerProcess | None = (
        request.getfixturevalue("zookeeper_server") if request.param == "real" else None
    )
    return server


@pytest_asyncio.fixture
async def world(_server: ServerProcess | None) -> AsyncIterator[World]:
    """The contract suite's ensemble: each test runs in both."""
    made: FakeWorld | RealWorld = FakeWorld() if _server is None else RealWorld([_server.port])
    yield made
    await made.close()


@pytest_asyncio.fixture
async def real(zookeeper_server: ServerProcess) -> AsyncIterator[RealWorld]:
    """The real ensemble, for the fault tests."""
    made = RealWorld([zookeeper_server.port])
    yield made
    await made.close()

"""What every `ZooKeeper` does, checked on a server and on an ensemble of three in containers: the
tests that the fake passes, too.

Each client of the ensemble begins at another member, and a broken connection leads to the next one:
what only holds for the clients of one server fails here.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from daemon.tests.zookeeper.test_contract import *  # noqa: F403
from daemon.tests.zookeeper.worlds import RealWorld, World
from testcontainers_tests.cluster.stack import ContainerStack


@pytest.fixture(params=["lone_zookeeper", "systems"], ids=["alone", "ensemble"])
def servers(request: pytest.FixtureRequest) -> ContainerStack:
    """Those of the stack that the test runs on."""
    found: ContainerStack = request.getfixturevalue(request.param)
    return found


@pytest_asyncio.fixture
async def world(servers: ContainerStack) -> AsyncIterator[World]:
    real = RealWorld(
        [int(server.client_address.rpartition(":")[2]) for server in servers.zookeepers]
    )
    yield real
    await real.close()

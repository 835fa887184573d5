"""The real systems of the contract suites, one stack for all of them.

Owns: the stack (an ensemble of three ZooKeepers, three bookies, a gateway, a daemon) and a
ZooKeeper that is alone. Invariant: whatever a test killed runs again for the next one.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from testcontainers_tests.cluster.images import Images
from testcontainers_tests.cluster.stack import ContainerStack
from testcontainers_tests.conftest import opening


@pytest.fixture(scope="package")
def systems(built: Images) -> Iterator[ContainerStack]:
    """Everything, on an ensemble of three."""
    with opening(built) as start:
        yield start(zookeepers=3, daemons=1)


@pytest.fixture(scope="package")
def lone_zookeeper(built: Images) -> Iterator[ContainerStack]:
    """One ZooKeeper and nothing else."""
    with opening(built) as start:
        yield start(bookies=0, gateways=0, daemons=0)

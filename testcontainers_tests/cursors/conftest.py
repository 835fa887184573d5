"""One stack for all stories of cursors: a ZooKeeper, three bookies, a gateway, two daemons.

Each test has topics of its own and leaves the stack whole, so nobody sees what another one did.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from testcontainers_tests.cluster.images import Images
from testcontainers_tests.cluster.stack import ContainerStack
from testcontainers_tests.conftest import opening


@pytest.fixture(scope="package")
def shared_stack(built: Images) -> Iterator[ContainerStack]:
    """For the whole package, where the suite's own is for a module."""
    with opening(built) as start:
        yield start()

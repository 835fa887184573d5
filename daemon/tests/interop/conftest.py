"""One embedded stack for the folder, and one harness per Pulsar version, one at a time. Nothing is
left behind.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from itertools import count

import pytest

from cursorkeeper.demo.stack import Standalone
from cursorkeeper.format.pulsar import names
from daemon.tests.interop.cluster import Cluster, connected
from daemon.tests.interop.harness import VERSIONS, PulsarHarness
from daemon.tests.interop.topic import Topic

_numbers = count(1)


@pytest.fixture(scope="package")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    with Standalone(tmp_path_factory.mktemp("interop-stack"), bookies=1) as running:
        yield running


@pytest.fixture(scope="package", params=sorted(VERSIONS))
def pulsar(
    request: pytest.FixtureRequest, stack: Standalone, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[PulsarHarness]:
    with PulsarHarness(
        request.param, stack.zookeeper, tmp_path_factory.mktemp(f"pulsar-{request.param}")
    ) as running:
        yield running


@pytest.fixture
async def cluster(stack: Standalone) -> AsyncIterator[Cluster]:
    async with connected(stack) as clients:
        yield clients


@pytest.fixture
def make_topic(pulsar: PulsarHarness) -> Callable[..., Topic]:
    """A fabricated topic of its own: `make_topic(*sizes)`. A harness that an earlier test lost is
    started again.
    """
    if not pulsar.running:
        pulsar.restart()

    def make(*sizes: int) -> Topic:
        name = f"persistent://interop/ns/topic-{next(_numbers)}"
        return Topic(pulsar, name, pulsar.fabricate(names.managed_ledger_name(name), sizes))

    return make

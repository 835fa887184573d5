"""One embedded stack for the folder, and one harness per Pulsar version, one at a time. Nothing is left behind."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from cursorkeeper_clients.stack import Standalone

from daemon.tests.interop.harness import VERSIONS, PulsarHarness


@pytest.fixture(scope="package")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    with Standalone(tmp_path_factory.mktemp("interop-stack"), bookies=1) as running:
        yield running


@pytest.fixture(scope="package", params=sorted(VERSIONS))
def pulsar(request: pytest.FixtureRequest, stack: Standalone, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PulsarHarness]:
    with PulsarHarness(request.param, stack.zookeeper, tmp_path_factory.mktemp(f"pulsar-{request.param}")) as running:
        yield running

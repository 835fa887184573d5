"""Rolling upgrades from the previous release, in both orders, while acks flow; and the way back.

Daemons and gateway of the previous release are built from its own sources (testdata/releases). At
every step writes succeed, and either release can take over what the other one wrote.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from testcontainers_tests.cluster import images
from testcontainers_tests.cluster.images import ReleaseImages
from testcontainers_tests.cluster.stack import ContainerStack
from testcontainers_tests.cluster.truth import Verdict
from testcontainers_tests.conftest import Opener

Accept = Callable[[Verdict], None]
FOR_OLD_DAEMONS = ["--callers-without-deployment"]
"""As the page of upgrades says: daemons of 0.1 do not say for which deployment they act."""


@pytest.fixture(scope="module")
def release(built: images.Images) -> ReleaseImages:
    """The previous release."""
    return images.build_release("0.1.0")


@pytest.fixture(scope="module")
def old_stack(opener: Opener, release: ReleaseImages) -> ContainerStack:
    """Everything of the previous release but ZooKeeper and bookies, which are not ours."""
    return opener(daemon_image=release.daemon, gateway_image=release.gateway)


async def test_daemons_first_then_the_gateway_then_back(
    old_stack: ContainerStack, release: ReleaseImages, accept: Accept
) -> None:
    stack, new = old_stack, old_stack.images
    assert "0.1.0" in stack.daemon.run("cursorkeeper", "--version")[1]
    source = await stack.source("daemons-first", moves=True, interval_ms=60)
    early = await stack.source("daemons-first", flows=20)
    await early.finish()
    accept(await stack.verdict(early))  # old writes, old reads: the measure of what follows
    assert await stack.replace_daemon(1, new.daemon) == 0
    assert "0.1.0" not in stack.daemon.run("cursorkeeper", "--version")[1]
    await source.flows(20)
    # the new one opens what the old one wrote
    accept(await stack.verdict(early, daemon=stack.daemon))
    middle = await stack.source("daemons-first", flows=20)
    await middle.finish()
    # daemon-2 is still of the old release: it opens what the new one wrote
    accept(await stack.verdict(middle))
    assert await stack.replace_daemon(2, new.daemon) == 0
    await stack.replace_gateway(1, new.gateway, FOR_OLD_DAEMONS)
    await source.flows(20)
    assert await stack.replace_daemon(1, release.daemon) == 0  # the way back
    await source.flows(20)
    await source.finish()
    accept(await stack.verdict(source, early, middle))


async def test_the_gateway_first_then_the_daemons(
    old_stack: ContainerStack, release: ReleaseImages, accept: Accept
) -> None:
    stack, new = old_stack, old_stack.images
    for number in (1, 2):
        await stack.replace_daemon(number, release.daemon)
    await stack.replace_gateway(1, release.gateway)
    source = await stack.source("gateway-first", moves=True, interval_ms=60)
    await stack.replace_gateway(1, new.gateway, FOR_OLD_DAEMONS)
    await source.flows(20)
    for number in (1, 2):
        assert await stack.replace_daemon(number, new.daemon) == 0
        await source.flows(20)
    await source.finish()
    accept(await stack.verdict(source))

"""A cluster whose users are Kerberos's: ZooKeeper, bookies, gateway and daemons log in at a key
distribution center (Debian's krb5-kdc) with keytabs. Acks flow, also while the center is away; what
daemons make in ZooKeeper is their principal's; and nothing is lost.
"""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from testcontainers_tests.cluster import faults
from testcontainers_tests.cluster.images import Images
from testcontainers_tests.cluster.realm import CURSORS, DAEMON_IMAGE, Realm, build_images
from testcontainers_tests.cluster.stack import ContainerStack
from testcontainers_tests.cluster.story import Story
from testcontainers_tests.cluster.truth import Verdict
from testcontainers_tests.conftest import Opener

Accept = Callable[[Verdict], None]


@pytest.fixture(scope="module")
def shared_stack(
    opener: Opener, built: Images, tmp_path_factory: pytest.TempPathFactory
) -> ContainerStack:
    build_images(built)
    return opener(secrets=Realm(tmp_path_factory.mktemp("realm")), daemon_image=DAEMON_IMAGE)


async def test_acks_flow_and_nothing_is_lost(stack: ContainerStack, accept: Accept) -> None:
    story = await Story.begin(stack, "kerberos", moves=True)
    center = stack.others[0]
    # who is logged in stays so
    async with story.step("the center is killed: acks flow on"), faults.killed(center):
        await story.flows()
    async with story.step("the daemon is killed"), faults.killed(stack.daemon):
        pass
    await story.end(accept)
    # every node is the principal's alone, or its certificate's
    code, said = stack.daemons[1].run("cursorkeeper", "set-acl", "--dry-run", "--json")
    assert code == 0, said
    found = json.loads(said)
    assert found["acl"] == f"sasl:{CURSORS}" and found["changed"] == 0, found

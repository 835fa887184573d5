"""Pulsar may switch a cursor to a new ledger behind its state "Open"; the harness knows, and closes
a cursor that is at rest.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pyroaring import BitMap

from daemon.tests.interop.cluster import Cluster
from daemon.tests.interop.topic import Topic

pytestmark = [pytest.mark.jvm, pytest.mark.slow]

TIMES = 10


@pytest.fixture
def topic(make_topic: Callable[..., Topic]) -> Topic:
    """Open, with every second entry of its ledger acked."""
    made = make_topic(300)
    made.open()
    made.subscribe("sub")
    made.ack("sub", acked(made))
    return made


def acked(topic: Topic) -> dict[int, BitMap]:
    return {topic.ids[0]: BitMap(range(1, 300, 2))}


async def test_a_close_waits_for_a_switch_that_the_state_does_not_show(
    cluster: Cluster, topic: Topic
) -> None:
    """Otherwise the close fails (BadVersion), or the switch overtakes it and the znode names a
    ledger.
    """
    for _ in range(TIMES):
        topic.pulsar.switch_ledger(topic.managed, "sub")
        topic.close()
        read = await cluster.read(topic.name, "sub")
        assert (read.freshness.source, read.state.acked) == ("znode", acked(topic))
        topic.open()


async def test_a_cursor_is_answered_for_when_it_has_the_ledger_that_it_asked_for(
    cluster: Cluster, topic: Topic
) -> None:
    for _ in range(TIMES):
        before = topic.internals("sub").cursor_ledger
        topic.pulsar.switch_ledger(topic.managed, "sub")
        now = topic.subscribe("sub").cursor_ledger
        assert now > before
        read = await cluster.read(topic.name, "sub")
        assert (read.freshness.ledger, read.state.acked) == (now, acked(topic))
    topic.close()

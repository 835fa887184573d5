"""What a real ManagedCursorImpl writes, our reader reads, and finds the same acked set.

Two hundred random ack histories per Pulsar version: read while the cursor is live and again after a
crash (both forms), after a graceful close into the znode (raw, and with each compression), and
after one into the cursor ledger. Three must agree each time: plain sets, what Pulsar reported
before, and what we read.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from cursorkeeper.format.pulsar.values import Compression, Form
from cursorkeeper.migration.pulsar_cursor import PulsarCursor
from daemon.tests.interop import states
from daemon.tests.interop.cluster import Cluster
from daemon.tests.interop.harness import Report, TornMessage
from daemon.tests.interop.histories import History
from daemon.tests.interop.topic import Topic

pytestmark = [pytest.mark.jvm, pytest.mark.slow]

NO_CAPS = {"maxRanges": 10_000_000, "maxBatches": 10_000_000}
"""Released Pulsar drops acks at its caps; that has tests of its own."""


def played(
    topic: Topic, seed: int, count: int, *, texts: bool = True
) -> list[tuple[History, Report]]:
    """Histories on cursors of their own, each with what Pulsar says about it; the topic is open."""
    all_of_them = []
    for n in range(count):
        history = History(topic, f"sub-{n}", random.Random(f"{seed} {n}"))
        history.play(texts=texts)
        said = topic.report(history.cursor)
        where = f"{history.cursor} of {states.SEED_VARIABLE}={seed}"
        assert topic.settled(said.mark_delete, said.acked) == history.settled, where
        assert said.batches == history.batches, where
        all_of_them.append((history, said))
    return all_of_them


TORN_MAX = 5
"""Topics given up in a row because of a race in Pulsar; more are no race."""


def played_on_a_topic(
    make_topic: Callable[..., Topic], seed: int, count: int, **config: Any
) -> tuple[Topic, list[tuple[History, Report]]]:
    """An open topic with histories. Pulsar's own `delete` may fail by a race in its classes
    (`TornMessage`), on a busy machine above all. That says nothing of our reader, and the cursor's
    state is unknown then: the same histories are played on a new topic.
    """
    for left in reversed(range(TORN_MAX)):
        topic = make_topic(*states.SIZES)
        try:
            topic.open(**config, **NO_CAPS)
            return topic, played(topic, seed, count)
        except TornMessage as race:
            print(f"{topic.name} is given up: {race}")
            if not left:
                raise
    raise AssertionError("the last one raises")


def check(read: PulsarCursor, history: History, said: Report, seed: int) -> None:
    """Ours against Pulsar's and against the truth."""
    where = (
        f"{history.cursor} of {states.SEED_VARIABLE}={seed}, {read.freshness}, "
        f"{history.topic.last_internals(history.cursor)}"
    )
    assert history.topic.settled(read.state.mark_delete, read.state.acked) == history.settled, where
    assert read.original.acked == states.above(read.original.mark_delete, said.ranges), where
    assert read.state.batches == history.batches, where
    assert read.state.properties == said.properties == history.properties, where
    assert read.cursor_properties == said.cursor_properties == history.cursor_properties, where


@pytest.mark.parametrize("form", list(Form))
async def test_r08_a_live_cursor_is_read_as_it_is_and_again_after_its_broker_died(
    cluster: Cluster, make_topic: Callable[..., Topic], form: Form
) -> None:
    """Without recovery: the broker writes on afterwards, which a fenced one could not."""
    seed = states.run_seed()
    topic, cursors = played_on_a_topic(make_topic, seed, 50, longArray=form is Form.LONG_ARRAY)
    for history, said in cursors:
        read = await cluster.read(topic.name, history.cursor)
        check(read, history, said, seed)
        assert read.freshness.ledger == topic.internals(history.cursor).cursor_ledger
        assert read.original.form in (form, None)
    topic.mark_delete(cursors[0][0].cursor, (topic.ids[-1], 0))
    assert topic.internals(cursors[0][0].cursor).ledger_write_errors == 0
    topic.pulsar.halt()
    for history, said in cursors[1:]:
        check(await cluster.read(topic.name, history.cursor), history, said, seed)
    topic.pulsar.start()


@pytest.mark.parametrize("compression", list(Compression))
async def test_a_cursor_closed_into_its_znode_is_read(
    cluster: Cluster, make_topic: Callable[..., Topic], compression: Compression
) -> None:
    seed = states.run_seed()
    config = {
        "maxRangesInMetadataStore": 1_000_000,
        "cursorCompression": compression.name,
        "cursorCompressionThreshold": 0,
    }
    topic, cursors = played_on_a_topic(make_topic, seed, 10, **config)
    topic.close()
    for history, said in cursors:
        read = await cluster.read(topic.name, history.cursor)
        check(read, history, said, seed)
        assert read.freshness.source == "znode"
        assert read.znode_compression == compression


@pytest.mark.parametrize("form", list(Form))
async def test_a_cursor_closed_into_its_ledger_is_read(
    cluster: Cluster, make_topic: Callable[..., Topic], form: Form
) -> None:
    """One without individual acks goes to the znode even so."""
    seed = states.run_seed()
    topic, cursors = played_on_a_topic(
        make_topic, seed, 25, maxRangesInMetadataStore=0, longArray=form is Form.LONG_ARRAY
    )
    topic.close()
    for history, said in cursors:
        read = await cluster.read(topic.name, history.cursor)
        check(read, history, said, seed)
        assert (read.freshness.source == "znode") == (not said.ranges)
        assert read.freshness.is_final == bool(said.ranges)

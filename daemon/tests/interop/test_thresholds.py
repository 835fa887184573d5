"""Sizes at and around every threshold: what decides, on both sides, and at which number exactly."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from pyroaring import BitMap

from cursorkeeper.core.positions import Position
from cursorkeeper.format.pulsar import cursor_info, position_info
from cursorkeeper.format.pulsar.chunks import entries_of
from cursorkeeper.format.pulsar.values import Compression, Form, PositionInfo
from daemon.tests.interop import stored_states
from daemon.tests.interop.cluster import Cluster
from daemon.tests.interop.topic import Topic

pytestmark = [pytest.mark.jvm, pytest.mark.slow]

MIB = 1 << 20
LARGE_ENTRIES = 800_000
NO_CAPS = {"maxRanges": 10_000_000, "maxBatches": 10_000_000}


def state_of(topic: Topic, size_bytes: int) -> PositionInfo:
    """Of exactly that size in the form of ranges: every other entry acked, and a property whose
    name fills the rest. The rest is small, because a close writes the properties to the znode.
    """
    low, high = 0, LARGE_ENTRIES // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (
            (middle, high)
            if position_info.encoded_bytes(_ranges(topic, middle), Form.RANGES) + 40 <= size_bytes
            else (low, middle)
        )
    state = _ranges(topic, low)
    for name in range(1, 100):
        filled = replace(state, properties={"p" * name: 1})
        if position_info.encoded_bytes(filled, Form.RANGES) == size_bytes:
            return filled
    raise AssertionError(f"no state of {size_bytes} bytes")


def _ranges(topic: Topic, count: int) -> PositionInfo:
    return PositionInfo(
        Position(topic.ids[0], -1), {topic.ids[0]: BitMap(range(1, 2 * count, 2))}, form=Form.RANGES
    )


@pytest.mark.parametrize(
    "size_bytes",
    [MIB - 1, MIB, MIB + 1, -1],
    ids=["1 MiB - 1", "1 MiB", "1 MiB + 1", "the gateway's largest"],
)
async def test_r07_one_entry_of_any_size_that_bookkeeper_takes_is_taken_back(
    cluster: Cluster, make_topic: Callable[..., Topic], size_bytes: int
) -> None:
    topic = make_topic(LARGE_ENTRIES)
    if size_bytes < 0:
        size_bytes = (await cluster.ports.ledgers.describe()).entry_bytes_max
    state = state_of(topic, size_bytes)
    entries = entries_of(
        position_info.encode(state, Form.RANGES),
        compression=None,
        max_entry_bytes=MIB,
        multiple=False,
    )
    assert [len(entry) for entry in entries] == [size_bytes]
    await stored_states.entries_into_ledger(cluster, topic, "sub", state, entries)
    topic.open()
    said = topic.report("sub")
    assert (said.acked, said.properties) == (state.acked, state.properties)
    topic.close()


@pytest.mark.parametrize(
    ("size_bytes", "entries"), [(4095, 1), (4096, 3), (4097, 3), (8191, 3), (8192, 4)]
)
async def test_r02_exactly_below_the_threshold_there_is_one_entry_and_pulsar_takes_it_back(
    cluster: Cluster, make_topic: Callable[..., Topic], size_bytes: int, entries: int
) -> None:
    """The threshold belongs to the chunks: a state of its very size is cut, into two slices (one
    empty) and a footer.
    """
    topic = make_topic(LARGE_ENTRIES)
    state = state_of(topic, size_bytes)
    raw = position_info.encode(state, Form.RANGES)
    cut = entries_of(raw, compression=None, max_entry_bytes=4096, multiple=True)
    assert len(cut) == entries
    await stored_states.entries_into_ledger(cluster, topic, "sub", state, cut)
    assert (await cluster.read(topic.name, "sub")).state == state
    if entries == 1:
        assert cut == [raw]
        topic.open()
        assert topic.report("sub").acked == state.acked
        topic.close()


async def test_a_znode_is_compressed_above_the_threshold_not_at_it(
    cluster: Cluster, make_topic: Callable[..., Topic]
) -> None:
    """The same state, closed again and again under thresholds around its size; ours decides the
    same each time.
    """
    topic = make_topic(300)
    topic.open()
    topic.subscribe("sub")
    topic.ack("sub", {topic.ids[0]: range(1, 300, 2)})
    topic.close()
    size = len(await cluster.znode(topic.name, "sub"))
    for threshold in (size - 1, size, size + 1):
        topic.open(cursorCompression="LZ4", cursorCompressionThreshold=threshold)
        topic.ack("sub", {topic.ids[0]: [1]})
        topic.close()
        value = await cluster.znode(topic.name, "sub")
        raw, compression = cursor_info.unwrap(value, limit_bytes=MIB)
        assert len(raw) == size
        assert (compression is Compression.LZ4) == (size > threshold)
        ours = cursor_info.wrap(raw, Compression.LZ4, threshold)
        assert (ours[:2] == b"\x47\x78") == (size > threshold)


@pytest.mark.parametrize("ranges", [9, 10, 11, 12])
async def test_a_close_goes_to_the_ledger_above_the_znode_cap_not_at_it(
    cluster: Cluster, make_topic: Callable[..., Topic], ranges: int
) -> None:
    topic = make_topic(300)
    topic.open(maxRangesInMetadataStore=10, **NO_CAPS)
    topic.subscribe("sub")
    acked = BitMap(range(1, 2 * ranges, 2))
    topic.ack("sub", {topic.ids[0]: acked})
    topic.close()
    read = await cluster.read(topic.name, "sub")
    assert read.state.acked == {topic.ids[0]: acked}
    assert (read.freshness.source == "znode") == (ranges <= 10)


@pytest.mark.parametrize("entries", [1, 3])
async def test_a_full_cursor_ledger_is_left_and_the_new_one_holds_the_state(
    cluster: Cluster, make_topic: Callable[..., Topic], entries: int
) -> None:
    """Roll-over at 1, and at 3 entries: whichever ledger the znode names, its last entry is the
    state. The topic stays open: Pulsar's close and its own roll-over race for the znode.
    """
    topic = make_topic(300)
    topic.open(cursorEntriesPerLedger=entries, **NO_CAPS)
    topic.subscribe("sub")
    seen = set()
    for entry in range(1, 20, 2):
        topic.ack("sub", {topic.ids[0]: [entry]})
        read = await cluster.read(topic.name, "sub")
        assert read.state.acked == {topic.ids[0]: BitMap(range(1, entry + 1, 2))}
        seen.add(read.freshness.ledger)
    assert len(seen) > 1

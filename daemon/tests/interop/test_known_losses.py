"""What released Pulsar loses or cannot open, pinned on the real classes: `assess` models it,
`export-pulsar` avoids it.

A test that fails here means that a Pulsar version behaves differently, not that ours is wrong.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pyroaring import BitMap

from cursorkeeper.core.positions import Position
from cursorkeeper.core.values import PartialKey
from cursorkeeper.format.pulsar import position_info
from cursorkeeper.format.pulsar.chunks import COMPRESSION_KEY, entries_of
from cursorkeeper.format.pulsar.values import Compression, Form, PositionInfo
from daemon.tests.interop import stored_states
from daemon.tests.interop.cluster import Cluster
from daemon.tests.interop.harness import HarnessError, PulsarError
from daemon.tests.interop.topic import Topic

pytestmark = [pytest.mark.jvm, pytest.mark.slow]

RANGES_WRITTEN_ABOVE_THE_CAP = {"4.2.4": 1, "5.0.0-M1": 0}
COMPRESSED = [compression for compression in Compression if compression is not Compression.NONE]


CAP = 100
ENTRY_CAP_CASES = (
    ((40, 40, 40, 40), 3),  # 40, 80 are not above the cap, 120 is
    ((100, 40), 2),
    ((101, 40), 1),
    ((60, 40, 1, 1), 3),  # 100 is not above it, 101 is
    ((150, 1), 1),  # the first one always stays
)
"""Acked entries of each data ledger, in one range, and how many ledgers are written at a cap of 100
ranges.
"""


async def test_the_long_array_cap_counts_acked_entries_and_drops_whole_ledgers(
    cluster: Cluster, make_topic: Callable[..., Topic]
) -> None:
    """The setting says ranges; there is one per ledger here. A ledger is written while those before
    it hold at most `maxRanges` acked entries together; every later one is dropped. Pulsar thinks
    that all of it is persistable. After a crash the rest is gone.
    """
    left = {}
    for acked, kept in ENTRY_CAP_CASES:
        topic = make_topic(*(count + 2 for count in acked))
        topic.open(maxRanges=CAP)
        topic.subscribe("sub")
        everything = {
            ledger: BitMap(range(1, count + 1))
            for ledger, count in zip(topic.ids, acked, strict=True)
        }
        topic.ack("sub", everything)
        assert topic.report("sub").acked == everything
        assert topic.internals("sub").fully_persistable
        left[topic.name] = topic, {ledger: everything[ledger] for ledger in topic.ids[:kept]}
        assert (await cluster.read(topic.name, "sub")).state.acked == left[topic.name][1], acked
    topic.pulsar.restart()
    for topic, rest in left.values():
        topic.open()
        assert topic.report("sub").acked == rest
        topic.close()


async def test_the_long_array_cap_does_not_count_in_the_znode(
    cluster: Cluster, make_topic: Callable[..., Topic]
) -> None:
    """A graceful close is right where few ranges hold many entries."""
    topic = make_topic(52, 52, 52, 52)
    topic.open(maxRanges=100)
    topic.subscribe("sub")
    everything = {ledger: BitMap(range(1, 51)) for ledger in topic.ids}
    topic.ack("sub", everything)
    topic.reopen(maxRanges=100)
    assert (
        topic.report("sub").acked
        == (await cluster.read(topic.name, "sub")).state.acked
        == everything
    )
    topic.close()


@pytest.mark.parametrize("ranges", [9, 10, 11, 12, 40])
async def test_the_cap_of_ranges_keeps_the_oldest(
    cluster: Cluster, make_topic: Callable[..., Topic], ranges: int
) -> None:
    """4.2.4 writes one more than the cap (fixed by #25548)."""
    topic = make_topic(200)
    topic.open(maxRanges=10, longArray=False)
    topic.subscribe("sub")
    everything = BitMap(range(1, 2 * ranges, 2))
    topic.ack("sub", {topic.ids[0]: everything})
    assert topic.internals("sub").fully_persistable == (ranges <= 10)
    left = BitMap(everything.to_array()[: 10 + RANGES_WRITTEN_ABOVE_THE_CAP[topic.pulsar.version]])
    assert (await cluster.read(topic.name, "sub")).state.acked == {topic.ids[0]: left}
    topic.close()


async def test_the_cap_of_ranges_holds_for_the_znode_too(
    cluster: Cluster, make_topic: Callable[..., Topic]
) -> None:
    topic = make_topic(200)
    topic.open(maxRanges=10, maxRangesInMetadataStore=1_000)
    topic.subscribe("sub")
    everything = BitMap(range(1, 80, 2))
    topic.ack("sub", {topic.ids[0]: everything})
    topic.reopen()
    left = BitMap(everything.to_array()[: 10 + RANGES_WRITTEN_ABOVE_THE_CAP[topic.pulsar.version]])
    assert topic.report("sub").acked == {topic.ids[0]: left}
    topic.close()


@pytest.mark.parametrize("batches", [2, 3, 4])
async def test_the_cap_of_batches_keeps_the_oldest(
    cluster: Cluster, make_topic: Callable[..., Topic], batches: int
) -> None:
    topic = make_topic(200)
    topic.open(maxBatches=3)
    topic.subscribe("sub")
    everything = {
        PartialKey(topic.ids[0], entry): BitMap([1, 64]) for entry in range(10, 10 + batches)
    }
    topic.ack("sub", {topic.ids[0]: [100]}, batches=everything)
    assert topic.internals("sub").fully_persistable
    assert (await cluster.read(topic.name, "sub")).state.batches == dict(
        list(everything.items())[:3]
    )
    topic.close()


async def test_batch_indexes_are_written_to_the_znode_and_not_restored_from_it(
    cluster: Cluster, make_topic: Callable[..., Topic]
) -> None:
    """Fixed by #26474, in neither release: every graceful unload of a small cursor delivers acked
    batch indexes again. We read them.
    """
    topic = make_topic(200)
    topic.open()
    topic.subscribe("sub")
    batches = {PartialKey(topic.ids[0], 7): BitMap([1, 63])}
    topic.ack("sub", {topic.ids[0]: [100]}, batches=batches)
    topic.close()
    assert (await cluster.read(topic.name, "sub")).state.batches == batches
    topic.open()
    said = topic.report("sub")
    assert (said.acked, said.batches) == ({topic.ids[0]: BitMap([100])}, {})
    topic.close()


async def test_a_lone_partial_batch_ack_is_never_persisted(
    cluster: Cluster, make_topic: Callable[..., Topic]
) -> None:
    """#26498: without an individually acked entry nothing is written, nor marked dirty for the
    flush.
    """
    topic = make_topic(200)
    topic.open()
    topic.subscribe("sub")
    topic.mark_delete("sub", (topic.ids[0], 3))
    before = topic.internals("sub").ledger_writes
    topic.ack("sub", batches={(topic.ids[0], 7): [1, 63]})
    assert topic.pulsar.flush(topic.managed, "sub").ledger_writes == before
    assert topic.report("sub").batches
    assert (await cluster.read(topic.name, "sub")).state.batches == {}
    topic.close()


async def test_an_ack_within_the_limiters_second_waits_for_the_flush(
    cluster: Cluster, make_topic: Callable[..., Topic]
) -> None:
    """Its callback comes at once. Pulsar's timer flushes every 60 s; a crash before it delivers the
    message again. The limiter also holds for the flush.
    """
    topic = make_topic(200)
    topic.open(markDeletesPerSecond=0.001)
    topic.subscribe("sub")
    topic.ack("sub", {topic.ids[0]: [10]})
    topic.ack("sub", {topic.ids[0]: [20]})
    assert topic.report("sub").acked == {topic.ids[0]: BitMap([10, 20])}
    assert (await cluster.read(topic.name, "sub")).state.acked == {topic.ids[0]: BitMap([10])}
    writes = topic.internals("sub").ledger_writes
    topic.pulsar.flush(topic.managed, "sub")
    assert topic.internals("sub").ledger_writes == writes
    topic.pulsar.throttle(topic.managed, "sub", 0)
    topic.pulsar.flush(topic.managed, "sub")
    topic.wait("sub", lambda now: now.ledger_writes > writes)
    assert (await cluster.read(topic.name, "sub")).state.acked == {topic.ids[0]: BitMap([10, 20])}
    topic.close()


async def test_a_cursor_taken_back_and_unloaded_before_its_first_write_goes_into_the_znode(
    cluster: Cluster, make_topic: Callable[..., Topic]
) -> None:
    """However many ranges it has: the recovered ledger is read-only, so the close does not use it.
    Batch indexes are lost by that (they are not restored from a znode). One write to a ledger of
    its own before the unload, and the close goes there.
    """
    for writes_first in (False, True):
        topic = make_topic(1, 2_000)
        batches = {PartialKey(topic.ids[0], 0): BitMap([3])}
        state = PositionInfo(
            Position(topic.ids[0], -1), {topic.ids[1]: BitMap(range(1, 1_001, 2))}, batches
        )
        await stored_states.into_ledger(cluster, topic, "sub", state, Form.LONG_ARRAY)
        topic.open(maxRanges=1_000, maxRangesInMetadataStore=100)
        if writes_first:
            topic.ack("sub", {topic.ids[1]: [1]})  # acked already: only written
        topic.reopen()
        assert ((await cluster.read(topic.name, "sub")).freshness.source == "znode") == (
            not writes_first
        )
        said = topic.report("sub")
        assert (said.acked, said.batches) == (state.acked, batches if writes_first else {})
        topic.close()


async def test_a_znode_above_jute_maxbuffer_is_tried_again_and_again(
    cluster: Cluster, make_topic: Callable[..., Topic]
) -> None:
    """The server drops the connection, the write is sent again, and the unload does not end; a
    normal one takes a tenth of a second. The ledger still has the state.
    """
    topic = make_topic(200)
    state = PositionInfo(
        Position(topic.ids[0], 3), {topic.ids[0]: BitMap([7])}, properties={"p" * (1 << 20): 1}
    )
    await stored_states.into_ledger(cluster, topic, "sub", state, Form.LONG_ARRAY)
    topic.open()
    assert topic.report("sub").acked == state.acked
    with pytest.raises(HarnessError, match="did not answer") as unload:
        topic.pulsar.close_ledger(topic.managed, max_s=10)
    assert "Connection loss" in str(unload.value)
    read = await cluster.read(topic.name, "sub")
    assert (read.freshness.source[:6], read.state.acked) == ("ledger", state.acked)


@pytest.mark.parametrize("compression", COMPRESSED)
@pytest.mark.parametrize("kind", ["mark-delete property", "cursor property"])
async def test_a_compressed_znode_with_properties_keeps_its_topic_from_loading(
    cluster: Cluster, make_topic: Callable[..., Topic], compression: Compression, kind: str
) -> None:
    """Even one that Pulsar wrote: its parser leaves strings in the expanded buffer, which is
    released before they are read. We read it.
    """
    topic = make_topic(200)
    config = {"cursorCompression": compression.name, "cursorCompressionThreshold": 0}
    topic.open(**config)
    topic.subscribe("sub", {"a": "b"} if kind == "cursor property" else {})
    topic.mark_delete("sub", (topic.ids[0], 3), {"k": 7} if kind == "mark-delete property" else {})
    topic.close()
    with pytest.raises(PulsarError, match="IllegalReferenceCountException"):
        topic.open(**config)
    read = await cluster.read(topic.name, "sub")
    assert read.state.mark_delete == Position(topic.ids[0], 3)
    assert (read.state.properties, read.cursor_properties) in (({"k": 7}, {}), ({}, {"a": "b"}))


@pytest.mark.parametrize(
    ("compression", "max_entry_bytes"),
    [
        (None, 100),
        (Compression.NONE, 1 << 20),
        (Compression.LZ4, 1 << 20),
        (Compression.ZSTD, 1 << 20),
        (Compression.LZ4, 100),
    ],
    ids=["chunks", "a length in front", "LZ4", "ZSTD", "LZ4 and chunks"],
)
async def test_pip_381_entries_keep_their_topic_from_loading(
    cluster: Cluster,
    make_topic: Callable[..., Topic],
    compression: Compression | None,
    max_entry_bytes: int,
) -> None:
    """Chunks and compressed entries are in no release: an entry that does not parse fails the load
    of the whole topic, forced recovery or not. Going back to Pulsar needs one plain entry. We read
    it, before and after.
    """
    topic = make_topic(2_000)
    state = PositionInfo(
        Position(topic.ids[0], -1), {topic.ids[0]: BitMap(range(1, 2_000, 2))}, properties={"a": 1}
    )
    raw = position_info.encode(state, Form.LONG_ARRAY)
    entries = entries_of(
        raw, compression=compression, max_entry_bytes=max_entry_bytes, multiple=True
    )
    metadata = {} if compression is None else {COMPRESSION_KEY: compression.name}
    await stored_states.entries_into_ledger(
        cluster, topic, "sub", state, entries, metadata=metadata
    )
    for forced in (False, True):
        # garbage to its parser
        with pytest.raises(PulsarError, match=r"IllegalArgument|IndexOutOfBounds|IllegalState"):
            topic.open(forceRecovery=forced)
        read = await cluster.read(topic.name, "sub")
        assert (read.state.acked, read.state.properties) == (state.acked, state.properties)

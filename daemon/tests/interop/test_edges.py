"""The states where formats break: ranges across ledgers, entry -1, empty ledgers, the ends of
words, whole batches; both directions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from pyroaring import BitMap

from cursorkeeper.core.positions import Position
from cursorkeeper.core.values import PartialKey
from cursorkeeper.format.pulsar import position_info
from cursorkeeper.format.pulsar.values import CrossingRange, Form, PositionInfo
from daemon.tests.interop import states, stored_states
from daemon.tests.interop.cluster import Cluster
from daemon.tests.interop.topic import Topic

pytestmark = [pytest.mark.jvm, pytest.mark.slow]

NO_CAPS = {"maxRanges": 10_000_000, "maxBatches": 10_000_000}

WORD_EDGES = {
    "first": BitMap([0]),
    "last of a word": BitMap([63]),
    "first of the next": BitMap([64]),
    "both": BitMap([63, 64]),
    "a whole word": BitMap(range(64)),
    "a word and one": BitMap(range(65)),
    "all but the last of a word": BitMap(range(63)),
    "the second word": BitMap(range(64, 128)),
    "last entry of the ledger": BitMap([199]),
    "all": BitMap(range(200)),
    "around a later word": BitMap([127, 128, 191]),
}
BATCH_EDGES = {
    "first": BitMap([0]),
    "last of a word": BitMap([63]),
    "first of the next": BitMap([64]),
    "a whole word": BitMap(range(64)),
    "two whole words": BitMap(range(128)),
    "only the last of many": BitMap([1000]),
}


CASES = {
    f"sub-{n}": (name, acked, list(BATCH_EDGES.values())[n % len(BATCH_EDGES)])
    for n, (name, acked) in enumerate(WORD_EDGES.items())
}
"""Cursor -> what it is about, acked entries of the second ledger, un-acked indexes of the first
ledger's entry 0.
"""


@pytest.mark.parametrize("form", list(Form))
async def test_ends_of_words_ours_to_pulsar(
    cluster: Cluster, make_topic: Callable[..., Topic], form: Form
) -> None:
    topic = make_topic(1, 200)
    for cursor, (_, acked, missing) in CASES.items():
        state = PositionInfo(
            Position(topic.ids[0], -1),
            {topic.ids[1]: acked},
            {PartialKey(topic.ids[0], 0): missing},
        )
        await stored_states.into_ledger(cluster, topic, cursor, state, form)
    topic.open()
    for cursor, (name, acked, missing) in CASES.items():
        said = topic.report(cursor)
        assert said.acked == said.ranges == {topic.ids[1]: acked}, name
        assert said.batches == {PartialKey(topic.ids[0], 0): missing}, name
    topic.close()


@pytest.mark.parametrize("form", list(Form))
async def test_ends_of_words_pulsar_to_ours(
    cluster: Cluster, make_topic: Callable[..., Topic], form: Form
) -> None:
    topic = make_topic(1, 200)
    topic.open(longArray=form is Form.LONG_ARRAY, **NO_CAPS)
    for cursor, (_, acked, missing) in CASES.items():
        topic.subscribe(cursor)
        topic.ack(cursor, {topic.ids[1]: acked}, batches={(topic.ids[0], 0): missing})
    for cursor, (name, acked, missing) in CASES.items():
        read = await cluster.read(topic.name, cursor)
        assert read.state.acked == {topic.ids[1]: acked}, name
        assert read.state.batches == {PartialKey(topic.ids[0], 0): missing}, name
        assert read.original.form is form
    topic.close()


@pytest.mark.parametrize("in_ledger", [False, True], ids=["znode", "ledger"])
async def test_a_range_across_ledgers_means_the_same(
    cluster: Cluster, make_topic: Callable[..., Topic], in_ledger: bool
) -> None:
    """As old Pulsar versions wrote it (#7554), over whole ledgers and an empty one."""
    topic = make_topic(10, 3, 0, 70, 10)
    first, last = topic.ids[0], topic.ids[4]
    crossing = CrossingRange(Position(first, 5), Position(last, 2))
    state = PositionInfo(Position(first, 1), {first: BitMap([3])}, crossing=(crossing,))
    if in_ledger:
        await stored_states.into_ledger(cluster, topic, "sub", state, Form.RANGES)
    else:
        await stored_states.into_znode(cluster, topic, "sub", state)
    before = await cluster.read(topic.name, "sub")
    topic.open()
    said = topic.report("sub")
    after = await cluster.read(topic.name, "sub")
    expected = {
        first: BitMap([3, *range(6, 10)]),
        topic.ids[1]: BitMap(range(3)),
        topic.ids[3]: BitMap(range(70)),
        last: BitMap(range(3)),
    }
    assert said.ranges == before.state.acked == after.state.acked == expected
    topic.close()


@pytest.mark.parametrize("in_ledger", [False, True], ids=["znode", "ledger"])
async def test_of_a_range_from_a_ledger_that_is_gone_the_rest_counts(
    cluster: Cluster, make_topic: Callable[..., Topic], in_ledger: bool
) -> None:
    gone = make_topic(10).ids[0]
    topic = make_topic(10, 10, 10)
    crossing = CrossingRange(Position(gone, 5), Position(topic.ids[1], 2))
    state = PositionInfo(Position(gone, 3), crossing=(crossing,))
    if in_ledger:
        await stored_states.into_ledger(cluster, topic, "sub", state, Form.RANGES)
    else:
        await stored_states.into_znode(cluster, topic, "sub", state)
    read = await cluster.read(topic.name, "sub")
    topic.open()
    said = topic.report("sub")
    expected = {
        topic.ids[0]: BitMap(range(10)),
        topic.ids[1]: BitMap(range(3)),
        topic.ids[2]: BitMap(),
    }
    assert (
        topic.settled(read.state.mark_delete, read.state.acked)
        == topic.settled(said.mark_delete, said.acked)
        == expected
    )
    assert any(str(gone) in warning for warning in read.warnings)
    topic.close()


@pytest.mark.parametrize("form", list(Form))
async def test_entry_minus_one_of_every_ledger(
    cluster: Cluster, make_topic: Callable[..., Topic], form: Form
) -> None:
    """As mark-delete, and as the lower end of a range."""
    topic = make_topic(5, 64, 1, 65)
    written = {}
    for at in topic.ids:
        acked = {
            ledger: BitMap(range(entries - 1)) | BitMap([0])
            for ledger, entries in topic.ledgers
            if ledger > at
        }
        written[f"sub-{at}"] = state = PositionInfo(Position(at, -1), acked)
        await stored_states.into_ledger(cluster, topic, f"sub-{at}", state, form)
    topic.open()
    for cursor, state in written.items():
        said = topic.report(cursor)
        assert (said.mark_delete, said.ranges) == (state.mark_delete, state.acked)
        read = await cluster.read(topic.name, cursor)
        assert (read.state.mark_delete, read.state.acked) == (state.mark_delete, state.acked)
    topic.close()


async def test_mark_delete_in_an_empty_ledger(
    cluster: Cluster, make_topic: Callable[..., Topic]
) -> None:
    """Pulsar drops empty ledgers as it opens the topic, and moves on to the next one. So do we,
    before and after.
    """
    topic = make_topic(0, 3, 0, 0, 4, 0)
    for at in (0, 2, 3, 5):
        await stored_states.into_znode(
            cluster, topic, f"sub-{at}", PositionInfo(Position(topic.ids[at], -1))
        )
    before = {at: await cluster.read(topic.name, f"sub-{at}") for at in (0, 2, 3, 5)}
    layout = topic.open()
    assert [ledger for ledger, _ in layout.ledgers[:-1]] == [topic.ids[1], topic.ids[4]]
    for at, read in before.items():
        said, after = topic.report(f"sub-{at}"), await cluster.read(topic.name, f"sub-{at}")
        same = [
            topic.settled(one.mark_delete, one.acked) for one in (read.state, said, after.state)
        ]
        assert same[0] == same[1] == same[2], at
    topic.close()


async def test_a_topic_of_empty_ledgers_only(
    cluster: Cluster, make_topic: Callable[..., Topic]
) -> None:
    topic = make_topic(0, 0)
    topic.open()
    topic.subscribe("sub")
    said = topic.report("sub")
    read = await cluster.read(topic.name, "sub")
    assert (said.acked, said.batches) == (read.state.acked, read.state.batches) == ({}, {})
    topic.close()


async def test_acks_over_the_end_of_a_ledger_move_mark_delete(
    cluster: Cluster, make_topic: Callable[..., Topic]
) -> None:
    topic = make_topic(3, 64, 5)
    topic.open(**NO_CAPS)
    topic.subscribe("sub")
    topic.ack("sub", {topic.ids[0]: range(3), topic.ids[1]: range(64), topic.ids[2]: [0, 4]})
    said, read = topic.report("sub"), await cluster.read(topic.name, "sub")
    expected = {
        topic.ids[0]: BitMap(range(3)),
        topic.ids[1]: BitMap(range(64)),
        topic.ids[2]: BitMap([0, 4]),
    }
    assert topic.settled(said.mark_delete, said.acked) == expected
    assert topic.settled(read.state.mark_delete, read.state.acked) == expected
    topic.close()


async def test_everything_acked(cluster: Cluster, make_topic: Callable[..., Topic]) -> None:
    topic = make_topic(3, 64)
    topic.open(**NO_CAPS)
    topic.subscribe("sub")
    topic.ack("sub", {ledger: range(entries) for ledger, entries in topic.ledgers})
    read = await cluster.read(topic.name, "sub")
    assert topic.settled(read.state.mark_delete, read.state.acked) == {
        ledger: BitMap(range(entries)) for ledger, entries in topic.ledgers
    }
    topic.reopen()
    said, read = topic.report("sub"), await cluster.read(topic.name, "sub")
    assert said.mark_delete.ledger > topic.ids[-1]
    assert topic.settled(said.mark_delete, said.acked) == topic.settled(
        read.state.mark_delete, read.state.acked
    )
    topic.close()


async def test_a_batch_with_every_bit_acked_is_an_acked_entry(
    cluster: Cluster, make_topic: Callable[..., Topic]
) -> None:
    """Pulsar's writer promotes it, across two acks; our reader sees the entry."""
    topic = make_topic(2, 100)
    topic.open(**NO_CAPS)
    topic.subscribe("sub")
    at = PartialKey(topic.ids[1], 0)
    topic.ack("sub", batches={at: [0, 1, 64]})
    topic.ack("sub", {topic.ids[1]: [50]}, batches={at: [2, 3, 63]})
    said, read = topic.report("sub"), await cluster.read(topic.name, "sub")
    assert said.acked == read.state.acked == {topic.ids[1]: BitMap([0, 50])}
    assert said.batches == read.state.batches == {}
    topic.close()


@pytest.mark.parametrize("form", list(Form))
async def test_our_writer_leaves_out_a_batch_without_missing_indexes(
    cluster: Cluster, make_topic: Callable[..., Topic], form: Form
) -> None:
    """The empty set would say "wholly acked" to one reader and nothing to another: the entry is in
    the acked set, or not.
    """
    topic = make_topic(2, 100)
    state = PositionInfo(
        Position(topic.ids[0], -1),
        {topic.ids[1]: BitMap([50])},
        {PartialKey(topic.ids[1], 3): BitMap()},
    )
    assert position_info.encode(state, form) == position_info.encode(
        replace(state, batches={}), form
    )
    await stored_states.into_ledger(cluster, topic, "sub", state, form)
    topic.open()
    said = topic.report("sub")
    assert (said.acked, said.batches) == ({topic.ids[1]: BitMap([50])}, {})
    topic.close()


@pytest.mark.parametrize(
    "words", ["", "1000", "10001000"], ids=["no words", "a zero word", "two zero words"]
)
async def test_an_empty_delete_set_is_nothing_to_both_readers(
    cluster: Cluster, make_topic: Callable[..., Topic], words: str
) -> None:
    """No writer of Pulsar leaves one behind. If one is there, the entry is delivered again rather
    than lost.
    """
    topic = make_topic(100)
    state = PositionInfo(Position(topic.ids[0], -1), {topic.ids[0]: BitMap([50])})
    position = position_info.encode(PositionInfo(Position(topic.ids[0], 3)), Form.RANGES)
    element = b"\x0a" + bytes([len(position)]) + position + bytes.fromhex(words)
    raw = position_info.encode(state, Form.RANGES) + b"\x2a" + bytes([len(element)]) + element
    await stored_states.entries_into_ledger(cluster, topic, "sub", state, [raw])
    read = await cluster.read(topic.name, "sub")
    topic.open()
    said = topic.report("sub")
    assert said.acked == read.state.acked == state.acked
    assert said.batches == read.state.batches == {}
    topic.close()


async def test_two_names_that_need_encoding(
    cluster: Cluster, make_topic: Callable[..., Topic]
) -> None:
    """The subscription's name is a path element and a ledger's metadata."""
    topic = make_topic(100)
    state = PositionInfo(Position(topic.ids[0], 7), {topic.ids[0]: BitMap([9])})
    names = ("a b/c~*é", "%2F+", "漢字")
    for name in names:
        await stored_states.into_ledger(cluster, topic, name, state, Form.RANGES)
    topic.open()
    for name in names:
        assert topic.report(name).acked == state.acked
        topic.ack(name, {topic.ids[0]: [11]})
        assert (await cluster.read(topic.name, name)).state.acked == {topic.ids[0]: BitMap([9, 11])}
    topic.close()


async def test_a_long_array_of_many_ledgers(
    cluster: Cluster, make_topic: Callable[..., Topic]
) -> None:
    """Pulsar keeps ledgers in a hash map; the order of the elements is not the order of the
    ledgers.
    """
    topic = make_topic(*[3] * 60)
    topic.open(**NO_CAPS)
    topic.subscribe("sub")
    acked = {ledger: BitMap([1]) for ledger in topic.ids}
    topic.ack("sub", acked)
    read = await cluster.read(topic.name, "sub")
    assert read.state.acked == states.above(read.state.mark_delete, acked) == acked
    topic.close()

"""R2: below the threshold, a state is one entry, byte for byte Pulsar's own. Checked on entries
that Pulsar wrote.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from cursorkeeper.format.pulsar import cursor_info, position_info
from cursorkeeper.format.pulsar.chunks import entries_of
from cursorkeeper.format.pulsar.values import Form, ManagedCursorInfo, PositionInfo
from cursorkeeper.format.pulsar.wire import read_field
from daemon.tests.interop import states
from daemon.tests.interop.cluster import Cluster
from daemon.tests.interop.histories import History
from daemon.tests.interop.topic import Topic

pytestmark = [pytest.mark.jvm, pytest.mark.slow]

NO_CAPS = {"maxRanges": 10_000_000, "maxBatches": 10_000_000}
MAX_ENTRY_BYTES = 1 << 20


def fields(message: bytes) -> list[tuple[int, bytes]]:
    """Of the outer message, sorted by number and then by content: Pulsar keeps properties and long
    arrays in hash maps, so the order of the elements of one field is chance. Raises if a number
    comes before a lower one.
    """
    found, at = [], 0
    while at < len(message):
        field = read_field(message, at, len(message))
        found.append((field.number, message[at : field.end]))
        at = field.end
    assert [number for number, _ in found] == sorted(number for number, _ in found)
    return sorted(found)


async def stored(cluster: Cluster, ledger: int, entry: int) -> bytes:
    """One entry of a live ledger."""
    chunks = cluster.ports.ledgers.read(ledger, entry, entry, unconfirmed=True)
    return b"".join([b"".join(chunk.payloads) async for chunk in chunks])


def words_of(element: bytes) -> list[int]:
    """The words of a LongListMap field: tag, length (one byte here), key, words."""
    values, at = [], 2
    while at < len(element):
        field = read_field(element, at, len(element))
        values += [field.value] if field.number == 2 else []
        at = field.end
    return values


def trimmed(found: list[tuple[int, bytes]]) -> list[tuple[int, bytes]]:
    """Without the zero word that Pulsar's range set appends to a long array of one word
    (`RoaringBitSet.toLongArray` gives two at least). Ours are trimmed as `BitSet`'s are; both read
    the same.
    """
    return sorted(
        (
            number,
            bytes([element[0], element[1] - 2]) + element[2:-2]
            if number == 6 and is_padded(element)
            else element,
        )
        for number, element in found
    )


def is_padded(element: bytes) -> bool:
    """Whether a long array of one word has a zero word behind it."""
    return element[1] < 0x80 and words_of(element)[1:] == [0]


@pytest.mark.parametrize("form", list(Form))
async def test_r02_one_entry_below_the_threshold_has_pulsars_bytes(
    cluster: Cluster, make_topic: Callable[..., Topic], form: Form
) -> None:
    """Every element is the same, and the fields are in the same order."""
    seed = states.run_seed()
    topic = make_topic(*states.SIZES)
    topic.open(longArray=form is Form.LONG_ARRAY, **NO_CAPS)
    same = 0
    for n in range(30):
        history = History(topic, f"sub-{n}", random.Random(f"{seed} bytes {n}"))
        history.play(texts=False)
        read = await cluster.read(topic.name, history.cursor)
        theirs = await stored(cluster, read.freshness.ledger, read.freshness.entry)
        ours = entries_of(
            position_info.encode(read.original, form),
            compression=None,
            max_entry_bytes=MAX_ENTRY_BYTES,
            multiple=True,
        )
        assert len(ours) == 1
        assert fields(ours[0]) == trimmed(fields(theirs)), (
            f"{history.cursor} of {states.SEED_VARIABLE}={seed}"
        )
        same += ours[0] == theirs
    assert same > 0
    topic.close()


async def test_pulsar_appends_a_zero_word_to_a_long_array_of_one_word(
    cluster: Cluster, make_topic: Callable[..., Topic]
) -> None:
    topic = make_topic(200)
    topic.open(**NO_CAPS)
    topic.subscribe("sub")
    for acked, length in (([1], 2), ([63], 2), ([64], 2), ([127], 2), ([128], 3)):
        topic.ack("sub", {topic.ids[0]: acked})
        at = (await cluster.read(topic.name, "sub")).freshness
        theirs = await stored(cluster, at.ledger, at.entry)
        (element,) = [content for number, content in fields(theirs) if number == 6]
        assert len(words_of(element)) == length
    topic.close()


async def test_a_znode_has_pulsars_bytes(
    cluster: Cluster, make_topic: Callable[..., Topic]
) -> None:
    seed = states.run_seed()
    topic = make_topic(*states.SIZES)
    topic.open(maxRangesInMetadataStore=1_000_000, **NO_CAPS)
    for n in range(20):
        History(topic, f"sub-{n}", random.Random(f"{seed} znode {n}")).play()
    topic.close()
    for n in range(20):
        theirs = await cluster.znode(topic.name, f"sub-{n}")
        ours = cursor_info.encode(cursor_info.decode(theirs))
        assert fields(ours) == fields(theirs), f"sub-{n} of {states.SEED_VARIABLE}={seed}"


@pytest.mark.parametrize("producers", [1, 3, 5_000])
async def test_r25_producers_sequence_ids_of_a_dedup_cursor_round_trip(
    cluster: Cluster, make_topic: Callable[..., Topic], producers: int
) -> None:
    """`pulsar.dedup` keeps them as mark-delete properties: Pulsar writes, we read, we write, Pulsar
    reads; by crash and by close.
    """
    topic = make_topic(50, 50)
    sequence_ids = {
        f"producer-{n}-é/{'x' * (n % 40)}": (n * 7_919) ** 3 % (1 << 63) - 1
        for n in range(producers)
    }
    topic.open(**NO_CAPS)
    topic.subscribe("pulsar.dedup")
    topic.mark_delete("pulsar.dedup", (topic.ids[0], 7), sequence_ids)
    live = await cluster.read(topic.name, "pulsar.dedup")
    topic.close()
    closed = await cluster.read(topic.name, "pulsar.dedup")
    assert live.state.properties == closed.state.properties == sequence_ids
    assert (live.freshness.ledger >= 0, closed.freshness.source) == (True, "znode")

    for form in Form:
        copy = make_topic(50, 50)
        state = PositionInfo(
            live.state.mark_delete._replace(ledger=copy.ids[0]), properties=live.state.properties
        )
        ledger = copy.write_ledger("pulsar.dedup", [position_info.encode(state, form)])
        await cluster.put_pointer(
            copy.name, "pulsar.dedup", ManagedCursorInfo(ledger, state.mark_delete)
        )
        copy.open()
        said = copy.report("pulsar.dedup")
        assert (said.mark_delete, said.properties) == (state.mark_delete, sequence_ids)
        copy.close()

"""What our codec writes, a real ManagedCursorImpl opens, and reports the same acked set, entry by entry.

Two hundred random states per Pulsar version: in the znode (raw, and with each compression) and in a cursor ledger (both forms).
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest
from cursorkeeper.format.pulsar import cursor_info, position_info
from cursorkeeper.format.pulsar.chunks import entries_of
from cursorkeeper.format.pulsar.values import Compression, Form, ManagedCursorInfo, PositionInfo

from daemon.tests.interop import states
from daemon.tests.interop.cluster import Cluster
from daemon.tests.interop.topic import Topic

pytestmark = [pytest.mark.jvm, pytest.mark.slow]

STATES_EACH = 50
MAX_ENTRY_BYTES = 1 << 20
COMPRESSIONS = [Compression.LZ4, Compression.ZLIB, Compression.ZSTD, Compression.SNAPPY]

Write = Callable[[Cluster, Topic, str, PositionInfo, dict[str, str]], Awaitable[None]]


def inline(state: PositionInfo, cursor_properties: dict[str, str]) -> ManagedCursorInfo:
    """The state as a graceful close leaves it in the znode."""
    return ManagedCursorInfo(-1, state.mark_delete, state.acked, state.batches, state.properties, cursor_properties)


async def write_znode(cluster: Cluster, topic: Topic, cursor: str, state: PositionInfo, texts: dict[str, str]) -> None:
    await cluster.put_cursor(topic.name, cursor, cursor_info.encode(inline(state, texts)))


async def write_compressed(cluster: Cluster, topic: Topic, cursor: str, state: PositionInfo, texts: dict[str, str]) -> None:
    """Each compression in turn, by the cursor's number."""
    compression = COMPRESSIONS[int(cursor.rsplit("-", 1)[1]) % len(COMPRESSIONS)]
    value = cursor_info.wrap(cursor_info.encode(inline(state, texts)), compression, 0)
    assert value[:2] == b"\x47\x78"
    await cluster.put_cursor(topic.name, cursor, value)


async def write_ledger(cluster: Cluster, topic: Topic, cursor: str, state: PositionInfo, texts: dict[str, str], form: Form) -> None:
    """One entry behind an older one, and a znode that points there with a lower bound."""
    older = position_info.encode(PositionInfo(state.mark_delete), form)
    entries = entries_of(position_info.encode(state, form), compression=None, max_entry_bytes=MAX_ENTRY_BYTES, multiple=True)
    assert len(entries) == 1
    ledger = topic.write_ledger(cursor, [older, *entries])
    await cluster.put_pointer(topic.name, cursor, ManagedCursorInfo(ledger, state.mark_delete, cursor_properties=texts))


async def write_ranges(cluster: Cluster, topic: Topic, cursor: str, state: PositionInfo, texts: dict[str, str]) -> None:
    await write_ledger(cluster, topic, cursor, state, texts, Form.RANGES)


async def write_long_arrays(cluster: Cluster, topic: Topic, cursor: str, state: PositionInfo, texts: dict[str, str]) -> None:
    await write_ledger(cluster, topic, cursor, state, texts, Form.LONG_ARRAY)


@pytest.mark.parametrize("write", [write_znode, write_compressed, write_ranges, write_long_arrays])
async def test_r07_an_unmodified_pulsar_takes_back_any_state_that_fits_one_entry(
    cluster: Cluster, make_topic: Callable[..., Topic], write: Write
) -> None:
    """Batch indexes come back from a ledger only: released Pulsar does not restore them from the znode, see `test_known_losses`. Nor
    can it open a compressed znode with properties, so there are none in that case."""
    seed = states.run_seed()
    rng = random.Random(f"{seed} {write.__name__}")
    topic = make_topic(*states.SIZES)
    with_properties = write is not write_compressed
    wanted: dict[str, tuple[PositionInfo, dict[str, str]]] = {}
    for n in range(STATES_EACH):
        texts = states.random_texts(rng) if with_properties else {}
        state = states.random_state(rng, topic.ledgers, properties=with_properties)
        wanted[f"sub-{n}"] = state, texts
        await write(cluster, topic, f"sub-{n}", state, texts)
    topic.open()
    in_ledger = write in (write_ranges, write_long_arrays)
    for cursor, (state, texts) in wanted.items():
        said = topic.report(cursor)
        where = f"{cursor} of {states.SEED_VARIABLE}={seed}"
        assert topic.settled(said.mark_delete, said.acked) == topic.settled(state.mark_delete, state.acked), where
        assert said.ranges == states.above(said.mark_delete, state.acked), where
        assert said.batches == (state.batches if in_ledger else {}), where
        assert (said.properties, said.cursor_properties) == (state.properties, texts), where
    topic.close()


@pytest.mark.parametrize("config", [{"longArray": False}, {"openCacheSet": False}, {"longArray": False, "openCacheSet": False}])
@pytest.mark.parametrize("form", list(Form))
async def test_r08_both_forms_are_read_whatever_pulsar_itself_would_write(
    cluster: Cluster, make_topic: Callable[..., Topic], form: Form, config: dict[str, bool]
) -> None:
    rng = random.Random(8)
    topic = make_topic(*states.SIZES)
    wanted = {f"sub-{n}": states.random_state(rng, topic.ledgers) for n in range(5)}
    for cursor, state in wanted.items():
        await write_ledger(cluster, topic, cursor, state, {}, form)
    topic.open(**config)
    for cursor, state in wanted.items():
        said = topic.report(cursor)
        assert said.ranges == states.above(said.mark_delete, state.acked)
        assert said.batches == state.batches
    topic.close()


async def test_pulsar_goes_on_from_what_we_wrote(cluster: Cluster, make_topic: Callable[..., Topic]) -> None:
    """It acks more, crashes, and everything is there: our state and its own."""
    rng = random.Random(9)
    topic = make_topic(*states.SIZES)
    state = states.random_state(rng, topic.ledgers)
    state = replace(state, mark_delete=state.mark_delete._replace(ledger=topic.ids[0], entry=-1))
    await write_long_arrays(cluster, topic, "sub", state, {})
    topic.open(maxRanges=1_000_000)
    last, entries = topic.ledgers[-1]
    topic.ack("sub", {topic.ids[1]: [7, 8], last: [entries - 1]})
    acked = topic.settled(state.mark_delete, state.acked)
    for ledger, more in ((topic.ids[1], (7, 8)), (last, (entries - 1,))):
        acked[ledger].update(more)
    topic.crash()
    said = topic.report("sub")
    assert topic.settled(said.mark_delete, said.acked) == acked
    topic.close()

"""What our codec writes, a real ManagedCursorImpl opens, and reports the same acked set, entry by
entry.

Two hundred random states per Pulsar version: in the znode (raw, and with each compression) and in a
cursor ledger (both forms).
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from cursorkeeper.core.positions import Position
from cursorkeeper.format.pulsar import position_info
from cursorkeeper.format.pulsar.chunks import entries_of
from cursorkeeper.format.pulsar.values import Compression, Form, PositionInfo
from daemon.tests.interop import states, stored_states
from daemon.tests.interop.cluster import Cluster
from daemon.tests.interop.topic import Topic

pytestmark = [pytest.mark.jvm, pytest.mark.slow]

STATES_EACH = 50
MAX_ENTRY_BYTES = 1 << 20


def check(
    topic: Topic,
    cursor: str,
    state: PositionInfo,
    texts: dict[str, str],
    seed: int,
    *,
    batches: bool = True,
) -> None:
    """Pulsar's report against the state that we wrote."""
    said, where = topic.report(cursor), f"{cursor} of {states.SEED_VARIABLE}={seed}"
    assert topic.settled(said.mark_delete, said.acked) == topic.settled(
        state.mark_delete, state.acked
    ), where
    assert said.ranges == states.above(said.mark_delete, state.acked), where
    assert said.batches == (state.batches if batches else {}), where
    assert (said.properties, said.cursor_properties) == (state.properties, texts), where


@pytest.mark.parametrize("form", list(Form))
async def test_r07_an_unmodified_pulsar_takes_back_any_state_that_fits_one_entry(
    cluster: Cluster, make_topic: Callable[..., Topic], form: Form
) -> None:
    """The entries are those of `format=pulsar` with several entries allowed: below the threshold
    there is one.
    """
    seed = states.run_seed()
    rng = random.Random(seed)
    topic = make_topic(*states.SIZES)
    written = {}
    for n in range(STATES_EACH):
        state, texts = states.random_state(rng, topic.ledgers), states.random_texts(rng)
        raw = position_info.encode(state, form)
        entries = entries_of(raw, compression=None, max_entry_bytes=MAX_ENTRY_BYTES, multiple=True)
        assert entries == [raw]
        older = position_info.encode(PositionInfo(state.mark_delete), form)
        await stored_states.entries_into_ledger(
            cluster, topic, f"sub-{n}", state, [older, *entries], texts
        )
        written[f"sub-{n}"] = state, texts
    topic.open()
    for cursor, (state, texts) in written.items():
        check(topic, cursor, state, texts, seed)
    topic.close()


async def test_r07_an_unmodified_pulsar_takes_back_a_state_in_the_znode(
    cluster: Cluster, make_topic: Callable[..., Topic]
) -> None:
    """Without its batch indexes: released Pulsar does not restore them from there, see
    `test_known_losses`.
    """
    seed = states.run_seed()
    rng = random.Random(seed)
    topic = make_topic(*states.SIZES)
    written = {}
    for n in range(STATES_EACH):
        written[f"sub-{n}"] = state, texts = (
            states.random_state(rng, topic.ledgers),
            states.random_texts(rng),
        )
        await stored_states.into_znode(cluster, topic, f"sub-{n}", state, texts)
    topic.open()
    for cursor, (state, texts) in written.items():
        check(topic, cursor, state, texts, seed, batches=False)
    topic.close()


async def test_r07_an_unmodified_pulsar_takes_back_a_compressed_znode(
    cluster: Cluster, make_topic: Callable[..., Topic]
) -> None:
    """Without properties: with them released Pulsar cannot open it, not even its own, see
    `test_known_losses`.
    """
    seed = states.run_seed()
    rng = random.Random(seed)
    topic = make_topic(*states.SIZES)
    written = {}
    compressions = [
        compression for compression in Compression if compression is not Compression.NONE
    ]
    for n in range(STATES_EACH):
        written[f"sub-{n}"] = state = states.random_state(rng, topic.ledgers, properties=False)
        await stored_states.into_znode(
            cluster, topic, f"sub-{n}", state, compression=compressions[n % len(compressions)]
        )
    topic.open()
    for cursor, state in written.items():
        check(topic, cursor, state, {}, seed, batches=False)
    topic.close()


@pytest.mark.parametrize(
    "config",
    [{"longArray": False}, {"openCacheSet": False}, {"longArray": False, "openCacheSet": False}],
    ids=str,
)
@pytest.mark.parametrize("form", list(Form))
async def test_r08_both_forms_are_taken_whatever_pulsar_itself_would_write(
    cluster: Cluster, make_topic: Callable[..., Topic], form: Form, config: dict[str, bool]
) -> None:
    rng = random.Random(8)
    topic = make_topic(*states.SIZES)
    written = {f"sub-{n}": states.random_state(rng, topic.ledgers) for n in range(5)}
    for cursor, state in written.items():
        await stored_states.into_ledger(cluster, topic, cursor, state, form)
    topic.open(**config)
    for cursor, state in written.items():
        check(topic, cursor, state, {}, 8)
    topic.close()


async def test_pulsar_goes_on_from_what_we_wrote(
    cluster: Cluster, make_topic: Callable[..., Topic]
) -> None:
    """It acks more, crashes, and everything is there: our state and its own."""
    topic = make_topic(*states.SIZES)
    state = states.random_state(random.Random(9), topic.ledgers)
    state = replace(state, mark_delete=Position(topic.ids[0], -1))
    await stored_states.into_ledger(cluster, topic, "sub", state, Form.LONG_ARRAY)
    topic.open(maxRanges=1_000_000)
    last, entries = topic.ledgers[-1]
    topic.ack("sub", {topic.ids[1]: [7, 8], last: [entries - 1]})
    acked = topic.settled(state.mark_delete, state.acked)
    acked[topic.ids[1]].update((7, 8))
    acked[last].add(entries - 1)
    topic.crash()
    said = topic.report("sub")
    assert topic.settled(said.mark_delete, said.acked) == acked
    topic.close()

"""Reading one Pulsar cursor: the newest state without a fence, how fresh it is, and every way in
which it can be bad.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
from pyroaring import BitMap

from cursorkeeper.bookkeeper.port import LedgerState
from cursorkeeper.core.positions import Position
from cursorkeeper.core.values import LayoutItem, LayoutState
from cursorkeeper.format.pulsar import cursor_info, position_info
from cursorkeeper.format.pulsar.chunks import COMPRESSION_KEY, entries_of
from cursorkeeper.format.pulsar.values import (
    Compression,
    CrossingRange,
    Form,
    ManagedCursorInfo,
    PositionInfo,
)
from cursorkeeper.migration.errors import MigrationError
from cursorkeeper.migration.pulsar_cursor import PulsarCursor
from cursorkeeper.migration.pulsar_reader import read_cursor
from cursorkeeper.problems import Kind
from daemon.tests.fakes.bookkeeper.fake import Damage
from daemon.tests.fakes.zookeeper.faults import Delay, Meanwhile
from daemon.tests.migration.pulsar_world import (
    HASTY,
    REF,
    TOPIC,
    PulsarWorld,
    inline,
    sealed,
    state,
)


async def read(world: PulsarWorld, **options: bool) -> PulsarCursor:
    return await read_cursor(await world.pulsar(), REF, patience=HASTY, **options)


async def refused(world: PulsarWorld, kind: Kind, **options: bool) -> MigrationError:
    with pytest.raises(MigrationError) as error:
        await read(world, **options)
    assert error.value.kind is kind, error.value
    assert error.value.cursor == str(REF) and error.value.remedy and error.value.where
    return error.value


# ---- what is there


@pytest.mark.parametrize("compression", list(Compression))
async def test_a_state_in_the_znode(world: PulsarWorld, compression: Compression) -> None:
    await world.in_znode(state(form=Form.RANGES), compression=compression, properties={"a": "b"})
    found = await read(world)
    assert (
        found.state == state(form=Form.RANGES)
        and found.cursor_properties == {"a": "b"}
        and found.warnings == ()
    )
    assert found.layout == (
        LayoutItem(7, LayoutState.CLOSED, 100),
        LayoutItem(9, LayoutState.CLOSED, 50),
        LayoutItem(12, LayoutState.OPEN, 0),
    )
    assert (found.freshness.source, found.znode_compression, found.znode_version) == (
        "znode",
        compression,
        1,
    )
    assert found.freshness.znode_mtime_ms > 0 and "exact if no broker" in found.freshness.sentence
    topic, cursor = await world.znode(REF.topic_path), await world.znode(REF.path)
    assert topic is not None and cursor is not None and found.bytes_read == len(topic) + len(cursor)


@pytest.mark.parametrize("form", list(Form))
async def test_the_last_entry_of_a_closed_ledger_counts(world: PulsarWorld, form: Form) -> None:
    ledger = await world.in_ledger(state((7, 1), seed=1), state((7, 2), seed=2), state(form=form))
    found = await read(world)
    assert found.state == state(form=form) and found.freshness.is_final
    assert (found.freshness.source, found.freshness.beyond_confirmed) == (
        f"ledger {ledger} entry 2",
        0,
    )
    assert found.freshness.sentence == "closed cursor ledger: exact"


async def test_the_newest_entry_of_a_live_ledger_counts_and_its_writer_lives(
    world: PulsarWorld,
) -> None:
    ledger = await world.in_ledger(state((7, 1)), state((7, 2)), state(), closed=False)
    found = await read(world)
    assert found.state == state() and not found.freshness.is_final
    fresh = found.freshness
    assert (fresh.entry, fresh.beyond_confirmed, fresh.ledger_state, fresh.stopped_by) == (
        2,
        1,
        LedgerState.OPEN,
        "",
    )
    assert "live cursor ledger" in fresh.sentence and fresh.as_json()["ledgerState"] == "OPEN"
    await (await world.broker()).append(ledger, 3, sealed(state((7, 9))))
    assert (await read(world)).state.mark_delete == (7, 9)


async def test_a_newest_entry_that_cannot_be_asked_for_is_told(world: PulsarWorld) -> None:
    ledger = await world.in_ledger(state((7, 1)), state((7, 2)), state(), closed=False)
    world.bookkeeper.damage(ledger, 2, Damage.GONE)
    found = await read(world)
    assert (found.state.mark_delete, found.freshness.entry, found.freshness.stopped_by) == (
        (7, 2),
        1,
        "READ_FAILED",
    )
    assert "newer entries could not be looked for (READ_FAILED)" in found.freshness.sentence


async def test_a_live_ledger_with_one_entry(world: PulsarWorld) -> None:
    await world.in_ledger(state(), closed=False)
    assert (await read(world)).state == state()


@pytest.mark.parametrize("compression", [None, Compression.NONE, Compression.LZ4, Compression.ZSTD])
@pytest.mark.parametrize("closed", [True, False])
async def test_chunks_of_pip_381(
    world: PulsarWorld, compression: Compression | None, closed: bool
) -> None:
    await world.topic(TOPIC, ((7, 20_000), (9, 50), (12, 0)))
    wide = state(acked={7: BitMap(range(10, 20_000, 2)), 9: BitMap([1])})
    ledger = await world.in_ledger(
        state((7, 1)), wide, compression=compression, max_entry_bytes=64, closed=closed
    )
    assert len(world.bookkeeper.ledger(ledger).entries) > 3
    found = await read(world)
    assert found.state == wide and found.freshness.skipped == ()


async def test_an_unfinished_chunk_sequence_is_stepped_over_and_told(world: PulsarWorld) -> None:
    await world.topic()
    chunks = entries_of(sealed(state(seed=9)), compression=None, max_entry_bytes=64, multiple=True)
    ledger = await world.ledger([sealed(state()), *chunks[:-1]])
    await world.names_ledger(ledger)
    found = await read(world)
    assert found.state == state() and len(found.freshness.skipped) == len(chunks) - 1
    assert not found.freshness.is_final and "hold no whole state" in found.freshness.sentence


async def test_properties_of_a_znode_that_names_a_ledger(world: PulsarWorld) -> None:
    await world.in_ledger(state(), properties={"x": "y"})
    assert (await read(world)).cursor_properties == {"x": "y"}


async def test_ranges_across_ledgers_are_split_by_the_topics_counts(world: PulsarWorld) -> None:
    crossing = CrossingRange(Position(7, 89), Position(12, 4))
    info = PositionInfo(Position(7, 3), crossing=(crossing,), form=Form.RANGES)
    await world.in_ledger(info)
    found = await read(world)
    assert found.state.acked == {
        7: BitMap(range(90, 100)),
        9: BitMap(range(50)),
        12: BitMap(range(5)),
    }
    assert found.original.crossing == (crossing,)


async def test_fields_of_a_newer_pulsar_are_kept(world: PulsarWorld) -> None:
    await world.topic()
    newer = cursor_info.encode(inline(state())) + b"\x48\x05"  # 9: idleSince
    await world.put(REF.path, newer)
    assert (await read(world)).znode.unknown == b"\x48\x05"


# ---- the ledger moves on under the reader


def moves_on(world: PulsarWorld, others: Callable[[], Awaitable[None]]) -> None:
    """The znode is written anew after the reader has read it, and before it reads it again."""
    world.zookeeper.faults.next("sync", Delay(0), REF.path)
    world.zookeeper.faults.next("sync", Meanwhile(others), REF.path)


async def test_a_switch_to_a_new_ledger_while_reading(world: PulsarWorld) -> None:
    world.bookkeeper.lose_ledger(await world.in_ledger(state((7, 1))))
    new = await world.ledger([sealed(state())])
    moves_on(world, lambda: world.names_ledger(new))
    found = await read_cursor(await world.pulsar(), REF, patience=HASTY)
    assert (found.state, found.freshness.ledger) == (state(), new)


async def test_a_graceful_close_while_reading(world: PulsarWorld) -> None:
    world.bookkeeper.lose_ledger(await world.in_ledger(state((7, 1)), closed=False))
    moves_on(world, lambda: world.in_znode(state(form=Form.RANGES)))
    found = await read_cursor(await world.pulsar(), REF, patience=HASTY)
    assert (found.state, found.freshness.source) == (state(form=Form.RANGES), "znode")


# ---- bad input


async def test_a_missing_ledger_is_never_a_smaller_state(world: PulsarWorld) -> None:
    ledger = await world.in_ledger(state(), snapshot=Position(7, 2), properties={"a": "b"})
    world.bookkeeper.lose_ledger(ledger)
    error = await refused(world, Kind.MISSING)
    assert error.where == f"ledger {ledger}" and "--roll-back-unreadable" in error.remedy
    found = await read(world, roll_back_unreadable=True)
    assert found.state == PositionInfo(Position(7, 2)) and found.cursor_properties == {"a": "b"}
    assert "ROLLED BACK" in found.freshness.sentence and not found.freshness.is_final


@pytest.mark.parametrize(
    "entry", [b"", b"\x08", b"garbage", sealed(state())[:-3], b'{"numParts":2,"length":9}']
)
async def test_no_entry_that_can_be_read(world: PulsarWorld, entry: bytes) -> None:
    await world.topic()
    ledger = await world.ledger([entry])
    await world.names_ledger(ledger, snapshot=Position(7, 2))
    error = await refused(world, Kind.DAMAGED)
    assert f"ledger {ledger}" in error.where and "--roll-back-unreadable" in error.remedy
    assert (await read(world, roll_back_unreadable=True)).state == PositionInfo(Position(7, 2))


async def test_a_bit_flip_is_an_error_or_an_older_state_that_is_told(world: PulsarWorld) -> None:
    ledger = await world.in_ledger(state((7, 1)), state())
    world.bookkeeper.damage(ledger, 1, Damage.TRUNCATE)
    found = await read(world)
    assert (
        found.state.mark_delete == (7, 1)
        and found.freshness.skipped
        and not found.freshness.is_final
    )


async def test_an_entry_without_a_good_copy(world: PulsarWorld) -> None:
    ledger = await world.in_ledger(state())
    world.bookkeeper.damage(ledger, 0, Damage.DIGEST)
    error = await refused(world, Kind.DAMAGED)
    assert error.where == f"ledger {ledger}"
    assert (await read(world, roll_back_unreadable=True)).freshness.rolled_back


async def test_an_empty_ledger(world: PulsarWorld) -> None:
    await world.topic()
    ledger = await world.ledger([])
    await world.names_ledger(ledger)
    assert "no entry" in (await refused(world, Kind.DAMAGED)).message


async def test_bookies_away_is_not_damage(world: PulsarWorld) -> None:
    await world.in_ledger(state())
    world.bookkeeper.bookies_up = 0
    with pytest.raises(MigrationError) as error:
        await read(world, roll_back_unreadable=True)
    assert error.value.kind is Kind.AWAY, "and never a reason to roll back"


async def test_a_footer_that_disagrees_with_its_chunks(world: PulsarWorld) -> None:
    await world.topic()
    chunks = entries_of(sealed(state()), compression=None, max_entry_bytes=64, multiple=True)
    ledger = await world.ledger([*chunks[:-1], b'{"numParts":%d,"length":7}' % (len(chunks) - 1)])
    await world.names_ledger(ledger)
    await refused(world, Kind.DAMAGED)


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"\xff",
        b"\x47\x78",
        b"\x47\x78\x00\x00\x00\x04\x08\x02\x10\x2cnot zlib",
        b"\x47\x78\x00\x00\x00\x09\x08\x01\x10\xff\xff\xff\xff\x07" + b"x" * 50,  # promises 2 GiB
        cursor_info.encode(inline(state()))[:-1],
    ],
)
async def test_a_malformed_znode(world: PulsarWorld, value: bytes) -> None:
    await world.topic()
    await world.put(REF.path, value)
    assert (await refused(world, Kind.DAMAGED)).where == REF.path


async def test_a_header_that_lies_about_its_size(world: PulsarWorld) -> None:
    await world.topic()
    raw = cursor_info.encode(inline(state()))
    value = bytearray(cursor_info.wrap(raw, Compression.ZSTD, 0))
    at = value.index(b"\x10") + 1
    value[at] ^= 1
    await world.put(REF.path, bytes(value))
    assert (await refused(world, Kind.DAMAGED)).where == REF.path


async def test_acks_in_a_form_of_a_newer_pulsar_are_refused(world: PulsarWorld) -> None:
    await world.topic()
    # 7 as bytes
    ledger = await world.ledger(
        [position_info.encode(PositionInfo(Position(7, 3)), Form.RANGES) + b"\x3a\x02xx"]
    )
    await world.names_ledger(ledger)
    assert "release" in (await refused(world, Kind.TOO_NEW, roll_back_unreadable=True)).remedy


async def test_an_unknown_codec_of_a_ledger(world: PulsarWorld) -> None:
    await world.topic()
    ledger = await world.ledger([sealed(state())], metadata={COMPRESSION_KEY: b"BROTLI"})
    await world.names_ledger(ledger)
    assert "BROTLI" in (await refused(world, Kind.TOO_NEW)).message


async def test_somebody_elses_ledger(world: PulsarWorld) -> None:
    await world.topic()
    ledger = await world.ledger([sealed(state())], metadata={"pulsar/cursor": b"another"})
    await world.names_ledger(ledger)
    assert "another" in (await refused(world, Kind.DAMAGED)).message


async def test_a_topic_without_its_znode_or_with_a_bad_one(world: PulsarWorld) -> None:
    await world.put(REF.path, cursor_info.encode(inline(state())))
    await world.put(REF.topic_path, b"\xff\xff")
    assert (await refused(world, Kind.DAMAGED)).where == REF.topic_path
    await world.topic(TOPIC, ((9, 5), (7, 0)))
    assert "does not come after" in (await refused(world, Kind.DAMAGED)).message


async def test_no_such_subscription(world: PulsarWorld) -> None:
    await world.topic()
    await refused(world, Kind.NOT_FOUND)


async def test_a_znode_that_names_no_ledger_and_no_position(world: PulsarWorld) -> None:
    await world.topic()
    await world.put(REF.path, b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01")
    await refused(world, Kind.DAMAGED)
    await world.put(REF.path, cursor_info.encode(ManagedCursorInfo(4711)))
    assert (await refused(world, Kind.MISSING, roll_back_unreadable=True)).where == "ledger 4711", (
        "nothing to roll back to"
    )


# ---- the topic as it is


async def test_a_mark_delete_in_a_trimmed_ledger(world: PulsarWorld) -> None:
    await world.topic(TOPIC, ((9, 50), (12, 0)))
    await world.in_znode(state())
    found = await read(world)
    assert (
        found.state.mark_delete == (9, -1)
        and set(found.state.acked) == {9, 12}
        and "7:3" in found.warnings[0]
    )


async def test_a_mark_delete_behind_the_end(world: PulsarWorld) -> None:
    data = await world.data_ledger()
    fake = world.bookkeeper.ledger(data)
    for _ in range(5):
        fake.ack(fake.store(b"message"))
    await world.topic(TOPIC, ((7, 100), (data, 0)))
    await world.in_znode(PositionInfo(Position(data + 7, 3)))
    assert (await read(world)).state.mark_delete == (data, 3), "the last entry that a reader sees"
    fake.recover(world.bookkeeper.rng)
    found = await read(world)
    assert (
        found.state.mark_delete == (data, 4)
        and "behind the topic's end" in found.warnings[0]
        and "ALL OF THE TOPIC COUNTS AS ACKED" in found.warnings[0]
    )
    world.bookkeeper.lose_ledger(data)
    assert (await read(world)).state.mark_delete == (data, -1)

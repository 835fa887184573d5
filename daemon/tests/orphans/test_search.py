"""A search on fakes: names of every kind, and stores that are none."""

from __future__ import annotations

import pytest

from cursorkeeper.core.footer import FooterState
from cursorkeeper.core.names import CursorName
from cursorkeeper.format.pulsar.names import encode_name
from cursorkeeper.orphans.fleet import Why
from cursorkeeper.orphans.pulsar_store import MOVING, cursor_paths
from cursorkeeper.orphans.search import LOOKUPS_AT_ONCE, search
from daemon.tests.orphans.conftest import OrphanWorld
from daemon.tests.support.world import Source

NAMES = [
    CursorName("persistent://t/ns/plain", "sub"),
    CursorName("persistent://t/ns/parts-partition-3", "sub"),
    CursorName("persistent://t/ns/a topic, with signs+~*%2F:", "a/sub with+signs%"),
    CursorName("persistent://t/cluster/ns/first naming scheme", "sub"),
    CursorName("persistent://t/cluster/ns/with/slash", "sub"),
    CursorName("persistent://t/ns/日本", "購読"),
    CursorName("persistent://t/ns/plain", "pulsar.dedup"),
    CursorName("persistent://t/ns/plain", "__compaction"),
    CursorName("persistent://t/ns/plain", "pulsar.repl.us-west"),
    CursorName("persistent://pulsar/system/__transaction_log_0", "transaction.subscription"),
    CursorName("persistent://t/ns/plain-sub__transaction_pending_ack", "__pending_ack_state"),
    CursorName("persistent://t/ns/plain", "x" * 200),
]
FOREIGN = [
    CursorName("non-persistent://t/ns/topic", "sub"),
    CursorName("segment://t/ns/topic/0000-7fff-1", "sub"),
    CursorName("demo", "sub"),
    CursorName("persistent://t/ns", "sub"),
    CursorName("t/ns/non-persistent/topic", "sub"),
    CursorName("t//persistent/topic", "sub"),
    CursorName("persistent://t/ns/topic", ".."),
]


@pytest.mark.parametrize("name", NAMES, ids=str)
async def test_each_kind_of_name_is_found_where_pulsar_has_it(
    name: CursorName, world: OrphanWorld
) -> None:
    await world.closed(name)
    await world.subscribed(name)
    fleet = await world.searched()
    assert (fleet.cursors, fleet.with_topic, fleet.orphans_count) == (1, 1, 0)
    await world.unsubscribed(name)
    [orphan] = (await world.searched()).orphans
    assert (orphan.name, orphan.why, orphan.is_open) == (name, Why.SUBSCRIPTION, False)
    await world.remove(cursor_paths(name)[0].rpartition("/")[0])
    fleet = await world.searched()
    assert fleet.orphans[0].why is Why.TOPIC and fleet.with_topic == 0


async def test_a_name_that_a_source_knows_as_it_is_encoded_is_there_too(world: OrphanWorld) -> None:
    encoded = CursorName(f"persistent://t/ns/{encode_name('a topic')}", encode_name("a/sub"))
    await world.closed(encoded)
    await world.subscribed(CursorName("persistent://t/ns/a topic", "a/sub"))
    assert (await world.searched()).orphans_count == 0
    assert len(cursor_paths(CursorName("persistent://t/ns/a topic", "a/sub"))) == 2, (
        "a slash is in no name of a znode"
    )


async def test_a_cursor_under_the_name_of_its_managed_ledger(world: OrphanWorld) -> None:
    """What a broker calls it: with the name of the topic behind its domain, and both names as they
    are in paths.
    """
    theirs = CursorName("persistent://t/ns/a topic", "a/sub")
    ours = CursorName("t/ns/persistent/a+topic", "a%2Fsub")
    await world.closed(ours)
    await world.subscribed(theirs)
    fleet = await world.searched()
    assert (fleet.cursors, fleet.foreign, fleet.with_topic, fleet.orphans_count) == (1, 0, 1, 0)
    await world.deleted_by_force(theirs)
    [orphan] = (await world.searched()).orphans
    assert orphan.name == ours and orphan.why is Why.TOPIC


async def test_what_pulsar_cannot_have_is_no_orphan(world: OrphanWorld) -> None:
    for name in FOREIGN:
        await world.closed(name)
    fleet = await world.searched()
    assert (fleet.cursors, fleet.foreign, fleet.orphans_count) == (0, len(FOREIGN), 0)


async def test_tombstones_are_not_counted_and_unreadable_footers_are(world: OrphanWorld) -> None:
    orphan, _ = await world.orphan()
    await world.removed(orphan)
    other = CursorName("persistent://t/ns/other", "sub")
    await world.closed(other)
    await world.overwrite(other, b"{}")
    fleet = await world.searched()
    assert (fleet.cursors, fleet.unreadable, fleet.orphans_count) == (0, 1, 0)


async def test_what_is_known_of_an_orphan(world: OrphanWorld) -> None:
    footer = await world.with_two_snapshots()
    [orphan] = (await world.searched()).orphans
    assert (
        orphan.ledgers == len(footer.named_ledgers())
        and orphan.writer == footer.writer
        and orphan.state is FooterState.CLOSED
    )
    assert orphan.stored_bytes > footer.stats.delta_bytes + footer.base.length  # type: ignore[union-attr]
    await Source(await world.keeper()).open()
    [orphan] = (await world.searched()).orphans
    assert orphan.is_open and orphan.as_json()["state"] == "open"


async def test_more_than_a_batch(world: OrphanWorld) -> None:
    keeper = await world.keeper()
    names = [
        CursorName(f"persistent://t/ns/topic-{number}", "sub")
        for number in range(LOOKUPS_AT_ONCE + 7)
    ]
    for name in names:
        await Source(keeper, name).open(create=True)
    for name in names[3:]:
        await world.subscribed(name)
    looked: list[int] = []
    paced: list[int] = []

    async def pace(count: int) -> None:
        paced.append(count)

    fleet = await search(
        (await world.ports()).footers, await world.store(), pace=pace, looked=looked.append
    )
    assert {orphan.name for orphan in fleet.orphans} == set(names[:3]) and fleet.with_topic == len(
        names
    ) - 3
    assert looked == paced == [LOOKUPS_AT_ONCE, 7]


async def test_a_store_that_is_none(world: OrphanWorld) -> None:
    store = await world.store()
    assert "there is no /managed-ledgers" in await store.trouble()
    await world.put("/managed-ledgers", b"")
    assert "has no children" in await store.trouble()
    await world.subscribed()
    assert await store.trouble() == ""
    for flag, trouble in (
        (b'{"phase":"COPYING","targetUrl":"oxia://x"}', "says COPYING"),
        (b'{"phase":"COMPLETED"}', "says COMPLETED"),
        (b"\xff", "no JSON"),
        (b"7", "no phase"),
        (b'{"phase":"FAILED"}', ""),
        (b'{"phase":"NOT_STARTED"}', ""),
    ):
        await world.put(MOVING, flag)
        said = await store.trouble()
        assert trouble in said and bool(said) == bool(trouble)

"""Finding cursors: which there are, by selection; what is not a cursor is told; bounded in memory
and in requests.
"""

from __future__ import annotations

import pytest

from cursorkeeper.format.pulsar import names
from cursorkeeper.migration.cluster import (
    TOPICS_AHEAD,
    PulsarCursorRef,
    Selection,
    iter_cursors,
    iter_topic_paths,
)
from cursorkeeper.migration.errors import MigrationError
from cursorkeeper.problems import Kind
from daemon.tests.fakes.zookeeper.faults import NotNow, UnknownNotDone
from daemon.tests.migration.pulsar_world import HASTY, PATIENT, PulsarWorld

CURSORS = [
    ("persistent://a/ns/plain", "s"),
    ("persistent://a/ns/plain", "other s/é~"),
    ("persistent://a/ns/parts-partition-0", "s"),
    ("persistent://a/ns/parts-partition-11", "s"),
    ("persistent://a/ns/parts-partition-x", "s"),
    ("persistent://a/ns2/plain", "s"),
    ("persistent://a/west/ns/first", "s"),
    ("persistent://b/ns/a b%2F", "s"),
]


async def populated(world: PulsarWorld) -> None:
    for topic, sub in CURSORS:
        await world.put(names.cursor_path(topic, sub), b"")
    await world.put("/managed-ledgers/a/ns/persistent/nobody-subscribed", b"")


async def test_readers_that_share_the_work(world: PulsarWorld) -> None:
    """Topics are told without their cursors, and each reader takes its own."""
    await populated(world)
    zookeeper = await world.zk()
    paths = [
        path async for path in iter_topic_paths(zookeeper, Selection.everything(), patience=HASTY)
    ]
    assert sorted(paths) == sorted(
        {names.topic_path(topic) for topic, _ in CURSORS}
        | {"/managed-ledgers/a/ns/persistent/nobody-subscribed"}
    )
    shares = [paths[::2], paths[1::2]]
    found = [
        [
            ref
            async for ref in iter_cursors(
                zookeeper, Selection.everything(), patience=HASTY, only=set(share).__contains__
            )
        ]
        for share in shares
    ]
    assert sorted(found[0] + found[1]) == sorted(PulsarCursorRef(*cursor) for cursor in CURSORS)
    assert all(
        ref.topic_path in share for refs, share in zip(found, shares, strict=True) for ref in refs
    ) and all(found)


@pytest.mark.parametrize(
    ("selection", "wanted"),
    [
        (Selection.everything(), range(8)),
        (Selection.of_tenant("a"), range(7)),
        (Selection.of_tenant("none"), ()),
        (Selection.of_namespace("a/ns"), range(5)),
        (Selection.of_namespace("a/west/ns"), (6,)),
        (Selection.of_topic("persistent://a/ns/plain"), (0, 1)),
        (Selection.of_topic("persistent://a/ns/plain", "s"), (0,)),
        (Selection.of_topic("persistent://a/ns/parts"), (2, 3)),
        (Selection.of_topic("persistent://a/ns/parts-partition-11"), (3,)),
        (Selection.of_topic("persistent://b/ns/a b%2F"), (7,)),
        (Selection.of_topic("persistent://a/west/ns/first", "s"), (6,)),
    ],
    ids=str,
)
async def test_selections(
    world: PulsarWorld, selection: Selection, wanted: range | tuple[int, ...]
) -> None:
    await populated(world)
    found, skipped = await world.found(selection)
    assert found == [str(PulsarCursorRef(*CURSORS[n])) for n in _in_order(wanted)] and skipped == []


def _in_order(wanted: range | tuple[int, ...]) -> list[int]:
    return sorted(wanted, key=lambda n: names.cursor_path(*CURSORS[n]).split("/"))


async def test_what_is_no_cursor_of_a_persistent_topic_is_told(world: PulsarWorld) -> None:
    await populated(world)
    for path in (
        "/managed-ledgers/a/ns/non-persistent/t/s",
        "/managed-ledgers/a/ns/segment/t/0000-ffff-1",
        "/managed-ledgers/a/ns/persistent/%zz/s",
        "/managed-ledgers/a/ns/persistent/plain/%2g",
    ):
        await world.put(path, b"")
    found, skipped = await world.found()
    assert len(found) == 8
    assert {s.path.rpartition("/ns/")[2] for s in skipped} == {
        "non-persistent",
        "segment",
        "persistent/%zz",
        "persistent/plain/%2g",
    }
    assert all(s.reason for s in skipped)


async def test_no_cluster_at_that_chroot(world: PulsarWorld) -> None:
    with pytest.raises(MigrationError) as error:
        await world.found()
    assert error.value.kind is Kind.NOT_FOUND and "chroot" in error.value.remedy
    assert await world.found(Selection.of_topic("persistent://a/b/c", "d")) == ([], [])


async def test_a_short_absence_of_zookeeper_is_waited_for(world: PulsarWorld) -> None:
    await populated(world)
    world.zookeeper.faults.next("children", NotNow())
    world.zookeeper.faults.next("children", UnknownNotDone())
    assert len((await world.found(patience=PATIENT))[0]) == 8
    world.zookeeper.faults.chance("children", 1.0, NotNow())
    with pytest.raises(MigrationError) as error:
        await world.found()
    assert error.value.kind is Kind.AWAY


async def test_a_cluster_that_changes_under_the_walk(world: PulsarWorld) -> None:
    for n in range(3 * TOPICS_AHEAD):
        await world.put(names.cursor_path(f"persistent://a/ns/t{n:03}", "s"), b"")
    found = []
    async for ref in iter_cursors(await world.zk(), Selection.everything(), patience=HASTY):
        found.append(ref)
        if len(found) == 1:
            last = names.topic_path(f"persistent://a/ns/t{3 * TOPICS_AHEAD - 1:03}")
            await world.remove(f"{last}/s")
            await world.remove(last)
    assert [ref.topic for ref in found] == [
        f"persistent://a/ns/t{n:03}" for n in range(3 * TOPICS_AHEAD - 1)
    ]


async def test_whoever_stops_early_leaves_nothing_running(world: PulsarWorld) -> None:
    await populated(world)
    walk = iter_cursors(await world.zk(), Selection.everything(), patience=HASTY)
    assert (await anext(walk)).subscription
    await walk.aclose()  # type: ignore[attr-defined]


def test_bad_selections() -> None:
    for make in (
        lambda: Selection.of_tenant("a/b"),
        lambda: Selection.of_tenant(""),
        lambda: Selection.of_namespace("a"),
        lambda: Selection.of_namespace("a//b"),
        lambda: Selection.of_topic("non-persistent://a/b/c"),
        lambda: Selection.of_topic("x"),
    ):
        with pytest.raises(ValueError, match=r"is (not|no) "):
            make()

"""The daemon's own search: what it tells, what it deletes and when, and that nothing ends it."""

from __future__ import annotations

import asyncio
import random
from typing import Any

from cursorkeeper.core.footer import FooterState
from cursorkeeper.core.names import CursorName
from cursorkeeper.orphans.watch import OrphanWatch
from cursorkeeper.telemetry.metrics import DaemonTelemetry
from daemon.tests.orphans.conftest import OrphanWorld
from daemon.tests.runtime.virtual import until, virtual
from daemon.tests.support.world import NAME, Source

WELL = [CursorName(f"persistent://t/ns/well-{number}", "sub") for number in range(4)]
INTERVAL_S, AFTER_S = 100.0, 350.0


class Heard:
    """What an operator would see."""

    def __init__(self) -> None:
        self.counts: list[int] = []
        self.events: list[tuple[str, dict[str, Any]]] = []

    def found_orphans(self, count: int) -> None:
        self.counts.append(count)

    def log(self, event: str, **fields: Any) -> None:
        self.events.append((event, fields))

    def said(self, event: str) -> list[dict[str, Any]]:
        return [fields for name, fields in self.events if name == event]


async def watched(
    world: OrphanWorld, *, delete_after_s: float = AFTER_S
) -> tuple[Heard, OrphanWatch]:
    """Beside four cursors that are well."""
    for name in WELL:
        await world.closed(name)
        await world.subscribed(name)
    heard = Heard()
    return heard, OrphanWatch(
        await world.remover(), heard, INTERVAL_S, delete_after_s, random.Random(1)
    )


@virtual
async def test_an_orphan_is_told_and_goes_when_it_has_been_one_for_long_enough(
    world: OrphanWorld,
) -> None:
    heard, watch = await watched(world)
    _, before = await world.orphan()
    running = asyncio.create_task(watch.run())
    await until(lambda: len(heard.counts) == 2, 3 * INTERVAL_S)
    [first, _] = heard.said("orphans found")
    assert (first["count"], first["open"], first["cursors"]) == (
        1,
        0,
        [str(NAME)],
    ) and "cursorkeeper orphans" in first["remedy"]
    assert await world.footer() == before
    began_s = asyncio.get_running_loop().time()
    await until(lambda: bool(heard.said("orphan deleted")), 10 * INTERVAL_S)
    assert asyncio.get_running_loop().time() - began_s > AFTER_S - 2.2 * INTERVAL_S
    assert heard.said("orphan deleted") == [
        {"cursor": str(NAME), "gone": "topic", "ledgers_left": 0}
    ]
    assert (
        await world.footer()
    ).state is FooterState.DELETED and not before.named_ledgers() & world.bookkeeper.ledgers.keys()
    await until(lambda: heard.counts[-1] == 0, 3 * INTERVAL_S)
    assert not running.done()
    running.cancel()


@virtual
async def test_one_that_comes_back_for_a_while_begins_anew(world: OrphanWorld) -> None:
    heard, watch = await watched(world)
    await world.orphan()
    await watch.look()
    await asyncio.sleep(AFTER_S)
    await world.subscribed()
    await watch.look()
    await world.deleted_by_force()
    await watch.look()
    assert heard.counts == [1, 0, 1] and not heard.said("orphan deleted")
    await asyncio.sleep(AFTER_S - 1)
    await watch.look()
    assert not heard.said("orphan deleted")
    await asyncio.sleep(1)
    await watch.look()
    assert heard.said("orphan deleted")


@virtual
async def test_one_that_was_opened_and_closed_begins_anew(world: OrphanWorld) -> None:
    heard, watch = await watched(world)
    await world.orphan()
    await watch.look()
    await asyncio.sleep(AFTER_S)
    await world.close(await world.source())
    await watch.look()
    assert heard.counts == [1, 1] and not heard.said("orphan deleted")


@virtual
async def test_an_open_one_is_told_and_stays(world: OrphanWorld) -> None:
    heard, watch = await watched(world, delete_after_s=0.001)
    source = await world.source()
    for _ in range(3):
        await watch.look()
        await asyncio.sleep(INTERVAL_S)
    assert heard.said("orphans found")[-1]["open"] == 1 and not source.told.ended
    assert (await world.footer()).state is FooterState.OPEN and not heard.said("orphan deleted")


@virtual
async def test_without_an_age_nothing_is_deleted(world: OrphanWorld) -> None:
    heard, watch = await watched(world, delete_after_s=0.0)
    _, before = await world.orphan()
    for _ in range(3):
        await watch.look()
        await asyncio.sleep(100 * AFTER_S)
    assert await world.footer() == before and len(heard.said("orphans found")) == 3


@virtual
async def test_a_store_that_looks_wrong_is_told_and_nothing_goes(world: OrphanWorld) -> None:
    heard, watch = await watched(world, delete_after_s=0.001)
    for name in WELL:
        await world.deleted_by_force(name)
    for _ in range(2):
        await watch.look()
        await asyncio.sleep(1)
    [first, _] = heard.said("orphans not believed")
    assert (
        "no topic of any of the 4 cursors" in first["problem"]
        and "pulsar_metadata" in first["remedy"]
        and not heard.counts
    )
    assert [(await world.footer(name)).state for name in WELL] == [FooterState.CLOSED] * 4


@virtual
async def test_a_doubt_does_not_make_anything_older_or_younger(world: OrphanWorld) -> None:
    """A search that is not believed says nothing: neither that an orphan is still one, nor that it
    is none.
    """
    heard, watch = await watched(world)
    await world.orphan()
    await watch.look()
    await world.put("/pulsar/migration-coordinator/migration", b'{"phase":"COPYING"}')
    await asyncio.sleep(AFTER_S)
    await watch.look()
    assert heard.said("orphans not believed") and not heard.said("orphan deleted")
    await world.put("/pulsar/migration-coordinator/migration", b'{"phase":"FAILED"}')
    await watch.look()
    assert heard.said("orphan deleted")


@virtual
async def test_zookeeper_that_is_away_postpones_it(world: OrphanWorld) -> None:
    heard, watch = await watched(world)
    await world.orphan()
    world.zookeeper.stop()
    running = asyncio.create_task(watch.run())
    await until(lambda: len(heard.said("search for orphans postponed")) > 1, 5 * INTERVAL_S)
    world.zookeeper.start()
    await until(lambda: heard.counts == [1], 3 * INTERVAL_S)
    assert not running.done()
    running.cancel()


@virtual
async def test_two_daemons_delete_it_once(world: OrphanWorld) -> None:
    heard, watch = await watched(world)
    other_heard, other = await watched(world)
    await world.orphan()
    await asyncio.gather(watch.look(), other.look())
    await asyncio.sleep(AFTER_S)
    await asyncio.gather(watch.look(), other.look())
    deleted = heard.said("orphan deleted") + other_heard.said("orphan deleted")
    told = heard.said("orphan not deleted") + other_heard.said("orphan not deleted")
    assert len(deleted) == 1 and [fields["ending"] for fields in told] in ([], ["taken"])
    again = await Source(await world.keeper()).open(create=True)
    assert again.created


@virtual
async def test_so_many_at_most_in_one_search(world: OrphanWorld) -> None:
    heard, watch = await watched(world)
    watch.deleted_max = 1
    for number in range(5):
        well = CursorName(f"persistent://t/ns/well-too-{number}", "sub")
        await world.closed(well)
        await world.subscribed(well)
    for number in range(3):
        await world.orphan(
            CursorName(f"persistent://t/ns/gone-{number}", "sub"), with_ledgers=False
        )
    await watch.look()
    await asyncio.sleep(AFTER_S)
    for done in range(1, 4):
        await watch.look()
        assert len(heard.said("orphan deleted")) == done


def test_the_metric_is_there_before_the_first_search() -> None:
    telemetry = DaemonTelemetry()
    assert telemetry.registry.get_sample_value("cursorkeeper_orphans") == 0.0
    telemetry.found_orphans(7)
    assert telemetry.registry.get_sample_value("cursorkeeper_orphans") == 7.0

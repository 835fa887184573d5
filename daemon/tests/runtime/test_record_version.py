"""Records of version 2 are written by daemons that were told to, and read by all: a cursor goes
from one kind to the other and back.
"""

from __future__ import annotations

import base64
import json

import pytest
from pyroaring import BitMap

from cursorkeeper.core.batch import LedgerColumns
from cursorkeeper.core.footer import Footer, SnapshotBase
from cursorkeeper.core.limits import Limits
from cursorkeeper.format import footer as footer_bytes
from cursorkeeper.format import record
from cursorkeeper.format.record import Kind
from daemon.tests.runtime.virtual import until, virtual
from daemon.tests.support.world import NAME, Source, World

DATA = 10
HOLES = BitMap(range(0, 200_000, 97))


def footer_of(world: World) -> Footer:
    return footer_bytes.decode(world.zookeeper.tree.get(NAME.path()).data)


async def owner(world: World, record_version: int) -> Source:
    """The next one; it makes a snapshot at once."""
    world.record_version = record_version
    source = Source(await world.keeper(f"version {record_version}"))
    await source.open()
    assert source.told.refused is None
    return source


async def versions(world: World, source: Source) -> set[int]:
    """Of the segments of the snapshot that it makes now."""
    made = source.machine.counters.snapshots
    await until(lambda: source.machine.counters.snapshots > made)
    base = footer_of(world).base
    assert isinstance(base, SnapshotBase)
    heads = [record.peek(data) for data in world.bookkeeper.ledgers[base.ledger].entries]
    assert {head.version for head in heads if head.kind is not Kind.SEGMENT} == {1}
    return {head.version for head in heads if head.kind is Kind.SEGMENT}


@pytest.mark.parametrize("inline", [False, True])
@virtual
async def test_one_writes_sets_and_the_other_does_not(inline: bool) -> None:
    world = World(
        limits=Limits(
            snapshot_bytes_min=1,
            snapshot_cost_ratio=0.0,
            snapshot_interval_min_s=0.0,
            inline_state_max_bytes=32 << 10,
            restart_state_max_bytes=0,
        )
    )
    acked = BitMap(range(1))
    for turn, version in enumerate([1, 2, 1, 2]):
        source = await owner(world, version)
        assert source.machine.acks.acked_of(DATA) == acked or not turn
        acked = BitMap(range(50_000 * (turn + 1))) - HOLES
        source.ack(LedgerColumns(DATA, bitmap=acked))
        await source.durable()
        assert await versions(world, source) == {version}
        if inline:
            source.send_close()
            await source.told.until(lambda told=source.told: told.ended == "closed")
            stored = json.loads(world.zookeeper.tree.get(NAME.path()).data)["base"]["inline"]
            assert record.peek(base64.b64decode(stored)).version == version
        else:
            source.keeper.abandon()

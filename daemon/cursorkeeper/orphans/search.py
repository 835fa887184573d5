"""One search for orphans: every footer of ours against Pulsar's metadata store. Only reads, for
operators.

Footers are read in batches, and a bounded number of cursors is looked up at once. A footer is read
before Pulsar is asked, so that whoever opens the cursor in between writes a newer one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from cursorkeeper.core.footer import Footer
from cursorkeeper.core.names import CursorName
from cursorkeeper.orphans.fleet import Fleet, Orphan, Why
from cursorkeeper.orphans.pulsar_store import PulsarStore, cursor_paths
from cursorkeeper.runtime.footers import FooterStore, Stored

LOOKUPS_AT_ONCE = 50


async def at_once(_count: int) -> None:
    """Waits for nothing."""


async def search(
    footers: FooterStore,
    pulsar: PulsarStore,
    *,
    pace: Callable[[int], Awaitable[None]] = at_once,
    looked: Callable[[int], None] = lambda _count: None,
) -> Fleet:
    """`pace` is awaited after so many cursors each, `looked` is told of them. Raises
    ZooKeeperError.
    """
    fleet = Fleet()
    await footers.sync()
    await pulsar.sync()
    async for batch in footers.batches(size=LOOKUPS_AT_ONCE):
        await _look(batch, footers, pulsar, fleet)
        looked(len(batch))
        await pace(len(batch))
    return fleet


async def _look(
    names: list[CursorName], footers: FooterStore, pulsar: PulsarStore, fleet: Fleet
) -> None:
    living: list[tuple[CursorName, Footer, Stored]] = []
    for stored in await footers.living(names):
        name, footer, _ = stored
        if not isinstance(footer, Footer):
            fleet.unreadable += 1
        elif not _is_pulsars(name):
            fleet.foreign += 1
        else:
            fleet.cursors += 1
            living.append((name, footer, stored))
    answers = await asyncio.gather(*(pulsar.gone(name) for name, _, _ in living))
    for (name, footer, stored), gone in zip(living, answers, strict=True):
        fleet.with_topic += gone is not Why.TOPIC
        if gone is not None and stored.stat is not None:
            fleet.add(Orphan.of(name, gone, footer, stored.stat))


def _is_pulsars(name: CursorName) -> bool:
    try:
        return bool(cursor_paths(name))
    except ValueError:
        return False

"""The daemon's own search for orphans, again and again: it counts them, tells them, and deletes
them if it was told to.

Any number of daemons may search: what one of them deletes, the others find deleted. A search is
slow on purpose, and lasts as long as the fleet is large; a daemon begins at a random time, so that
daemons that were started together do not search together.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field
from typing import Any, Protocol

from cursorkeeper.orphans.fleet import PERCENT_MAX, Ages, Fleet, Orphan
from cursorkeeper.orphans.removal import Ending, Remover
from cursorkeeper.orphans.search import search
from cursorkeeper.zookeeper import errors as zk

LOOKUPS_PER_S = 500
"""Cursors of a search. Orphans are deleted one after the other."""
DELETED_PER_SEARCH_MAX = 1_000
NAMED_MAX = 5
"""In a line of the log."""
REMEDY = (
    "see them with `cursorkeeper orphans`; it deletes them with --delete, and a daemon does "
    "with orphans_delete_after_s"
)
DOUBT_REMEDY = (
    "check pulsar_metadata; if it is right, look at `cursorkeeper orphans`, which "
    "deletes what you allow it to"
)


class OrphanTelemetry(Protocol):
    """Who is told."""

    def found_orphans(self, count: int) -> None:
        """By a search that is believed."""
        ...

    def log(self, event: str, **fields: Any) -> None: ...


@dataclass(slots=True)
class OrphanWatch:
    """`delete_after_s`: since the first of the searches that all found an orphan; 0: none is
    deleted. `deleted_max`: by one search.
    """

    remover: Remover
    telemetry: OrphanTelemetry
    interval_s: float
    delete_after_s: float
    rng: random.Random
    deleted_max: int = DELETED_PER_SEARCH_MAX
    ages: Ages = field(default_factory=Ages)

    async def run(self) -> None:
        """Until cancelled."""
        await asyncio.sleep(self.interval_s * self.rng.random())
        while True:
            try:
                await self.look()
            except zk.ZooKeeperError as e:
                self.telemetry.log("search for orphans postponed", problem=str(e), remedy=e.remedy)
            await asyncio.sleep(self.interval_s * self.rng.uniform(0.9, 1.1))

    async def look(self) -> None:
        """One search, and what follows from it. Raises ZooKeeperError."""
        await self.remover.pulsar.start()
        trouble = await self.remover.pulsar.trouble()
        fleet = (
            Fleet()
            if trouble
            else await search(self.remover.footers, self.remover.pulsar, pace=_pace)
        )
        problem = trouble or fleet.doubt(PERCENT_MAX)
        if problem:
            self.telemetry.log("orphans not believed", problem=problem, remedy=DOUBT_REMEDY)
            return
        self.telemetry.found_orphans(fleet.orphans_count)
        now_s = asyncio.get_running_loop().time()
        self.ages.found(fleet.orphans, now_s)
        if fleet.orphans_count:
            self._tell(fleet)
        if self.delete_after_s > 0:
            await self._delete(
                [
                    o
                    for o in fleet.orphans
                    if not o.is_open and self.ages.age_s(o, now_s) >= self.delete_after_s
                ]
            )

    def _tell(self, fleet: Fleet) -> None:
        self.telemetry.log(
            "orphans found",
            count=fleet.orphans_count,
            open=sum(orphan.is_open for orphan in fleet.orphans),
            cursors=[str(orphan.name) for orphan in fleet.orphans[:NAMED_MAX]],
            remedy=REMEDY,
        )

    async def _delete(self, ripe: list[Orphan]) -> None:
        for orphan in ripe[: self.deleted_max]:
            removed = await self.remover.remove(orphan)
            if removed.ending is Ending.DELETED:
                self.telemetry.log(
                    "orphan deleted",
                    cursor=str(orphan.name),
                    gone=str(orphan.why),
                    ledgers_left=removed.ledgers_left,
                )
            else:
                self.telemetry.log(
                    "orphan not deleted",
                    cursor=str(orphan.name),
                    ending=str(removed.ending),
                    problem=removed.said,
                )


async def _pace(count: int) -> None:
    await asyncio.sleep(count / LOOKUPS_PER_S)

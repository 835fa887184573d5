"""The plan of every table of our cursors: all of ZooKeeper's buckets, spread over tasks by how many
znodes it counts in each. Serves whoever reads many cursors.

Owns how many tasks there are, which bucket is whose, and how work of known cost is packed. Does not
own how footers are read (`shards`) nor what is read of a cursor. Invariants: no footer is read but
that of a single named cursor, and no names are listed but, for a selection, those of
`SAMPLE_BUCKETS` buckets: a million cursors are planned in a second. A part names buckets and no
cursor, and every bucket there can be is in exactly one part: what comes or goes after the plan is
seen as the task finds it, because Spark keeps the plan of a table for as long as its DataFrame or
view lives. What was counted only says how even the tasks are.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from cursorkeeper.zookeeper.port import ZooKeeper
from cursorkeeper_pipeline.source.options import Options
from cursorkeeper_pipeline.source.shards import Reader
from cursorkeeper_pipeline.source.systems import Systems
from cursorkeeper_pipeline.source.table import Part, Table

BUCKETS: Final = tuple(f"{number:03x}" for number in range(4096))
"""All there can be: the first three hex digits of the hash of a cursor's name."""
SAMPLE_BUCKETS: Final = 64
TASKS_MIN: Final = 8
"""Of a plan that nobody gave a number or slots, if there are so many cursors: enough for the slots
of a small cluster.
"""
TASKS_A_SLOT: Final = 4
"""So that a slot whose cursors are small takes over from one whose cursors are large."""
PACED_TASKS: Final = 8
"""Of a job with a budget for reading that was not told its slots: each task gets an eighth, so the
budget holds on any cluster.
"""


@dataclass(frozen=True, slots=True)
class BucketsPart(Part):
    """The chosen cursors of these buckets."""

    buckets: tuple[str, ...]


class CursorsTable(Table):
    """A table of our cursors. `is_deep`: a cursor costs far more than its footer, so that even few
    are worth several tasks.
    """

    cursors_per_task: int
    is_deep = True

    async def parts(self, systems: Systems, options: Options) -> Sequence[Part]:
        return await plan_buckets(
            await systems.zookeeper(), options, self.cursors_per_task, is_deep=self.is_deep
        )


async def plan_buckets(
    zookeeper: ZooKeeper, options: Options, per_task: int, *, is_deep: bool = True
) -> list[BucketsPart]:
    """A part for each `per_task` cursors begun, or as many as `tasks` says. `is_deep`: a cursor
    costs far more than its footer, so that even few are worth several tasks. Raises ProblemError
    (ZooKeeper does not answer, or the root is none), ZooKeeperError.
    """
    reader = Reader(zookeeper, options)
    await reader.sync()
    if await reader.alone() is not None:
        return [BucketsPart(BUCKETS)]
    sizes = await reader.bucket_sizes()
    if not sizes:
        await reader.check_root()
    return spread(
        sizes, tasks_for(await _chosen(reader, options, sizes), per_task, options, is_deep=is_deep)
    )


def tasks_for(cursors: int, per_task: int, options: Options, *, is_deep: bool = True) -> int:
    """How many tasks read so many cursors: 1 to as many as there are buckets. Pure."""
    wanted = options.tasks
    if not wanted:
        least = TASKS_A_SLOT * options.slots or TASKS_MIN
        wanted = max(-(-cursors // per_task), min(cursors, least) if is_deep else 0)
    if options.is_paced and not options.slots:
        wanted = min(wanted, PACED_TASKS)
    return max(1, min(wanted, len(BUCKETS)))


async def _chosen(reader: Reader, options: Options, sizes: Mapping[str, int]) -> int:
    """About how many cursors are asked for."""
    total = sum(sizes.values())
    if options.is_of_all:
        return total
    there = sorted(bucket for bucket, size in sizes.items() if size)
    looked_at = there[:: -(-len(there) // SAMPLE_BUCKETS)] if there else []
    found = sum([len(names) async for names in reader.names_in(looked_at)])
    return -(-found * total // max(1, sum(sizes[bucket] for bucket in looked_at)))


def spread(sizes: Mapping[str, int], tasks: int) -> list[BucketsPart]:
    """At most `tasks` parts of about equal numbers of cursors, which hold every bucket there can
    be. Empty ones are spread evenly over them.
    """
    # what is empty now weighs something, and all of them together less than one cursor
    costs = [1 + len(BUCKETS) * sizes.get(bucket, 0) for bucket in BUCKETS]
    return [
        BucketsPart(tuple(BUCKETS[place] for place in group)) for group in bin_pack(costs, tasks)
    ]


def bin_pack(costs: Sequence[int], bins: int) -> list[list[int]]:
    """The places of `costs` (not negative) in at most `bins` bins of about equal sums: the dearest
    first, each to the bin that has least. Pure.

    Bins hold their places in order; none is empty. The fullest holds at most the mean and one more
    thing. Cost: one sort and one heap.
    """
    packed: list[list[int]] = [[] for _ in range(min(bins, len(costs)))]
    # cost, then number: what costs nothing is spread too
    loads = [(0, 0, at) for at in range(len(packed))]
    for place in sorted(range(len(costs)), key=lambda p: (-costs[p], p)):
        cost, number, at = loads[0]
        packed[at].append(place)
        heapq.heapreplace(loads, (cost + costs[place], number + 1, at))
    for places in packed:
        places.sort()
    return packed

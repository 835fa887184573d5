"""The plan of every table of our cursors: all buckets, spread over tasks by how many znodes
ZooKeeper counts in each.

Owns how many tasks there are. Does not own which bucket is whose (`fleet`), nor what is read of a
cursor. Invariants: no footer is read but that of a single named cursor, and no names are listed
but, for a selection, those of `SAMPLE_BUCKETS` buckets: a million cursors are planned in a second.
What was counted only says how even the tasks are, never what they read: that is what they find when
they run.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from cursorkeeper.migration.cluster import Selection
from cursorkeeper.zookeeper.port import ZooKeeper
from cursorkeeper_pipeline.source.fleet import BUCKETS, BucketsPart, spread
from cursorkeeper_pipeline.source.options import Options
from cursorkeeper_pipeline.source.shards import Reader

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
    if options.selection == Selection.everything() and options.wanted.is_everything:
        return total
    there = sorted(bucket for bucket, size in sizes.items() if size)
    looked_at = there[:: -(-len(there) // SAMPLE_BUCKETS)] if there else []
    found = sum([len(names) async for _, names in reader.names(looked_at)])
    return -(-found * total // max(1, sum(sizes[bucket] for bucket in looked_at)))

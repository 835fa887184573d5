"""The plan of the tables that are read cursor by cursor (`deltas`, `checks`): names are listed, and spread over tasks by their buckets.

Owns how many tasks there are. Does not own how names are listed (`shards`) nor what is read of a cursor. Invariants: no footer is read but
that of a single named cursor; the driver holds one number for each bucket and no names.
"""

from __future__ import annotations

from typing import Final

from cursorkeeper_clients.zookeeper.port import ZooKeeper

from cursorkeeper_pipeline.source.fleet import BucketsPart, NamedPart, spread
from cursorkeeper_pipeline.source.options import TASKS_MAX, Options
from cursorkeeper_pipeline.source.shards import Reader

CURSORS_PER_TASK: Final = 256
"""An empty task costs some 50 ms; a cursor with a ledger or two costs several ms of reading."""


async def plan_cursors(zookeeper: ZooKeeper, options: Options, per_task: int = CURSORS_PER_TASK) -> list[NamedPart] | list[BucketsPart]:
    """Parts of about equal numbers of cursors. Empty: there is none. Raises CommandError (it does not answer), ZooKeeperError."""
    reader = Reader(zookeeper, options)
    await reader.sync()
    if await reader.alone() is not None:
        return [NamedPart()]
    counts = {bucket: len(names) async for bucket, names in reader.names(await reader.buckets()) if names}
    wanted = options.tasks or -(-sum(counts.values()) // per_task)
    return spread(counts, max(1, min(wanted, TASKS_MAX)))

"""Which of our cursors a job reads, spread over tasks by ZooKeeper's buckets: planned without reading one footer.

Owns: `cursor_key`, the selection of names, the parts of tables that are read cursor by cursor. Does not own what is read of a cursor.
Invariants: the driver holds one number for each bucket and no names; a part names buckets, so that a cursor which comes or goes between
plan and task is seen as the task finds it; every bucket that holds a chosen cursor is in exactly one part.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

from cursorkeeper.cli.our_cursors import is_chosen
from cursorkeeper.core.names import CursorName
from cursorkeeper.format.pulsar import names
from cursorkeeper.migration.cluster import Selection
from cursorkeeper_clients.zookeeper import errors as zk
from cursorkeeper_clients.zookeeper.port import ZooKeeper

from cursorkeeper_pipeline.source.options import TASKS_MAX, Options
from cursorkeeper_pipeline.source.planning import grouped
from cursorkeeper_pipeline.source.table import Part

CURSORS_PER_TASK = 256
"""An empty task costs some 50 ms; a cursor with a ledger or two costs several ms of reading."""
LISTINGS_AHEAD = 64
"""Buckets asked for at once."""


@dataclass(frozen=True, slots=True)
class BucketsPart(Part):
    """The chosen cursors of these buckets."""

    buckets: tuple[str, ...]


def cursor_key(name: CursorName) -> int:
    """The hash that every record of the cursor carries (the first 8 bytes of SHA-256 of its canonical name), as a signed number."""
    return int.from_bytes(name.record_hash.to_bytes(8, "little"), "little", signed=True)


def chooses(selection: Selection, name: CursorName) -> bool:
    """Whether a cursor is asked for. A topic that Pulsar could not have is chosen only where everything is."""
    if selection == Selection.everything():
        return True
    try:
        managed = names.managed_ledger_name(name.topic)
    except ValueError:
        return False
    return is_chosen(managed, name.subscription, selection)


async def plan_buckets(zookeeper: ZooKeeper, options: Options, per_task: int = CURSORS_PER_TASK) -> list[BucketsPart]:
    """Parts of about equal numbers of cursors. Empty: there is none. Raises ZooKeeperError."""
    counts: dict[str, int] = {}
    async for bucket, found in _listed(zookeeper, options, await _children(zookeeper, options.settings.root)):
        if found:
            counts[bucket] = len(found)
    wanted = options.tasks or -(-sum(counts.values()) // per_task)
    return spread(counts, max(1, min(wanted, TASKS_MAX)))


def spread(counts: dict[str, int], tasks: int) -> list[BucketsPart]:
    """At most `tasks` parts of about equal numbers."""
    return [BucketsPart(group) for group in grouped(counts, tasks)]


async def names_in(zookeeper: ZooKeeper, options: Options, buckets: Sequence[str]) -> AsyncIterator[CursorName]:
    """The chosen cursors, bucket by bucket. Raises ZooKeeperError."""
    async for _, found in _listed(zookeeper, options, buckets):
        for name in found:
            yield name


async def _listed(zookeeper: ZooKeeper, options: Options, buckets: Sequence[str]) -> AsyncIterator[tuple[str, list[CursorName]]]:
    root, selection = options.settings.root, options.selection
    for start in range(0, len(buckets), LISTINGS_AHEAD):
        some = buckets[start : start + LISTINGS_AHEAD]
        for bucket, children in zip(some, await asyncio.gather(*[_children(zookeeper, f"{root}/{b}") for b in some]), strict=True):
            yield bucket, [name for child in children for name in _name(child) if chooses(selection, name)]


def _name(child: str) -> list[CursorName]:
    try:
        return [CursorName.from_znode(child)]
    except ValueError:
        return []


async def _children(zookeeper: ZooKeeper, path: str) -> list[str]:
    try:
        return await zookeeper.children(path)
    except zk.NoNode:
        return []

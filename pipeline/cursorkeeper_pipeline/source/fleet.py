"""Which of our cursors a job reads, spread over tasks by ZooKeeper's buckets.

Owns: the selection of names, the parts of tables that read footers. Does not own how footers or
names are read (`shards`) nor what is read of a cursor. Invariants: a part names buckets and no
cursor, so that what comes or goes after the plan is seen as the task finds it: Spark keeps the plan
of a table for as long as its DataFrame or view lives. Every bucket there can be is in exactly one
part, empty ones too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from cursorkeeper.core.names import CursorName
from cursorkeeper.format.pulsar import names
from cursorkeeper.migration.cluster import Selection
from cursorkeeper_pipeline.source.part import Part
from cursorkeeper_pipeline.source.planning import grouped

BUCKETS: Final = tuple(f"{number:03x}" for number in range(4096))
"""All there can be: the first three hex digits of the hash of a cursor's name."""


@dataclass(frozen=True, slots=True)
class BucketsPart(Part):
    """The chosen cursors of these buckets."""

    buckets: tuple[str, ...]


def chooses(selection: Selection, name: CursorName) -> bool:
    """Whether a cursor is asked for. A topic that Pulsar could not have is chosen only where
    everything is.
    """
    if selection == Selection.everything():
        return True
    try:
        managed = names.managed_ledger_name(name.topic)
    except ValueError:
        return False
    return selection.takes(managed, name.subscription)


def spread(sizes: Mapping[str, int], tasks: int) -> list[BucketsPart]:
    """`tasks` parts of about equal numbers of cursors, which hold every bucket there can be."""
    return [
        BucketsPart(group)
        for group in grouped({bucket: sizes.get(bucket, 0) for bucket in BUCKETS}, tasks)
    ]

"""Which of our cursors a job reads, spread over tasks by ZooKeeper's buckets.

Owns: `cursor_key`, the selection of names, the parts of tables that read footers. Does not own how footers or names are read (`shards`)
nor what is read of a cursor.
Invariants: a part names buckets, so that a cursor which comes or goes between plan and task is seen as the task finds it; every bucket
that holds a chosen cursor is in exactly one part.
"""

from __future__ import annotations

from dataclasses import dataclass

from cursorkeeper.cli.our_cursors import is_chosen
from cursorkeeper.core.names import CursorName
from cursorkeeper.format.pulsar import names
from cursorkeeper.migration.cluster import Selection

from cursorkeeper_pipeline.source.planning import grouped
from cursorkeeper_pipeline.source.table import Part


@dataclass(frozen=True, slots=True)
class BucketsPart(Part):
    """The chosen cursors of these buckets."""

    buckets: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NamedPart(Part):
    """The one cursor that the options name; if there is none of that name, those of the topic's partitions."""


def buckets_of(part: Part) -> tuple[str, ...] | None:
    """Of a part of either kind; None: wherever the named cursor is."""
    assert isinstance(part, BucketsPart | NamedPart)
    return part.buckets if isinstance(part, BucketsPart) else None


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


def spread(counts: dict[str, int], tasks: int) -> list[BucketsPart]:
    """At most `tasks` parts of about equal numbers."""
    return [BucketsPart(group) for group in grouped(counts, tasks)]

"""Joining deltas that were taken and are not durable yet (ARCHITECTURE rules 39 and 40): they are
values, kept until durable.

The join is the format's: union, maximum, intersection of what is missing, later stamp. It never
asks the state: holes were cleared when the delta was taken, and filtering by them would lose it.
"""

from __future__ import annotations

from collections.abc import Iterable

from cursorkeeper.core.entries import NONE, Entries, union
from cursorkeeper.core.positions import Position
from cursorkeeper.core.values import Delta, LayoutItem, Partial, PartialKey, above, newer

NOTHING = Delta()


def join(deltas: Iterable[Delta]) -> Delta:
    """All of them as one. The arguments stay as they are."""
    parts = [d for d in deltas if d]
    if not parts:
        return NOTHING
    if len(parts) == 1:
        return parts[0]
    mark_delete = max((d.mark_delete for d in parts if d.mark_delete is not None), default=None)
    md_properties = cursor_properties = None
    layout: dict[int, LayoutItem] = {}
    acks: dict[int, Entries] = {}
    partials: dict[PartialKey, Partial] = {}
    for delta in parts:
        md_properties = newer(md_properties, delta.mark_delete_properties)
        cursor_properties = newer(cursor_properties, delta.cursor_properties)
        for item in delta.layout:
            if item.is_ahead_of(layout.get(item.ledger)):
                layout[item.ledger] = item
        for ledger, entries in delta.acks.items():
            before = acks.get(ledger)
            acks[ledger] = entries if before is None else union([before, entries])
        for key, partial in delta.partials.items():
            before_partial = partials.get(key)
            partials[key] = partial if before_partial is None else before_partial.joined(partial)
    completed = [k for k, p in partials.items() if not p.missing]
    for key in completed:
        acks[key.ledger] = union([acks.get(key.ledger, NONE), (key.entry,)])
    return Delta(
        mark_delete,
        md_properties,
        cursor_properties,
        tuple(layout[i] for i in sorted(layout)),
        above(mark_delete, acks),
        {
            k: p
            for k, p in sorted(partials.items())
            if p.missing and not _is_acked(k, mark_delete, acks)
        },
    )


def _is_acked(key: PartialKey, mark_delete: Position | None, acks: dict[int, Entries]) -> bool:
    return (mark_delete is not None and Position(*key) <= mark_delete) or key.entry in acks.get(
        key.ledger, NONE
    )

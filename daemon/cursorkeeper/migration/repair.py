"""Fitting a state to the topic that is there now, as Pulsar does when it recovers a cursor. Pure.

Owns the rules for positions that the topic does not have (any more); each use of one is told in a
sentence. Nothing here un-acks an entry that exists: what is dropped are acks of entries that cannot
be delivered again.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import replace

from pyroaring import BitMap

from cursorkeeper.core.positions import BEFORE_FIRST, ENTRY_ID_MAX, Position
from cursorkeeper.core.values import LayoutItem, LayoutState, PartialKey
from cursorkeeper.format.pulsar.values import PositionInfo


def is_beyond(position: Position, layout: Sequence[LayoutItem]) -> bool:
    """Whether it lies behind the topic's last ledger, so that the topic's end must be known to
    repair it.
    """
    return bool(layout) and position.ledger > layout[-1].ledger


def repair(
    info: PositionInfo, layout: Sequence[LayoutItem], end: Position | None = None
) -> tuple[PositionInfo, list[str]]:
    """The state with only positions that the topic has, and what was done to it, for people.

    `end`: the topic's last position, needed if `is_beyond`. A mark-delete in a ledger that is gone
    moves to (next ledger, -1), one behind the end to the end, one behind the last entry of its
    ledger to that.
    """
    if not layout:
        return info, [
            "the topic has no message ledgers: mark-delete cannot move from ledger to ledger"
        ]
    done: list[str] = []
    mark_delete = _mark_delete(info.mark_delete, layout, end, done)
    items = {item.ledger: item for item in layout}
    acked = _acked(info.acked, mark_delete, items, done)
    batches = _batches(info.batches, mark_delete, items, acked, done)
    if mark_delete == info.mark_delete and not done:
        return info, []
    return replace(
        info,
        mark_delete=mark_delete,
        acked=acked,
        batches=batches,
        form=info.form if acked else None,
    ), done


def _mark_delete(
    at: Position, layout: Sequence[LayoutItem], end: Position | None, done: list[str]
) -> Position:
    if is_beyond(at, layout):
        if end is None:
            raise ValueError(
                f"{at} lies behind the topic's last ledger {layout[-1].ledger}, and the topic's "
                f"end is not known"
            )
        done.append(
            f"mark-delete {at} lies behind the topic's end: moved to {end}, so that ALL OF THE "
            f"TOPIC COUNTS AS ACKED, as in Pulsar"
        )
        return end
    ids = [item.ledger for item in layout]
    if at.ledger not in ids:
        moved = Position(ids[bisect_right(ids, at.ledger)], BEFORE_FIRST)
        done.append(
            f"mark-delete {at} lies in a ledger that the topic does not have (any more): moved "
            f"to {moved}"
        )
        return moved
    item = layout[ids.index(at.ledger)]
    if item.state is LayoutState.CLOSED and at.entry >= item.entries:
        moved = Position(at.ledger, item.entries - 1)
        done.append(
            f"mark-delete {at} lies behind the {item.entries} entries of its ledger: moved to "
            f"{moved}"
        )
        return moved
    return at


def _acked(
    acked: Mapping[int, BitMap],
    mark_delete: Position,
    items: Mapping[int, LayoutItem],
    done: list[str],
) -> dict[int, BitMap]:
    kept: dict[int, BitMap] = {}
    for ledger, entries in acked.items():
        if ledger < mark_delete.ledger:
            continue  # acked by mark-delete
        item = items.get(ledger)
        if item is None:
            done.append(
                f"{len(entries)} acked entries of ledger {ledger}, which the topic does not have "
                f"(any more), are dropped"
            )
            continue
        first = mark_delete.entry + 1 if ledger == mark_delete.ledger else 0
        limit = item.entries if item.state is LayoutState.CLOSED else ENTRY_ID_MAX + 1
        if entries.max() >= limit:
            done.append(
                f"{len(entries) - entries.range_cardinality(0, limit)} acked entries behind the "
                f"end of ledger {ledger} are dropped"
            )
        if entries.min() < first or entries.max() >= limit:
            entries = entries & BitMap(range(first, limit))
        if entries:
            kept[ledger] = entries
    return kept


def _batches(
    batches: Mapping[PartialKey, BitMap],
    mark_delete: Position,
    items: Mapping[int, LayoutItem],
    acked: Mapping[int, BitMap],
    done: list[str],
) -> dict[PartialKey, BitMap]:
    kept: dict[PartialKey, BitMap] = {}
    for key, missing in batches.items():
        if Position(*key) <= mark_delete or key.entry in acked.get(key.ledger, ()):
            continue
        item = items.get(key.ledger)
        if item is None or (item.state is LayoutState.CLOSED and key.entry >= item.entries):
            done.append(
                f"the partly acked batch {key.ledger}:{key.entry}, which the topic does not have "
                f"(any more), is dropped"
            )
        else:
            kept[key] = missing
    return kept

"""Whether two states of a cursor are the same, entry by entry. Pure.

Same = the same entries are acked, the same indexes of the same batches are missing, and the
properties are equal. A mark-delete at the end of a ledger is the same as one before the first entry
of the next; sizes of batches (Pulsar does not keep them), stamps and high waters are no part of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyroaring import BitMap

from cursorkeeper.core import bitmaps
from cursorkeeper.core.positions import Position
from cursorkeeper.core.state import AckState
from cursorkeeper.core.values import LayoutItem, LayoutState, Stamp
from cursorkeeper.format.pulsar.states import from_ack_state, to_ack_state
from cursorkeeper.migration.repair import repair
from cursorkeeper.migration.string_properties import string_properties


@dataclass(frozen=True, slots=True)
class Difference:
    """What is not the same. Falsy: nothing. `missing`: entries acked in the first state only;
    `extra`: in the second only.
    """

    missing: int = 0
    extra: int = 0
    batches: int = 0
    notes: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.missing or self.extra or self.batches or self.notes)

    def __str__(self) -> str:
        counts = [
            (self.missing, "acked entries are missing"),
            (self.extra, "acked entries too many"),
            (self.batches, "partial batches differ"),
        ]
        return (
            ", ".join([f"{n:,} {what}" for n, what in counts if n] + list(self.notes))
            or "nothing differs"
        )


def difference(source: AckState, other: AckState) -> Difference:
    """From `source` to `other`. Where both know the topic's layout it must be the same one."""
    ends = _end(source, other), _end(other, source)
    missing = extra = 0
    for ledger in sorted({*source.ledgers, *other.ledgers}):
        mine, theirs = (
            _acked(source, ledger, ends[0], other),
            _acked(other, ledger, ends[1], source),
        )
        if mine != theirs:
            missing += len(mine - theirs)
            extra += len(theirs - mine)
    notes = (
        [f"mark-delete is {source.mark_delete} and {other.mark_delete}"]
        if ends[0] != ends[1]
        else []
    )
    one, two = (
        {key: partial.missing for key, partial in state.iter_partials()}
        for state in (source, other)
    )
    batches = sum(1 for key in one.keys() | two.keys() if one.get(key) != two.get(key))
    for what in ("mark_delete_properties", "cursor_properties"):
        values = [
            dict(found.values) if found is not None else {}
            for found in (getattr(source, what), getattr(other, what))
        ]
        if values[0] != values[1]:
            notes.append(f"the {what.replace('_', ' ')} differ")
    return Difference(missing, extra, batches, tuple(notes))


def as_pulsars(
    ours: AckState, layout: Sequence[LayoutItem], properties: Mapping[str, str]
) -> tuple[AckState, list[str]]:
    """Ours as Pulsar would have it: of a topic with this layout and a subscription with these
    properties; and what was done to it, for people.
    """
    fitted, notes = repair(from_ack_state(ours), layout)
    own = string_properties(ours, properties)
    return to_ack_state(fitted, layout, stamp=Stamp(1, 0), cursor_properties=own), notes


def _end(state: AckState, other: AckState) -> Position:
    """Mark-delete, written as late as either layout allows."""
    layout = state.layout if len(state.layout) else other.layout
    return layout.normalised(state.mark_delete)


def _acked(state: AckState, ledger: int, mark_delete: Position, other: AckState) -> BitMap:
    """The acked entries of a ledger; of one below mark-delete as many as it is known to have."""
    if ledger >= mark_delete.ledger:
        return state.acked_of(ledger)
    item = other.layout.get(ledger) or state.layout.get(ledger)
    high = other.ledgers[ledger].high_water if ledger in other.ledgers else 0
    count = item.entries if item is not None and item.state is LayoutState.CLOSED else high
    return bitmaps.span(0, count - 1) if count else BitMap()

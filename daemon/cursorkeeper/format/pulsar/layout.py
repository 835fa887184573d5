"""From the topic znode: the layout of a topic's data ledgers, and what a range across ledgers
covers.

Pulsar records the entry count of a ledger when it closes it; the last one is open and has none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from pyroaring import BitMap

from cursorkeeper.core import containers
from cursorkeeper.core.positions import ENTRY_ID_MAX
from cursorkeeper.core.values import LayoutItem, LayoutState
from cursorkeeper.format.pulsar.errors import PulsarFormatError
from cursorkeeper.format.pulsar.values import CrossingRange, Form, ManagedLedgerInfo, PositionInfo


def layout_items(info: ManagedLedgerInfo) -> tuple[LayoutItem, ...]:
    """The topic's data ledgers, ascending; the last one OPEN. Raises PulsarFormatError: ids that do
    not ascend, impossible counts.
    """
    items: list[LayoutItem] = []
    for at, ledger in enumerate(info.ledgers):
        entries = ledger.entries or 0
        if items and ledger.ledger <= items[-1].ledger:
            raise PulsarFormatError(
                f"data ledger {ledger.ledger} does not come after {items[-1].ledger}"
            )
        if not 0 <= entries <= ENTRY_ID_MAX + 1:
            raise PulsarFormatError(f"data ledger {ledger.ledger} has {entries} entries")
        if at == len(info.ledgers) - 1:
            items.append(LayoutItem(ledger.ledger, LayoutState.OPEN, 0))
        else:
            items.append(LayoutItem(ledger.ledger, LayoutState.CLOSED, entries))
    return tuple(items)


def resolve(info: PositionInfo, topic: ManagedLedgerInfo) -> tuple[PositionInfo, list[str]]:
    """The state with every range across ledgers split by the topic's entry counts, and warnings for
    people.

    `(lower, upper]` becomes (lower, last entry] of lower's ledger, every ledger in between whole,
    and [0, upper] of upper's ledger. The part of a ledger that the topic no longer has is dropped
    with a warning (it cannot be delivered again); so is the part of one whose count is not known.
    Raises PulsarFormatError for a layout that contradicts itself.
    """
    if not info.crossing:
        return info, []
    layout = {item.ledger: item for item in layout_items(topic)}
    warnings: list[str] = []
    acked = {ledger: entries.copy() for ledger, entries in info.acked.items()}
    spanned = 0
    for crossing in info.crossing:
        for ledger, first, last in _parts(crossing, layout, warnings):
            if ledger == info.mark_delete.ledger:
                first = max(first, info.mark_delete.entry + 1)
            spanned += max(0, last - first) >> 16
            if spanned > containers.SPANNED_CONTAINERS_MAX:
                raise PulsarFormatError(
                    f"range ({crossing.lower}, {crossing.upper}] and others before it cover "
                    f"impossibly many entries"
                )
            if ledger >= info.mark_delete.ledger and last >= first:
                acked.setdefault(ledger, BitMap()).add_range(first, last + 1)
    batches = {
        key: missing
        for key, missing in info.batches.items()
        if key.entry not in acked.get(key.ledger, ())
    }
    ordered = {ledger: acked[ledger] for ledger in sorted(acked)}
    return replace(
        info, acked=ordered, batches=batches, crossing=(), form=Form.RANGES if ordered else None
    ), warnings


def _parts(
    crossing: CrossingRange, layout: Mapping[int, LayoutItem], warnings: list[str]
) -> Iterator[tuple[int, int, int]]:
    """Ledger, first and last entry of each part."""
    lower, upper = crossing
    inside = [ledger for ledger in layout if lower.ledger < ledger < upper.ledger]
    for ledger in (lower.ledger, *inside):
        item = layout.get(ledger)
        if item is None or item.state is LayoutState.OPEN:
            why = (
                f"ledger {ledger} is not in the topic any more"
                if item is None
                else f"how many entries ledger {ledger} has is not known"
            )
            warnings.append(f"range ({lower}, {upper}]: {why}, its part is dropped")
        else:
            yield ledger, lower.entry + 1 if ledger == lower.ledger else 0, item.entries - 1
    yield upper.ledger, 0, upper.entry

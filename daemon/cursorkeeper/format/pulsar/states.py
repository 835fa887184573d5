"""Pulsar's state as ours and back: PositionInfo <-> `core.state.AckState`.

What each side cannot say: Pulsar stores no batch sizes (they become 0, not known) and no layout,
ours has no fields of newer Pulsars. Ledgers that the layout calls TRIMMED are wholly acked and gone
from the topic: Pulsar has no word for them, and needs none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pyroaring import BitMap

from cursorkeeper.core import bitmaps, containers
from cursorkeeper.core.layout import Layout
from cursorkeeper.core.positions import Position
from cursorkeeper.core.state import AckState
from cursorkeeper.core.values import (
    CursorProperties,
    Delta,
    LayoutItem,
    MarkDeleteProperties,
    Partial,
    PartialKey,
    Stamp,
)
from cursorkeeper.format.pulsar.errors import PulsarFormatError
from cursorkeeper.format.pulsar.values import Form, PositionInfo


def to_ack_state(
    info: PositionInfo,
    layout: Iterable[LayoutItem] = (),
    *,
    stamp: Stamp,
    cursor_properties: Mapping[str, str] | None = None,
) -> AckState:
    """The same state as the daemon keeps it, settled: mark-delete has taken the acked entries right
    behind it.

    `layout` lets it cross into the next ledger; ledgers below mark-delete are left out. Batch sizes
    are not known (0). Raises ValueError: ranges across ledgers (`layout.resolve` them first);
    PulsarFormatError: entries impossibly far from the first of their ledgers, because what is not
    acked below them takes memory here.
    """
    if info.crossing:
        raise ValueError("ranges across ledgers: resolve them with the topic's layout first")
    if (
        sum(entries.max() >> 16 for entries in info.acked.values())
        > containers.SPANNED_CONTAINERS_MAX
    ):
        raise PulsarFormatError(f"{len(info.acked)} ledgers with impossibly large entry ids")
    items = (item for item in layout if item.ledger >= info.mark_delete.ledger)
    state = AckState(info.mark_delete, Layout(items))
    state.join_delta(delta_of(info, stamp))
    if cursor_properties:
        properties = CursorProperties(stamp, dict(cursor_properties))
        state.join_delta(Delta(cursor_properties=properties))
    state.settle()
    return state


def delta_of(info: PositionInfo, stamp: Stamp) -> Delta:
    """A whole state as something that joins: it says what is acked, and nothing of what is not."""
    properties = MarkDeleteProperties(stamp, dict(info.properties)) if info.properties else None
    partials = {key: Partial(0, missing) for key, missing in info.batches.items()}
    return Delta(info.mark_delete, properties, acks=info.acked, partials=partials)


def from_ack_state(state: AckState, *, form: Form = Form.LONG_ARRAY) -> PositionInfo:
    """The same state as Pulsar writes it, in the given form. The state is not changed and nothing
    is left out.
    """
    mark_delete = state.mark_delete
    acked: dict[int, BitMap] = {}
    for ledger in state.ledgers:
        if ledger < mark_delete.ledger or state.layout.is_trimmed(ledger):
            continue
        acks = state.ledgers[ledger]
        first = mark_delete.entry + 1 if ledger == mark_delete.ledger else 0
        entries = bitmaps.span(first, acks.high_water - 1)
        entries -= acks.holes
        if entries:
            acked[ledger] = entries
    batches: dict[PartialKey, BitMap] = {
        key: partial.missing
        for key, partial in state.iter_partials()
        if Position(*key) > mark_delete and not state.is_acked(*key)
    }
    properties = dict(state.mark_delete_properties.values) if state.mark_delete_properties else {}
    return PositionInfo(mark_delete, acked, batches, properties, form=form if acked else None)

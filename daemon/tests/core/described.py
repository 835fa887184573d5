"""An ack state as a value that can be compared: what a reader of it could ever ask."""

from __future__ import annotations

from cursorkeeper.core.positions import Position
from cursorkeeper.core.state import AckState


def seen(state: AckState) -> dict[str, object]:
    """Mark-delete, acked entries above it, what is missing of batches, layout, properties."""
    above = {}
    for ledger in state.ledgers:
        if state.layout.is_trimmed(ledger):
            continue
        entries = {e for e in state.acked_of(ledger) if Position(ledger, e) > state.mark_delete}
        if entries:
            above[ledger] = entries
    return {
        "mark_delete": state.mark_delete,
        "acked": above,
        "partials": {
            tuple(k): (p.batch_size, frozenset(p.missing)) for k, p in state.iter_partials()
        },
        "layout": tuple(state.layout),
        "mark_delete_properties": state.mark_delete_properties,
        "cursor_properties": state.cursor_properties,
    }

"""What CursorKeeper itself would write for a state: real records, made by the same code as the
daemon's.

Owns no format: `core.snapshot_plan` cuts, `format.record` encodes. Invariant: memory per call is
that of one record, not that of the state.
"""

from __future__ import annotations

from collections.abc import Mapping

from cursorkeeper.core import bitmaps
from cursorkeeper.core.batch import AckBatch, LedgerColumns
from cursorkeeper.core.bitmaps import U32
from cursorkeeper.core.checksums import combined
from cursorkeeper.core.delta_parts import cut_delta
from cursorkeeper.core.sizes import RECORD_HEADER_BYTES
from cursorkeeper.core.snapshot_plan import SnapshotPlan
from cursorkeeper.core.state import AckState
from cursorkeeper.core.values import Record, RecordBody, SnapshotEnd
from cursorkeeper.format import record

SETTINGS = record.DEFAULTS
_BODY_BYTES_MAX = SETTINGS.max_entry_bytes - RECORD_HEADER_BYTES


def snapshot_records(state: AckState) -> tuple[int, int]:
    """(stored bytes, BookKeeper entries) of a whole snapshot: its segments and the end record that
    names them.
    """
    plan = SnapshotPlan(state, _BODY_BYTES_MAX)
    sizes: list[int] = []
    checksums: list[int] = []
    while not plan.is_done:
        data = _encode(plan.take(state))
        sizes.append(len(data))
        checksums.append(record.peek(data).crc32c)
    end = SnapshotEnd(
        snapshot_id=1 << 32,
        epoch=1,
        generation=1,
        segment_entries=tuple(range(1, len(sizes) + 1)),
        mark_delete=state.mark_delete,
        mark_delete_properties=state.mark_delete_properties,
        cursor_properties=state.cursor_properties,
        length=sum(sizes),
        segments_crc32c=combined(checksums),
    )
    return sum(sizes) + len(_encode(end)), len(sizes) + 1


def flush(state: AckState, columns: Mapping[int, U32]) -> list[bytes]:
    """The records of one flush of these acks, which the state takes in. No dense form of the state
    is ever made.
    """
    batch = AckBatch(
        1,
        1,
        ledgers=tuple(
            LedgerColumns(ledger, bitmaps.from_unsorted(entries))
            for ledger, entries in columns.items()
        ),
    )
    return [_encode(part) for part in cut_delta(state.apply([batch]), _BODY_BYTES_MAX)]


def _encode(body: RecordBody) -> bytes:
    return record.encode(Record(1, 1, 1, 1, body), SETTINGS)

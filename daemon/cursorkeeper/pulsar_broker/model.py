"""What one flush of a Pulsar cursor keeps: its long array, its range list, its frame, its fall-back
to the znode.

A pure model of `ManagedCursorImpl` as it was read and measured (4.2.4, 5.0.0-M1): given what the
broker holds in memory and its settings, it tells what a recovery would find, how many bytes that
takes, and for each acked entry that it would not find, the first limit that dropped it. It never
guesses about the past: a flush that fails keeps whatever was stored before.

The order of limits. In the entry: the long array is cut where the number of acked *entries* of the
ledgers before passes the cap (whole ledgers); a range list where the number of ranges does. Partly
acked batches have a cap of their own. Then the frame: an entry that is too large is not cut but
fails, and everything is tried again as ranges in the znode, which fails too when it is over
ZooKeeper's limit. Then nothing is written at all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

import numpy as np
from pyroaring import BitMap

from cursorkeeper.core import bitmaps
from cursorkeeper.core.values import PartialKey
from cursorkeeper.format.pulsar import cursor_info, position_info
from cursorkeeper.format.pulsar.values import Form, ManagedCursorInfo, PositionInfo
from cursorkeeper.pulsar_broker.settings import PulsarSettings

ADD_OVERHEAD_BYTES = 64
"""What BookKeeper adds to an entry in its frame: request header, master key, digest."""
SET_OVERHEAD_BYTES = 256
"""What ZooKeeper adds to a value in its request, the path included."""


class KeptForm(StrEnum):
    """Where a flush puts the state."""

    LONG_ARRAY = "longArray"
    RANGES = "ranges"
    ZNODE = "znode"
    NOTHING = "nothing"


class Reason(StrEnum):
    """Why an acked message would come back. The order is that of the limits."""

    ENTRY_CAP = "entryCap"
    RANGE_CAP = "rangeCap"
    BATCH_CAP = "batchCap"
    FRAME = "frame"
    ZNODE = "znode"
    LEDGER_GONE = "ledgerGone"
    WINDOW = "window"


Acked = Mapping[int, BitMap]
"""Data ledger -> entries."""


@dataclass(frozen=True, slots=True)
class Kept:
    """`state` = what a recovery finds, None if nothing was written. `stored_bytes` of the entry or
    the znode (0: nothing); `tried_bytes` of the entry that did not fit a frame (0: it fitted).
    `dropped` and `dropped_batches`: what is lost, by reason.
    """

    form: KeptForm
    stored_bytes: int
    state: PositionInfo | None
    dropped: Mapping[Reason, Acked] = field(default_factory=dict)
    dropped_batches: Mapping[Reason, tuple[PartialKey, ...]] = field(default_factory=dict)
    tried_bytes: int = 0

    @property
    def dropped_by(self) -> dict[Reason, int]:
        """Acked entries that are lost, by reason."""
        return {reason: count(acked) for reason, acked in self.dropped.items()}

    @property
    def dropped_count(self) -> int:
        """Acked entries that are lost."""
        return sum(self.dropped_by.values())


def count(acked: Acked) -> int:
    return sum(map(len, acked.values()))


def range_count(acked: Acked) -> int:
    """How many ranges Pulsar holds: maximal runs, none of which crosses a ledger."""
    return sum(map(bitmaps.count_runs, acked.values()))


def what_pulsar_keeps(
    state: PositionInfo,
    settings: PulsarSettings,
    *,
    closing: bool = False,
    flushed: bool = True,
    cursor_properties: Mapping[str, str] | None = None,
) -> Kept:
    """One flush of `state`, or (`closing`) the write of a graceful unload. `state` holds what is in
    the broker's memory. `flushed`: since it was recovered it has been flushed once, so that it has
    a ledger to write to; an unload before that goes to the znode.
    """
    if closing and (
        not flushed
        or settings.ranges_max == 0
        or range_count(state.acked) <= settings.znode_ranges_max
    ):
        znode = _in_znode(state, settings, cursor_properties or {})
        return (
            znode
            if _fits_znode(znode, settings)
            else _nothing(state, znode.stored_bytes, Reason.ZNODE)
        )
    entry = _in_ledger(state, settings)
    if entry.stored_bytes + ADD_OVERHEAD_BYTES <= settings.frame_bytes_max:
        return entry
    if not closing:  # a close that fails does not fall back
        znode = _in_znode(state, settings, cursor_properties or {})
        if _fits_znode(znode, settings):
            return replace(znode, tried_bytes=entry.stored_bytes)
    return _nothing(state, entry.stored_bytes, Reason.FRAME)


def _in_ledger(state: PositionInfo, settings: PulsarSettings) -> Kept:
    batches, lost_batches = _cut_batches(state, settings)
    whole = _cut_ledgers(state.acked, settings) if settings.long_array else {}
    if whole:
        form, acked, reason = Form.LONG_ARRAY, whole, Reason.ENTRY_CAP
    else:
        form, acked, reason = Form.RANGES, _cut_ranges(state.acked, settings), Reason.RANGE_CAP
    kept = replace(state, acked=acked, batches=batches, crossing=(), form=form if acked else None)
    return Kept(
        KeptForm.LONG_ARRAY if form is Form.LONG_ARRAY else KeptForm.RANGES,
        position_info.encoded_bytes(kept, form),
        kept,
        _reasons(reason, minus(state.acked, acked)),
        lost_batches,
    )


def _in_znode(
    state: PositionInfo, settings: PulsarSettings, cursor_properties: Mapping[str, str]
) -> Kept:
    batches, lost_batches = _cut_batches(state, settings)
    acked = _cut_ranges(state.acked, settings)
    info = ManagedCursorInfo(
        -1, state.mark_delete, acked, batches, state.properties, cursor_properties, last_active_ms=1
    )
    stored = cursor_info.wrap(
        cursor_info.encode(info), settings.compression, settings.compression_threshold_bytes
    )
    lost = dict(lost_batches)
    if batches and not settings.znode_restores_batches:
        lost[Reason.ZNODE] = tuple(batches)
        batches = {}
    kept = replace(
        state, acked=acked, batches=batches, crossing=(), form=Form.RANGES if acked else None
    )
    return Kept(
        KeptForm.ZNODE,
        len(stored),
        kept,
        _reasons(Reason.RANGE_CAP, minus(state.acked, acked)),
        lost,
    )


def _fits_znode(kept: Kept, settings: PulsarSettings) -> bool:
    return kept.stored_bytes + SET_OVERHEAD_BYTES <= settings.znode_bytes_max


def _nothing(state: PositionInfo, tried_bytes: int, reason: Reason) -> Kept:
    batches = {reason: tuple(state.batches)} if state.batches else {}
    return Kept(KeptForm.NOTHING, 0, None, _reasons(reason, state.acked), batches, tried_bytes)


def _cut_ledgers(acked: Acked, settings: PulsarSettings) -> dict[int, BitMap]:
    kept: dict[int, BitMap] = {}
    total = 0
    for ledger, entries in sorted(acked.items()):
        before, total = total, total + len(entries)
        if (total if settings.cap_counts_ledger else before) > settings.ranges_max:
            break
        kept[ledger] = entries
    return kept


def _cut_ranges(acked: Acked, settings: PulsarSettings) -> dict[int, BitMap]:
    kept: dict[int, BitMap] = {}
    room = settings.ranges_max + settings.one_range_more
    for ledger, entries in sorted(acked.items()):
        if room <= 0:
            break
        runs = bitmaps.count_runs(entries)
        kept[ledger] = entries if runs <= room else _first_runs(entries, room)
        room -= runs
    return kept


def _first_runs(entries: BitMap, wanted: int) -> BitMap:
    values = bitmaps.to_column(entries)
    starts = np.flatnonzero(np.diff(values) != 1) + 1  # of every run but the first
    return bitmaps.from_sorted(values[: int(starts[wanted - 1])])


def _cut_batches(
    state: PositionInfo, settings: PulsarSettings
) -> tuple[dict[PartialKey, BitMap], dict[Reason, tuple[PartialKey, ...]]]:
    if not settings.batch_index:
        return {}, ({Reason.BATCH_CAP: tuple(state.batches)} if state.batches else {})
    keys = sorted(state.batches)
    kept, lost = keys[: settings.batches_max], keys[settings.batches_max :]
    return {key: state.batches[key] for key in kept}, (
        {Reason.BATCH_CAP: tuple(lost)} if lost else {}
    )


def minus(acked: Acked, other: Acked) -> dict[int, BitMap]:
    """What is in the first and not in the second; no empty bitmaps."""
    left = {
        ledger: entries - other[ledger] if ledger in other else entries
        for ledger, entries in acked.items()
        if entries is not other.get(ledger)
    }
    return {ledger: entries for ledger, entries in left.items() if entries}


def _reasons(reason: Reason, acked: Acked) -> dict[Reason, Acked]:
    return {reason: acked} if acked else {}

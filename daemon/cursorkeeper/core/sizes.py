"""How large bytes can become, without encoding them.

Owns the closed-form worst-case sizes of everything a record holds; the state cuts its records by
them, `format` encodes what was cut (so `format` imports `core`, never the reverse). Does not own
the cutting (`core.delta_parts`).

Invariant: every `*_bytes_max` is at least what `format` writes, for any content; `*_bytes` is
exact. All sizes are uncompressed bytes. Compression is used only when it makes a body smaller, so
the bounds stand for stored bytes too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray
from pyroaring import BitMap

from cursorkeeper.core.entries import Entries, first_of, last_of
from cursorkeeper.core.positions import ENTRY_ID_MAX, LEDGER_ID_MAX, Position
from cursorkeeper.core.values import (
    CursorProperties,
    Delta,
    LayoutItem,
    MarkDeleteProperties,
    Partial,
    Segment,
    SnapshotEnd,
    Stamp,
)

RECORD_HEADER_BYTES: Final = 40
SLICE_HEADER_BYTES: Final = 21
CONTAINER_ENTRIES: Final = 1 << 16
CONTAINER_BYTES_MAX: Final = 8192
EXPANSION_MAX: Final = 1 << 32
"""Acks that one record may claim. Six bytes of runs can claim 2^32; a reader must know where to
stop.
"""

RECORD_CONTAINERS_MAX: Final = 1 << 18
"""Containers of 65,536 entries that the sets of one record may name members of, by
`set_containers_max`. Three bytes name one.
"""

LEDGER_BYTES_MAX: Final = 9
ENTRY_BYTES_MAX: Final = 5
COUNT_BYTES_MAX: Final = 5
FIELD_BITS_BYTES: Final = 1
_LEB_STEPS: Final = (1 << 7, 1 << 14, 1 << 21, 1 << 28)


def leb_size(n: int) -> int:
    """Bytes of the minimal unsigned LEB128 of `n`."""
    size = 1
    while n > 0x7F:
        n >>= 7
        size += 1
    return size


def record_body_bytes_max(max_entry_bytes: int) -> int:
    """Uncompressed body bytes that a record may have when an entry may have `max_entry_bytes`."""
    return max_entry_bytes - RECORD_HEADER_BYTES


def property_map_bytes_max(max_entry_bytes: int) -> int:
    """The largest property map intake may accept, measured by `mark_delete_properties_bytes` and
    its sibling.

    Three eighths of a body: a snapshot's end record holds both maps and the list of its segments,
    and cannot be cut: `daemon/tests/format/bounds.py` has its bound.
    """
    return record_body_bytes_max(max_entry_bytes) * 3 // 8


def containers_per_segment(max_entry_bytes: int) -> int:
    """Containers of 65,536 entries whose slice always fits an entry; 0 when even one may not."""
    fixed = SLICE_HEADER_BYTES + FIELD_BITS_BYTES + 2 * COUNT_BYTES_MAX + 9
    return max(
        0,
        (record_body_bytes_max(max_entry_bytes) - fixed) * 8 // (8 * (CONTAINER_BYTES_MAX + 8) + 1),
    )


def set_containers_max(values: Entries) -> int:
    """A bound for the containers of a set that is not empty: its members, or the containers from
    its first to its last.
    """
    return min(len(values), (last_of(values) >> 16) - (first_of(values) >> 16) + 1)


def slice_containers_max(first: int, last: int, bitmap: BitMap) -> int:
    """The same for a slice; one container if its bitmap is empty."""
    return min(len(bitmap), (last >> 16) - (first >> 16) + 1) if bitmap else 1


# --- sets of entries or batch indexes -------------------------------------------------------------


def section_sizes(values: NDArray[np.uint32]) -> tuple[int, int, int]:
    """Exact body bytes of (GAPS, RUNS, BITS) of a set.

    `values`: shape (n,), n > 0, strictly ascending.
    """
    gaps = values[1:] - values[:-1] - np.uint32(1)
    breaks = np.flatnonzero(gaps)
    jumps = gaps[breaks]
    inside = gaps.size - jumps.size
    return (
        inside + leb_sizes_total(jumps),
        leb_sizes_total(run_lengths(breaks, gaps.size)) + leb_sizes_total(jumps - np.uint32(1)),
        (int(values[-1]) - int(values[0])) // 8 + 1,
    )


def run_lengths(breaks: NDArray[np.intp], gaps: int) -> NDArray[np.intp]:
    """Members of each run less one; `breaks`: which of a set's so many gaps are not 0."""
    edges = np.concatenate(([-1], breaks, [gaps]))
    return edges[1:] - edges[:-1] - 1


def leb_sizes_total(numbers: NDArray[np.integer]) -> int:
    """Bytes of all `numbers` (0 <= n < 2^32) as LEB128 together."""
    total = numbers.size
    if not total:
        return 0
    largest = int(numbers.max())
    for step in _LEB_STEPS:
        if largest < step:
            break
        total += int(np.count_nonzero(numbers >= step))
    return total


def set_bytes_max(values: Entries) -> int:
    """A bound for one set (head `leb(body_len << 2 | mode) leb(first)` and body), from its size and
    its ends alone.
    """
    return range_set_bytes_max(len(values), first_of(values), last_of(values))


def range_set_bytes_max(count: int, first: int, last: int) -> int:
    """The same for any set of `count` > 0 values whose smallest is `first` and whose largest is
    `last`.
    """
    holes = last - first + 1 - count
    gaps = count - 1 + _longer(count - 1, holes)
    runs = min(count, holes + 1)
    as_runs = 2 * runs - 1 + _longer(runs, count) + _longer(runs - 1, holes)
    body = min(gaps, as_runs, (last - first) // 8 + 1)
    return leb_size(body << 2 | 3) + leb_size(first) + body


def _longer(how_many: int, total: int) -> int:
    """At most this many extra bytes for `how_many` LEBs whose values add up to `total`."""
    return sum(min(how_many, total // step) for step in _LEB_STEPS)


# --- the fields of a body -------------------------------------------------------------------------


def mark_delete_bytes(position: Position) -> int:
    """Exactly as `format.fields` writes it."""
    return leb_size(position.ledger) + leb_size(position.entry + 1)


def partial_bytes_max(partial: Partial) -> int:
    """One partly acked batch, whatever stands before it."""
    head = (
        LEDGER_BYTES_MAX
        + ENTRY_BYTES_MAX
        + leb_size(partial.batch_size)
        + leb_size(len(partial.missing))
    )
    return head + set_bytes_max(partial.missing)


def mark_delete_properties_bytes(properties: MarkDeleteProperties) -> int:
    """Exactly as `format.fields` writes them."""
    values = sum(
        _text_bytes(key) + leb_size((value << 1) ^ (value >> 63))
        for key, value in properties.values.items()
    )
    return _stamp_bytes(len(properties.values), properties.stamp) + values


def cursor_properties_bytes(properties: CursorProperties) -> int:
    """Exactly as `format.fields` writes them."""
    values = sum(_text_bytes(key) + _text_bytes(value) for key, value in properties.values.items())
    return _stamp_bytes(len(properties.values), properties.stamp) + values


def _stamp_bytes(count: int, stamp: Stamp) -> int:
    return leb_size(count) + leb_size(stamp.epoch) + leb_size(stamp.sequence)


def _text_bytes(text: str) -> int:
    size = len(text) if text.isascii() else len(text.encode())
    return leb_size(size) + size


def layout_bytes_max(items: Sequence[LayoutItem]) -> int:
    """Layout changes in ascending order of their ledgers; without looking at each of them."""
    if not items:
        return 0
    gap = leb_size(items[-1].ledger - items[0].ledger)
    return (
        leb_size(len(items))
        + leb_size(items[0].ledger)
        + (len(items) - 1) * gap
        + len(items) * (1 + ENTRY_BYTES_MAX)
    )


LAYOUT_ITEM_BYTES_MAX: Final = LEDGER_BYTES_MAX + 1 + ENTRY_BYTES_MAX
_PARTIAL_HEAD_BYTES_MAX: Final = LEDGER_BYTES_MAX + 10 + 4 * ENTRY_BYTES_MAX


def partials_bytes_max(partials: Iterable[Partial]) -> int:
    """All of them and their count."""
    total = sum(map(partial_bytes_max, partials))
    return COUNT_BYTES_MAX + total if total else 0


def acks_bytes_max(acks: Mapping[int, Entries]) -> int:
    """All sections and their count."""
    if not acks:
        return 0
    low, high = min(acks), max(acks)
    gaps = leb_size(low) + (len(acks) - 1) * leb_size(high - low)
    return leb_size(len(acks)) + gaps + sum(map(set_bytes_max, acks.values()))


def common_bytes_max(body: Delta | Segment | SnapshotEnd) -> int:
    """Field bits, mark-delete and both property maps."""
    total = FIELD_BITS_BYTES
    if body.mark_delete is not None:
        total += mark_delete_bytes(body.mark_delete)
    if body.mark_delete_properties is not None:
        total += mark_delete_properties_bytes(body.mark_delete_properties)
    if body.cursor_properties is not None:
        total += cursor_properties_bytes(body.cursor_properties)
    return total


def delta_body_bytes_max(delta: Delta) -> int:
    """The body of one delta record."""
    return (
        common_bytes_max(delta)
        + layout_bytes_max(delta.layout)
        + acks_bytes_max(delta.acks)
        + partials_bytes_max(delta.partials.values())
    )


def delta_members(delta: Delta) -> int:
    """Members of all its sets: acks and missing batch indexes."""
    return sum(map(len, delta.acks.values())) + sum(
        len(partial.missing) for partial in delta.partials.values()
    )


def delta_containers_max(delta: Delta) -> int:
    """Containers of all its sets."""
    return sum(map(set_containers_max, delta.acks.values())) + sum(
        set_containers_max(partial.missing) for partial in delta.partials.values()
    )


def delta_body_bytes_ceiling(delta: Delta, members: int) -> int:
    """A coarser bound than `delta_body_bytes_max`, forty times cheaper: five bytes for each member,
    as if all were gaps.
    """
    heads = (len(delta.acks) + 1) * (LEDGER_BYTES_MAX + 2 * ENTRY_BYTES_MAX) + (
        len(delta.partials) + 1
    ) * _PARTIAL_HEAD_BYTES_MAX
    layout = COUNT_BYTES_MAX + len(delta.layout) * LAYOUT_ITEM_BYTES_MAX
    return common_bytes_max(delta) + layout + heads + members * ENTRY_BYTES_MAX


# --- snapshots ------------------------------------------------------------------------------------


def slice_bytes_max(first: int, last: int) -> int:
    """A slice that covers the entries `first..last`, its header included, whatever the bitmap
    holds.

    k roaring containers take at most 8 + ceil(k/8) + 8k bytes and 8,192 for each container, or two
    for each entry it covers when that is less.
    """
    low, high = first // CONTAINER_ENTRIES, last // CONTAINER_ENTRIES
    k = high - low + 1
    if k == 1:
        content = _container_bytes_max(last - first + 1)
    else:
        edges = _container_bytes_max((low + 1) * CONTAINER_ENTRIES - first) + _container_bytes_max(
            last - high * CONTAINER_ENTRIES + 1
        )
        content = edges + (k - 2) * CONTAINER_BYTES_MAX
    return SLICE_HEADER_BYTES + 8 + (k + 7) // 8 + 8 * k + content


def _container_bytes_max(entries: int) -> int:
    return min(CONTAINER_BYTES_MAX, 2 * entries)


def segment_body_bytes_max(segment: Segment) -> int:
    """The body of one snapshot segment."""
    slices = sum(slice_bytes_max(s.first, s.last) for s in segment.slices)
    rest = layout_bytes_max(segment.layout) + partials_bytes_max(segment.partials.values())
    return common_bytes_max(segment) + rest + COUNT_BYTES_MAX + slices


assert leb_size(LEDGER_ID_MAX) == LEDGER_BYTES_MAX
assert leb_size(ENTRY_ID_MAX + 1) == ENTRY_BYTES_MAX

"""Whole states in Pulsar's form: what one flush of a cursor in `format = "pulsar"` is, and which
state may be written.

Implements `core.whole_form.StateWriter`. Owns the limits that Pulsar names and their order (see
`Limits`), and the one policy that leaves something out (PIP-299's priority: the subscription's
properties, the producers' last sequence ids, acks; the oldest acks are kept), which is off unless
the operator turns it on. Does not own the bytes (`format.pulsar`).

Invariant: sizes are known before acked entries are encoded (`position_info.Writing`); only whether
a compressed state fits one entry needs the compressed bytes, and that too is known before anything
is sent.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final, NamedTuple

from pyroaring import BitMap

from cursorkeeper.core import bitmaps
from cursorkeeper.core.footer import FORMAT_PULSAR, Truncation
from cursorkeeper.core.limits import KIB, MIB
from cursorkeeper.core.positions import Position
from cursorkeeper.core.shape import frozen
from cursorkeeper.core.state import AckState
from cursorkeeper.core.values import PartialKey
from cursorkeeper.core.whole_form import DoesNotFit, Taken
from cursorkeeper.format.pulsar import chunks, cursor_info, position_info, ranges
from cursorkeeper.format.pulsar.position_info import Writing
from cursorkeeper.format.pulsar.states import from_ack_state
from cursorkeeper.format.pulsar.values import Compression, Form, ManagedCursorInfo, PositionInfo

BYTES_SETTING: Final = "managedLedgerMaxAckStateInBytesToPersist"
RANGES_SETTING: Final = "managedLedgerMaxUnackedRangesToPersist"
MULTIPLE_SETTING: Final = "persistentUnackedRangesWithMultipleEntriesEnabled"
ENTRY_BYTES_KEY: Final = "entry-bytes-max"
"""Custom metadata: the slice size of the ledger's writer, so that a reader can tell a slice from
damage.
"""
STATE_BYTES_MAX: Final = (1 << 31) - 1
"""PIP-381's footer holds the length as a signed int of 32 bits."""
_RANGE_BYTES_MIN: Final = 12
_SLACK_BYTES: Final = 64


@frozen
class WholeStateSettings:
    """`max_entry_bytes`: a slice, with `multiple`; `entry_bytes_max`: what one entry may have in
    BookKeeper. At most one of `state_bytes_max` (the encoded state with the subscription's
    properties) and `ranges_max` is given: the one that counts.
    """

    form: Form = Form.LONG_ARRAY
    multiple: bool = False
    max_entry_bytes: int = MIB
    entry_bytes_max: int = 5 * MIB
    compression: Compression = Compression.NONE
    state_bytes_max: int | None = 5 * MIB
    ranges_max: int | None = None
    truncate: bool = False
    inline_compression: Compression = Compression.NONE
    inline_threshold_bytes: int = 16 * KIB


class Room(NamedTuple):
    """Bytes, and ranges where they are limited."""

    size: int
    ranges: int | None

    def is_within(self, left: Room) -> bool:
        """Whether so much is left."""
        return self.size <= left.size and (
            self.ranges is None or left.ranges is None or self.ranges <= left.ranges
        )

    def without(self, taken: Room) -> Room:
        return Room(
            self.size - taken.size,
            self.ranges - taken.ranges
            if self.ranges is not None and taken.ranges is not None
            else None,
        )


class PulsarStateWriter:
    format: Final = FORMAT_PULSAR

    def __init__(self, settings: WholeStateSettings) -> None:
        self.settings = settings
        self._ledger_compression = (
            None if settings.compression is Compression.NONE else settings.compression
        )

    @property
    def ledger_metadata(self) -> Mapping[str, bytes]:
        """The slice size (more than any entry has where none is ever sliced), and the codec if
        there is one: without that key, entries are byte for byte Pulsar's own.
        """
        size = self.settings.max_entry_bytes if self.settings.multiple else STATE_BYTES_MAX
        found = {ENTRY_BYTES_KEY: str(size).encode()}
        if self._ledger_compression is not None:
            found[chunks.COMPRESSION_KEY] = self._ledger_compression.name.encode()
        return found

    def take(self, state: AckState) -> Taken | DoesNotFit:
        """The entries of the state, or of the part of it that fits where that is allowed."""
        info = from_ack_state(state, form=self.settings.form)
        beside = _properties_bytes(state)
        writing = Writing(info, self.settings.form)
        size = writing.size() + beside
        problem = self._problem(info, size, beside)
        if not problem:
            made = self._entries(writing, size)
            if isinstance(made, Taken) or not self.settings.truncate:
                return made
            problem = made.reason
        if not self.settings.truncate:
            return DoesNotFit(problem, size)
        part, truncated = self._part(info, beside, problem)
        made = self._entries(Writing(part, self.settings.form), size)
        return replace(made, truncated=truncated) if isinstance(made, Taken) else made

    def inline(self, state: AckState, bytes_max: int) -> bytes | None:
        """Pulsar's ManagedCursorInfo, with header if it is compressed. Acked entries are ranges
        there, always.
        """
        settings = self.settings
        info = from_ack_state(state, form=settings.form)
        beside = _properties_bytes(state)
        if self._problem(info, position_info.encoded_bytes(info, settings.form) + beside, beside):
            return None
        most = bytes_max if settings.inline_compression is Compression.NONE else 64 * bytes_max
        if ranges.count(info.acked) * _RANGE_BYTES_MIN > most:
            return None
        properties = (
            dict(state.cursor_properties.values) if state.cursor_properties is not None else {}
        )
        whole = ManagedCursorInfo(
            -1, info.mark_delete, info.acked, info.batches, info.properties, properties
        )
        value = cursor_info.wrap(
            cursor_info.encode(whole), settings.inline_compression, settings.inline_threshold_bytes
        )
        return value if len(value) <= bytes_max else None

    # ---- limits

    def _problem(self, info: PositionInfo, size: int, beside: int) -> str:
        """Why the state may not be written; empty: it may."""
        settings = self.settings
        if settings.state_bytes_max is not None and size > settings.state_bytes_max:
            return (
                f"the encoded state has {size} bytes ({beside} of them properties of the "
                f"subscription), "
                f"{BYTES_SETTING} = {settings.state_bytes_max}: raise it, or let more be acked"
            )
        if settings.ranges_max is not None:
            count = ranges.count(info.acked)
            if count > settings.ranges_max:
                said = f"{RANGES_SETTING} = {settings.ranges_max}"
                return (
                    f"the state has {count} ranges of acked entries, {said}: raise it, or let "
                    f"more be acked"
                )
        if size - beside > STATE_BYTES_MAX:
            return (
                f"the encoded state has {size - beside} bytes, Pulsar's form holds "
                f"{STATE_BYTES_MAX}: let more be acked"
            )
        if (
            not settings.multiple
            and self._ledger_compression is None
            and size - beside > settings.entry_bytes_max
        ):
            return self._too_large_for_one(size - beside)
        return ""

    def _too_large_for_one(self, size: int) -> str:
        return (
            f"the state takes {size} bytes, one BookKeeper entry holds "
            f"{self.settings.entry_bytes_max}: "
            f"{MULTIPLE_SETTING} = true writes it as several, or let more be acked"
        )

    def _entries(self, writing: Writing, size: int) -> Taken | DoesNotFit:
        settings = self.settings
        entries = chunks.entries_of(
            writing.join(),
            compression=self._ledger_compression,
            max_entry_bytes=settings.max_entry_bytes,
            multiple=settings.multiple,
        )
        if not settings.multiple and len(entries[0]) > settings.entry_bytes_max:
            return DoesNotFit(self._too_large_for_one(len(entries[0])), size)
        return Taken(tuple(entries), size)

    # ---- leaving something out

    def _part(
        self, info: PositionInfo, beside: int, problem: str
    ) -> tuple[PositionInfo, Truncation]:
        """As much as fits, by priority; and what that leaves out."""
        settings = self.settings
        budget = (
            STATE_BYTES_MAX
            if settings.state_bytes_max is None
            else settings.state_bytes_max - beside
        )
        if not settings.multiple:
            # compressed or not, it fits: a codec adds less than one byte in a hundred to what it
            # cannot make smaller
            budget = min(
                budget, settings.entry_bytes_max - settings.entry_bytes_max // 100 - _SLACK_BYTES
            )
        kept = self._kept_properties(info, budget)
        head = position_info.encoded_bytes(
            PositionInfo(info.mark_delete, properties=kept), settings.form
        )
        left = Room(budget - head, settings.ranges_max)
        acked: dict[int, BitMap] = {}
        batches: dict[PartialKey, BitMap] = {}
        # what comes first is whole before the next begins
        for own in _by_ledger(info) if len(kept) == len(info.properties) else ():
            needed = self._needed(own)
            fits = needed.is_within(left)
            found = own if fits else self._beginning(own, left)
            acked |= found.acked
            batches |= found.batches
            if not fits:
                break
            left = left.without(needed)
        part = PositionInfo(
            info.mark_delete, acked, batches, kept, form=settings.form if acked else None
        )
        acks = sum(map(len, info.acked.values())) - sum(map(len, part.acked.values()))
        limit = (
            f"{RANGES_SETTING}={settings.ranges_max}"
            if settings.ranges_max is not None
            else problem.partition(": ")[0]
        )
        return part, Truncation(
            acks, len(info.batches) - len(part.batches), len(info.properties) - len(kept), limit
        )

    def _needed(self, own: PositionInfo) -> Room:
        """What one ledger's part of a state takes: sizes add up, ledger by ledger."""
        form = self.settings.form
        size = position_info.encoded_bytes(own, form) - position_info.encoded_bytes(
            PositionInfo(own.mark_delete), form
        )
        return Room(size, ranges.count(own.acked) if self.settings.ranges_max is not None else None)

    def _beginning(self, own: PositionInfo, left: Room) -> PositionInfo:
        """The longest part of one ledger that fits, from its first entry on."""
        found, ledger = PositionInfo(own.mark_delete), _only_ledger(own)
        low, high = -1, _last_entry(own, ledger)
        while high - low > 1:
            middle = (low + high) // 2
            tried = _upto(own, Position(ledger, middle))
            if self._needed(tried).is_within(left):
                low, found = middle, tried
            else:
                high = middle
        return found

    def _kept_properties(self, info: PositionInfo, budget: int) -> Mapping[str, int]:
        """All of them, or as many as fit, by name."""
        form = self.settings.form
        if (
            position_info.encoded_bytes(
                PositionInfo(info.mark_delete, properties=info.properties), form
            )
            <= budget
        ):
            return info.properties
        kept: dict[str, int] = {}
        left = budget - position_info.encoded_bytes(PositionInfo(info.mark_delete), form)
        for name in sorted(info.properties):
            alone = PositionInfo(info.mark_delete, properties={name: info.properties[name]})
            left -= position_info.encoded_bytes(alone, form) - position_info.encoded_bytes(
                PositionInfo(info.mark_delete), form
            )
            if left < 0:
                break
            kept[name] = info.properties[name]
        return kept


def _properties_bytes(state: AckState) -> int:
    """What the subscription's properties take in Pulsar's znode: field 8 of ManagedCursorInfo."""
    if state.cursor_properties is None or not state.cursor_properties.values:
        return 0
    whole = ManagedCursorInfo(-1, cursor_properties=dict(state.cursor_properties.values))
    return len(cursor_info.encode(whole)) - len(cursor_info.encode(ManagedCursorInfo(-1)))


def _by_ledger(info: PositionInfo) -> Iterator[PositionInfo]:
    """Each ledger's part of the acks, in order."""
    batches: dict[int, dict[PartialKey, BitMap]] = {}
    for key, missing in info.batches.items():
        batches.setdefault(key.ledger, {})[key] = missing
    for ledger in sorted({*info.acked, *batches}):
        acked = {ledger: info.acked[ledger]} if ledger in info.acked else {}
        yield PositionInfo(info.mark_delete, acked, batches.get(ledger, {}))


def _only_ledger(own: PositionInfo) -> int:
    """The only ledger of a state that `_by_ledger` gave."""
    return next(iter(own.acked)) if own.acked else next(iter(own.batches)).ledger


def _upto(own: PositionInfo, end: Position) -> PositionInfo:
    """Of one ledger's part, everything at or before a position in it."""
    entries = (
        bitmaps.between(own.acked[end.ledger], 0, end.entry)
        if own.acked and end.entry >= 0
        else BitMap()
    )
    batches = {key: missing for key, missing in own.batches.items() if Position(*key) <= end}
    return PositionInfo(own.mark_delete, {end.ledger: entries} if entries else {}, batches)


def _last_entry(info: PositionInfo, ledger: int) -> int:
    """The last entry of a ledger of which the state says something."""
    acked = info.acked.get(ledger)
    inside = [key.entry for key in info.batches if key.ledger == ledger]
    return max([*inside, acked.max() if acked else -1])

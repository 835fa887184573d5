"""Serves whoever reads a cursor's ledgers: the records of one ledger, checked and joined into a
state.

Owns the judgement of damage inside a ledger (ARCHITECTURE rules 18 and 41). Does not own what is
read, nor in which order (`chain`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import field
from functools import partial

from cursorkeeper.core.checksums import combined
from cursorkeeper.core.errors import DamageError, ForeignRecordError, OverBudgetError, TooNewError
from cursorkeeper.core.footer import EntryAddress, Footer, SnapshotBase
from cursorkeeper.core.shape import component
from cursorkeeper.core.state import AckState
from cursorkeeper.core.values import Delta, Segment, SnapshotEnd
from cursorkeeper.core.window import StateWindow
from cursorkeeper.format import record, replay, snapshot
from cursorkeeper.format.record import Kind, RecordHeader

THREAD_BYTES = 64 << 10
"""Records whose bodies have more bytes together are joined beside the event loop: one may take
seconds, and nobody else waits for it.
"""
YIELD_EVERY_RECORDS = 5_000
"""Records that are read and joined at once, if their bodies are small; see `replay.BATCH_BYTES`."""
YIELD_AFTER_RECORDS = 64
"""More than so many that were joined at once are followed by a turn of everybody else."""
UNDECIDABLE = (TooNewError, OverBudgetError)
"""Of a newer version, or more than this reader may take: neither is damage, so nothing older is
read instead.
"""


OnJoined = Callable[[Sequence[Delta | Segment] | None], None]
"""Told, in the loop, what was joined from the records of a cursor. None: something else is joined,
or what was told does not count."""


class SnapshotDamaged(Exception):
    """A segment or the end record cannot be trusted: fall back."""


@component
class Replayed:
    state: AckState
    delta_bytes: int = 0
    delta_records: int = 0
    delta_acks: int = 0
    bars_fallback: bool = False
    skipped: list[EntryAddress] = field(default_factory=list)
    unfinished: list[EntryAddress] = field(default_factory=list)


@component
class LedgerJoin:
    """The records of one ledger, joined into `out`. `base`: the snapshot, if it is in this ledger,
    and `listed` its segments: entry id -> position.
    """

    _record_hash: int
    _window: StateWindow
    _skippable: set[tuple[int, int]]
    _footer: Footer
    _ledger: int
    _base: SnapshotBase | None
    _listed: dict[int, int]
    _out: Replayed
    _on_joined: OnJoined
    _joined: list[Delta | Segment] = field(default_factory=list)
    """What was joined since `_on_joined` was called last."""
    _crcs: dict[int, int] = field(default_factory=dict)

    def check_segments(self, base: SnapshotBase, end: SnapshotEnd) -> None:
        """Raises SnapshotDamaged unless what was read is what the end record was made of."""
        crcs, listed = self._crcs, self._listed
        wanted = self._window.wanted(base, listed)
        is_all = len(wanted) == len(listed)
        if any(e not in crcs for e in wanted) or (
            is_all and combined([crcs[e] for e in listed]) != end.segments_crc32c
        ):
            place = f"ledger {self._ledger} entry {base.last_entry}"
            raise SnapshotDamaged(
                f"{place}: the segments are not those that the end record was made of"
            )

    async def join(self, first: int, payloads: Sequence[bytes]) -> None:
        """Entries from `first` on. Raises DamageError, SnapshotDamaged."""
        for start, entries in replay.batches(payloads, YIELD_EVERY_RECORDS):
            joining = partial(self._join_many, first + start, entries)
            if sum(map(record.announced_bytes, entries)) > THREAD_BYTES:
                await asyncio.to_thread(joining)
            else:
                joining()
                if len(entries) > YIELD_AFTER_RECORDS:
                    await asyncio.sleep(0)
            joined, self._joined = self._joined, []
            self._on_joined(joined)

    def _join_many(self, begin: int, entries: Sequence[bytes]) -> None:
        try:
            self._join_batch(begin, entries)
        except OverBudgetError as e:
            place = f"ledger {self._ledger} entries {begin} to {begin + len(entries) - 1}"
            raise (e if e.place else e.at(place)) from None
        except TooNewError:
            raise
        except DamageError:
            # find the damaged ones, one by one: what they are decides what they mean
            for offset, payload in enumerate(entries):
                self._join_one(begin + offset, payload)

    def _join_batch(self, begin: int, part: Sequence[bytes]) -> None:
        footer, base, out, ledger = self._footer, self._base, self._out, self._ledger
        records = replay.split_bodies(
            part, self._record_hash, place_of=lambda i: f"ledger {ledger} entry {begin + i}"
        )
        # what stands in front of the snapshot, the snapshot holds too: checked, not joined
        needed_from = base.first_entry if base else 0
        deltas: list[tuple[int, bytes]] = []
        delta_bytes = 0
        segments: list[tuple[int, RecordHeader, bytes]] = []
        for entry, (header, body) in enumerate(records, begin):
            if header.epoch > footer.epoch:
                raise ForeignRecordError(
                    f"is of epoch {header.epoch}, the footer of {footer.epoch}",
                    f"ledger {ledger} entry {entry}",
                )
            if header.generation != footer.generation:
                continue
            if header.kind is Kind.DELTA and entry >= needed_from:
                deltas.append((entry, body))
                delta_bytes += header.stored_bytes
            elif header.kind is Kind.SEGMENT and entry in self._listed:
                segments.append((entry, header, body))
        if deltas:
            merged = replay.merge_deltas(
                [body for _, body in deltas],
                place_of=lambda i: f"ledger {ledger} entry {deltas[i][0]}",
            )
            self._window.join_delta(out.state, merged)
            self._joined.append(merged)
            out.delta_records += len(deltas)
            out.delta_bytes += delta_bytes
            out.delta_acks += sum(map(len, merged.acks.values()))
        for entry, header, body in segments:
            self._crcs[entry] = header.crc32c
            segment = snapshot.decode_segment(body, header.version)
            self._window.join_segment(out.state, segment)
            self._joined.append(segment)

    def _join_one(self, entry: int, payload: bytes) -> None:
        base, ledger = self._base, self._ledger
        try:
            self._join_batch(entry, [payload])
        except UNDECIDABLE:
            raise
        except DamageError as e:
            if base is not None and (entry in self._listed or entry == base.last_entry):
                raise SnapshotDamaged(str(e)) from e
            if base is not None and 0 < entry < base.first_entry:
                # what a delta in front of the snapshot holds, the snapshot holds too; but nothing
                # to fall back to any more
                self._out.bars_fallback = True
                return
            if (ledger, entry) in self._skippable:
                self._out.skipped.append(EntryAddress(ledger, entry))
                return  # each slice holds only acks that an entry before it holds
            if entry == 0 and not isinstance(e, ForeignRecordError):
                return  # the open record is for people
            raise

"""The verdict on one cursor: how many acked messages would be delivered again if its broker died
now, and why.

Pure. Two bases. EXACT: what the broker holds in memory is known, so the number is memory minus what
a recovery would find in ZooKeeper and BookKeeper at this moment; each lost entry is put down to the
first limit at which a flush of that memory would drop it, and what no limit drops is the window: it
waits for the next flush. AT LEAST: only what is stored is known, and all of that would be found
again; anything acked since is not known, and the verdict says so. On both bases: what is stored now
and what the next flush would leave out (`next_flush.forgets`) is lost by a crash after that flush,
not by one now. Counts are of entries; an entry is one message, or one batch. Invariant: `by_reason`
adds up to `redelivered`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import msgspec
from pyroaring import BitMap

from cursorkeeper.core import bitmaps
from cursorkeeper.core.positions import Position
from cursorkeeper.format.pulsar.values import Form, PositionInfo
from cursorkeeper.pulsar_broker.model import (
    Acked,
    Kept,
    KeptForm,
    Reason,
    count,
    range_count,
    what_pulsar_keeps,
)
from cursorkeeper.pulsar_broker.settings import PulsarSettings


@dataclass(frozen=True, slots=True)
class Stored:
    """What recovery finds. `inline`: in the znode, not in a cursor ledger. `rolled_back`: the
    cursor ledger is gone, and Pulsar would go back to the znode's mark-delete. Crossing ranges are
    resolved.
    """

    info: PositionInfo
    inline: bool = False
    rolled_back: bool = False
    stored_bytes: int = 0
    cursor_properties: Mapping[str, str] = field(default_factory=dict)


class Scenario(msgspec.Struct, frozen=True, rename="camel"):
    """If everything that is in the topic gets acked except the oldest un-acked message (issue
    #25985).
    """

    acked: int
    redelivered: int
    by_reason: Mapping[Reason, int]
    form: KeptForm
    bytes: int


class Flush(msgspec.Struct, frozen=True, rename="camel"):
    """What the next flush writes and drops; `forgets`: of what it drops, what is stored until
    then.
    """

    form: KeptForm
    bytes: int
    tried_bytes: int
    drops: int
    forgets: int


class Native(msgspec.Struct, frozen=True):
    """What CursorKeeper would store, and deliver again."""

    bytes: int
    redelivered: int = 0


class Verdict(
    msgspec.Struct,
    frozen=True,
    rename={
        "is_exact": "exact",
        "by_reason": "byReason",
        "batches": "partlyAckedBatches",
        "acked_above": "ackedAboveMarkDelete",
        "mark_delete": "markDelete",
        "beyond_cap": "beyondCap",
        "next_flush": "nextFlush",
        "unload_redelivered": "gracefulUnloadRedelivers",
        "if_all_acked": "ifAllButTheOldestAcked",
        "native": "cursorKeeper",
    },
):
    """See the module; a line of `assess --json`. `batches` = partly acked batches whose acks are
    lost beside `redelivered`. `unload_redelivered`: what a graceful unload would lose.
    `beyond_cap`: entries of closed data ledgers above the last stored ack, where a cap was reached
    (else 0): any of them that was acked comes back. `native`: if it was asked for.
    """

    redelivered: int
    is_exact: bool
    by_reason: Mapping[Reason, int]
    batches: int
    backlog: int
    acked_above: int
    mark_delete: str
    beyond_cap: int
    next_flush: Flush
    unload_redelivered: int
    if_all_acked: Scenario | None
    native: Native | msgspec.UnsetType = msgspec.UNSET

    @property
    def is_at_risk(self) -> bool:
        """Something would come back, now or after the next flush, or a cap was reached so that
        something may.
        """
        return bool(self.redelivered or self.batches or self.beyond_cap or self.next_flush.forgets)


Layout = Mapping[int, int | None]
"""The topic's data ledgers, ascending: entries, or None where nobody knows (the open one, without
the broker's word).
"""


def judge(
    stored: Stored, memory: PositionInfo | None, layout: Layout, settings: PulsarSettings
) -> Verdict:
    """The verdict. `memory` None: only what is stored is known."""
    recovered, lost_batches = _recovered(stored, settings)
    now = _with_stored_parts(memory, stored.info) if memory is not None else stored.info
    kept = what_pulsar_keeps(now, settings, cursor_properties=stored.cursor_properties)
    closed = what_pulsar_keeps(
        now, settings, closing=True, cursor_properties=stored.cursor_properties
    )
    lost = missing(now, recovered, layout) if memory is not None else {}
    return Verdict(
        redelivered=count(lost),
        is_exact=memory is not None,
        by_reason=_attributed(lost, kept, stored.rolled_back),
        batches=lost_batches
        + sum(
            len(keys) for reason, keys in kept.dropped_batches.items() if reason is not Reason.ZNODE
        ),
        backlog=_backlog(now.mark_delete, layout),
        acked_above=count(now.acked),
        mark_delete=str(now.mark_delete),
        next_flush=Flush(
            kept.form,
            kept.stored_bytes,
            kept.tried_bytes,
            kept.dropped_count,
            _forgotten(kept, recovered),
        ),
        unload_redelivered=count(missing(now, closed.state or recovered, layout)),
        beyond_cap=0 if memory is not None else _beyond(stored, layout, settings),
        if_all_acked=_scenario(now, layout, settings),
    )


def missing(memory: PositionInfo, recovered: PositionInfo, layout: Layout) -> dict[int, BitMap]:
    """Entries that are acked in memory and not in the recovered state. A ledger that the topic no
    longer has is not counted: nothing of it can be delivered.
    """
    low, high = recovered.mark_delete, memory.mark_delete
    found: dict[int, BitMap] = {}
    newest = max(layout, default=-1)  # one that is newer than the layout was not trimmed
    ledgers = {ledger for ledger in layout if low.ledger <= ledger <= high.ledger} | {
        *memory.acked,
        high.ledger,
    }
    for ledger in sorted(ledgers):
        if ledger < low.ledger or (ledger not in layout and ledger < newest):
            continue
        left = _acked_of(memory, ledger, layout.get(ledger)) - _acked_of(
            recovered, ledger, layout.get(ledger)
        )
        if left:
            found[ledger] = left
    return found


def _acked_of(info: PositionInfo, ledger: int, entries: int | None) -> BitMap:
    if ledger < info.mark_delete.ledger:
        return bitmaps.span(0, (entries or 0) - 1)
    acked = info.acked.get(ledger, BitMap())
    if ledger > info.mark_delete.ledger or info.mark_delete.entry < 0:
        return acked
    return acked | bitmaps.span(0, info.mark_delete.entry)


def _recovered(stored: Stored, settings: PulsarSettings) -> tuple[PositionInfo, int]:
    """What a recovery finds in what is stored, and how many stored batch sets it ignores
    (#26475).
    """
    if stored.inline and stored.info.batches and not settings.znode_restores_batches:
        return replace(stored.info, batches={}), len(stored.info.batches)
    return stored.info, 0


def _with_stored_parts(memory: PositionInfo, stored: PositionInfo) -> PositionInfo:
    """The broker's answer holds neither batch sets nor properties: what is stored of them is the
    best that is known.
    """
    batches = {
        key: left
        for key, left in stored.batches.items()
        if Position(*key) > memory.mark_delete and key.entry not in memory.acked.get(key.ledger, ())
    }
    return replace(memory, batches=batches, properties=stored.properties)


def _forgotten(kept: Kept, recovered: PositionInfo) -> int:
    if kept.state is None:
        return 0  # a flush that fails leaves what is stored
    none = BitMap()
    return sum(
        entries.intersection_cardinality(recovered.acked.get(ledger, none))
        for dropped in kept.dropped.values()
        for ledger, entries in dropped.items()
    )


def _attributed(lost: Acked, kept: Kept, rolled_back: bool) -> dict[Reason, int]:
    if rolled_back and lost:
        return {Reason.LEDGER_GONE: count(lost)}
    if kept.state is None and lost:  # nothing can be written any more, mark-delete included
        reason = next(iter(kept.dropped), Reason.FRAME)
        return {reason: count(lost)}
    found: dict[Reason, int] = {}
    for reason, dropped in kept.dropped.items():
        both = sum(
            entries.intersection_cardinality(dropped[ledger])
            for ledger, entries in lost.items()
            if ledger in dropped
        )
        if both:
            found[reason] = both
    rest = count(lost) - sum(found.values())
    return {**found, Reason.WINDOW: rest} if rest else found


def _is_capped(stored: Stored, settings: PulsarSettings) -> bool:
    """Whether the stored state ends where a cap would end it."""
    info = stored.info
    if not info.acked:
        return False
    if info.form is Form.LONG_ARRAY and not stored.inline:
        return count(info.acked) > settings.ranges_max
    return range_count(info.acked) >= settings.ranges_max + settings.one_range_more


def _beyond(stored: Stored, layout: Layout, settings: PulsarSettings) -> int:
    info = stored.info
    if stored.rolled_back:
        return _backlog(info.mark_delete, layout)
    if not _is_capped(stored, settings):
        return 0
    last = max(info.acked)
    rest = sum(entries or 0 for ledger, entries in layout.items() if ledger > last)
    return rest + max(0, (layout.get(last) or 0) - info.acked[last].max() - 1)


def _backlog(mark_delete: Position, layout: Layout) -> int:
    """Entries above mark-delete, as far as the layout tells."""
    return sum(
        max(0, (entries or 0) - (mark_delete.entry + 1 if ledger == mark_delete.ledger else 0))
        for ledger, entries in layout.items()
        if ledger >= mark_delete.ledger
    )


def _scenario(now: PositionInfo, layout: Layout, settings: PulsarSettings) -> Scenario | None:
    acked: dict[int, BitMap] = {}
    oldest_is_left = True
    for ledger, entries in sorted(layout.items()):
        if ledger < now.mark_delete.ledger:
            continue
        start = now.mark_delete.entry + 1 if ledger == now.mark_delete.ledger else 0
        if oldest_is_left and start < (entries or 0):
            oldest_is_left, start = False, start + 1
        rest = bitmaps.span(start, (entries or 0) - 1)
        if rest:
            acked[ledger] = rest
    if not acked:
        return None
    kept = what_pulsar_keeps(replace(now, acked=acked, batches={}), settings)
    return Scenario(count(acked), kept.dropped_count, kept.dropped_by, kept.form, kept.stored_bytes)

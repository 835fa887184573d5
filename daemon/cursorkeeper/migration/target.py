"""How one state is written for a Pulsar of some version and settings, or why it must not be. Pure.

Owns the choice: the znode for a small state, else one entry of a new cursor ledger in the shorter
form that this Pulsar reads. Sizes are checked before anything is written. What fits today but would
be dropped by Pulsar's own next flush, or by its next unload, is refused too, with the numbers,
unless the caller allows it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from cursorkeeper.format.pulsar import cursor_info, position_info
from cursorkeeper.format.pulsar.values import Compression, Form, ManagedCursorInfo, PositionInfo
from cursorkeeper.migration.errors import MigrationError
from cursorkeeper.problems import Kind
from cursorkeeper.pulsar_broker.model import (
    ADD_OVERHEAD_BYTES,
    Reason,
    count,
    range_count,
    what_pulsar_keeps,
)
from cursorkeeper.pulsar_broker.settings import PulsarSettings

ENTRY_MARGIN_BYTES = 200
"""What a bookie's frame holds beside an entry, and a little more: measured, an entry of the frame
less this is taken.
"""
SWAP_BYTES = 4_096
"""What the transaction holds beside the znode's value, in a request that ZooKeeper limits as a
whole: two paths.
"""
RAISE_LIMITS = (
    "raise the limit in Pulsar's broker.conf and give that file with --pulsar-broker-conf"
)
ALLOW = f"{RAISE_LIMITS}; or --allow-loss, if the broker is meant to forget them"


@dataclass(frozen=True, slots=True)
class Target:
    """Where it goes. `settings`: of that Pulsar and its ZooKeeper; `entry_bytes_max`: what the
    ledger gateway takes.
    """

    settings: PulsarSettings
    entry_bytes_max: int


@dataclass(frozen=True, slots=True)
class WritePlan:
    """`inline`: the znode that would hold the whole state. `entry` None: `znode` does. Else it is
    entry 0 of a new ledger, and the znode follows from `znode_for`.
    """

    inline: ManagedCursorInfo
    form: str
    entry: bytes | None
    znode: bytes
    notes: tuple[str, ...]

    @property
    def size_bytes(self) -> int:
        """Bytes of the entry or znode that holds the state."""
        return len(self.znode if self.entry is None else self.entry)

    def znode_for(self, ledger: int) -> bytes:
        """The znode's value that names the ledger; its mark-delete is a snapshot, as Pulsar's
        is.
        """
        info = replace(self.inline, cursors_ledger=ledger, acked={}, batches={})
        return cursor_info.encode(info)


def plan_write(
    cursor: str,
    state: PositionInfo,
    cursor_properties: Mapping[str, str],
    target: Target,
    *,
    now_ms: int,
    unknown: bytes = b"",
    allow_loss: bool = False,
) -> WritePlan:
    """`unknown`: fields of the znode that is replaced. Raises MigrationError REFUSED, with the
    numbers.
    """
    settings = target.settings
    losses, forgotten = _losses(state, settings, cursor_properties)
    if losses and not allow_loss:
        raise MigrationError(
            Kind.REFUSED,
            cursor,
            "",
            f"Pulsar {settings.version} takes it, but {'; '.join(losses)}",
            ALLOW,
        )
    inline = ManagedCursorInfo(
        -1,
        state.mark_delete,
        state.acked,
        state.batches,
        state.properties,
        cursor_properties,
        last_active_ms=now_ms,
        unknown=unknown,
    )
    notes = (
        *losses,
        *forgotten,
        *_unloaded_too_early(state, settings, cursor_properties),
        *_unloadable(inline, settings),
    )
    znode_bytes_max = settings.znode_bytes_max - SWAP_BYTES
    may_be_inline = not state.batches or settings.znode_restores_batches
    if may_be_inline and range_count(state.acked) <= settings.znode_ranges_max:
        value = _wrapped(inline, settings, znode_bytes_max)
        if len(value) <= znode_bytes_max:
            return WritePlan(inline, "znode", None, value, notes)
    form, size = min(
        ((form, position_info.encoded_bytes(state, form)) for form in _forms(state, settings)),
        key=lambda pair: pair[1],
    )
    frame = settings.frame_bytes_max - ENTRY_MARGIN_BYTES
    if size <= min(frame, target.entry_bytes_max):
        return WritePlan(inline, str(form), position_info.encode(state, form), b"", notes)
    value = _wrapped(inline, settings, znode_bytes_max) if may_be_inline else b""
    if may_be_inline and len(value) <= znode_bytes_max:
        return WritePlan(inline, "znode", None, value, notes)
    raise _too_large(cursor, state, settings, target, size, len(value))


def _too_large(
    cursor: str,
    state: PositionInfo,
    settings: PulsarSettings,
    target: Target,
    size: int,
    znode_size: int,
) -> MigrationError:
    frame = settings.frame_bytes_max - ENTRY_MARGIN_BYTES
    tried = (
        f"{count(state.acked):,} acked entries in {range_count(state.acked):,} ranges and "
        f"{len(state.batches):,} partial batches"
    )
    in_znode = (
        f"a znode of {znode_size:,} (of {settings.znode_bytes_max:,})"
        if znode_size
        else "no znode, which loses partial batches"
    )
    if size > frame:
        message = (
            f"{tried} need an entry of {size:,} bytes, a Pulsar of these settings takes "
            f"{frame:,}; and {in_znode}"
        )
        remedy = (
            "ack on until there are fewer holes, or raise maxMessageSize and the bookies' "
            "nettyMaxFrameSizeBytes"
        )
    else:
        message = (
            f"{tried} need an entry of {size:,} bytes, the ledger gateway takes "
            f"{target.entry_bytes_max:,}"
        )
        remedy = (
            f"start the gateway with --entry-bytes-max {size} (and --message-bytes-max "
            f"{size + (64 << 10)}) for the export"
        )
    return MigrationError(Kind.REFUSED, cursor, "", message, remedy)


def _forms(state: PositionInfo, settings: PulsarSettings) -> tuple[Form, ...]:
    """Those that this Pulsar reads and goes on writing."""
    return (Form.LONG_ARRAY, Form.RANGES) if settings.long_array and state.acked else (Form.RANGES,)


def _wrapped(info: ManagedCursorInfo, settings: PulsarSettings, limit_bytes: int) -> bytes:
    """Compressed only where it must be, and never with properties: 4.2.4 and 5.0.0-M1 cannot load a
    topic whose cursor has both.
    """
    raw = cursor_info.encode(info)
    return (
        raw
        if len(raw) <= limit_bytes or _has_properties(info)
        else cursor_info.wrap(raw, settings.compression, 0)
    )


def _has_properties(info: ManagedCursorInfo) -> bool:
    return bool(info.properties or info.cursor_properties)


def _unloaded_too_early(
    state: PositionInfo, settings: PulsarSettings, properties: Mapping[str, str]
) -> list[str]:
    """What an unload does before the first flush: a recovered ledger cannot be written, so all goes
    into the znode, however large.
    """
    if range_count(state.acked) <= settings.znode_ranges_max:
        return []  # as any unload of it
    kept = what_pulsar_keeps(
        state, settings, closing=True, flushed=False, cursor_properties=properties
    )
    before = "an unload before Pulsar's first flush of it writes into the znode"
    remedy = (
        "after loading the topic ack a message (any, even an acked one) before it is "
        "unloaded or moved"
    )
    if kept.state is None:
        return [
            f"{before}: {kept.tried_bytes:,} bytes of at most {settings.znode_bytes_max:,}, "
            f"again and again, and does not end; {remedy}"
        ]
    lost = sum(map(len, kept.dropped_batches.values()))
    if not kept.dropped_count and not lost:
        return []
    return [
        f"{before} and forgets {kept.dropped_count:,} acked entries and {lost:,} partial "
        f"batches; {remedy}"
    ]


def _unloadable(inline: ManagedCursorInfo, settings: PulsarSettings) -> list[str]:
    """What Pulsar's next unload (of many ranges: one before its first flush) may write so that it
    cannot load it again.
    """
    if settings.compression is Compression.NONE or not _has_properties(inline):
        return []
    if len(cursor_info.encode(inline)) <= settings.compression_threshold_bytes:
        return []
    is_small = range_count(inline.acked) <= settings.znode_ranges_max
    return [
        f"{'its next unload' if is_small else 'an unload before its first flush'} "
        "writes a compressed znode with properties, and then 4.2.4 and 5.0.0-M1 cannot load the "
        "topic again: set managedCursorInfoCompressionType=NONE (it is "
        f"{settings.compression.name}) or a higher threshold before"
    ]


_LIMITS = {
    Reason.ENTRY_CAP: "managedLedgerMaxUnackedRangesToPersist, which counts acked entries here",
    Reason.RANGE_CAP: "managedLedgerMaxUnackedRangesToPersist",
    Reason.BATCH_CAP: "managedLedgerMaxBatchDeletedIndexToPersist, or "
    "acknowledgmentAtBatchIndexLevelEnabled = false",
    Reason.FRAME: "the frame of one entry",
    Reason.ZNODE: "the size of the znode",
}


def _losses(
    state: PositionInfo, settings: PulsarSettings, properties: Mapping[str, str]
) -> tuple[list[str], list[str]]:
    """What Pulsar's own writes would drop because of its limits, a sentence each; and what it
    forgets whatever is set.
    """
    dropped, forgotten = [], []
    for when, closing in (("next flush", False), ("next unload", True)):
        kept = what_pulsar_keeps(state, settings, closing=closing, cursor_properties=properties)
        batches = dict(kept.dropped_batches)
        if kept.state is not None and Reason.ZNODE in batches:
            lost = len(batches.pop(Reason.ZNODE))
            forgotten.append(
                f"its {when} goes into the znode, from which Pulsar {settings.version} does not "
                f"restore partial batches: what is acked of "
                f"{lost:,} will be delivered again"
            )
        if kept.dropped_count or batches:
            why = ", ".join(_reasons({*kept.dropped, *batches}, settings))
            lost = sum(map(len, batches.values()))
            dropped.append(
                f"its {when} would drop {kept.dropped_count:,} of {count(state.acked):,} acked "
                f"entries and {lost:,} of "
                f"{len(state.batches):,} partial batches, to be delivered again ({why})"
            )
    return dropped, forgotten


def _reasons(reasons: set[Reason], settings: PulsarSettings) -> list[str]:
    numbers = {
        Reason.ENTRY_CAP: settings.ranges_max,
        Reason.RANGE_CAP: settings.ranges_max,
        Reason.BATCH_CAP: settings.batches_max,
        Reason.FRAME: settings.frame_bytes_max,
        Reason.ZNODE: settings.znode_bytes_max,
    }
    return [f"{_LIMITS[reason]}: {numbers[reason]:,}" for reason in Reason if reason in reasons]


assert ADD_OVERHEAD_BYTES <= ENTRY_MARGIN_BYTES

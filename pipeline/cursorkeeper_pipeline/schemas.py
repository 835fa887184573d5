"""The columns of every table, as constants: what a reader gives, what a transform takes, what a
report holds.

Narrow on purpose: Spark prunes no columns of a Python source (a schema of the user's own does).
`cursor_key` (a 64-bit hash of the cursor's canonical name) joins the tables; names are in `cursors`
alone, so that a billion rows do not carry them. Entries and ledgers are BookKeeper's 64-bit ids;
ranges are closed at both ends; times are UTC.

`status` is one of `OK`, `DAMAGED` (bytes that cannot be trusted), `MISSING` (a ledger that the
footer names does not exist), `TOO_NEW` (written by a newer release), `AWAY` (a system did not
answer for it within `waitS`), `AT_LEAST` (read from a live cursor: its newest acks may be missing,
never wrong).
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

OK, DAMAGED, MISSING, TOO_NEW, AWAY, AT_LEAST = (
    "OK",
    "DAMAGED",
    "MISSING",
    "TOO_NEW",
    "AWAY",
    "AT_LEAST",
)
_L, _I, _S, _B, _X, _D = pa.int64(), pa.int32(), pa.string(), pa.bool_(), pa.binary(), pa.float64()
_T = pa.timestamp("us", tz="UTC")


def schema(**columns: pa.DataType) -> pa.Schema:
    """Not null, but for names that end in `_or_null`, which lose that ending."""
    null = "_or_null"
    return pa.schema(
        [
            pa.field(name.removesuffix(null), kind, nullable=name.endswith(null))
            for name, kind in columns.items()
        ]
    )


NAMES: Final = schema(cursor=_S, tenant=_S, namespace=_S, topic=_S, subscription=_S)
"""What every row of the tables of states has too, if the query's own schema asks for it."""
_NAMED = {"cursor_key": _L, **{field.name: field.type for field in NAMES}}

CURSORS: Final = schema(
    **_NAMED,
    state_or_null=_S,
    epoch_or_null=_L,
    generation_or_null=_L,
    writer_or_null=_S,
    format_or_null=_S,
    footer_version=_I,
    footer_created=_T,
    footer_modified=_T,
    footer_bytes=_I,
    read_at=_T,
    mark_delete_ledger_or_null=_L,
    mark_delete_entry_or_null=_L,
    base_or_null=_S,
    snapshot_bytes_or_null=_L,
    snapshot_segments_or_null=_I,
    chain_ledgers_or_null=_I,
    has_previous_or_null=_B,
    delta_bytes_or_null=_L,
    data_ledgers_or_null=_L,
    span_entries_or_null=_L,
    hole_entries_or_null=_L,
    hole_runs_or_null=_L,
    partial_batches_or_null=_L,
    truncated_or_null=_B,
    status=_S,
    error_or_null=_S,
)
"""One row a cursor, from its footer alone. Numbers of the state are of the moment the footer was
written; of an open cursor mark-delete is a lower bound. `namespace` is tenant/namespace. `base`:
empty, inline, snapshot or pulsar. A footer that cannot be read is a row with its name, its znode's
facts, its status, its error, and null for all that only the footer says.
"""

SEGMENTS: Final = schema(
    cursor_key=_L,
    segment_no_or_null=_I,
    role_or_null=_S,
    bk_ledger_or_null=_L,
    first_entry_or_null=_L,
    last_entry_or_null=_L,
    bytes_or_null=_L,
    footer_version=_I,
    status=_S,
    error_or_null=_S,
)
"""What a footer says must be read, in order: `role` is snapshot, chain, previous_snapshot or
previous_chain. `last_entry` is null where nobody has closed the ledger yet. `bytes`: of a snapshot;
null of a chain ledger, because the footer does not know it. A footer that cannot be read is one row
with null for all that it would say.
"""

HOLES: Final = schema(cursor_key=_L, ledger_id=_L, first_entry=_L, last_entry=_L)
"""Maximal ranges of un-acked entries between mark-delete and the highest acked entry of each data
ledger. A damaged cursor has none here: `hole_stats` says so.
"""

HOLE_STATS: Final = schema(
    cursor_key=_L,
    part_no=_I,
    parts=_I,
    footer_version=_I,
    mark_delete_ledger_or_null=_L,
    mark_delete_entry_or_null=_L,
    data_ledgers_or_null=_L,
    span_entries_or_null=_L,
    acked_entries_or_null=_L,
    hole_entries_or_null=_L,
    hole_runs_or_null=_L,
    longest_run_or_null=_L,
    first_hole_ledger_or_null=_L,
    first_hole_entry_or_null=_L,
    partial_batches_or_null=_L,
    stored_bytes_or_null=_L,
    read_at=_T,
    status=_S,
    error_or_null=_S,
)
"""One row a cursor, of all of it, in however many pieces it was read: `part_no` is 0 and `parts` 1,
and they are there for queries of earlier releases. Numbers of a cursor that cannot be read are
null. `stored_bytes`: what was read for it, deltas once for each piece.
"""

BATCH_PARTIALS: Final = schema(
    cursor_key=_L, ledger_id=_L, entry_id=_L, batch_size=_I, missing=_X, missing_count=_I
)
"""Partly acked batches. `missing`: the batch indexes not acked yet, as a little-endian bit set.
`batch_size` 0: not known.
"""

DELTAS: Final = schema(
    cursor_key=_L,
    bk_ledger=_L,
    bk_entry=_L,
    sequence=_L,
    epoch=_L,
    generation=_L,
    ledger_created=_T,
    at_or_null=_T,
    kind=_S,
    ledger_id_or_null=_L,
    first_entry_or_null=_L,
    last_entry_or_null=_L,
    footer_version=_I,
)
"""The ack history that the chain still keeps, a row for each range of a delta. `kind`: ack,
mark_delete, partial, properties, layout; and, so that gaps are told, damaged, too_new (a record, or
with ledger -1 the footer), missing (a ledger) and away (what could not be read for
now: a ledger from that entry on, or with ledger -1 the cursor). `at` is null: a record has no time
of its own, `ledger_created` is its lower bound.
"""

LEDGERS: Final = schema(
    ledger_id=_L,
    cursor_key_or_null=_L,
    cursor_or_null=_S,
    epoch_or_null=_L,
    state=_S,
    last_entry=_L,
    bytes=_L,
    created=_T,
    verdict=_S,
    ours=_B,
    doubt_or_null=_S,
)
"""Every ledger of this application, with what garbage collection would say of it: named,
may_be_named, unknown, garbage, or kept (named by no footer, and it stays, because the footer is in
doubt or its znode is younger). `doubt`: why this ledger, or the footer itself, shows that the
footer is not the newest that its cursor had; null: neither does.
"""

PULSAR_CURSORS: Final = schema(
    **_NAMED,
    cursors_ledger_or_null=_L,
    mark_delete_ledger_or_null=_L,
    mark_delete_entry_or_null=_L,
    form_or_null=_S,
    ranges_or_null=_L,
    acked_entries_or_null=_L,
    partial_batches_or_null=_L,
    stored_bytes_or_null=_L,
    layout_ledgers_or_null=_L,
    backlog_entries_or_null=_L,
    znode_version_or_null=_I,
    znode_modified_or_null=_T,
    read_at=_T,
    status=_S,
    error_or_null=_S,
)
"""Pulsar's own cursors as they are stored. `form`: znode, ranges or long_array; `backlog_entries`:
entries of closed data ledgers above mark-delete. Null where the cursor cannot be read.
"""

CHECKED, UNCHECKED = "checked", "unchecked"
CHECKS: Final = schema(
    cursor_key=_L,
    cursor=_S,
    state_or_null=_S,
    epoch_or_null=_L,
    kind=_S,
    place=_S,
    message=_S,
    remedy=_S,
    ledgers=_L,
    records=_L,
    stored_bytes=_L,
    at_least=_B,
)
"""What the audit reads. One row of kind checked or unchecked for each cursor (tombstones too, with
the option `deleted`), with the counts; then one for each finding, with zeros. `message` of
unchecked: why. A footer that cannot be read has neither epoch nor state.
"""

TABLES: Final = {
    "cursors": CURSORS,
    "segments": SEGMENTS,
    "holes": HOLES,
    "hole_stats": HOLE_STATS,
    "batch_partials": BATCH_PARTIALS,
    "deltas": DELTAS,
    "ledgers": LEDGERS,
    "pulsar_cursors": PULSAR_CURSORS,
    "checks": CHECKS,
}

STATES: Final = ("holes", "hole_stats", "batch_partials")
"""The tables of what states hold: large cursors are read in pieces, and rows have columns of their
cursor's name too, for those who ask.
"""

LIMITS: Final = schema(
    cursor_key=_L,
    cursor=_S,
    tenant=_S,
    acked_entries=_L,
    ranges_at_least=_L,
    ranges_at_most=_L,
    partial_batches=_L,
    long_array_bytes_at_least=_L,
    long_array_bytes_at_most=_L,
    ranges_bytes_at_most=_L,
    entry_cap_share=_D,
    range_cap_share=_D,
    batch_cap_share=_D,
    frame_share=_D,
    nearest=_S,
    nearest_share=_D,
)
"""How near a cursor is to what a stock Pulsar can store. A share of 1 is the limit, taken from the
upper bounds; 0: the limit does not count with these settings. `nearest`: entryCap, rangeCap,
batchCap, frame, or none.
"""

FORECAST: Final = schema(
    cursor_key=_L,
    cursor=_S,
    tenant=_S,
    acked_entries=_L,
    redelivered_at_least=_L,
    redelivered_estimate=_L,
    redelivered_at_most=_L,
    is_exact=_B,
    partial_batches=_L,
    batches_redelivered=_L,
    reason=_S,
    cursorkeeper_redelivered_or_null=_L,
)
"""Acked entries above mark-delete that Pulsar alone would deliver again after its broker died, once
it had flushed what the footer describes; partly acked batches beside them, counted in batches.
`cursorkeeper_redelivered` is 0; null where the footer says that acks were left out (`truncated`).
"""

FORECAST_TENANTS: Final = schema(
    tenant=_S,
    cursors=_L,
    cursors_at_risk=_L,
    acked_entries=_L,
    redelivered_at_least=_L,
    redelivered_estimate=_L,
    redelivered_at_most=_L,
    batches_redelivered=_L,
    cursorkeeper_redelivered=_L,
)

GROWTH: Final = schema(
    cursor_key=_L,
    cursor=_S,
    tenant=_S,
    change=_S,
    days_or_null=_D,
    hole_entries_or_null=_L,
    span_entries_or_null=_L,
    data_ledgers_or_null=_L,
    holes_grown_or_null=_L,
    span_grown_or_null=_L,
    ledgers_grown_or_null=_L,
    holes_per_day_or_null=_D,
    span_per_day_or_null=_D,
    ledgers_per_day_or_null=_D,
)
"""Against an earlier report. `change`: same (no footer was written between), moved, new, gone,
recreated (another znode, or another
generation: deleted and made again, or reset) or unreadable (the footer, now or then). What grew is
null where one of the two footers
cannot be read. `days`: between the two footers' writes, because a footer's numbers are of its
writing.
"""

GROWTH_TENANTS: Final = schema(
    tenant=_S,
    cursors=_L,
    new=_L,
    gone=_L,
    unreadable=_L,
    holes_grown=_L,
    span_grown=_L,
    ledgers_grown=_L,
    holes_per_day=_D,
    span_per_day=_D,
    ledgers_per_day=_D,
)
"""What grew, and rates, are sums over the cursors of which it is known."""

SIZES: Final = schema(
    backlog_decade=_I,
    hole_decade=_I,
    cursors=_L,
    span_entries=_L,
    hole_entries=_L,
    long_array_bytes=_L,
    ranges_bytes=_L,
    cursorkeeper_bytes=_L,
    largest_long_array_bytes=_L,
    over_frame=_L,
    snapshots=_L,
    snapshot_bytes=_L,
    snapshot_estimate_bytes=_L,
)
"""One row for each decade of backlog (span) and of holes: 3 is 1,000 to 9,999, -1 is none. Bytes
are closed-form estimates and sums over the cursors; `snapshot_bytes` is stored, of the `snapshots`
cursors that have one, for which `snapshot_estimate_bytes` is the estimate.
"""

FINDINGS: Final = schema(
    cursor_key_or_null=_L, cursor_or_null=_S, kind=_S, place=_S, message=_S, remedy=_S
)
"""What an audit found wrong. `kind`: footer_unreadable, footer_too_new, footer_missing,
epoch_without_owner, ledger_missing, ledger_damaged, record_damaged, state_unreadable,
snapshot_differs, orphan_ledger, root_lost. `place`: a znode, "ledger L" or "ledger L entry E".
"""

_DAY = pa.date32()
_STATS = [field for field in HOLE_STATS if field.name != "part_no"]
ARCHIVED_CURSORS: Final = pa.schema(
    [*(f for f in CURSORS if f.name != "tenant"), pa.field("day", _DAY), pa.field("tenant", _S)]
)
ARCHIVED_SEGMENTS: Final = pa.schema([*SEGMENTS, pa.field("day", _DAY), pa.field("tenant", _S)])
ARCHIVED_HOLE_STATS: Final = pa.schema([*_STATS, pa.field("day", _DAY), pa.field("tenant", _S)])
"""One row a cursor."""

LAG: Final = schema(
    day=_DAY,
    cursor_key=_L,
    cursor=_S,
    tenant=_S,
    hole_entries=_L,
    span_entries=_L,
    first_hole_ledger_or_null=_L,
    first_hole_entry_or_null=_L,
    since_or_null=_DAY,
    oldest_hole_days_at_least_or_null=_I,
    days_or_null=_I,
    holes_grown_or_null=_L,
    span_grown_or_null=_L,
    holes_per_day_or_null=_D,
)
"""One row a cursor and archived day. `since`: the first archived day on which the day's oldest hole
was the oldest already; null: there is no hole. `days`: to the archived day before, null on a
cursor's first day and after a reset; rates are over these days.
"""

LAG_TENANTS: Final = schema(
    day=_DAY,
    tenant=_S,
    cursors=_L,
    cursors_with_holes=_L,
    hole_entries=_L,
    span_entries=_L,
    oldest_hole_days_at_least_or_null=_I,
    holes_grown=_L,
    holes_per_day=_D,
)
"""Sums over a tenant's cursors; growth only of cursors that the archived day before has too."""

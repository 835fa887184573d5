"""A cursor from its footer and its entries by the format's own functions, with no runtime: as the
data format's "Reading a cursor" says.

Short because nothing is damaged here; what damage means is the runtime's
(`cursorkeeper.runtime.ledger_join`).
"""

from __future__ import annotations

from collections.abc import Sequence

from cursorkeeper.core.checksums import combined
from cursorkeeper.core.footer import (
    Base,
    ChainLedger,
    Footer,
    InlineBase,
    PulsarBase,
    SnapshotBase,
    is_pulsar,
)
from cursorkeeper.core.state import AckState
from cursorkeeper.core.values import (
    Delta,
    MarkDeleteProperties,
    Partial,
    Segment,
    SnapshotEnd,
    Stamp,
)
from cursorkeeper.format import footer as footer_bytes
from cursorkeeper.format import record
from cursorkeeper.format.pulsar import chunks
from cursorkeeper.format.pulsar.values import Compression, PositionInfo
from cursorkeeper.format.whole_state import ENTRY_BYTES_KEY, STATE_BYTES_MAX
from daemon.tests.releases.recorded import Recorded, RecordedLedger


def replayed(recorded: Recorded, footer: Footer | None = None) -> AckState:
    """The state that a footer (the recorded one, if none is given) leads to. Raises DamageError,
    TooNewError.
    """
    footer = footer or footer_bytes.decode(recorded.footer, recorded.name)
    ledgers = {own.ledger: own for own in recorded.ledgers}
    state = AckState(footer.mark_delete)
    state.cursor_properties = footer.cursor_properties
    _join_base(state, footer.base)
    for item in footer.chain:
        if is_pulsar(item):
            state.join_delta(_delta_of(*newest(ledgers[item.ledger])))
        else:
            _join_records(state, recorded, footer, item, ledgers[item.ledger].entries)
    state.settle()
    return state


def _join_base(state: AckState, base: Base) -> None:
    if isinstance(base, InlineBase):
        state.join_segment(base.state)
    elif isinstance(base, PulsarBase):
        state.join_delta(_delta_of(footer_bytes.pulsar_state(base), base.epoch))


def _join_records(
    state: AckState, recorded: Recorded, footer: Footer, item: ChainLedger, entries: Sequence[bytes]
) -> None:
    if item.last_entry is not None:
        assert len(entries) == item.last_entry + 1
    records = [record.decode(entry, recorded.name.record_hash) for entry in entries]
    listed: set[int] = set()
    if isinstance(footer.base, SnapshotBase) and footer.base.ledger == item.ledger:
        listed = set(_listed(footer.base, records[footer.base.last_entry].body, entries))
    for at, one in enumerate(records):
        assert one.epoch <= footer.epoch
        if one.generation != footer.generation:
            continue
        if isinstance(one.body, Delta):
            state.join_delta(one.body)
        elif at in listed and isinstance(one.body, Segment):
            state.join_segment(one.body)
        elif isinstance(one.body, SnapshotEnd) and listed:
            state.join_segment(
                Segment(
                    one.body.mark_delete,
                    one.body.mark_delete_properties,
                    one.body.cursor_properties,
                )
            )


def _listed(base: SnapshotBase, end: object, entries: Sequence[bytes]) -> tuple[int, ...]:
    """The segments of a snapshot, after every check that the footer and the end record allow."""
    assert isinstance(end, SnapshotEnd)
    segments = [entries[at] for at in end.segment_entries]
    assert (end.segment_entries[0], len(segments)) == (base.first_entry, base.num_parts)
    assert record.peek(entries[base.last_entry]).crc32c == base.crc32c
    assert sum(map(len, segments)) == end.length == base.length
    assert combined([record.peek(segment).crc32c for segment in segments]) == end.segments_crc32c
    return end.segment_entries


def newest(ledger: RecordedLedger) -> tuple[PositionInfo, int]:
    """(the newest complete state of a ledger of whole states, the epoch of its writer)."""
    metadata = ledger.custom_metadata
    codec = metadata.get(chunks.COMPRESSION_KEY)
    compression = None if codec is None else Compression[codec.decode()]
    size = int(metadata[ENTRY_BYTES_KEY])
    asking = chunks.newest_state(
        len(ledger.entries) - 1,
        compression=compression,
        max_entry_bytes=size,
        limit_bytes=STATE_BYTES_MAX,
    )
    try:
        wanted = next(asking)
        while True:
            wanted = asking.send(list(ledger.entries[wanted.first : wanted.last + 1]))
    except StopIteration as done:
        return done.value.info, int(metadata["epoch"])


def _delta_of(info: PositionInfo, epoch: int) -> Delta:
    properties = (
        MarkDeleteProperties(Stamp(epoch, 0), dict(info.properties)) if info.properties else None
    )
    return Delta(
        info.mark_delete,
        properties,
        acks=info.acked,
        partials={k: Partial(0, m) for k, m in info.batches.items()},
    )

"""Messages of the ack stream to values of the core, and back. Pure; every malformed field is a
RefusedError.

Columns stay columns: packed fixed32 stays as it is where it is short, else it becomes a set without
a Python loop over its values.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from pyroaring import BitMap

from cursorkeeper.core import bitmaps, containers
from cursorkeeper.core.batch import AckBatch, LedgerColumns, count_acks
from cursorkeeper.core.bitmaps import U32
from cursorkeeper.core.entries import NONE, Sent, kept
from cursorkeeper.core.errors import Refusal, RefusedError
from cursorkeeper.core.limits import (
    ACK_LEDGERS_MAX,
    ACK_PARTIALS_MAX,
    BATCH_SIZE_MAX,
    LAYOUT_RUN_LEDGERS_MAX,
)
from cursorkeeper.core.positions import LEDGER_ID_MAX, Position
from cursorkeeper.core.values import (
    CursorProperties,
    LayoutItem,
    LayoutState,
    MarkDeleteProperties,
    Partial,
)
from cursorkeeper.stream import plain_acks, received
from cursorkeeper.stream.plain_acks import PlainAcks
from cursorkeeper_client._proto import acks_pb2 as pb

_STATES = {
    pb.LAYOUT_CLOSED: LayoutState.CLOSED,
    pb.LAYOUT_OPEN: LayoutState.OPEN,
    pb.LAYOUT_TRIMMED: LayoutState.TRIMMED,
}
_STATES_OUT = {state: number for number, state in _STATES.items()}
_WORD = 64
RANGES_PER_PARTIAL, WORDS_PER_PARTIAL = 64, 128
"""So many ranges or words in one partly acked batch count as one more batch."""
_PART_BYTES_MIN = 2
"""Of a partly acked batch, a range or a word in a message: its tag and one byte more."""
_SHORT = 128
"""Up to so many numbers become an array faster without numpy."""


def refused(message: str, remedy: str, code: Refusal = Refusal.BAD_MESSAGE) -> RefusedError:
    """Whoever has the message knows its cursor."""
    return RefusedError(code, "", message, remedy)


def generation_of(
    message: PlainAcks | pb.AckBatch | pb.Layout | pb.SetCursorProperties | pb.ResetCursor,
) -> int:
    """Raises RefusedError if it was forgotten: as an old generation the message would be dropped
    and confirmed.
    """
    if not message.generation:
        raise refused("generation is required", "use that of Opened or ResetDone")
    return message.generation


def fencing_token_of(message: pb.OpenCursor | pb.DeleteCursor | pb.DeleteTopicRequest) -> int:
    """Raises RefusedError if it is more than a footer can say."""
    if message.fencing_token > LEDGER_ID_MAX:
        raise refused(
            f"fencing token {message.fencing_token}, at most {LEDGER_ID_MAX} is possible",
            "use the id of a ledger",
        )
    return message.fencing_token


def _checked_parts(message: pb.AckBatch, size_bytes: int) -> list[pb.LedgerAcks]:
    """Its data ledgers, before anything of them is looked at: a message must not cost more than
    Hello said. Raises RefusedError.
    """
    parts = list(message.ledgers)
    if size_bytes <= ACK_PARTIALS_MAX * _PART_BYTES_MIN:
        return parts
    partials = sum([len(part.partial) for part in parts])
    if partials:
        partials += sum(
            len(partial.acked) // RANGES_PER_PARTIAL + len(partial.ack_set) // WORDS_PER_PARTIAL
            for part in parts
            for partial in part.partial[: ACK_PARTIALS_MAX + 1]
        )
    if partials > ACK_PARTIALS_MAX:
        raise _too_many(partials, "partly acked batches", ACK_PARTIALS_MAX, "ack_partials_max")
    return parts


def _too_many(count: int, what: str, limit: int, name: str) -> RefusedError:
    text = f"a batch of acks with {count} {what}, {limit} are allowed ({name} of Hello)"
    return refused(text, "split it into several messages", Refusal.TOO_LARGE)


def sent_acks(data: bytes) -> Any:
    """An AckBatch: its `handle`, `seq` and `generation`, and how many `ledgers` it has. Raises
    DecodeError.
    """
    return plain_acks.read(data) or received.AckBatch.FromString(data)


def batch_of(sent: Any, data: bytes) -> AckBatch:
    """The acks of a message as columns. `sent`: of `data`, by `sent_acks`. Raises RefusedError for
    what no state could take, DecodeError.
    """
    ledgers = len(sent.ledgers)
    if ledgers > ACK_LEDGERS_MAX:
        raise _too_many(ledgers, "data ledgers", ACK_LEDGERS_MAX, "ack_ledgers_max")
    generation, properties = generation_of(sent), None
    if isinstance(sent, PlainAcks):
        size_bytes, mark_delete = len(data), sent.mark_delete
        columns = tuple(
            [
                LedgerColumns(ledger, kept(entries))
                for ledger, entries in zip(sent.ledgers, sent.entries, strict=True)
            ]
        )
    else:
        whole = pb.AckBatch.FromString(data)
        size_bytes = whole.ByteSize()
        columns = tuple([_columns(part) for part in _checked_parts(whole, size_bytes)])
        properties = dict(whole.properties.values) if whole.HasField("properties") else None
        mark_delete = position_of(whole.mark_delete) if whole.HasField("mark_delete") else None
    return AckBatch(
        seq=sent.seq,
        generation=generation,
        mark_delete=mark_delete,
        ledgers=columns,
        properties=properties,
        size_bytes=size_bytes,
        acks=count_acks(columns, mark_delete),
    )


def _columns(part: pb.LedgerAcks) -> LedgerColumns:
    entries, ranges, sent, roaring = part.entries, part.ranges, part.partial, part.roaring
    ones = _entries(entries) if entries else NONE
    if not (ranges or sent or roaring):
        return LedgerColumns(part.ledger_id, ones)
    ledger = part.ledger_id
    return LedgerColumns(
        ledger,
        ones,
        _u32(ranges) if ranges else None,
        tuple([(p.entry, _partial(p, ledger)) for p in sent]) if sent else (),
        _bitmap(roaring) if roaring else None,
    )


def _entries(field: Any) -> Sent:
    """A field of u32, of which order and repeats mean nothing."""
    count = len(field)
    return (
        kept(struct.pack(f"<{count}I", *field))
        if count <= _SHORT
        else bitmaps.from_unsorted(np.asarray(field, dtype=np.uint32))
    )


def _u32(field: Any) -> U32:
    """A packed field."""
    return (
        np.array(field[:], np.uint32)
        if len(field) <= _SHORT
        else np.asarray(field, dtype=np.uint32)
    )


def _bitmap(data: bytes) -> BitMap:
    try:
        return containers.checked(data)
    except ValueError as e:
        raise refused(f"roaring: {e}", "send one bitmap in the portable roaring format") from e


def _partial(message: pb.PartialAck, ledger: int) -> Partial:
    where = f"the batch at {ledger}:{message.entry}"
    size = message.batch_size
    if bool(message.ack_set) == bool(message.acked):
        raise refused(f"{where}: exactly one of ack_set and acked is needed", "send one of them")
    if size > BATCH_SIZE_MAX or len(message.ack_set) * _WORD > BATCH_SIZE_MAX:
        raise refused(
            f"{where} has more than {BATCH_SIZE_MAX} messages",
            "check the batch size",
            Refusal.BATCH_CONTRADICTS,
        )
    missing = (
        _missing_of_words(message.ack_set[:])
        if message.ack_set
        else _missing_of_ranges(message, where)
    )
    if not missing:
        raise refused(f"{where}: nothing is missing", "send a wholly acked batch in `entries`")
    if size and missing.max() >= size:
        raise refused(
            f"{where} has {size} messages and no index {missing.max()}",
            "check the ack set against the batch size",
            Refusal.BATCH_CONTRADICTS,
        )
    return Partial(size, missing)


def _missing_of_words(words: Sequence[int]) -> BitMap:
    """Pulsar's words: bit b of word w set = index 64 w + b is still un-acked."""
    whole = words[0]
    if len(words) > 1 or whole.bit_count() > 16:
        return containers.from_words(np.array(words, np.uint64))
    found = []
    while whole:
        low = whole & -whole
        found.append(low.bit_length() - 1)
        whole ^= low
    return BitMap(found)


def _missing_of_ranges(message: pb.PartialAck, where: str) -> BitMap:
    if not message.batch_size:
        raise refused(f"{where}: acked ranges need batch_size", "send batch_size")
    missing = bitmaps.span(0, message.batch_size - 1)
    for part in message.acked:
        if part.first > part.last or part.last >= message.batch_size:
            raise refused(
                f"{where} of {message.batch_size} messages has no indexes "
                f"{part.first}..{part.last}",
                "check the range against the batch size",
                Refusal.BATCH_CONTRADICTS,
            )
        missing.remove_range(part.first, part.last + 1)
    return missing


def words_of(missing: BitMap) -> list[int]:
    """The missing set as Pulsar's words, trailing zero words trimmed."""
    whole = 0
    for index in missing:
        whole |= 1 << index
    mask = (1 << _WORD) - 1
    return [
        (whole >> (_WORD * at)) & mask for at in range((whole.bit_length() + _WORD - 1) // _WORD)
    ]


def position_of(message: pb.Position) -> Position:
    """The position as it was sent; `intake_check` judges it."""
    return Position(message.ledger, message.entry)


def position_to(position: Position) -> pb.Position:
    return pb.Position(ledger=position.ledger, entry=position.entry)


def layout_of(message: pb.LayoutRun) -> tuple[LayoutItem, ...]:
    """A run of data ledgers as it was sent. Raises RefusedError for a run that is too long, or
    whose columns differ in length.
    """
    if len(message.ids) > LAYOUT_RUN_LEDGERS_MAX:
        raise refused(
            f"a layout of {len(message.ids)} ledgers, {LAYOUT_RUN_LEDGERS_MAX} are allowed at "
            f"once (layout_ledgers_max of Hello)",
            "send several runs, each beginning with the last ledger of the one before: the first "
            "in OpenCursor, the others as Layout",
            Refusal.TOO_LARGE,
        )
    if not len(message.ids) == len(message.states) == len(message.entries):
        raise refused(
            "layout: columns of unequal length", "send one state and one count per ledger id"
        )
    items = []
    for ledger, state, entries in zip(message.ids, message.states, message.entries, strict=True):
        if state not in _STATES:
            raise refused(
                f"layout: ledger {ledger} has no known state", "send CLOSED, OPEN or TRIMMED"
            )
        items.append(
            LayoutItem(ledger, _STATES[state], entries if state == pb.LAYOUT_CLOSED else 0)
        )
    return tuple(items)


def layout_to(items: Iterable[LayoutItem]) -> pb.LayoutRun:
    told = list(items)
    return pb.LayoutRun(
        ids=[item.ledger for item in told],
        states=[_STATES_OUT[item.state] for item in told],
        entries=[item.entries for item in told],
    )


def mark_delete_properties_to(properties: MarkDeleteProperties | None) -> pb.MarkDeleteProperties:
    """The message; empty if there are none."""
    return pb.MarkDeleteProperties(values=dict(properties.values) if properties else {})


def cursor_properties_to(properties: CursorProperties | None) -> pb.CursorProperties:
    """The message; empty if there are none."""
    return pb.CursorProperties(values=dict(properties.values) if properties else {})

"""The recovered state as messages: parts of bounded size, made one by one as the stream takes
them.
"""

from __future__ import annotations

from collections.abc import Iterator

from cursorkeeper.core.machine import CursorMachine
from cursorkeeper.core.snapshot_plan import CONTAINER, EntryRange, take_slice
from cursorkeeper.core.state import AckState
from cursorkeeper.stream import codec
from cursorkeeper_client._proto import acks_pb2 as pb

PART_BYTES = 512 * 1024
SLICE_ENTRIES = 32 * CONTAINER
PARTIALS_PER_PART = 2_000


def messages(
    handle: int, machine: CursorMachine, *, created: bool = False
) -> Iterator[pb.KeeperMessage]:
    """Opened, the parts, StateEnd. Made from the state as it lives: nothing changes it while its
    handle waits for them, and when the handle ends (somebody else took the cursor over) the rest
    must not be made.
    """
    state = machine.acks
    yield opened(handle, machine, created=created)
    for part in parts(handle, state):
        yield pb.KeeperMessage(state_part=part)
    yield pb.KeeperMessage(state_end=end(handle, state))


def opened(handle: int, machine: CursorMachine, *, created: bool) -> pb.KeeperMessage:
    """What comes first. The mark-delete of the footer is a lower bound."""
    told = pb.Opened(
        handle=handle, epoch=machine.epoch, generation=machine.generation, created=created
    )
    if machine.footer is not None:
        told.mark_delete.CopyFrom(codec.position_to(machine.footer.mark_delete))
    return pb.KeeperMessage(opened=told)


def parts(handle: int, state: AckState) -> Iterator[pb.StatePart]:
    """Slices and partial batches, each part about `PART_BYTES` at most. What vanishes between two
    parts is left out.
    """
    part, size = pb.StatePart(handle=handle), 0
    for ledger in state.ledgers:
        first = 0
        while (acks := state.ledgers.get(ledger)) is not None and first < acks.high_water:
            area = take_slice(
                EntryRange(ledger, first, min(acks.high_water, first + SLICE_ENTRIES) - 1), state
            )
            first += SLICE_ENTRIES
            data = area.bitmap.serialize()
            part.slices.add(
                ledger_id=ledger, first=area.first, last=area.last, holes=area.holes, roaring=data
            )
            size += len(data) + 32
            if size >= PART_BYTES:
                yield part
                part, size = pb.StatePart(handle=handle), 0
    yield from with_partials(part, state)


def with_partials(part: pb.StatePart, state: AckState) -> Iterator[pb.StatePart]:
    """The part, and those after it, with the batches that are partly acked."""
    handle = part.handle
    for (ledger, entry), partial in list(state.iter_partials()):
        part.partials.add(
            ledger_id=ledger,
            entry=entry,
            batch_size=partial.batch_size,
            ack_set=codec.words_of(partial.missing),
        )
        if len(part.partials) >= PARTIALS_PER_PART:
            yield part
            part = pb.StatePart(handle=handle)
    if part.slices or part.partials:
        yield part


def end(handle: int, state: AckState) -> pb.StateEnd:
    """The last word: mark-delete, properties, layout, totals."""
    return pb.StateEnd(
        handle=handle,
        mark_delete=codec.position_to(state.mark_delete),
        mark_delete_properties=codec.mark_delete_properties_to(state.mark_delete_properties),
        cursor_properties=codec.cursor_properties_to(state.cursor_properties),
        layout=codec.layout_to(state.layout),
        acked_entries=state.span - state.hole_count,
        holes=state.hole_count,
        partial_batches=state.partial_count,
    )

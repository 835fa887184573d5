"""One cursor in the fake keeper: what is durable, what is accepted, and the rules a batch must
keep. Pure.

Owns: joining acks, checks of a message against the cursor, the recovered form. Does not own:
streams, credit, time. Invariants: `durable` is what survives a kill; accepted changes wait in
`pending` in order of their seqs; acks join by union, mark-delete by maximum, partial batches by
intersection of what is missing, and acked wins.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from pyroaring import BitMap

from cursorkeeper_client import LayoutItem, LayoutState, Position
from cursorkeeper_client._proto import acks_pb2 as pb
from cursorkeeper_client.ack_stream.columns import ack_set_of, missing_of
from cursorkeeper_client.ack_stream.messages import layout_of, layout_run, position, position_of

BATCH_SIZE_MAX = 65_536


class FakeRefusal(Exception):
    """Raised by a fake cursor; the stream answers it with `Refused`."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code, self.message = code, message


@dataclass
class FakeState:
    """The ack state of a fake cursor."""

    mark_delete: Position
    acked: dict[int, BitMap] = field(default_factory=dict)
    # batch size, missing
    partials: dict[tuple[int, int], tuple[int, BitMap]] = field(default_factory=dict)
    properties: dict[str, int] = field(default_factory=dict)
    cursor_properties: dict[str, str] = field(default_factory=dict)
    layout: dict[int, LayoutItem] = field(default_factory=dict)

    def is_acked(self, ledger: int, entry: int) -> bool:
        """Whether the whole entry is acked."""
        return (ledger, entry) <= self.mark_delete or entry in self.acked.get(ledger, ())

    def join(self, batch: pb.AckBatch) -> None:
        """Add a batch that was checked."""
        for acks in batch.ledgers:
            known = self.acked.setdefault(acks.ledger_id, BitMap())
            known |= acked_of(acks)
            for partial in acks.partial:
                key = (acks.ledger_id, partial.entry)
                size, missing = partial_of(partial)
                if key in self.partials:
                    old_size, old = self.partials[key]
                    size, missing = max(size, old_size), missing & old
                self.partials[key] = (size, missing)
                if not missing:
                    known.add(partial.entry)
        if batch.HasField("mark_delete"):
            self.mark_delete = max(self.mark_delete, position_of(batch.mark_delete))
        if batch.HasField("properties"):
            self.properties = dict(batch.properties.values)
        self._tidy()

    def reset(self, target: Position) -> None:
        """Forget all acks."""
        self.mark_delete, self.acked, self.partials, self.properties = target, {}, {}, {}

    def _tidy(self) -> None:
        ledger, entry = self.mark_delete
        self.acked = {number: bitmap for number, bitmap in self.acked.items() if number >= ledger}
        if ledger in self.acked and entry >= 0:
            self.acked[ledger].remove_range(0, entry + 1)
        self.partials = {
            key: value for key, value in self.partials.items() if not self.is_acked(*key)
        }


class FakeCursor:
    """`epoch` grows with every new owner, `generation` with every reset."""

    def __init__(
        self, name: str, start: Position, cursor_properties: dict[str, str], layout: pb.LayoutRun
    ) -> None:
        self.name = name
        self.epoch, self.generation = 0, 1
        self._is_told = False
        self.durable = FakeState(start, cursor_properties=cursor_properties)
        # seq, bytes of credit, change
        self.pending: deque[tuple[int, int, Callable[[FakeState], None]]] = deque()
        self.take_layout(layout)

    def take_layout(self, run: pb.LayoutRun) -> None:
        """Join a run of data ledgers. Raises LAYOUT_CONTRADICTS."""
        self._check_touch(list(run.ids))
        for item in _layout(run):
            known = self.durable.layout.get(item.ledger)
            if (
                known
                and known.state is LayoutState.CLOSED
                and item.state is LayoutState.CLOSED
                and known.entries != item.entries
            ):
                raise FakeRefusal(
                    "LAYOUT_CONTRADICTS",
                    f"ledger {item.ledger} had {known.entries} entries, now {item.entries}",
                )
            if known is None or item.state is not LayoutState.OPEN:
                self.durable.layout[item.ledger] = item

    def _check_touch(self, ids: list[int]) -> None:
        known = sorted(self.durable.layout)
        if not ids or not known:
            return
        low, high = max(ids[0], known[0]), min(ids[-1], known[-1])
        mine, theirs = ([i for i in both if low <= i <= high] for both in (known, ids))
        if low > high or mine != theirs:
            raise FakeRefusal(
                "LAYOUT_CONTRADICTS", f"ledgers {ids} and the known {known}: one could be left out"
            )

    def check(self, batch: pb.AckBatch) -> None:
        """Raises what a batch is refused for; the cursor is untouched."""
        if batch.HasField("mark_delete") and batch.mark_delete.entry < -1:
            raise FakeRefusal(
                "POSITION_OUT_OF_RANGE", f"mark-delete entry {batch.mark_delete.entry}"
            )
        for acks in batch.ledgers:
            if len(acks.ranges) % 2:
                raise FakeRefusal("BAD_MESSAGE", f"{len(acks.ranges)} numbers of ranges")
            item = self.durable.layout.get(acks.ledger_id)
            acked = acked_of(acks)
            if item and item.state is LayoutState.CLOSED and acked and acked.max() >= item.entries:
                raise FakeRefusal(
                    "POSITION_OUT_OF_RANGE",
                    f"entry {acked.max()} of ledger {acks.ledger_id}, which has {item.entries}",
                )
            for partial in acks.partial:
                size, _ = partial_of(partial)
                known, _ = self.durable.partials.get((acks.ledger_id, partial.entry), (0, None))
                if size and known and size != known:
                    raise FakeRefusal(
                        "BATCH_CONTRADICTS",
                        f"entry {partial.entry} has a batch of {known}, now {size}",
                    )

    def recovered(self, handle: int) -> list[pb.KeeperMessage]:
        """The durable state as messages: `Opened`, its parts, `StateEnd`. The first time it was
        created for who gets it.
        """
        state = self.durable
        opened = pb.Opened(
            handle=handle,
            epoch=self.epoch,
            generation=self.generation,
            mark_delete=position(state.mark_delete),
        )
        opened.created, self._is_told = not self._is_told, True
        part = pb.StatePart(handle=handle)
        for ledger, bitmap in state.acked.items():
            if bitmap:
                last = bitmap.max()
                holes = BitMap(range(last + 1)) - bitmap
                part.slices.add(
                    ledger_id=ledger, first=0, last=last, holes=True, roaring=holes.serialize()
                )
        for (ledger, entry), (size, missing) in state.partials.items():
            part.partials.add(
                ledger_id=ledger, entry=entry, batch_size=size, ack_set=ack_set_of(missing)
            )
        end = pb.StateEnd(
            handle=handle,
            mark_delete=position(state.mark_delete),
            mark_delete_properties=pb.MarkDeleteProperties(values=state.properties),
            cursor_properties=pb.CursorProperties(values=state.cursor_properties),
            layout=layout_run([state.layout[ledger] for ledger in sorted(state.layout)]),
            acked_entries=sum(map(len, state.acked.values())),
            partial_batches=len(state.partials),
        )
        return [
            pb.KeeperMessage(opened=opened),
            pb.KeeperMessage(state_part=part),
            pb.KeeperMessage(state_end=end),
        ]


def acked_of(acks: pb.LedgerAcks) -> BitMap:
    """The whole entries of a message."""
    acked = BitMap(acks.entries)
    for first, last in zip(acks.ranges[::2], acks.ranges[1::2], strict=True):
        if first > last:
            raise FakeRefusal("BAD_MESSAGE", f"range {first} to {last}")
        acked.add_range(first, last + 1)
    if acks.roaring:
        acked |= BitMap.deserialize(acks.roaring)
    return acked


def partial_of(partial: pb.PartialAck) -> tuple[int, BitMap]:
    """Batch size and missing indexes. Raises what the message is refused for."""
    if bool(partial.ack_set) == bool(partial.acked):
        raise FakeRefusal("BAD_MESSAGE", f"entry {partial.entry}: exactly one of ack_set and acked")
    size = partial.batch_size
    if size > BATCH_SIZE_MAX:
        raise FakeRefusal("TOO_LARGE", f"a batch of {size}")
    if partial.acked:
        if not size:
            raise FakeRefusal("BAD_MESSAGE", f"entry {partial.entry}: acked ranges need batch_size")
        if any(r.last >= size or r.first > r.last for r in partial.acked):
            raise FakeRefusal("BATCH_CONTRADICTS", f"entry {partial.entry} has a batch of {size}")
        return size, BitMap(range(size)) - BitMap.union(
            *(BitMap(range(r.first, r.last + 1)) for r in partial.acked)
        )
    missing = missing_of(partial.ack_set)
    if not missing:
        raise FakeRefusal(
            "BAD_MESSAGE",
            f"entry {partial.entry}: an ack_set of zeros only; send the entry in `entries`",
        )
    if size and missing.max() >= size:
        raise FakeRefusal("BATCH_CONTRADICTS", f"index {missing.max()} of a batch of {size}")
    return size, missing


def _layout(run: pb.LayoutRun) -> tuple[LayoutItem, ...]:
    try:
        return layout_of(run)
    except ValueError as wrong:
        raise FakeRefusal("BAD_MESSAGE", f"layout: {wrong}") from None

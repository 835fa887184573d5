"""Arrival validates: everything that can be wrong with a message is found here, before anything is
kept.

A batch is kept whole or refused whole. Batches that were kept but not yet applied count too: what
they said of high waters and batch sizes is remembered in `Queued` until the flush.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field

import numpy as np

from cursorkeeper.core.batch import AckBatch, LedgerColumns
from cursorkeeper.core.budget import (
    ACK_BYTES,
    LAYOUT_BYTES,
    LEDGER_BYTES,
    PARTIAL_BYTES,
    growth_bytes,
    mixed_bytes,
)
from cursorkeeper.core.entries import count_of, highest_of
from cursorkeeper.core.errors import Refusal, RefusedError
from cursorkeeper.core.layout import Layout, LayoutContradiction
from cursorkeeper.core.ledger_acks import LedgerAcks
from cursorkeeper.core.limits import Limits
from cursorkeeper.core.positions import BEFORE_FIRST, ENTRY_ID_MAX, LEDGER_ID_MAX, Position
from cursorkeeper.core.shape import component
from cursorkeeper.core.state import AckState
from cursorkeeper.core.values import LayoutItem, LayoutState, Partial, PartialKey

INT64_MIN, INT64_MAX = -(1 << 63), (1 << 63) - 1


def _bytes_more(
    columns: LedgerColumns, high_water: int, known: int, acks: LedgerAcks | None
) -> int:
    """What the acks of one ledger may add to the memory of the state: all between them as un-acked,
    and each of them apart. `high_water` with them, `known` without them; `acks`: what the state has
    of the ledger.
    """
    apart, partials = ACK_BYTES * count_of(columns.entries), PARTIAL_BYTES * len(columns.partials)
    if columns.ranges is not None:
        apart += ACK_BYTES * (columns.ranges.size // 2)
    if columns.bitmap is not None:
        apart += columns.bitmap.__sizeof__()
    if acks is not None:  # a container that is full of mixed entries does not grow any more
        apart = min(apart, max(0, mixed_bytes(high_water) - acks.counted_bytes))
    return growth_bytes(known, high_water) + (0 if known else LEDGER_BYTES) + apart + partials


LAYOUT_REMEDY = (
    "send the topic's ledgers from the mark-delete ledger on, none left out; if some were "
    "trimmed meanwhile: open without a layout, then "
    "send those of StateEnd that are gone as TRIMMED, and the others behind them, as one run"
)
Batches = dict[PartialKey, tuple[int, int]]
"""Entry -> (batch size or 0, highest missing index)."""
NOT_KNOWN = (0, -1)


@component
class Queued:
    """Batches that are kept but not applied yet, and what they have said."""

    messages: list[AckBatch] = field(default_factory=list)
    acks: int = 0
    size_bytes: int = 0
    high_water: dict[int, int] = field(default_factory=dict)
    batches: Batches = field(default_factory=dict)
    bytes: int = 0
    """What they may add to the memory of the state."""
    parts: int = 0
    """Data ledgers and partly acked batches in them: what applying them costs."""

    def keep(self, batch: AckBatch) -> None:
        """A batch that was checked waits to be applied."""
        self.messages.append(batch)
        self.acks += batch.acks
        self.size_bytes += batch.size_bytes


@component
class IntakeCheck:
    """Checks messages against one cursor's state. `cursor` is its name, for the errors."""

    _cursor: str
    _limits: Limits

    def _refuse(self, code: Refusal, message: str, remedy: str) -> RefusedError:
        return RefusedError(code, self._cursor, message, remedy)

    def batch(self, batch: AckBatch, state: AckState, queued: Queued) -> None:
        """Raises RefusedError, or records in `queued` what was accepted."""
        if batch.mark_delete is not None:
            self.position(batch.mark_delete, state)
        heights: dict[int, int] = {}
        batches: Batches = {}
        more = 0
        for columns in batch.ledgers:
            highest = self._highest(columns)
            if highest < 0:
                continue
            ledger = columns.ledger
            acks = state.ledgers.get(ledger)
            known = acks.high_water if acks is not None else 0
            if ledger in queued.high_water:
                known = max(known, queued.high_water[ledger])
            counts = self._ledger_and_entry(ledger, highest, known, state)
            if ledger in heights:
                known = heights[ledger]
            heights[ledger] = known if highest < known else highest + 1
            if counts:
                more += _bytes_more(columns, heights[ledger], known, acks)
            for entry, partial in columns.partials:
                self._partial(PartialKey(ledger, entry), partial, state, queued, batches)
        if batch.properties is not None:
            self.mark_delete_properties(batch.properties)
        self._memory(more, state, queued)
        queued.bytes += more
        queued.parts += batch.parts
        queued.high_water.update(heights)
        queued.batches.update(batches)

    def _memory(self, more: int, state: AckState, queued: Queued) -> None:
        """What acks may add: of un-acked entries below them, most of all. Acks that add nothing may
        always come.
        """
        total = state.memory_bytes + queued.bytes + more
        if more and total > self._limits.state_bytes_max:
            raise self._refuse(
                Refusal.TOO_LARGE,
                f"with these acks the state may take {total:,} bytes of memory, "
                f"{self._limits.state_bytes_max:,} are allowed",
                "check the entry ids; move mark-delete, which frees memory, or raise "
                "state_bytes_max",
            )

    def _highest(self, columns: LedgerColumns) -> int:
        highest = highest_of(columns.entries) if columns.entries else -1
        if columns.ranges is not None and columns.ranges.size:
            if columns.ranges.size % 2:
                raise self._refuse(
                    Refusal.BAD_MESSAGE,
                    "ranges holds an odd number of values",
                    "send first, last pairs",
                )
            firsts, lasts = columns.ranges[0::2], columns.ranges[1::2]
            if bool(np.any(firsts > lasts)):
                raise self._refuse(
                    Refusal.BAD_MESSAGE, "a range ends before it begins", "send first <= last"
                )
            highest = max(highest, int(lasts.max()))
        if columns.bitmap:
            highest = max(highest, columns.bitmap.max())
        if columns.partials:
            highest = max(highest, max(e for e, _ in columns.partials))
            lowest = min(e for e, _ in columns.partials)
            if lowest < 0:
                raise self._refuse(
                    Refusal.POSITION_OUT_OF_RANGE,
                    f"entry id {lowest} is out of range",
                    "send entry ids of 0 to 2^32-1",
                )
        return highest

    def _ledger_and_entry(self, ledger: int, highest: int, known: int, state: AckState) -> bool:
        """Whether they say anything that is not known. Raises RefusedError."""
        if not 0 <= ledger <= LEDGER_ID_MAX:
            raise self._refuse(
                Refusal.POSITION_OUT_OF_RANGE,
                f"ledger id {ledger} is out of range",
                "send ids of 0 to 2^63-1",
            )
        if highest > ENTRY_ID_MAX:
            raise self._refuse(
                Refusal.POSITION_OUT_OF_RANGE,
                f"entry id {highest} is out of range",
                "send entry ids below 2^32",
            )
        if ledger < state.mark_delete.ledger:
            return False  # duplicates
        item = self._known(ledger, state)
        if item is not None and item.state is LayoutState.TRIMMED:
            return False
        if item is not None and item.state is LayoutState.CLOSED:
            if highest >= item.entries:
                raise self._refuse(
                    Refusal.POSITION_OUT_OF_RANGE,
                    f"entry {ledger}:{highest} does not exist: the ledger was closed with "
                    f"{item.entries} entries",
                    "check the ack, or the layout that was sent",
                )
            return True
        if highest > known + self._limits.open_ledger_span_max:
            raise self._refuse(
                Refusal.POSITION_OUT_OF_RANGE,
                f"entry {ledger}:{highest} is more than {self._limits.open_ledger_span_max} "
                f"above the highest known entry {known - 1}",
                "check the entry id, or raise open_ledger_span_max",
            )
        return True

    def _known(self, ledger: int, state: AckState) -> LayoutItem | None:
        item = state.layout.get(ledger)
        if item is None and len(state.layout) and ledger != state.mark_delete.ledger:
            raise self._refuse(
                Refusal.POSITION_OUT_OF_RANGE,
                f"ledger {ledger} is not in the layout ({state.layout.first}..{state.layout.last})",
                "send Layout with the new ledgers before their acks",
            )
        return item

    def _partial(
        self, key: PartialKey, partial: Partial, state: AckState, queued: Queued, batches: Batches
    ) -> None:
        where = f"the batch at {key.ledger}:{key.entry}"
        if partial.batch_size > self._limits.batch_size_max:
            raise self._refuse(
                Refusal.BATCH_CONTRADICTS,
                f"{where} has {partial.batch_size} messages, {self._limits.batch_size_max} are "
                f"allowed",
                "raise batch_size_max if such batches exist",
            )
        if partial.missing and partial.missing.max() >= (
            partial.batch_size or self._limits.batch_size_max
        ):
            raise self._refuse(
                Refusal.BATCH_CONTRADICTS,
                f"{where} has no index {partial.missing.max()} (batch size {partial.batch_size})",
                "check the ack set against the batch size",
            )
        known = state.partial(*key)
        remembered = (
            (known.batch_size, known.missing.max()) if known else NOT_KNOWN,
            queued.batches.get(key, NOT_KNOWN),
            batches.get(key, NOT_KNOWN),
        )
        size = max(partial.batch_size, *(s for s, _ in remembered))
        highest = max(partial.missing.max() if partial.missing else -1, *(h for _, h in remembered))
        for earlier, _ in remembered:
            if earlier and partial.batch_size and earlier != partial.batch_size:
                raise self._refuse(
                    Refusal.BATCH_CONTRADICTS,
                    f"{where} had {earlier} messages and now has {partial.batch_size}",
                    "check the batch size that the source sends",
                )
        if size and highest >= size:
            # joined, the two would leave nothing missing: the whole entry would count as acked
            raise self._refuse(
                Refusal.BATCH_CONTRADICTS,
                f"{where} of {size} messages has no index {highest}",
                "check the ack set against the batch size",
            )
        batches[key] = (size, highest)

    def position(self, position: Position, state: AckState) -> None:
        """A mark-delete, start or reset target: -1 is legal; beyond the layout is not."""
        ledger, entry = position
        self._in_range("position", position)
        if position <= state.mark_delete:
            return
        if entry == BEFORE_FIRST and state.layout.last is not None and ledger > state.layout.last:
            # the source says that everything before this ledger is acked: it may have been trimmed
            # while nobody listened
            return
        item = self._known(ledger, state)
        if item is not None and item.state is LayoutState.CLOSED and entry >= item.entries:
            raise self._refuse(
                Refusal.POSITION_OUT_OF_RANGE,
                f"position {position} does not exist: the ledger was closed with {item.entries} "
                f"entries",
                "check the position, or the layout that was sent",
            )
        if item is None or item.state is LayoutState.OPEN:
            acks = state.ledgers.get(ledger)
            if entry > (acks.high_water if acks else 0) + self._limits.open_ledger_span_max:
                raise self._refuse(
                    Refusal.POSITION_OUT_OF_RANGE,
                    f"position {position} is more than {self._limits.open_ledger_span_max} above "
                    f"the highest known entry",
                    "check the entry id, or raise open_ledger_span_max",
                )

    def _layout_form(self, run: Sequence[LayoutItem]) -> None:
        try:
            Layout.check_form(run, self._limits.layout_ledgers_max)
        except LayoutContradiction as e:
            raise self._refuse(Refusal.LAYOUT_CONTRADICTS, str(e), LAYOUT_REMEDY) from e

    def opening(
        self,
        start: Position | None,
        run: Sequence[LayoutItem],
        properties: Mapping[str, str] | None,
    ) -> None:
        """What comes with an open, checked before anything is written: it may become the first
        footer.
        """
        self._layout_form(run)
        if properties:
            self.cursor_properties(properties)
        if start is None:
            return
        self._in_range("start", start)
        known = {i.ledger: i for i in run}
        item = known.get(start.ledger)
        missing = run and item is None and start.ledger > run[0].ledger
        if missing or (
            item is not None and item.state is LayoutState.CLOSED and start.entry >= item.entries
        ):
            raise self._refuse(
                Refusal.POSITION_OUT_OF_RANGE,
                f"start {start} does not exist",
                "check it against the layout that was sent with it",
            )

    def _in_range(self, what: str, position: Position) -> None:
        if (
            position.entry < BEFORE_FIRST
            or not 0 <= position.ledger <= LEDGER_ID_MAX
            or position.entry > ENTRY_ID_MAX
        ):
            raise self._refuse(
                Refusal.POSITION_OUT_OF_RANGE,
                f"{what} {position} is out of range",
                "send an existing entry, or -1 for before the first",
            )

    def reset_target(
        self, target: Position, state: AckState, told: Sequence[LayoutItem] = ()
    ) -> None:
        """A seek may go anywhere in the known layout, and before it: the source knows what it still
        has. `told`: layout that was accepted and takes effect after an earlier reset.
        """
        self._in_range("reset target", target)
        item = max(
            (i for i in told if i.ledger == target.ledger),
            key=lambda i: i.state,
            default=state.layout.get(target.ledger),
        )
        beyond = (
            item is None and state.layout.last is not None and target.ledger > state.layout.last
        )
        if beyond or (
            item is not None and item.state is LayoutState.CLOSED and target.entry >= item.entries
        ):
            raise self._refuse(
                Refusal.POSITION_OUT_OF_RANGE,
                f"reset target {target} does not exist",
                "check the target, or send Layout first",
            )

    def layout(self, run: Sequence[LayoutItem], state: AckState) -> None:
        """A layout run.

        A run that ends before the mark-delete ledger is old news: it says nothing that still
        counts. A count at or below an accepted ack does not contradict: while the ledger was open
        an ack of an entry that it never got could not be told from any other, and such an ack stays
        without effect. Refused, it would keep the source away for ever, since the ack is durable.
        """
        self._layout_form(run)
        if run and run[-1].ledger < state.mark_delete.ledger:
            return
        try:
            state.layout.check(run, self._limits.layout_ledgers_max)
        except LayoutContradiction as e:
            raise self._refuse(Refusal.LAYOUT_CONTRADICTS, str(e), LAYOUT_REMEDY) from e
        new = sum(item.ledger not in state.layout for item in run)
        total = len(state.layout) + new
        if total > self._limits.layout_ledgers_max:
            raise self._refuse(
                Refusal.LAYOUT_CONTRADICTS,
                f"the layout would have {total} ledgers, {self._limits.layout_ledgers_max} are "
                f"allowed",
                "move mark-delete, which forgets the ledgers below it, or raise layout_ledgers_max",
            )
        self.layout_memory(new, state)

    def layout_memory(self, ledgers: int, state: AckState) -> None:
        """What so many more ledgers of the layout add to the memory of the state, or will."""
        bytes_then = state.memory_bytes + ledgers * LAYOUT_BYTES
        if ledgers and bytes_then > self._limits.state_bytes_max:
            raise self._refuse(
                Refusal.TOO_LARGE,
                f"with this layout the state may take {bytes_then:,} bytes of memory, "
                f"{self._limits.state_bytes_max:,} are allowed",
                "move mark-delete, which forgets the ledgers below it, or raise state_bytes_max",
            )

    def mark_delete_properties(self, values: Mapping[str, int]) -> None:
        """String to int64, at most `mark_delete_properties_bytes_max` in all."""
        size = 0
        for key, value in values.items():
            if not INT64_MIN <= value <= INT64_MAX:
                raise self._refuse(
                    Refusal.BAD_MESSAGE,
                    f"property {key!r} is not an int64",
                    "send numbers of 64 bits",
                )
            size += len(key.encode()) + 12
        self._properties_size(
            size, self._limits.mark_delete_properties_bytes_max, "mark-delete properties"
        )

    def cursor_properties(self, values: Mapping[str, str]) -> None:
        """String to string, at most `cursor_properties_bytes_max` in all."""
        size = sum(len(k.encode()) + len(v.encode()) + 6 for k, v in values.items())
        self._properties_size(size, self._limits.cursor_properties_bytes_max, "cursor properties")

    def _properties_size(self, size: int, limit: int, what: str) -> None:
        if size > limit:
            raise self._refuse(
                Refusal.TOO_LARGE,
                f"the {what} take {size} bytes, {limit} are allowed",
                "send fewer or smaller properties",
            )

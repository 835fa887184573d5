"""Serves clusters whose cursors stay readable by Pulsar (`format = "pulsar"`): flushes that write
the whole state.

The machine still takes deltas: they say what is new, drive progress and are put back. What is
appended is the state of the same instant, encoded by a `StateWriter`; a record is durable when its
last entry is. Invariants: the second state is taken when the first has left completely (the newest
wins); nothing is appended that does not fit; a state that leaves something out is appended only
while the committed footer says so; what only the footer holds (the subscription's properties) is
confirmed only when the committed footer holds it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Protocol

from cursorkeeper.core import effects as fx
from cursorkeeper.core import events as ev
from cursorkeeper.core.flow import Flow
from cursorkeeper.core.footer import (
    FORMAT_PULSAR,
    Base,
    ChainLedger,
    EmptyBase,
    Footer,
    PulsarBase,
    Truncation,
)
from cursorkeeper.core.life import Life
from cursorkeeper.core.ownership import Ownership
from cursorkeeper.core.shape import frozen
from cursorkeeper.core.state import AckState
from cursorkeeper.core.table import LIVE
from cursorkeeper.core.turn import Turn
from cursorkeeper.core.values import Delta, RawEntry
from cursorkeeper.core.writer import OpenLedger, Outgoing, Sent, Writer


@frozen
class Taken:
    """A whole state as entries of one ledger, in order. `encoded_bytes`: its size before
    compression, properties included.
    """

    entries: tuple[bytes, ...]
    encoded_bytes: int
    truncated: Truncation | None = None


@frozen
class DoesNotFit:
    """Why it may not be written, with the numbers and the name of the setting."""

    reason: str
    encoded_bytes: int


class StateWriter(Protocol):
    """How a whole state becomes bytes. Pure: the state is not changed, equal states give equal
    bytes.
    """

    @property
    def format(self) -> str:
        """The format's name, as footers spell it."""
        ...

    @property
    def ledger_metadata(self) -> Mapping[str, bytes]:
        """What a reader of a ledger must know, as custom metadata."""
        ...

    def take(self, state: AckState) -> Taken | DoesNotFit:
        """The entries of one flush. Sizes are checked before anything is encoded where that can be
        known.
        """
        ...

    def inline(self, state: AckState, bytes_max: int) -> bytes | None:
        """The whole state as one value for the footer; None: it does not fit `bytes_max` or a
        limit.
        """
        ...


@frozen
class Unfit:
    """The last attempt found that the state does not fit. As long as `carried` is the same value,
    and no ledger was trimmed since (`layout_changes`), it would find it again.
    """

    why: DoesNotFit
    carried: Delta
    layout_changes: int


class WholeForm:
    has_records = False

    def __init__(
        self,
        turn: Turn,
        life: Life,
        ownership: Ownership,
        flow: Flow,
        writer: Writer,
        states: StateWriter,
    ) -> None:
        self._turn, self._life, self._ownership = turn, life, ownership
        self._flow, self._writer, self._states = flow, writer, states
        self.metadata_bytes = 0
        self.fits_since_s = 0.0
        self._unfit: Unfit | None = None
        self._taken_s: float | None = None
        """When a state was taken last."""
        self._is_note_awaited = False
        """A state waits until the committed footer says that it leaves something out."""

    @property
    def name(self) -> str:
        return self._states.format

    @property
    def ledger_metadata(self) -> Mapping[str, bytes]:
        return self._states.ledger_metadata

    @property
    def interval_ms(self) -> int:
        return self._turn.limits.whole_state_interval_ms

    @property
    def patience_s(self) -> float:
        return (
            self._turn.limits.bookkeeper_away_ms + self._turn.limits.whole_state_interval_ms
        ) / 1000

    @property
    def is_foreign(self) -> bool:
        return self._ownership.names_native

    @property
    def is_between_states(self) -> bool:
        return not self._writer.outbox

    @property
    def is_rewrite_due(self) -> bool:
        """No state is on its way that would replace the native chain."""
        if self.is_stuck:
            return False
        wanted = self._flow.behind or (self._life.state in LIVE and self.is_foreign)
        return wanted and not self._writer.outbox and not self._writer.unconfirmed

    @property
    def unfit(self) -> str:
        unfit = self._unfit  # the metrics' thread asks, too
        return "" if unfit is None else unfit.why.reason

    @property
    def is_stuck(self) -> bool:
        unfit, flow = self._unfit, self._flow
        if unfit is None or flow.queued.messages:
            return False
        return flow.carried is unfit.carried and flow.layout_changes == unfit.layout_changes

    # ---- a flush

    def flush_at(self, *, urgent: bool, at_once: bool) -> float | None:
        writer, flow = self._writer, self._flow
        # answered ones too: each is kept whole until the footer leads to it
        waiting = max(writer.in_flight, len(writer.unconfirmed))
        if (
            waiting >= self._turn.limits.appends_in_flight_max
            or self.is_stuck
            or (self._is_note_awaited and not self._is_noted)
        ):
            return None
        after = (
            self._taken_s + self.interval_ms / 1000
            if self._taken_s is not None and not urgent
            else 0.0
        )
        if self.is_rewrite_due:
            # the size of what did not fit is not looked at for every ack
            return after if self._unfit is not None else 0.0
        oldest = flow.oldest_unwritten_s(is_urgent=urgent)
        return None if oldest is None else max(oldest, after)

    def take(self) -> None:
        flow, counters = self._flow, self._turn.counters
        if not flow.carried and not self.is_rewrite_due:
            flow.bind_to_newest()
            return
        taken = self._states.take(flow.acks)
        self.metadata_bytes = taken.encoded_bytes
        if isinstance(taken, DoesNotFit):
            self._hold_back(taken)
            return
        if self._unfit is not None:
            self._unfit, self.fits_since_s = None, self._turn.now
            self._turn.wait_for("")
        if taken.truncated is not None:
            self._note_truncation(taken.truncated)
            if self._is_note_awaited:
                return  # the footer says it first: see `note`
        self._is_note_awaited = False
        delta = flow.take_carried()
        record = flow.progress.take().start
        last = Outgoing(record, RawEntry(taken.entries[-1]), delta, taken.truncated)
        self._writer.put([*(Outgoing(None, RawEntry(entry)) for entry in taken.entries[:-1]), last])
        self._taken_s = self._turn.now
        counters.flushes += 1
        counters.truncated_flushes += taken.truncated is not None

    def _hold_back(self, why: DoesNotFit) -> None:
        """Acks stay accepted and unconfirmed. Their bytes go back to the source's credit: they are
        in the state now, and the acks that would make it fit again must be able to come.
        """
        flow = self._flow
        if self._unfit is None:
            self._turn.counters.limit_crossings += 1
            self._turn.emit(
                fx.Report(
                    "state does not fit", {"reason": why.reason, "encoded_bytes": why.encoded_bytes}
                )
            )
        self._unfit = Unfit(why, flow.carried, flow.layout_changes)
        # to know the size costs as much as the state is large: not for every ack
        self._taken_s = self._turn.now
        flow.confirm(flow.progress.released())

    def _note_truncation(self, truncated: Truncation) -> None:
        if self._is_stored_whole:
            self._turn.counters.truncations += 1
            self._turn.emit(fx.Report("state truncated", truncated.as_fields()))
        self._ownership.note_truncation(truncated)
        self._is_note_awaited = not self._is_noted

    @property
    def _is_stored_whole(self) -> bool:
        """Nothing leaves something out: not what is stored, what is on its way, or what waits for
        the footer.
        """
        return (
            self._flow.stored_truncation is None
            and not self._writer.is_truncated
            and not self._is_note_awaited
        )

    @property
    def _is_noted(self) -> bool:
        """The committed footer says that the state may be a part, and no footer write is on its way
        that would not.
        """
        committed, outstanding = self._ownership.committed, self._ownership.commit.outstanding
        said = committed is not None and committed.truncated is not None
        return said and (outstanding is None or outstanding.footer.truncated is not None)

    def answered(self, ledger: OpenLedger, sent: Sent, stored_bytes: int) -> None:
        ledger.has_first(is_first=sent.record is not None)
        self._turn.counters.flushed_bytes += stored_bytes

    def is_held(self, outgoing: Outgoing) -> bool:
        properties, committed = outgoing.delta.cursor_properties, self._ownership.committed
        if properties is None:
            return True
        held = committed.cursor_properties if committed is not None else None
        return held is not None and held.stamp >= properties.stamp

    def durable(self, outgoing: Outgoing) -> None:
        self._flow.stores(outgoing.truncated)
        self._flow.withhold(is_withheld=False)

    def left_behind(self) -> None:
        """A reader may find the newest of the states that are not durable until another one is
        named.
        """
        ledger = self._writer.current
        parts = [o.truncated for o in self._writer.unconfirmed.values() if o.truncated is not None]
        if parts and ledger is not None and ledger.named:
            self._flow.stores(parts[-1])

    # ---- the footer

    def footer(self, **changes: object) -> Footer:
        says = {"cursor_properties": self._flow.acks.cursor_properties}
        footer = self._flow.draft(**(says | changes))
        if isinstance(footer.base, EmptyBase) and "base" not in changes:
            footer = replace(footer, base=EmptyBase(footer.mark_delete))
        return footer

    def named(self, ledger: int) -> Footer:
        """Its first state was taken from all that is known: nothing of what was named before it is
        needed any more.
        """
        alone = (ChainLedger(ledger, format=FORMAT_PULSAR),)
        return self.footer(base=EmptyBase(self._flow.acks.mark_delete), chain=alone, previous=None)

    def reset(self, reset: ev.Reset) -> Footer:
        """The target is all there is to say; properties have their own place in such a footer, the
        layout has none.
        """
        return self.footer(
            generation=self._ownership.generation + 1,
            mark_delete=reset.target,
            base=EmptyBase(reset.target),
            chain=(),
            previous=None,
            truncated=None,
        )

    def inline_base(self) -> Base | None:
        if self.is_stuck:
            return None
        info = self._states.inline(self._flow.acks, self._turn.limits.inline_state_max_bytes)
        return PulsarBase(info, self._ownership.epoch) if info is not None else None

    def restart_base(self) -> Base | None:
        """None: where every flush writes the whole state, the first one needs no other way."""
        return None

    def note(self) -> Footer | None:
        ownership = self._ownership
        if self._is_stored_whole:
            # the newest state is whole, or will be when it is written
            ownership.note_truncation(None)
        committed = ownership.committed
        assert committed is not None
        is_new = (ownership.truncated is None) != (
            committed.truncated is None
        ) or self._has_newer_properties(committed)
        return self.footer() if is_new else None

    def _has_newer_properties(self, committed: Footer) -> bool:
        mine, held = self._flow.acks.cursor_properties, committed.cursor_properties
        return mine is not None and (held is None or mine.stamp > held.stamp)

    # ---- what was decided

    def inlined(self) -> None:
        self._unfit = None

    def switched(self) -> None:
        raise AssertionError("no snapshot is taken of whole states")

    def forget(self) -> None:
        self._unfit, self._is_note_awaited, self.fits_since_s = None, False, self._turn.now

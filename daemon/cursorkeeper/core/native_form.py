"""Serves clusters whose cursors this software alone reads (`format = "native"`): records of what is
new, and snapshots.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

from cursorkeeper.core import events as ev
from cursorkeeper.core.delta_parts import cut_delta, portion
from cursorkeeper.core.flow import Flow
from cursorkeeper.core.flush_policy import flush_at
from cursorkeeper.core.footer import (
    FORMAT_NATIVE,
    Base,
    ChainLedger,
    Footer,
    InlineBase,
    is_hollow,
    is_native,
)
from cursorkeeper.core.limits import TAKEN_PARTS_MAX
from cursorkeeper.core.ownership import Ownership
from cursorkeeper.core.sizes import RECORD_HEADER_BYTES
from cursorkeeper.core.snapshot_plan import (
    inline_bytes_max,
    whole_state,
    whole_state_bytes_estimate,
)
from cursorkeeper.core.turn import Turn
from cursorkeeper.core.values import Segment
from cursorkeeper.core.writer import OpenLedger, Outgoing, Sent, Writer


class NativeForm:
    """Records of what is new, and snapshots."""

    name = FORMAT_NATIVE
    """The form's name in footers and in custom metadata."""
    ledger_metadata: ClassVar[Mapping[str, bytes]] = {}
    """What a reader of a ledger must know, as custom metadata."""
    has_records = True
    """Ledgers hold records: entry 0 says whose it is, and snapshots shorten the chain."""
    is_between_states = True
    """No state is half sent: a good moment to leave the ledger."""
    is_rewrite_due = False
    """The state is to be written although nothing is new."""
    unfit = ""
    """Why the state may not be written: the limit, with its numbers; empty: it may."""
    is_stuck = False
    """What waits may not be written, and cannot become durable before something more is acked."""

    def __init__(self, turn: Turn, ownership: Ownership, flow: Flow, writer: Writer) -> None:
        self._turn, self._ownership, self._flow, self._writer = turn, ownership, flow, writer
        self.metadata_bytes = 0
        """Size of the encoded state as of the last flush (PIP-299's
        cursorMetadataSizeInMemoryBytes).
        """
        self.fits_since_s = 0.0
        """Since when the state fits every limit."""

    @property
    def interval_ms(self) -> int:
        """The longest wait of an ack before it is sent, when nothing is in the way."""
        return self._turn.limits.flush_interval_ms

    @property
    def patience_s(self) -> float:
        """How long acks may wait before something must be wrong. A slow rhythm is not wrong."""
        return self._turn.limits.bookkeeper_away_ms / 1000

    @property
    def is_foreign(self) -> bool:
        """The footer still leads to something in another form than the one that is written here."""
        committed = self._ownership.committed
        has_notes = committed is not None and (
            committed.cursor_properties is not None or committed.truncated is not None
        )
        return has_notes or self._ownership.names_pulsar

    # ---- a flush

    def flush_at(self, *, urgent: bool, at_once: bool) -> float | None:
        """When the next flush should be taken; None: not before something changes. The outbox is
        empty.
        """
        flow = self._flow
        return flush_at(
            self._turn.limits,
            pending_acks=flow.queued.acks,
            pending_bytes=flow.queued.size_bytes,
            oldest_s=flow.oldest_unwritten_s(is_urgent=urgent),
            in_flight=self._writer.in_flight,
            urgent=urgent or bool(flow.carried),
            at_once=at_once,
        )

    def take(self) -> None:
        """Everything accepted goes to the outbox, if it may. What is queued was absorbed. Very much
        becomes records in several steps, so that others have their turn between them.
        """
        flow = self._flow
        if not flow.carried:
            flow.bind_to_newest()
            return
        delta, rest = portion(flow.carried, TAKEN_PARTS_MAX)
        flow.carry_rest(rest)
        parts = cut_delta(delta, self._turn.limits.max_entry_bytes - RECORD_HEADER_BYTES)
        numbers = flow.progress.take(len(parts), is_all=not rest)
        self._writer.put([Outgoing(n, part, part) for n, part in zip(numbers, parts, strict=True)])
        self._turn.counters.flushes += 1

    def answered(self, ledger: OpenLedger, sent: Sent, stored_bytes: int) -> None:
        """The quorum acknowledged an entry, which may be the one that a reader needs first."""
        ledger.has_first(is_first=sent.entry == 0)
        if sent.record is not None:
            self._turn.counters.flushed_bytes += stored_bytes
            cost = self._flow.cost
            cost.add(stored_bytes, sent.acks)
            self.metadata_bytes = cost.snapshot_bytes + cost.delta_bytes

    def is_held(self, outgoing: Outgoing) -> bool:
        """What the record changed outside the ledger is in the committed footer."""
        return True

    def durable(self, outgoing: Outgoing) -> None:
        """A record is durable: it is what a reader would find."""

    def left_behind(self) -> None:
        """The ledger is left with what is not durable."""

    # ---- the footer

    def footer(self, **changes: object) -> Footer:
        """The footer that the next write proposes; `changes` go over what is known. Draws a write
        number. What was noted beside Pulsar's form is repeated as long as a base is named that this
        owner has not written, and which therefore may not hold it.
        """
        footer = self._flow.draft(**changes)
        return (
            footer
            if self._are_notes_needed(footer)
            else replace(footer, cursor_properties=None, truncated=None)
        )

    def _are_notes_needed(self, footer: Footer) -> bool:
        bases = [footer.base] if footer.previous is None else [footer.base, footer.previous.base]
        return any(base in self._ownership.claimed_bases or not is_native(base) for base in bases)

    def named(self, ledger: int) -> Footer:
        """The footer that names the ledger that is written."""
        ownership = self._ownership
        chain = tuple(c for c in ownership.chain if not is_hollow(c, ownership.base))
        return self.footer(chain=(*chain, ChainLedger(ledger)))

    def reset(self, reset: ev.Reset) -> Footer:
        """The footer of the generation that begins at the reset's target."""
        ownership, flow = self._ownership, self._flow
        state = Segment(
            mark_delete=reset.target,
            cursor_properties=flow.acks.cursor_properties,
            layout=flow.layout_from(reset),
        )
        if inline_bytes_max(state) > self._turn.limits.inline_state_max_bytes:
            # it is written with the first delta of the generation instead
            state = replace(state, layout=())
        generation = ownership.generation + 1
        base = InlineBase(state, ownership.epoch, generation, ownership.next_sequence())
        return self.footer(
            generation=generation, mark_delete=reset.target, base=base, chain=(), previous=None
        )

    def inline_base(self) -> Base | None:
        """The whole state for the footer; None: it is too large for it, or for a limit."""
        return self._base_up_to(self._turn.limits.inline_state_max_bytes)

    def restart_base(self) -> Base | None:
        """The whole state for the footer in place of a new ledger; None: it is too large for
        that.
        """
        limits = self._turn.limits
        return self._base_up_to(min(limits.restart_state_max_bytes, limits.inline_state_max_bytes))

    def _base_up_to(self, bytes_max: int) -> Base | None:
        ownership, acks = self._ownership, self._flow.acks
        if whole_state_bytes_estimate(acks) > bytes_max:
            return None
        state = whole_state(acks)
        if inline_bytes_max(state) > bytes_max:
            return None
        return InlineBase(state, ownership.epoch, ownership.generation, ownership.next_sequence())

    def note(self) -> Footer | None:
        """The footer that says what only the footer can hold, and has changed; None: nothing
        has.
        """
        return None

    # ---- what was decided

    def inlined(self) -> None:
        """A footer write that holds the whole state is sent."""

    def switched(self) -> None:
        """A snapshot replaced what was named before. When the footer's note goes, nothing that is
        stored is a part any more.
        """
        committed = self._ownership.committed
        if committed is not None and committed.truncated is None:
            self._ownership.note_truncation(None)
            self._flow.stores(None)

    def forget(self) -> None:
        """Another state is durable than the one that did not fit, or was cut."""
        self.fits_since_s = self._turn.now

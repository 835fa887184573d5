"""Reading a cursor's ledgers: every record checked, joined into a state. The answer is an event of
the core.

Owns the order of reads and what is read instead of what is damaged (ARCHITECTURE rule 18); what
counts as damage inside a ledger is `ledger_join`'s. Retries what may succeed later without end and
says what it waits for; "not enough bookies" is never damage.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import replace

from cursorkeeper.bookkeeper import errors as bk
from cursorkeeper.bookkeeper.port import LedgerStore
from cursorkeeper.core import budget as budgets
from cursorkeeper.core import events as ev
from cursorkeeper.core.budget import StateBudget
from cursorkeeper.core.errors import DamageError, ForeignRecordError, OverBudgetError, TooNewError
from cursorkeeper.core.footer import (
    EmptyBase,
    EntryAddress,
    Footer,
    InlineBase,
    PulsarBase,
    SnapshotBase,
    is_pulsar,
)
from cursorkeeper.core.names import CursorName
from cursorkeeper.core.positions import FIRST
from cursorkeeper.core.state import AckState
from cursorkeeper.core.values import Delta, Segment, SnapshotEnd, Stamp, newer
from cursorkeeper.core.window import WHOLE, StateWindow
from cursorkeeper.format import record
from cursorkeeper.format.pulsar.states import delta_of
from cursorkeeper.runtime import pulsar_ledger
from cursorkeeper.runtime.ledger_join import (
    UNDECIDABLE,
    LedgerJoin,
    OnJoined,
    Replayed,
    SnapshotDamaged,
)
from cursorkeeper_client.back_off import BackOff

READ_CHUNK_BYTES = 4 << 20
RETRY_MIN_S, RETRY_MAX_S = 0.05, 5.0
DAMAGE_REASONS = frozenset({"DAMAGED", "DIGEST_MISMATCH", "NO_SUCH_ENTRY"})
"""No copy of an entry is there or matches its digest. Every other refusal (rights, a closed client)
may be mended: it is waited for.
"""
_NOTHING_KNOWN: Mapping[int, Sequence[bytes]] = {}


class LedgerMissing(Exception):
    """A ledger that the footer names does not exist."""

    def __init__(self, ledger: int) -> None:
        super().__init__(f"ledger {ledger}")
        self.ledger = ledger


class Distrusted(bytes):
    """Stands for an entry of which BookKeeper has no copy it trusts."""


def from_previous(footer: Footer) -> Footer | None:
    """The same cursor read from its previous snapshot: previous.base + previous.chain + chain."""
    if footer.previous is None:
        return None
    known = {c.ledger for c in footer.previous.chain}
    chain = footer.previous.chain + tuple(c for c in footer.chain if c.ledger not in known)
    return replace(footer, base=footer.previous.base, chain=chain, previous=None)


class ChainReader:
    """Reads for one cursor. `on_waiting` is told what a retry waits for ("" when it goes on);
    `rest` waits so many seconds for it; `on_joined`: see `OnJoined`; `known`: all entries of closed
    ledgers that need not be read.
    """

    def __init__(
        self,
        name: CursorName,
        ledgers: LedgerStore,
        on_waiting: Callable[[str], None] = lambda _why: None,
        on_bytes: Callable[[int], None] = lambda _n: None,
        *,
        unconfirmed: bool = False,
        window: StateWindow = WHOLE,
        budget: StateBudget = budgets.DEFAULT,
        rest: Callable[[float], Awaitable[None]] = asyncio.sleep,
        on_joined: OnJoined = lambda _joined: None,
        known: Mapping[int, Sequence[bytes]] = _NOTHING_KNOWN,
    ) -> None:
        self._budget, self._rest, self._on_joined = budget, rest, on_joined
        self._name, self._ledgers, self._on_waiting, self._on_bytes = (
            name,
            ledgers,
            on_waiting,
            on_bytes,
        )
        self._known = known
        self._unconfirmed = unconfirmed
        """Read ledgers of whole states beyond what is confirmed: for those who look and do not
        own.
        """
        self._window = window
        """What of the state is wanted. The segments of other windows are not read, so of all
        segments together nothing is checked then; each by itself is.
        """
        self._skippable: set[tuple[int, int]] = set()
        """(ledger, entry) of a snapshot that was found damaged, now or (the footer says) earlier:
        what is read instead of it does without them.
        """

    async def read(self, token: int, footer: Footer) -> ev.Event:
        """ChainRead, ChainMissing or ChainDamaged."""
        self._skippable = {(d.ledger, d.entry) for d in footer.damaged}
        try:
            done, fell_back = await self._newest(footer)
        except LedgerMissing as e:
            return ev.ChainMissing(token, e.ledger)
        except SnapshotDamaged as e:
            return ev.ChainDamaged(token, str(e))
        except DamageError as e:
            return ev.ChainDamaged(
                token, str(e), isinstance(e, TooNewError), isinstance(e, OverBudgetError)
            )
        return ev.ChainRead(
            token,
            done.state,
            fell_back,
            done.bars_fallback,
            done.delta_bytes,
            done.delta_records,
            done.delta_acks,
            tuple(sorted(set(done.skipped))),
            tuple(sorted(set(done.unfinished))),
        )

    async def _newest(self, footer: Footer) -> tuple[Replayed, bool]:
        """And whether it is from the previous snapshot. Raises SnapshotDamaged: both are."""
        try:
            return await self._replay(footer), False
        except SnapshotDamaged as e:
            damage = str(e)  # an error that is kept keeps the state that was being read
        self._on_joined(None)
        older = from_previous(footer)
        if older is None:
            raise SnapshotDamaged(f"{damage}; there is no previous snapshot to fall back to")
        try:
            return await self._replay(older), True
        except SnapshotDamaged as second:
            raise SnapshotDamaged(f"{damage}; and the previous one: {second}") from second

    async def _replay(self, footer: Footer) -> Replayed:
        base = footer.base
        out = Replayed(_base_state(footer, self._window, self._budget))
        listed: dict[int, int] = {}
        if isinstance(base, InlineBase | PulsarBase) or any(map(is_pulsar, footer.chain)):
            self._on_joined(None)
        if isinstance(base, SnapshotBase):
            self._skippable.add((base.ledger, base.last_entry))
            listed = await self._read_end(footer, base, out)
        for item in footer.chain:
            if item.last_entry is None:
                raise DamageError("was not recovered before it was read", f"ledger {item.ledger}")
            if is_pulsar(item):
                await self._read_states(footer, item.ledger, item.last_entry, out)
                continue
            mine = base if isinstance(base, SnapshotBase) and base.ledger == item.ledger else None
            await self._read_ledger(
                footer, item.ledger, item.last_entry, mine, listed if mine else {}, out
            )
        out.state.settle()
        return out

    # ---- the snapshot's end record

    async def _read_end(self, footer: Footer, base: SnapshotBase, out: Replayed) -> dict[int, int]:
        """Entry id -> position, of the segments that the end record lists."""
        payload = (await self._entries(base.ledger, base.last_entry, base.last_entry))[0]
        place = f"ledger {base.ledger} entry {base.last_entry} (snapshot end)"
        try:
            got = record.decode(payload, self._name.record_hash)
            end = got.body
            if not isinstance(end, SnapshotEnd):
                raise DamageError("is not a snapshot's end record", place)
            if (
                record.peek(payload).crc32c != base.crc32c
                or end.segment_entries[0] != base.first_entry
            ):
                raise DamageError("is not the end record that the footer names", place)
            if got.generation != footer.generation:
                raise DamageError(
                    f"is of generation {got.generation}, the footer of {footer.generation}", place
                )
        except UNDECIDABLE:
            raise
        except DamageError as e:
            raise SnapshotDamaged(str(e if e.place else e.at(place))) from e
        if (len(end.segment_entries), end.length) != (base.num_parts, base.length):
            # the record is the one that the footer names, so it is the footer that is wrong: no
            # older state mends that
            lists = f"lists {len(end.segment_entries)} segments of {end.length} bytes"
            raise DamageError(f"{lists}, the footer says {base.num_parts} of {base.length}", place)
        out.state.join_segment(
            Segment(end.mark_delete, end.mark_delete_properties, end.cursor_properties)
        )
        self._end = end
        self._skippable |= {(base.ledger, e) for e in end.segment_entries}
        return {entry: at for at, entry in enumerate(end.segment_entries)}

    # ---- one ledger of whole states

    async def _read_states(
        self, footer: Footer, ledger: int, last_entry: int, out: Replayed
    ) -> None:
        place = f"ledger {ledger}"

        async def entries(first: int, last: int) -> list[bytes]:
            found = await self._entries(ledger, first, last, unconfirmed=self._unconfirmed)
            bad = [
                first + at for at, payload in enumerate(found) if isinstance(payload, Distrusted)
            ]
            if bad:
                raise DamageError(
                    "BookKeeper has no copy that it trusts", f"{place} entry {bad[0]}"
                )
            return found

        try:
            written = pulsar_ledger.written_by(await self._metadata(ledger), self._name)
            pulsar_ledger.check_owner(written, footer)
            found = await pulsar_ledger.read_newest(last_entry, written, entries)
        except DamageError as e:
            raise (e if e.place else e.at(place)) from None
        out.unfinished += [EntryAddress(ledger, skipped.entry) for skipped in found.skipped]
        self._window.join_delta(out.state, delta_of(found.info, Stamp(written.epoch, 0)))

    async def _metadata(self, ledger: int) -> Mapping[str, bytes]:
        back_off = BackOff(RETRY_MIN_S, RETRY_MAX_S)
        while True:
            try:
                return (await self._ledgers.metadata(ledger)).custom_metadata
            except bk.NoSuchLedger as e:
                raise LedgerMissing(ledger) from e
            except bk.GatewayError as e:
                await self._wait(f"metadata of ledger {ledger}", e, back_off)

    async def _wait(self, what: str, error: bk.GatewayError, back_off: BackOff) -> None:
        self._on_waiting(f"BookKeeper: {what}: {error.said}")
        await self._rest(back_off.next_s())

    # ---- one ledger of records

    async def _read_ledger(
        self,
        footer: Footer,
        ledger: int,
        last_entry: int,
        base: SnapshotBase | None,
        listed: dict[int, int],
        out: Replayed,
    ) -> None:
        joined = LedgerJoin(
            self._name.record_hash,
            self._window,
            self._skippable,
            footer,
            ledger,
            base,
            listed,
            out,
            self._on_joined,
        )
        for at, last in self._window.ranges(base, list(listed), last_entry):
            if known := self._known_entries(ledger, at, last):
                await joined.join(at, known)
                continue
            async for payloads in self._chunks(ledger, at, last):
                await joined.join(at, payloads)
                at += len(payloads)
            if at != last + 1:
                raise DamageError(
                    f"ends at entry {at - 1}, the footer says {last_entry}",
                    f"ledger {ledger}",
                )
        if base is not None:
            joined.check_segments(base, self._end)

    # ---- reads with retries

    async def _entries(
        self, ledger: int, first: int, last: int, *, unconfirmed: bool = False
    ) -> list[bytes]:
        found = [*self._known_entries(ledger, first, last)]
        if found:
            return found
        async for payloads in self._chunks(ledger, first, last, unconfirmed=unconfirmed):
            found.extend(payloads)
        if len(found) != last - first + 1:
            raise DamageError(
                f"has {len(found)} of the entries {first}..{last}", f"ledger {ledger}"
            )
        return found

    def _known_entries(self, ledger: int, first: int, last: int) -> Sequence[bytes]:
        """What a fence has brought of this ledger; empty: it has to be read."""
        known = self._known.get(ledger, ())
        found = known[first : last + 1] if last < len(known) else ()
        if found:
            self._on_bytes(sum(map(len, found)))
        return found

    async def _chunks(
        self, ledger: int, first: int, last: int, *, unconfirmed: bool = False
    ) -> AsyncIterator[Sequence[bytes]]:
        """Entries first..last as far as the ledger goes. One that BookKeeper itself does not trust
        comes as `Distrusted`: empty bytes, and as no record is empty it counts as damaged.
        """
        back_off, at = BackOff(RETRY_MIN_S, RETRY_MAX_S), first
        alone = False
        """The range holds such an entry: find it one by one."""
        while at <= last:
            upto = at if alone else last
            try:
                async for chunk in self._ledgers.read(
                    ledger, at, upto, max_bytes=READ_CHUNK_BYTES, unconfirmed=unconfirmed
                ):
                    if chunk.payloads:
                        self._on_waiting("")
                        back_off.reset()
                        at = chunk.first_entry + len(chunk.payloads)
                        self._on_bytes(sum(map(len, chunk.payloads)))
                        yield chunk.payloads
                    elif chunk.closed:
                        return
                if at <= upto:
                    return
                alone = False
            except bk.NoSuchLedger as e:
                raise LedgerMissing(ledger) from e
            except bk.GatewayError as e:
                if e.reason not in DAMAGE_REASONS:
                    await self._wait(f"reading ledger {ledger}", e, back_off)
                elif at < last and not alone:
                    alone = True
                else:
                    yield (Distrusted(),)
                    at += 1
                    alone = False


def _base_state(footer: Footer, window: StateWindow, budget: StateBudget) -> AckState:
    base = footer.base
    state = AckState(base.mark_delete if isinstance(base, EmptyBase) else FIRST, budget=budget)
    if isinstance(base, InlineBase):
        if base.generation != footer.generation or base.epoch > footer.epoch:
            told = (
                f"of epoch {base.epoch} and generation {base.generation}, the footer of "
                f"{footer.epoch} and {footer.generation}"
            )
            raise ForeignRecordError(f"the inline state is {told}", "footer")
        window.join_segment(state, base.state)
    elif isinstance(base, PulsarBase):
        window.join_delta(state, pulsar_ledger.delta_of_base(base))
    state.cursor_properties = newer(state.cursor_properties, footer.cursor_properties)
    # it may be ahead of every record: acks that were accepted when the footer was written. True
    # acks all the same, and handles were told of it as a bound
    state.join_delta(Delta(mark_delete=footer.mark_delete))
    return state

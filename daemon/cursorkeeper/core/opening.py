"""Becoming the owner: read the footer, claim it (compare-and-set of epoch + 1), recovery-open every chain ledger
without a recorded end, then read (ARCHITECTURE rule 6). What ZooKeeper answers comes through `footer_answers`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from cursorkeeper.core import effects as fx
from cursorkeeper.core import events as ev
from cursorkeeper.core import fencing, rolling, snapshotting, whole_states
from cursorkeeper.core.commit import ABSENT, Committed, Purpose
from cursorkeeper.core.errors import Refusal
from cursorkeeper.core.footer import EmptyBase, Footer, FooterState, InlineBase, SnapshotBase, mark_of
from cursorkeeper.core.positions import BEFORE_FIRST, FIRST, NUMBER_MAX, Position
from cursorkeeper.core.table import State
from cursorkeeper.core.values import CursorProperties, Segment, Stamp

if TYPE_CHECKING:
    from cursorkeeper.core.machine import CursorMachine

STOPPING, STOPPING_REMEDY = "the daemon is stopping", "open it elsewhere, or here after the restart"
RESTORE = "Put the *latest* bytes of the footer back with `cursorkeeper restore-footer`, which shows first what they hold"
OPEN_ELSEWHERE_REMEDY = "close it there, or open it with takeover"


@dataclass(frozen=True, slots=True)
class Verdict:
    """An opening that ends without a claim; told when it is proved that the footer which it rests on is the committed one."""

    code: Refusal
    message: str
    remedy: str


@dataclass(slots=True)
class OpeningRun:
    """One way from CLAIMING to READY; begins again from the read when a claim is lost."""

    request: ev.Open = field(default_factory=ev.Open)
    token: int = 0
    reading_footer: bool = False
    retry_at_s: float | None = None
    tries: int = 0
    fencing: dict[int, int] = field(default_factory=dict)
    """Ledger -> token of the recovery that is on its way."""
    fence_retry_at_s: dict[int, float] = field(default_factory=dict)
    suspect: Footer | None = None
    """A named ledger was missing under this footer: refuse only if it is still the same after a sync."""
    suspicion: str = ""
    verdict: Verdict | None = None
    """What will be told if the quorum says that the footer is still the one that was read."""
    checking: bool = False
    claim_sent: bool = False
    """The claim's write is on its way, or was applied: who comes now comes after it."""
    replaced: bool = False
    """The footer was found to be none of ours, or unreadable, perhaps by a server that lags: it is being read after a sync."""
    created: bool = False
    """The claim made the cursor: there was none, or a tombstone."""
    seen: bool = False
    """There was a footer: if there is none any more, it is lost."""

    def allow(self, other: ev.Open) -> None:
        """Another source wants the cursor while it is being claimed: what either of them allows, is allowed."""
        mine = self.request
        self.request = replace(mine, create=mine.create or other.create, takeover=mine.takeover or other.takeover)


def on_open(m: CursorMachine, event: ev.Open, now: float) -> None:
    """CLOSED -> CLAIMING."""
    m.opening = OpeningRun(request=event)
    m.deleting = event.for_delete
    m.delete_token = event.fencing_token if event.for_delete else 0
    m.move(State.CLAIMING)
    read_footer(m, sync=False)


def read_footer(m: CursorMachine, *, sync: bool) -> None:
    o = m.opening
    o.token, o.reading_footer, o.retry_at_s = m.token(), True, None
    o.verdict, o.checking = None, False
    m.waiting_for = "ZooKeeper: reading the footer"
    m.emit(fx.ReadFooter(o.token, sync))


# ---- the claim


def claim(m: CursorMachine, event: ev.FooterRead) -> None:
    o, footer = m.opening, event.footer
    if _is_given_up(m):
        give_up(m)
        return
    o.seen = o.seen or footer is not None
    if footer is None and o.seen:
        _only_if_proved(m, ABSENT, Refusal.FOOTER_LOST, "", "")
        return
    if o.suspect is not None and footer is not None:
        if footer.is_same_write(o.suspect):
            remedy = "a ledger that the footer names does not exist; restore it, or decide by hand with `cursorkeeper inspect`"
            _only_if_proved(m, event.version, Refusal.DAMAGED, o.suspicion, remedy)
        else:
            m.depose(footer.epoch)  # we had claimed it: whoever came since is the owner
        return
    if footer is not None and footer.epoch >= NUMBER_MAX:
        m.refuse(Refusal.DAMAGED, f"its footer is of epoch {footer.epoch}, and there is none after that", RESTORE)
        return
    m.commit.adopt(footer, event.version)
    if o.request.only not in (None, mark_of(footer)):
        what = "there is none any more" if footer is None else f"{footer.state} in epoch {footer.epoch} of {footer.writer}"
        _not_opened(m, Refusal.OPEN_ELSEWHERE, f"its footer is not the one that was looked at: {what}", "look at it again")
        return
    token, given = fencing.committed(m), fencing.asked(m)
    if o.request.only is None and given < token:  # whoever claims one footer, and no other, keeps its token
        m.move(State.CLOSED)  # tokens only grow: that needs no proof
        m.emit(fx.Refuse(Refusal.FENCED, fencing.why_fenced(given, token), fencing.REMEDY))
        m.emit(fx.Ended())
        return
    if footer is None or footer.state is FooterState.DELETED:
        if not o.request.create:
            _not_opened(m, Refusal.NOT_FOUND, "there is no such cursor", "open it with create=true")
            return
        _create(m, footer)
        return
    if footer.state is FooterState.OPEN and not (o.request.takeover or given or _is_own(m, footer)):
        _not_opened(m, Refusal.OPEN_ELSEWHERE, f"epoch {footer.epoch} of {footer.writer} holds it", OPEN_ELSEWHERE_REMEDY)
        return
    m.write = 1
    claimed = replace(footer, epoch=footer.epoch + 1, writer=m.writer_id, write=1, state=FooterState.OPEN)
    _send_claim(m, replace(claimed, fencing_token=max(token, given)), "ZooKeeper: claiming")


def _send_claim(m: CursorMachine, claim: Footer, waiting_for: str) -> None:
    m.opening.claim_sent = True
    m.waiting_for = waiting_for
    m.propose(claim, Purpose.CLAIM)


def _is_own(m: CursorMachine, footer: Footer) -> bool:
    """Left open by a machine of this keeper that a bug stopped: no other one is to be asked."""
    own = m.opening.request.own
    return bool(own) and footer.writer.startswith(own)


def give_up(m: CursorMachine) -> None:
    """The keeper stops. A claim that is not sent yet is not begun; one that is sent goes on, so that its footer is closed again."""
    if m.state is State.CLAIMING and m.commit.outstanding is None and m.opening.suspect is None:
        m.move(State.CLOSED)
        m.emit(fx.Refuse(Refusal.SHUTTING_DOWN, STOPPING, STOPPING_REMEDY))
        m.emit(fx.Ended())


def _is_given_up(m: CursorMachine) -> bool:
    wanted = m.wanted_after_opening
    return isinstance(wanted, ev.Close) and wanted.attach is None


def _create(m: CursorMachine, tombstone: Footer | None) -> None:
    start = m.opening.request.start
    if start is None:
        layout = m.opening.request.layout
        start = Position(layout[0].ledger, BEFORE_FIRST) if layout else FIRST
    epoch = tombstone.epoch + 1 if tombstone else 1
    generation = tombstone.generation if tombstone else 1
    values = m.opening.request.cursor_properties
    base: InlineBase | EmptyBase = EmptyBase(start)
    properties = CursorProperties(Stamp(epoch, 0), dict(values)) if values else None
    if properties is not None and m.state_writer is None:
        # properties are part of what creating promises, so they are in the first footer already
        base = InlineBase(Segment(mark_delete=start, cursor_properties=properties), epoch, generation, 0)
        properties = None
    m.write = 1
    footer = Footer(
        m.name.topic,
        m.name.subscription,
        FooterState.OPEN,
        epoch,
        m.writer_id,
        1,
        generation,
        start,
        base,
        cursor_properties=properties,
        fencing_token=max(fencing.committed(m), fencing.asked(m)),
        extra=tombstone.extra if tombstone else {},
    )
    _send_claim(m, footer, "ZooKeeper: creating")


def _not_opened(m: CursorMachine, code: Refusal, message: str, remedy: str) -> None:
    _only_if_proved(m, m.commit.version, code, message, remedy)


def _only_if_proved(m: CursorMachine, version: int, code: Refusal, message: str, remedy: str) -> None:
    """A server that lags, or was deposed, may show a footer that has moved on: nobody is sent away because of it."""
    o = m.opening
    o.verdict, o.checking, o.token = Verdict(code, message, remedy), True, m.token()
    m.waiting_for = "ZooKeeper: is this footer the newest?"
    m.emit(fx.CheckFooter(o.token, version))


def on_checked(m: CursorMachine) -> None:
    """The footer that was read is the committed one: the verdict holds."""
    verdict = m.opening.verdict
    assert verdict is not None
    m.opening.checking = False
    match verdict.code:
        case Refusal.FOOTER_LOST:
            m.footer_lost()
        case Refusal.DAMAGED:
            m.refuse(verdict.code, verdict.message, verdict.remedy)
        case _:
            m.move(State.CLOSED)
            m.emit(fx.Refuse(verdict.code, verdict.message, verdict.remedy))
            m.emit(fx.Ended())


def joined(m: CursorMachine) -> None:
    """Somebody else wants the cursor, too: what those before him allowed is no reason to send him away."""
    o = m.opening
    if o.checking and o.verdict is not None and o.verdict.code in (Refusal.OPEN_ELSEWHERE, Refusal.NOT_FOUND):
        read_footer(m, sync=False)


def on_check_failed(m: CursorMachine, now: float, reason: str = "") -> None:
    """It was not the newest; or nobody said so (then there is a reason): read again, after a pause."""
    o = m.opening
    o.verdict, o.checking, o.retry_at_s = None, False, now + delay(m, o.tries)
    o.tries += 1
    if reason:
        m.waiting_for = f"ZooKeeper: {reason}"


def is_unclaimed(m: CursorMachine) -> bool:
    """Nothing was sent that may change the footer."""
    return m.state is State.CLAIMING and not m.opening.claim_sent


def withdraw(m: CursorMachine) -> None:
    """Nobody waits any more for the end that this claim was for, and it was not sent: whoever owns the cursor keeps it."""
    m.move(State.CLOSED)
    m.emit(fx.Ended())


def end_if_unwanted(m: CursorMachine) -> None:
    """Nobody waits any more for a claim that was not sent yet: whoever owns the cursor keeps it. The close of a handle that is
    gone is no reason to claim; a delete is."""
    wish = m.wanted_after_opening
    waits = m.attach_waiting is not None or m.answers.questions
    wanted = waits or m.deleting or isinstance(wish, ev.Delete) or _is_given_up(m)
    if is_unclaimed(m) and not wanted:
        withdraw(m)


def claimed(m: CursorMachine, done: Committed) -> None:
    footer = done.after
    m.opening.created = done.before is None or done.before.state is FooterState.DELETED
    m.epoch, m.generation = footer.epoch, footer.generation
    m.base, m.chain, m.previous = footer.base, footer.chain, footer.previous
    m.claimed_bases = (m.base,) if m.previous is None else (m.base, m.previous.base)
    m.truncated = m.stored_truncation = footer.truncated
    m.look_again = True  # a footer that we have just created could not be watched before
    m.move(State.FENCING)
    m.waiting_for = "BookKeeper: recovering ledgers"
    ledgers = {c.ledger for c in footer.chain if c.last_entry is None}
    if footer.previous is not None:
        ledgers |= {c.ledger for c in footer.previous.chain if c.last_entry is None}
    for ledger in sorted(ledgers):
        _fence(m, ledger)
    if not ledgers:
        _fenced_all(m)


def _fence(m: CursorMachine, ledger: int) -> None:
    token = m.token()
    m.opening.fencing[ledger] = token
    m.emit(fx.FenceLedger(token, ledger))


def on_ledger_ended(m: CursorMachine, event: ev.LedgerEnded, now: float) -> None:
    """Recovery answered: during the claim, or for a ledger that the writer leaves."""
    if m.state is not State.FENCING:
        rolling.on_ledger_ended(m, event, now)
        return
    if m.opening.fencing.get(event.ledger) != event.token:
        return
    del m.opening.fencing[event.ledger]
    m.end_ledger(event.ledger, event.last_entry)
    on_ledger_ended_or_gone(m)


def on_ledger_ended_or_gone(m: CursorMachine) -> None:
    if not m.opening.fencing and not m.opening.fence_retry_at_s:
        _fenced_all(m)


def on_ledger_end_failed(m: CursorMachine, event: ev.LedgerEndFailed, now: float) -> None:
    """Not enough bookies is never damage: retry. No such ledger: has the footer moved on?"""
    if m.state is not State.FENCING:
        rolling.on_ledger_end_failed(m, event, now)
        return
    if m.opening.fencing.get(event.ledger) != event.token:
        return
    del m.opening.fencing[event.ledger]
    if event.missing and m.deleting:
        on_ledger_ended_or_gone(m)  # it was to be deleted anyway
        return
    if event.missing:
        _suspect(m, f"ledger {event.ledger} does not exist")
        return
    m.opening.fence_retry_at_s[event.ledger] = now + delay(m, m.opening.tries)
    m.opening.tries += 1
    m.waiting_for = f"BookKeeper: recovering ledger {event.ledger}: {event.reason}"


def _fenced_all(m: CursorMachine) -> None:
    if m.deleting:
        m.move(State.DELETING)
        return
    m.move(State.READING)
    m.opening.token = m.token()
    m.opening.reading_footer = False
    m.waiting_for = "BookKeeper: reading the cursor's ledgers"
    m.emit(fx.ReadChain(m.opening.token, recovery_footer(m)))


def recovery_footer(m: CursorMachine) -> Footer:
    """The committed footer, with the ends that recovery found."""
    committed = m.commit.committed
    assert committed is not None
    return replace(committed, chain=m.chain, previous=m.previous)


# ---- the read


def on_chain_read(m: CursorMachine, event: ev.ChainRead, now: float) -> None:
    """READING -> READY."""
    if event.token != m.opening.token:
        return
    m.acks = event.state
    m.damaged = event.damaged
    if event.fell_back and m.previous is not None:
        known = {c.ledger for c in m.previous.chain}
        m.base = m.previous.base
        m.chain = m.previous.chain + tuple(c for c in m.chain if c.ledger not in known)
        m.previous = None
    elif event.bars_fallback:
        m.previous = None
    m.cost.delta_bytes, m.cost.records, m.cost.acks = event.delta_bytes, event.delta_records, event.delta_acks
    m.cost.snapshot_bytes = m.base.length if isinstance(m.base, SnapshotBase) else 0
    m.cost.snapshot_at_s = now
    m.waiting_for = ""
    m.move(State.READY)
    if m.truncated is not None:
        m.emit(fx.Report("state recovered that was truncated when it was written", m.truncated.as_fields()))
    if m.state_writer is None and (event.fell_back or event.bars_fallback):
        snapshotting.start(m, "damage", now)
    elif m.state_writer is None and whole_states.is_foreign(m):
        snapshotting.start(m, "format", now)
    _end_as_wanted(m)


def _end_as_wanted(m: CursorMachine) -> None:
    """A close or delete that came too early. Its handle may be gone by now; another one that has come instead keeps the cursor
    from a close. A delete was there first: it is done."""
    wanted, m.wanted_after_opening = m.wanted_after_opening, None
    match wanted:
        case ev.Close() if wanted.attach is None or m.attach_waiting in (None, wanted.attach):
            m.redeliver([ev.Close()])
        case ev.Delete():
            m.redeliver([ev.Delete()])
        case _:
            pass


def on_chain_missing(m: CursorMachine, event: ev.ChainMissing, now: float) -> None:
    """A claimer that meets "no such ledger" reads the footer again."""
    if event.token == m.opening.token:
        _suspect(m, f"ledger {event.ledger} does not exist")


def _suspect(m: CursorMachine, why: str) -> None:
    m.opening.suspect = m.commit.committed
    m.opening.fencing.clear()
    m.opening.fence_retry_at_s.clear()
    m.opening.suspicion = why
    m.move(State.CLAIMING)
    read_footer(m, sync=True)
    m.waiting_for = why


def on_chain_damaged(m: CursorMachine, event: ev.ChainDamaged, now: float) -> None:
    """Refused loudly, untouched on disk."""
    if event.token != m.opening.token:
        return
    if event.too_new:
        m.refuse(Refusal.FORMAT_TOO_NEW, f"a record was written by a newer version: {event.reason}", "upgrade this daemon")
    elif event.too_large:
        remedy = "give the daemon the memory and raise the setting that is named, then open it again: nothing was changed"
        m.refuse(Refusal.TOO_LARGE, event.reason, remedy)
    else:
        m.refuse(Refusal.DAMAGED, event.reason, "keep the ledgers; look with `cursorkeeper verify` and `inspect`, then decide by hand")


# ---- time


def drive(m: CursorMachine, now: float) -> None:
    o = m.opening
    if m.state is State.CLAIMING and o.retry_at_s is not None and now >= o.retry_at_s:
        read_footer(m, sync=True)
    if m.state is State.FENCING:
        for ledger in [x for x, at in o.fence_retry_at_s.items() if now >= at]:
            del o.fence_retry_at_s[ledger]
            _fence(m, ledger)


def wake_at_s(m: CursorMachine) -> float | None:
    """When `drive` has something to do."""
    times = list(m.opening.fence_retry_at_s.values())
    if m.opening.retry_at_s is not None:
        times.append(m.opening.retry_at_s)
    return min(times) if times else None


def delay(m: CursorMachine, tries: int) -> float:
    return float(min(m.limits.retry_max_ms, m.limits.retry_min_ms * 2 ** min(tries, 16)) / 1000)


HANDLERS: dict[type, Any] = {
    ev.Open: on_open,
    ev.LedgerEnded: on_ledger_ended,
    ev.LedgerEndFailed: on_ledger_end_failed,
    ev.ChainRead: on_chain_read,
    ev.ChainMissing: on_chain_missing,
    ev.ChainDamaged: on_chain_damaged,
}

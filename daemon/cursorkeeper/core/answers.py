"""Proof in front of answers: what is told of a cursor was true at an instant after it was asked for (ARCHITECTURE rules 22 to 28).

A daemon may hold a cursor in memory that another one has claimed since. So an open (and whoever else asks) waits until
the footer is proved to be ours by something that was sent after the question came: a footer write of our own that was
applied, or a check of its version by the quorum. Neither a read, nor a read behind a sync, nor a watch, nor a living
session is a proof: each of them can be answered by a server that does not know of the newest write.

Who waits for the cursor's deletion is told in time that it did not come, and needs no proof: the tombstone is one.

Owns the questions and the check that is on its way. Does not own what is told then (`flushing` streams the state), nor
the answers of an opening that ends without a claim (`opening`).
Invariant: what was sent before a question came proves nothing for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any

from cursorkeeper.core import effects as fx
from cursorkeeper.core import events as ev
from cursorkeeper.core import evidence, fencing, opening
from cursorkeeper.core.commit import Purpose
from cursorkeeper.core.errors import Refusal
from cursorkeeper.core.table import LIVE, OWNING, State

if TYPE_CHECKING:
    from cursorkeeper.core.machine import CursorMachine

UNAVAILABLE_REMEDY = "look at ZooKeeper, and at this daemon's way to it; then open it again, here or elsewhere"
DELETE_AGAIN = "look at ZooKeeper and the bookies, and at this daemon's way to them; then delete it again, here or elsewhere"
_UNDECIDED_BAR_RESUMING = frozenset({Purpose.RESET, Purpose.CLOSE, Purpose.DELETE})


class Wish(Enum):
    STATE = "a handle waits for the state"
    WORD = "somebody wants to tell what is held"
    DELETION = "somebody waits for the cursor to be deleted"


@dataclass(slots=True)
class Question:
    """One that waits: for proof (the number of an open is the attachment's), or for the tombstone."""

    wish: Wish
    joined: bool
    """It came when the claim had been sent: should another owner come, it has not had a claim of its own."""
    asked_s: float
    waited_s: float = 0.0
    """How long it waited for ZooKeeper before, here or at the machine that held the cursor."""
    fencing_token: int = 0
    since_s: float | None = None
    """Since when it waits for ZooKeeper now."""
    proved: bool = False
    by_write: bool = False
    """A footer write of ours was first sent after it came, and is not decided."""
    by_check: bool = False
    """The check on its way was sent after it came."""


@dataclass(slots=True)
class Answers:
    questions: dict[int, Question] = field(default_factory=dict)
    token: int = 0
    """Of the check, or of the read that follows a check that failed; 0: none is on its way."""
    reading: bool = False
    retry_at_s: float | None = None
    tries: int = 0
    answered: str = ""
    """The source whose handle got the state last: only that one may resume."""
    is_told: bool = False
    """Some handle got the state."""

    def is_proved(self, number: int) -> bool:
        """Whether something that was sent after this question came has proved that the footer is ours."""
        question = self.questions.get(number)
        return question is not None and question.proved

    def drop(self, number: int | None) -> bool:
        """Forgets who waits for this one; False: nobody did."""
        return number is not None and self.questions.pop(number, None) is not None

    def waited_s(self, number: int, now: float) -> float:
        """How long this one has waited for ZooKeeper in all."""
        question = self.questions.get(number)
        if question is None:
            return 0.0
        return question.waited_s + (0.0 if question.since_s is None else now - question.since_s)

    @property
    def waiting(self) -> int:
        return sum(not q.proved for q in list(self.questions.values()))  # the metrics' thread asks, too

    def of_proof(self) -> Iterator[Question]:
        """Those that wait for proof, or have it."""
        return (q for q in self.questions.values() if q.wish is not Wish.DELETION)

    def _stop(self) -> None:
        self.token, self.reading = 0, False
        for question in self.questions.values():
            question.by_check = False

    def again(self, at_s: float) -> None:
        """The check came to nothing: it is repeated at that time."""
        self._stop()
        self.retry_at_s = at_s
        self.tries += 1

    def proved_by_check(self) -> None:
        """The check was answered: good for those who came before it was sent."""
        for question in self.questions.values():
            question.proved = question.proved or question.by_check
        self._stop()
        self.retry_at_s, self.tries = None, 0


def ask(m: CursorMachine, number: int, wish: Wish, *, waited_s: float = 0.0, fencing_token: int = 0) -> None:
    """Adds somebody who waits from now on, or wishes something else from now on."""
    waited_s += m.answers.waited_s(number, m.now)
    m.answers.questions[number] = Question(wish, m.opening.claim_sent, m.now, waited_s, fencing_token)


def on_prove(m: CursorMachine, event: ev.Prove, now: float) -> None:
    ask(m, event.question, Wish.WORD, waited_s=event.waited_s)


def may_resume(m: CursorMachine, event: ev.Attach) -> bool:
    """Whether the handle can go on where its predecessor broke off. No proof is needed: it is shown nothing, and what it
    sends to a daemon that is no longer the owner is never confirmed by an append. It gets credit of its own beside what its
    predecessor left unconfirmed: so no third one does, before all that the first left is durable."""
    outstanding = m.commit.outstanding
    return (
        event.resume == (m.epoch, m.generation)
        and m.state in LIVE
        and event.source == m.answers.answered
        and event.fencing_token == fencing.committed(m)
        and m.attach_waiting is None
        and not m.resets
        and m.progress.is_of_one_handle
        and not (outstanding is not None and outstanding.purpose in _UNDECIDED_BAR_RESUMING)
    )


# ---- footer writes


def write_sent(m: CursorMachine, purpose: Purpose) -> None:
    """A footer write is sent for the first time: applied, it proves for all who wait now."""
    for question in m.answers.of_proof():
        question.by_write = True
        if purpose is Purpose.CLAIM:
            question.joined = False


def write_decided(m: CursorMachine, *, committed: bool) -> None:
    """Our write was applied, or another's was found in its place."""
    for question in m.answers.questions.values():
        question.proved = question.proved or (question.by_write and committed)
        question.by_write = False


def wants_reopening(m: CursorMachine) -> int | None:
    """The handle that, when another owner is found, goes on with a claim: it has not had one. Who has had one does not claim
    again by itself, or two daemons with a waiting open each would take the cursor from one another for ever. Nor does one
    that asked for the cursor's end meanwhile."""
    if m.wanted_after_opening is not None:
        return None
    question = m.answers.questions.get(m.attach_waiting) if m.attach_waiting is not None else None
    return m.attach_waiting if question is not None and question.joined else None


# ---- answers of checks


def on_checked(m: CursorMachine, event: ev.FooterChecked, now: float) -> None:
    a = m.answers
    if event.token == a.token and not a.reading:
        a.proved_by_check()
        m.waiting_for = ""


def on_check_failed(m: CursorMachine, event: ev.FooterCheckFailed, now: float) -> None:
    """An own write that came between, or another owner: read, after a sync, and compare."""
    a = m.answers
    if event.token == a.token and not a.reading:
        a.token, a.reading = m.token(), True
        m.emit(fx.ReadFooter(a.token, sync=True))


def on_check_unknown(m: CursorMachine, event: ev.FooterCheckUnknown, now: float) -> None:
    """A check changes nothing: ask again."""
    if event.token == m.answers.token and not m.answers.reading:
        _again(m, event.reason, now)


def on_read(m: CursorMachine, event: ev.FooterRead, now: float) -> None:
    """What the footer is after a check that failed."""
    m.answers.again(now + opening.delay(m, m.answers.tries))
    if event.footer is None:
        m.footer_lost()
    elif event.version > m.commit.version and m.commit.outstanding is None:
        m.depose(event.footer.epoch)


def on_read_failed(m: CursorMachine, reason: str, now: float) -> None:
    """ZooKeeper went away between the two: from the check again."""
    _again(m, reason, now)


def _again(m: CursorMachine, reason: str, now: float) -> None:
    m.answers.again(now + opening.delay(m, m.answers.tries))
    m.waiting_for = f"ZooKeeper: is the footer still ours? {reason}"


# ---- time


def drive(m: CursorMachine, now: float) -> None:
    """Asks for proof, tells those who have it, and sends away who waited too long."""
    a = m.answers
    if not a.questions:
        return
    for number in [n for n, q in a.questions.items() if q.wish is Wish.STATE and n != m.attach_waiting]:
        a.drop(number)  # its handle has gone, or asked for the end
    _send_away(m, now)
    if m.state not in OWNING:
        return
    may_ask = m.commit.outstanding is None and fencing.wanted(m) is None  # the write that raises the token proves, too
    is_wanted = any(not q.proved for q in a.of_proof())
    if may_ask and not a.token and is_wanted and (a.retry_at_s is None or now >= a.retry_at_s):
        a.token, a.retry_at_s = m.token(), None
        for question in a.of_proof():
            question.by_check = True
        m.waiting_for = m.waiting_for or "ZooKeeper: is the footer still ours?"
        m.emit(fx.CheckFooter(a.token, m.commit.version))
    for number in [n for n, q in a.questions.items() if q.proved and q.wish is Wish.WORD]:
        a.drop(number)
        m.emit(fx.Proved(number))


def _send_away(m: CursorMachine, now: float) -> None:
    """Who has waited for ZooKeeper for too long is told so; the cursor stays as it is. Waiting for a turn to ask it is not that,
    unless the turn does not come because ZooKeeper answers nobody. Who waits for a deletion is told so whatever it waits for."""
    held, is_withdrawn = evidence.is_footer_held(m), False
    for number, question in list(m.answers.questions.items()):
        counts = _asks_zookeeper(m) or question.wish is Wish.DELETION
        if question.proved or not counts or (held and m.heard_s is None):
            if not counts:
                question.waited_s = m.answers.waited_s(number, now)
            question.since_s = None
            continue
        if held and m.heard_s is not None:
            question.since_s = max(question.asked_s, m.heard_s)
        question.since_s = now if question.since_s is None else question.since_s
        if now < question.since_s + m.limits.answer_wait_max_ms / 1000 - question.waited_s:
            continue
        m.answers.drop(number)
        waited = f"not within {m.limits.answer_wait_max_ms / 1000:g} s ({m.waiting_for or 'ZooKeeper does not answer'})"
        if question.wish is Wish.DELETION:
            is_withdrawn = opening.is_unclaimed(m)
            what = "it was not deleted: it could not be claimed" if is_withdrawn else "it may be deleted yet: that is not decided"
            m.emit(fx.RefuseHandle(number, Refusal.UNAVAILABLE, f"{what}, {waited}", DELETE_AGAIN))
            continue
        if question.wish is Wish.WORD:
            m.emit(fx.Unproved(number, f"ZooKeeper did not say that the cursor is still held here, {waited}"))
            continue
        m.attach_waiting = None
        what = (
            "the cursor could not be claimed" if m.state is State.CLAIMING else "ZooKeeper did not say that the cursor is still held here"
        )
        m.emit(fx.RefuseHandle(number, Refusal.UNAVAILABLE, f"{what}, {waited}", UNAVAILABLE_REMEDY))
    if is_withdrawn:
        opening.withdraw(m)
    opening.end_if_unwanted(m)


def _asks_zookeeper(m: CursorMachine) -> bool:
    return m.state is State.CLAIMING or m.state in OWNING


def is_end_with_zookeeper(m: CursorMachine) -> bool:
    """A machine on its way out, or that is opened only to go: it is a footer that it waits for."""
    return m.state is State.CLAIMING or (m.state in OWNING and m.commit.outstanding is not None)


def turn_came(m: CursorMachine) -> None:
    """What waited for its turn is sent now: from here on it is ZooKeeper that is waited for, if it has not failed before."""
    for question in m.answers.questions.values():
        if not m.opening.tries:
            question.since_s = None


def wake_at_s(m: CursorMachine) -> float | None:
    """When `drive` has something to do."""
    a = m.answers
    if not a.questions:
        return None
    limit_s = m.limits.answer_wait_max_ms / 1000
    times = [q.since_s + limit_s - q.waited_s for q in a.questions.values() if q.since_s is not None]
    if _asks_zookeeper(m) and evidence.is_footer_held(m):
        times += [q.asked_s + limit_s - q.waited_s for q in a.questions.values() if q.since_s is None and not q.proved]
    if a.retry_at_s is not None and any(not q.proved for q in a.of_proof()) and m.commit.outstanding is None:
        times.append(a.retry_at_s)
    return min(times) if times else None


HANDLERS: dict[type, Any] = {ev.Prove: on_prove}

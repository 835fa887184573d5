"""Serves whoever opens a cursor or asks what it holds: proof in front of answers (ARCHITECTURE
rules 22 to 28). What is told of a cursor was true at an instant after it was asked for.

A daemon may hold a cursor in memory that another one has claimed since. So an open (and whoever
else asks) waits until the footer is proved to be ours by something that was sent after the question
came: a footer write of our own that was applied, or a check of its version by the quorum. Neither a
read, nor a read behind a sync, nor a watch, nor a living session is a proof: each of them can be
answered by a server that does not know of the newest write.

Who waits for the cursor's deletion is told in time that it did not come, and needs no proof: the
tombstone is one. Does not own what is told then (`flush` streams the state), nor the answers of an
opening that ends without a claim (`claim`).
"""

from __future__ import annotations

from cursorkeeper.core import effects as fx
from cursorkeeper.core import events as ev
from cursorkeeper.core.claim import Claim
from cursorkeeper.core.errors import Refusal
from cursorkeeper.core.evidence import Evidence
from cursorkeeper.core.handles import Handles
from cursorkeeper.core.life import Life
from cursorkeeper.core.ownership import Ownership
from cursorkeeper.core.questions import Question, Questions, Wish
from cursorkeeper.core.shape import component
from cursorkeeper.core.table import OWNING, PROOF_PHASES, ProofPhase, State
from cursorkeeper.core.turn import Turn, earliest

UNAVAILABLE_REMEDY = (
    "look at ZooKeeper, and at this daemon's way to it; then open it again, here or elsewhere"
)
DELETE_AGAIN = (
    "look at ZooKeeper and the bookies, and at this daemon's way to them; then delete "
    "it again, here or elsewhere"
)


@component
class Proof:
    _turn: Turn
    _life: Life
    _handles: Handles
    _questions: Questions
    _ownership: Ownership
    _claim: Claim
    _evidence: Evidence
    _phase: ProofPhase = ProofPhase.IDLE
    _token: int = 0
    """Of the check, or of the read that follows a check that failed."""
    retry_at_s: float | None = None
    _tries: int = 0

    def _move(self, phase: ProofPhase) -> int:
        PROOF_PHASES.check(self._phase, phase)
        self._phase = phase
        self._token = 0 if phase is ProofPhase.IDLE else self._turn.token()
        return self._token

    # ---- who asks

    def on_prove(self, event: ev.Prove) -> None:
        self.ask(event.question, Wish.WORD, waited_s=event.waited_s)

    def ask(self, number: int, wish: Wish, *, waited_s: float, fencing_token: int = 0) -> None:
        """Adds somebody who waits from now on, or wishes something else from now on."""
        joined = self._claim.sent
        self._questions.ask(
            number,
            wish,
            self._turn.now,
            joined=joined,
            waited_s=waited_s,
            fencing_token=fencing_token,
        )

    # ---- answers

    def awaits(self, token: int) -> bool:
        return self._phase is not ProofPhase.IDLE and token == self._token

    def on_checked(self) -> None:
        """Good for those who came before it was sent."""
        self._move(ProofPhase.IDLE)
        self._questions.check_decided(proved=True)
        self.retry_at_s, self._tries = None, 0
        self._turn.wait_for("")

    def on_check_failed(self) -> None:
        """An own write that came between, or another owner: read, after a sync, and compare."""
        self._turn.emit(fx.ReadFooter(self._move(ProofPhase.READING), sync=True))

    def on_unknown(self, reason: str) -> None:
        """Neither a check nor a read changes anything: from the check again."""
        self._again()
        self._turn.wait_for(f"ZooKeeper: is the footer still ours? {reason}")

    def on_read(self, event: ev.FooterRead) -> None:
        """What the footer is after a check that failed."""
        self._again()
        if event.footer is None:
            self._ownership.footer_lost()
        elif event.version > self._ownership.commit.version and not self._ownership.is_writing:
            self._ownership.depose(event.footer.epoch)

    def _again(self) -> None:
        self._move(ProofPhase.IDLE)
        self._questions.check_decided(proved=False)
        self.retry_at_s = self._turn.retry_at_s(self._tries)
        self._tries += 1

    # ---- time

    def drive(self) -> None:
        """Asks for proof, tells those who have it, and sends away who waited too long."""
        questions = self._questions
        if not questions:
            return
        for number, question in questions.items():
            if question.wish is Wish.STATE and number != self._handles.waiting:
                questions.drop(number)  # its handle has gone, or asked for the end
        self._send_away()
        if self._life.state not in OWNING:
            return
        # the write that raises the token proves, too
        may_ask = (
            self._phase is ProofPhase.IDLE
            and not self._ownership.is_writing
            and self._ownership.fencing.wanted is None
        )
        is_wanted = any(not q.proved for q in questions.of_proof())
        if may_ask and is_wanted and (self.retry_at_s is None or self._turn.now >= self.retry_at_s):
            self.retry_at_s = None
            questions.check_sent()
            self._turn.wait_for(self._turn.waiting_for or "ZooKeeper: is the footer still ours?")
            self._turn.emit(
                fx.CheckFooter(self._move(ProofPhase.CHECKING), self._ownership.commit.version)
            )
        for number, question in questions.items():
            if question.proved and question.wish is Wish.WORD:
                questions.drop(number)
                self._turn.emit(fx.Proved(number))

    def _send_away(self) -> None:
        """Who has waited for ZooKeeper for too long is told so; the cursor stays as it is. Waiting
        for a turn to ask it is not that, unless the turn does not come because ZooKeeper answers
        nobody. Who waits for a deletion is told so whatever it waits for.
        """
        turn, held, is_withdrawn = self._turn, self._evidence.is_footer_held, False
        limit_s = turn.limits.answer_wait_max_ms / 1000
        for number, question in self._questions.items():
            counts = self._asks_zookeeper or question.wish is Wish.DELETION
            if question.proved or not counts or (held and turn.heard_s is None):
                question.rest(turn.now, keeps=not counts)
                continue
            if held and turn.heard_s is not None:
                question.wait_since(max(question.asked_s, turn.heard_s))
            since_s = turn.now if question.since_s is None else question.since_s
            question.wait_since(since_s)
            if turn.now >= since_s + limit_s - question.waited_s:
                self._questions.drop(number)
                is_withdrawn = is_withdrawn or (
                    question.wish is Wish.DELETION and self._claim.is_unsent
                )
                self._tell_in_vain(
                    number,
                    question,
                    f"not within {limit_s:g} s ({turn.waiting_for or 'ZooKeeper does not answer'})",
                )
        if is_withdrawn:
            self._claim.withdraw()
        self._claim.end_if_unwanted()

    def _tell_in_vain(self, number: int, question: Question, waited: str) -> None:
        emit, not_said = self._turn.emit, "ZooKeeper did not say that the cursor is still held here"
        match question.wish:
            case Wish.DELETION if self._claim.is_unsent:
                text = f"it was not deleted: it could not be claimed, {waited}"
                emit(fx.RefuseHandle(number, Refusal.UNAVAILABLE, text, DELETE_AGAIN))
            case Wish.DELETION:
                text = f"it may be deleted yet: that is not decided, {waited}"
                emit(fx.RefuseHandle(number, Refusal.UNAVAILABLE, text, DELETE_AGAIN))
            case Wish.WORD:
                emit(fx.Unproved(number, f"{not_said}, {waited}"))
            case Wish.STATE:
                self._handles.send_away()
                what = (
                    "the cursor could not be claimed"
                    if self._life.state is State.CLAIMING
                    else not_said
                )
                emit(
                    fx.RefuseHandle(
                        number, Refusal.UNAVAILABLE, f"{what}, {waited}", UNAVAILABLE_REMEDY
                    )
                )

    @property
    def _asks_zookeeper(self) -> bool:
        return self._life.state is State.CLAIMING or self._life.state in OWNING

    @property
    def is_end_with_zookeeper(self) -> bool:
        """A cursor on its way out, or that is opened only to go: it is a footer that it waits
        for.
        """
        return self._life.state is State.CLAIMING or (
            self._life.state in OWNING and self._ownership.is_writing
        )

    def turn_came(self) -> None:
        """What waited for its turn is sent now: from here on it is ZooKeeper that is waited for, if
        it has not failed before.
        """
        if not self._claim.tries:
            self._questions.begin_waiting()

    @property
    def wake_at_s(self) -> float | None:
        """When `drive` has something to do."""
        if not self._questions:
            return None
        limit_s = self._turn.limits.answer_wait_max_ms / 1000
        questions = self._questions.all()
        times = [q.since_s + limit_s - q.waited_s for q in questions if q.since_s is not None]
        if self._asks_zookeeper and self._evidence.is_footer_held:
            times += [
                q.asked_s + limit_s - q.waited_s
                for q in questions
                if q.since_s is None and not q.proved
            ]
        if (
            self.retry_at_s is not None
            and any(not q.proved for q in self._questions.of_proof())
            and not self._ownership.is_writing
        ):
            times.append(self.retry_at_s)
        return earliest(*times)

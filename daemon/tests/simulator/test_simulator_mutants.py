"""The simulator can fail: with a rule of the commit protocol taken away, some early seed breaks a
promise.

Each mutant is a patch of one function, named by the rule it breaks. A mutant that survives means
that the simulator does not look there (or that the rule is not needed).
"""

from __future__ import annotations

import contextlib
import gc
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from cursorkeeper.bookkeeper.port import FencedEnd, LedgerState
from cursorkeeper.core import effects as fx
from cursorkeeper.core import events as ev
from cursorkeeper.core import machine
from cursorkeeper.core.claim import Claim
from cursorkeeper.core.commit import Committed, FooterCommit, Lost, Purpose
from cursorkeeper.core.ending import Ending
from cursorkeeper.core.errors import DamageError, Refusal, RefusedError
from cursorkeeper.core.evidence import Evidence
from cursorkeeper.core.fencing import Fencing
from cursorkeeper.core.flow import Flow
from cursorkeeper.core.flush import Flush
from cursorkeeper.core.footer import EmptyBase, Footer, FooterState, is_pulsar
from cursorkeeper.core.intake import Intake
from cursorkeeper.core.ledgers import Ledgers
from cursorkeeper.core.machine import CursorMachine
from cursorkeeper.core.native_form import NativeForm
from cursorkeeper.core.ownership import Ownership
from cursorkeeper.core.positions import FIRST
from cursorkeeper.core.progress import Progress
from cursorkeeper.core.proof import Proof
from cursorkeeper.core.questions import Questions, Wish
from cursorkeeper.core.snapshots import Snapshots
from cursorkeeper.core.state import AckState
from cursorkeeper.core.table import LIVE, OPENING, State, WriterPhase
from cursorkeeper.core.values import Partial
from cursorkeeper.core.whole_form import WholeForm
from cursorkeeper.runtime import chain, pulsar_ledger
from cursorkeeper.runtime import gc as collection
from cursorkeeper.runtime.footers import FooterStore
from cursorkeeper.runtime.keeper import Keeper
from cursorkeeper.runtime.runner import CursorRunner
from daemon.tests.simulator import simulator

pytestmark = [
    pytest.mark.slow,
    pytest.mark.interpreted,
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),
]

SEEDS = range(1, 401)
"""Each mutant breaks a promise in at least one seed of fifty: who is noticed by fewer needs a
promise of its own that is judged.
"""
Patch = Callable[[pytest.MonkeyPatch], None]
MUTANTS: dict[str, Patch] = {}
FORMATS: dict[str, str] = {}
"""In which format the daemons write where a mutant is looked for; natively if it is not said."""


def mutant(patch: Patch) -> Patch:
    """Registers one under its function's name."""
    MUTANTS[patch.__name__] = patch
    return patch


def mutant_of(formats: str) -> Callable[[Patch], Patch]:
    """The same, for daemons that write whole states, or each its own format."""

    def register(patch: Patch) -> Patch:
        FORMATS[patch.__name__] = formats
        return mutant(patch)

    return register


# ---- footer and compare-and-set


@mutant
def rule_2_version_adopted_content_kept(patch: pytest.MonkeyPatch) -> None:
    def lost(m: CursorMachine, lost: Any) -> None:
        if not isinstance(lost, Lost) or lost.purpose is Purpose.CLAIM or lost.now is None:
            before(m, lost)
            return
        m.questions.write_decided(committed=False)
        m.ownership.commit.adopt(m.ownership.committed, lost.version)
        m.ownership.propose(m.form.footer(), Purpose.NAME_LEDGER)

    before = CursorMachine._decide
    patch.setattr(CursorMachine, "_decide", lost)


@mutant
def rule_3_mine_is_not_compared(patch: pytest.MonkeyPatch) -> None:
    def on_read(self: FooterCommit, footer: Any, version: int) -> Any:
        return self.on_written(version)

    patch.setattr(FooterCommit, "on_read", on_read)


@mutant
def rule_4_unknown_is_taken_as_done(patch: pytest.MonkeyPatch) -> None:
    def unknown(m: CursorMachine, event: ev.FooterWriteUnknown) -> None:
        commit = m.ownership.commit
        if commit.awaits(event.token):
            m._decide(commit.on_written(commit.version + 1))

    patch.setitem(machine.HANDLERS, ev.FooterWriteUnknown, unknown)


@mutant
def rule_5_generation_of_a_deleted_cursor_restarts(patch: pytest.MonkeyPatch) -> None:
    def create(self: Claim, tombstone: Any) -> None:
        before(self, tombstone and replace(tombstone, generation=1))

    before = Claim._create
    patch.setattr(Claim, "_create", create)


# ---- claim


@mutant
def rule_6_claimer_does_not_fence(patch: pytest.MonkeyPatch) -> None:
    async def fence(
        self: simulator.NodeGateway, ledger: int, *, entries_bytes_max: int = 0
    ) -> FencedEnd:
        found = self.inner.store.ledger(ledger)
        return FencedEnd(
            found.end.last_entry if found.state is LedgerState.CLOSED else found.visible_end, 0
        )

    patch.setattr(simulator.NodeGateway, "fence", fence)


@mutant_of(simulator.DUELS)
def rule_6_a_missing_ledger_is_damage_at_once(patch: pytest.MonkeyPatch) -> None:
    def doubt(self: Claim, why: str) -> None:
        self._ownership.refuse(Refusal.DAMAGED, why, "")

    patch.setattr(Claim, "_doubt", doubt)


@mutant
def rule_8_duplicates_are_not_confirmed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Progress, "bind_to_newest", lambda _self: None)


@mutant
def rule_9_a_deposed_owner_tidies_up(patch: pytest.MonkeyPatch) -> None:
    def step(self: CursorMachine, event: ev.Event, now: float) -> list[fx.Effect]:
        effects = before(self, event, now)
        if (
            self.writer.current is not None
            and any(isinstance(e, fx.Ended) for e in effects)
            and self.state is State.DEPOSED
        ):
            effects.insert(0, fx.DeleteLedgers((self.writer.current.ledger,)))
        return effects

    before = CursorMachine.step
    patch.setattr(CursorMachine, "step", step)


# ---- append, confirm, roll


@mutant
def rule_10_confirm_before_the_ledger_is_named(patch: pytest.MonkeyPatch) -> None:
    def confirm(self: Ledgers) -> None:
        ledger = self._writer.current
        named, really = ledger is not None and ledger.named, ledger is not None
        if ledger is not None:
            ledger.named = really
        before(self)
        if ledger is not None:
            ledger.named = named

    before = Ledgers.confirm
    patch.setattr(Ledgers, "confirm", confirm)


@mutant
def rule_11_nothing_is_put_back(patch: pytest.MonkeyPatch) -> None:
    def abandon(self: Ledgers) -> None:
        self._writer.put_back()
        self._flow.progress.put_back()
        self._writer.forget()

    patch.setattr(Ledgers, "_abandon", abandon)


@mutant
def rule_11_a_fenced_ledger_is_kept(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Ledgers, "fail", lambda _self, _reason, **_why: None)


@mutant
def rule_12_last_entry_is_counted(patch: pytest.MonkeyPatch) -> None:
    def recover(self: Ledgers) -> None:
        left = self._writer.current
        assert left is not None
        if left.named:
            self._ownership.end_ledger(left.ledger, left.next_entry - 1)
        self._writer.phase = WriterPhase.ENDING
        self._abandon()

    patch.setattr(Ledgers, "_recover", recover)


# ---- snapshot


@mutant
def rule_14_the_old_chain_is_deleted_before_the_answer(patch: pytest.MonkeyPatch) -> None:
    def propose(self: Ownership, footer: Any, purpose: Purpose) -> None:
        before(self, footer, purpose)
        if purpose is Purpose.SWITCH and self.committed is not None:
            self._turn.emit(
                fx.DeleteLedgers(
                    tuple(sorted(self.committed.named_ledgers() - footer.named_ledgers()))
                )
            )

    before = Ownership.propose
    patch.setattr(Ownership, "propose", propose)


@mutant
def rule_16_an_aborted_snapshot_goes_on(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Snapshots, "abort", lambda _self: None)


@mutant
def rule_17_a_delta_leaves_the_mark_delete_out(patch: pytest.MonkeyPatch) -> None:
    def trimmed(self: AckState, *rest: Any) -> Any:
        return replace(before(self, *rest), mark_delete=None)

    before = AckState._trimmed_delta
    patch.setattr(AckState, "_trimmed_delta", trimmed)


@mutant
def rule_17_a_later_partial_replaces_an_earlier(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Partial, "joined", lambda _self, other: other)


@mutant
def rule_18_fall_back_without_the_current_chain(patch: pytest.MonkeyPatch) -> None:
    def from_previous(footer: Footer) -> Footer | None:
        older = before(footer)
        return older and replace(older, chain=footer.previous.chain)

    before = chain.from_previous
    patch.setattr(chain, "from_previous", from_previous)


# ---- reset, inline, delete


@mutant
def rule_19_a_reset_is_confirmed_before_it_is_committed(patch: pytest.MonkeyPatch) -> None:
    def on_control(self: Intake, event: Any) -> None:
        before(self, event)
        if isinstance(event, ev.Reset):
            self._turn.emit_all(self._flow.progress.decide_all())

    before = Intake.on_control
    patch.setattr(Intake, "on_control", on_control)


@mutant
def rule_20_the_next_ledger_replaces_the_inline_base(patch: pytest.MonkeyPatch) -> None:
    def named(self: Ledgers, done: Committed) -> None:
        before(self, done)
        self._ownership.base = EmptyBase(FIRST)

    before = Ledgers.named
    patch.setattr(Ledgers, "named", named)


@mutant
def rule_20_inline_confirms_before_it_is_committed(patch: pytest.MonkeyPatch) -> None:
    def propose(self: Ending, *rest: Any) -> None:
        before(self, *rest)
        self._turn.emit_all(self._flow.progress.made_durable(self._covered.record))

    before = Ending._propose_inline
    patch.setattr(Ending, "_propose_inline", propose)


@mutant
def rule_21_collection_ignores_epochs(patch: pytest.MonkeyPatch) -> None:
    def judge(ledger: int, epoch: int, footer: Any) -> Any:
        verdict = before(ledger, epoch, footer)
        return collection.Verdict.GARBAGE if verdict is collection.Verdict.MAY_BE_NAMED else verdict

    before = collection.judge
    patch.setattr(collection, "judge", judge)


# ---- answers


@mutant_of(simulator.MOVES)
def rule_22_a_held_cursor_is_answered_from_memory(patch: pytest.MonkeyPatch) -> None:
    def ask(self: Proof, number: int, wish: Wish, **rest: Any) -> None:
        before(self, number, wish, **rest)
        self._questions._asked[number].proved = self._life.state in LIVE

    before = Proof.ask
    patch.setattr(Proof, "ask", ask)


def _reads_instead(patch: pytest.MonkeyPatch, *, sync: bool) -> None:
    """The version that a read shows counts as a proof."""

    async def check(self: FooterStore, name: Any, token: int, version: int) -> ev.Event:
        found = await self.read(name, token, sync=sync)
        if isinstance(found, ev.FooterRead):
            return (
                ev.FooterChecked(token) if found.version == version else ev.FooterCheckFailed(token)
            )
        return ev.FooterCheckUnknown(token, "")

    patch.setattr(FooterStore, "check", check)


@mutant_of(simulator.MOVES)
def rule_22_a_plain_read_is_a_proof(patch: pytest.MonkeyPatch) -> None:
    _reads_instead(patch, sync=False)


@mutant_of(simulator.MOVES)
def rule_22_sync_and_read_are_a_proof(patch: pytest.MonkeyPatch) -> None:
    _reads_instead(patch, sync=True)


@mutant_of(simulator.MOVES)
def rule_23_an_earlier_check_counts(patch: pytest.MonkeyPatch) -> None:
    def decided(self: Questions, *, proved: bool) -> None:
        for question in self._asked.values():
            question.by_check = True
        before(self, proved=proved)

    def on_detach(m: CursorMachine, event: ev.Detach) -> None:
        waiting = m.handles.waiting
        m.intake.on_detach(event)
        if waiting is not None and m.state in LIVE:
            m.proof.retry_at_s = None

    before = Questions.check_decided
    patch.setattr(Questions, "check_decided", decided)
    patch.setitem(machine.HANDLERS, ev.Detach, on_detach)


@mutant_of(simulator.MOVES)
def rule_24_a_claim_that_was_joined_is_a_proof(patch: pytest.MonkeyPatch) -> None:
    def ask(self: Proof, number: int, wish: Wish, **rest: Any) -> None:
        before(self, number, wish, **rest)
        self._questions._asked[number].proved = self._life.state in OPENING and self._claim.sent

    before = Proof.ask
    patch.setattr(Proof, "ask", ask)


@mutant_of(simulator.DUELS)
def rule_25_who_had_a_claim_claims_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Ownership, "_wants_reopening", lambda _self, _waiting: True)


@mutant_of(simulator.MOVES)
def rule_27_what_is_shown_is_not_durable(patch: pytest.MonkeyPatch) -> None:
    def drive(self: Flush) -> None:
        self._flow.absorb()
        waiting = self._handles.waiting
        if (
            waiting is not None
            and self._questions.is_proved(waiting)
            and self._life.state in LIVE
            and not self._flow.resets
        ):
            self._handles.serve()
            self._questions.drop(waiting)
            self._turn.emit(fx.StreamState(waiting))
        before(self)

    before = Flush.drive
    patch.setattr(Flush, "drive", drive)


@mutant_of(simulator.MOVES)
def rule_28_whoever_held_it_before_resumes(patch: pytest.MonkeyPatch) -> None:
    def may(self: Intake, event: ev.Attach) -> bool:
        return event.resume is not None and before(
            self, replace(event, source=self._questions.answered)
        )

    before = Intake._may_resume
    patch.setattr(Intake, "_may_resume", may)


@mutant_of(simulator.MOVES)
def rule_28_another_generation_is_resumed(patch: pytest.MonkeyPatch) -> None:
    def may(self: Intake, event: ev.Attach) -> bool:
        here = self._ownership.generation
        return event.resume is not None and before(
            self, replace(event, resume=ev.Resume(event.resume.epoch, here))
        )

    before = Intake._may_resume
    patch.setattr(Intake, "_may_resume", may)


# ---- fencing tokens


@mutant_of(simulator.BROKERS)
def rule_29_an_ordinary_write_drops_the_token(patch: pytest.MonkeyPatch) -> None:
    def draft(self: Ownership, **says: Any) -> Any:
        return before(self, **{"fencing_token": 0, **says})

    before = Ownership.draft
    patch.setattr(Ownership, "draft", draft)


@mutant_of(simulator.BROKERS)
def rule_29_a_tombstone_has_no_token(patch: pytest.MonkeyPatch) -> None:
    def draft(self: Ownership, **says: Any) -> Any:
        return before(
            self,
            **(says | {"fencing_token": 0} if says.get("state") is FooterState.DELETED else says),
        )

    before = Ownership.draft
    patch.setattr(Ownership, "draft", draft)


def _lets_in(patch: pytest.MonkeyPatch, who: Callable[[CursorMachine], bool]) -> None:
    """These machines take every open for one that is not lower."""

    def claim(self: CursorMachine, event: ev.FooterRead) -> None:
        judged.append(self)
        try:
            before(self, event)
        finally:
            judged.pop()

    def asked(self: Fencing) -> int:
        return max(ask.fget(self), self.committed if judged and who(judged[-1]) else 0)

    def check(self: Keeper, name: Any, runner: Any, given: int) -> None:
        if runner is None or not who(runner.machine):
            compare(self, name, runner, given)

    judged: list[CursorMachine] = []
    ask: Any = Fencing.asked
    before, compare = CursorMachine.on_footer_read, Keeper._check_token
    patch.setitem(machine.HANDLERS, ev.FooterRead, claim)
    patch.setattr(Fencing, "asked", property(asked))
    patch.setattr(Keeper, "_check_token", check)


@mutant_of(simulator.BROKERS)
def rule_29_one_daemon_does_not_compare(patch: pytest.MonkeyPatch) -> None:
    _lets_in(patch, lambda m: m.turn.writer.startswith("n2/"))


@mutant_of(simulator.BROKERS)
def rule_30_who_waits_is_not_compared_with(patch: pytest.MonkeyPatch) -> None:
    def check(self: Keeper, name: Any, runner: Any, given: int) -> None:
        waiting = self._waiting.pop(name, {})
        try:
            compare(self, name, runner, given)
        finally:
            if waiting:
                self._waiting[name] = waiting

    compare = Keeper._check_token
    patch.setattr(Keeper, "_check_token", check)
    patch.setattr(Fencing, "known", property(lambda self: self.committed))


@mutant_of(simulator.BROKERS)
def rule_30_a_higher_token_needs_takeover(patch: pytest.MonkeyPatch) -> None:
    def opens(self: Keeper, name: Any, request: ev.Open, attach: int, listener: Any) -> None:
        runner = self.cursors.get(name)
        if (
            runner is not None
            and not runner.is_ended
            and runner.handle is not None
            and not request.takeover
        ):
            raise RefusedError(Refusal.ALREADY_OPEN, name.display, "", "")
        before(self, name, request, attach, listener)

    before = Keeper.open
    patch.setattr(Keeper, "open", opens)


@mutant_of(simulator.BROKERS)
def rule_31_the_claim_leaves_the_token_to_a_later_write(patch: pytest.MonkeyPatch) -> None:
    def propose(self: Ownership, footer: Any, purpose: Purpose) -> None:
        before(
            self,
            replace(footer, fencing_token=self.fencing.committed)
            if purpose is Purpose.CLAIM
            else footer,
            purpose,
        )

    def answerable(self: Fencing) -> int | None:
        waiting = self._handles.waiting
        return waiting if waiting is not None and self._questions.is_proved(waiting) else None

    before = Ownership.propose
    patch.setattr(Ownership, "propose", propose)
    patch.setattr(Fencing, "answerable", property(answerable))


@mutant_of(simulator.BROKERS)
def rule_31_a_lost_claim_is_not_compared_again(patch: pytest.MonkeyPatch) -> None:
    lost: set[Fencing] = set()

    def lose(self: Claim, now: Any) -> None:
        lost.add(self._ownership.fencing)
        before(self, now)

    def send(self: Claim, *rest: Any) -> None:
        lost.discard(self._ownership.fencing)
        sends(self, *rest)

    def asked(self: Fencing) -> int:
        return max(ask.fget(self), self.committed if self in lost else 0)

    ask: Any = Fencing.asked
    before, sends = Claim.lost, Claim._send
    patch.setattr(Claim, "lost", lose)
    patch.setattr(Claim, "_send", send)
    patch.setattr(Fencing, "asked", property(asked))


@mutant_of(simulator.BROKERS)
def rule_32_the_token_is_kept_in_memory(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Fencing, "wanted", property(lambda _self: None))


@mutant_of(simulator.BROKERS)
def rule_32_the_raise_is_a_new_epoch(patch: pytest.MonkeyPatch) -> None:
    def raise_token(self: Ownership) -> bool:
        token, footer = self.fencing.wanted, self.committed
        if token is None or footer is None:
            return False
        self.epoch += 1
        self.propose(
            replace(footer, epoch=self.epoch, write=self.next_write(), fencing_token=token),
            Purpose.TOKEN,
        )
        return True

    patch.setattr(Ownership, "raise_token", raise_token)


@mutant_of(simulator.BROKERS)
def rule_32_the_handle_before_goes_on(patch: pytest.MonkeyPatch) -> None:
    def on_attach(m: CursorMachine, event: ev.Attach) -> None:
        handles = m.handles
        live, seq = handles.attach, handles.last_seq
        m.intake.on_attach(event)
        if handles.attach is None and handles.waiting == event.attach:
            handles.attach, handles.last_seq = live, seq

    def displace(self: CursorRunner) -> None:
        if self.machine.handles.attach is None:
            leave(self)

    leave = CursorRunner._displace
    patch.setitem(machine.HANDLERS, ev.Attach, on_attach)
    patch.setattr(CursorRunner, "_displace", displace)


@mutant_of(simulator.BROKERS)
def rule_33_an_equal_token_is_refused(patch: pytest.MonkeyPatch) -> None:
    def check(self: Keeper, name: Any, runner: Any, given: int) -> None:
        before(self, name, runner, given - (given > 0))

    before = Keeper._check_token
    patch.setattr(Keeper, "_check_token", check)


@mutant_of(simulator.BROKERS)
def rule_34_a_delete_by_name_is_not_compared(patch: pytest.MonkeyPatch) -> None:
    _lets_in(patch, lambda m: m.claim.request.for_delete)


@mutant_of(simulator.BROKERS)
def rule_34_a_tombstone_has_the_token_of_the_handle_before(patch: pytest.MonkeyPatch) -> None:
    def on_delete(m: CursorMachine, event: ev.Delete) -> None:
        m.ending.on_delete(event)
        m.handles.delete_token = 0

    patch.setitem(machine.HANDLERS, ev.Delete, on_delete)


@mutant_of(simulator.BROKERS)
def rule_36_token_0_is_let_in(patch: pytest.MonkeyPatch) -> None:
    def asked(self: Fencing) -> int:
        return before.fget(self) or self.committed

    def check(self: Keeper, name: Any, runner: Any, given: int) -> None:
        if given:
            compare(self, name, runner, given)

    before: Any = Fencing.asked
    compare = Keeper._check_token
    patch.setattr(Fencing, "asked", property(asked))
    patch.setattr(Keeper, "_check_token", check)


# ---- promises: what a source is told in time, and what an event may cost


@mutant
def promise_nobody_is_told_that_bookkeeper_is_silent(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Evidence, "away_at_s", property(lambda _self: None))


@mutant
def promise_a_machine_is_woken_for_nothing(patch: pytest.MonkeyPatch) -> None:
    def wake(m: CursorMachine) -> float | None:
        at = before.fget(m)
        soon = m.turn.now + 0.02
        return at if m.state not in LIVE else min(at or soon, soon)

    before: Any = CursorMachine.timer_at_s
    patch.setattr(CursorMachine, "timer_at_s", property(wake))


@mutant_of(simulator.CHAINS)
def promise_a_chain_grows_without_an_end(patch: pytest.MonkeyPatch) -> None:
    def needed(self: Ledgers) -> bool:
        turn = self._turn
        limits, turn.limits = (
            turn.limits,
            replace(turn.limits, chain_ledgers_hard_max=1_000, chain_ledgers_max=1_000),
        )
        try:
            return before(self)
        finally:
            turn.limits = limits

    before = Ledgers._is_needed
    patch.setattr(Ledgers, "_is_needed", needed)


# ---- whole states in Pulsar's form


@mutant_of("pulsar")
def whole_named_before_the_last_entry_of_the_state_is_acknowledged(
    patch: pytest.MonkeyPatch,
) -> None:
    def appended(m: CursorMachine, event: ev.Appended) -> None:
        ledger = m.writer.current
        if ledger is not None and ledger.ledger == event.ledger:
            ledger.first_acked = True
        m.ledgers.on_appended(event)

    patch.setitem(machine.HANDLERS, ev.Appended, appended)


@mutant_of("pulsar")
def whole_confirmed_when_the_first_entry_of_the_state_is_acknowledged(
    patch: pytest.MonkeyPatch,
) -> None:
    def take(self: WholeForm) -> None:
        before(self)
        box = list(self._writer.outbox)
        if len(box) > 1 and box[0].record is None and box[-1].record is not None:
            first, last = (
                replace(box[0], record=box[-1].record, delta=box[-1].delta),
                replace(box[-1], record=None),
            )
            self._writer.outbox.clear()
            self._writer.outbox.extend([first, *box[1:-1], last])

    before = WholeForm.take
    patch.setattr(WholeForm, "take", take)


@mutant_of("pulsar")
def whole_an_unfinished_tail_counts_as_damage(patch: pytest.MonkeyPatch) -> None:
    async def read(last_entry: int, *rest: Any) -> Any:
        found = await before(last_entry, *rest)
        if found.skipped:
            raise DamageError("does not end with a state")
        return found

    before = pulsar_ledger.read_newest
    patch.setattr(pulsar_ledger, "read_newest", read)


@mutant_of("pulsar")
def whole_a_reader_takes_the_first_state_of_a_ledger(patch: pytest.MonkeyPatch) -> None:
    async def read(last_entry: int, *rest: Any) -> Any:
        for end in range(last_entry + 1):
            with contextlib.suppress(DamageError):
                return await before(end, *rest)
        return await before(last_entry, *rest)

    before = pulsar_ledger.read_newest
    patch.setattr(pulsar_ledger, "read_newest", read)


@mutant_of("mixed")
def whole_a_state_that_holds_only_what_is_new_is_named_alone(patch: pytest.MonkeyPatch) -> None:
    def take(self: WholeForm) -> None:
        flow: Flow = self._flow
        real, flow.acks = flow.acks, AckState(flow.acks.mark_delete)
        flow.acks.join_delta(flow.carried)
        try:
            before(self)
        finally:
            flow.acks = real

    before = WholeForm.take
    patch.setattr(WholeForm, "take", take)


@mutant_of("pulsar")
def whole_properties_are_confirmed_before_the_footer_holds_them(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(WholeForm, "is_held", lambda _self, _outgoing: True)


@mutant_of("pulsar")
def whole_the_footer_forgets_the_properties(patch: pytest.MonkeyPatch) -> None:
    def draft(self: Ownership, **says: Any) -> Any:
        return before(self, **(says | {"cursor_properties": None}))

    before = Ownership.draft
    patch.setattr(Ownership, "draft", draft)
    patch.setattr(WholeForm, "is_held", lambda _self, _outgoing: True)
    patch.setattr(WholeForm, "_has_newer_properties", lambda _self, _committed: False)


@mutant_of("mixed")
def whole_a_native_owner_forgets_what_only_the_footer_held(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        NativeForm,
        "_are_notes_needed",
        lambda _self, footer: any(map(is_pulsar, [footer.base, *footer.chain])),
    )


@mutant_of("pulsar")
def whole_a_close_at_a_limit_confirms_what_was_not_written(patch: pytest.MonkeyPatch) -> None:
    def closed(self: Ending, done: Committed) -> None:
        self._turn.emit_all(self._flow.progress.decide_all())
        before(self, done)

    before = Ending.closed
    patch.setattr(Ending, "closed", closed)


@mutant_of("pulsar")
def whole_a_handle_at_a_limit_gets_what_is_not_durable(patch: pytest.MonkeyPatch) -> None:
    def reopen(self: Ending) -> None:
        waiting = self._handles.waiting
        if waiting is not None and self._life.state in LIVE and self._form.is_stuck:
            self._handles.serve()
            self._turn.emit(fx.StreamState(waiting))

    patch.setattr(Ending, "reopen_at_s", property(reopen))


@mutant_of("pulsar")
def whole_a_layout_is_known_that_was_never_told(patch: pytest.MonkeyPatch) -> None:
    """Mark-delete crosses from what is read into the next ledger that has acks."""

    def settle(self: AckState) -> None:
        before(self)
        known = [x for x in sorted(self.ledgers) if x > self.mark_delete.ledger]
        if known and not len(self.layout):
            self._move_mark_delete(self.mark_delete._replace(ledger=known[0], entry=-1))
            before(self)

    before = AckState.settle
    patch.setattr(AckState, "settle", settle)


def first_caught(formats: str) -> tuple[int, str] | None:
    """The first seed that fails, and how."""
    for seed in SEEDS:
        outcome = simulator.run(seed, formats=formats)
        if seed % 10 == 0:
            gc.collect()
        if outcome.violations:
            return seed, outcome.violations[0]
    return None


@pytest.mark.parametrize("name", MUTANTS)
def test_a_missing_rule_is_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    MUTANTS[name](monkeypatch)
    found = first_caught(FORMATS.get(name, "native"))
    assert found is not None, f"{name} survives seeds {SEEDS.start} to {SEEDS.stop - 1}"
    misfit = re.search("has a bug: (TypeError|AttributeError)", found[1])
    assert not misfit, f"{name} does not fit the code that it changes: {found[1]}"
    print(f"{name}: seed {found[0]}: {found[1][:150]}")

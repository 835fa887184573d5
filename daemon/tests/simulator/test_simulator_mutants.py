"""The simulator can fail: with a rule of the commit protocol taken away, some early seed breaks a promise.

Each mutant is a patch of one function, named by the rule it breaks. A mutant that survives means that the simulator
does not look there (or that the rule is not needed).
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from cursorkeeper.bookkeeper.port import LedgerEnd, LedgerState
from cursorkeeper.core import (
    answers,
    evidence,
    fencing,
    finishing,
    flushing,
    footer_answers,
    intake,
    machine,
    opening,
    rolling,
    snapshotting,
    whole_states,
)
from cursorkeeper.core import effects as fx
from cursorkeeper.core import events as ev
from cursorkeeper.core.commit import Committed, FooterCommit, Lost, Purpose
from cursorkeeper.core.errors import DamageError, Refusal, RefusedError
from cursorkeeper.core.footer import EmptyBase, FooterState, is_pulsar
from cursorkeeper.core.machine import CursorMachine
from cursorkeeper.core.positions import FIRST
from cursorkeeper.core.progress import Progress
from cursorkeeper.core.state import AckState
from cursorkeeper.core.table import State
from cursorkeeper.core.values import Partial
from cursorkeeper.runtime import gc as collection
from cursorkeeper.runtime import pulsar_ledger
from cursorkeeper.runtime.chain import ChainReader
from cursorkeeper.runtime.footers import FooterStore
from cursorkeeper.runtime.keeper import Keeper, WaitingHandles
from cursorkeeper.runtime.runner import CursorRunner
from daemon.tests.simulator import simulator

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::RuntimeWarning")]

SEEDS = range(1, 401)
"""Each mutant breaks a promise in at least one seed of fifty: who is noticed by fewer needs a promise of its own that is judged."""
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
    def lost(m: CursorMachine, lost: Lost) -> None:
        if lost.purpose is Purpose.CLAIM or lost.now is None:
            before(m, lost)
            return
        m.commit.adopt(m.commit.committed, lost.version)
        m.propose(m.footer(), Purpose.NAME_LEDGER)

    before = footer_answers._lost
    patch.setattr(footer_answers, "_lost", lost)


@mutant
def rule_3_mine_is_not_compared(patch: pytest.MonkeyPatch) -> None:
    def on_read(self: FooterCommit, footer: Any, version: int) -> Any:
        o = self._take()
        before, self.committed, self.version = self.committed, o.footer, version
        return Committed(o.purpose, before, o.footer)

    patch.setattr(FooterCommit, "on_read", on_read)


@mutant
def rule_4_unknown_is_taken_as_done(patch: pytest.MonkeyPatch) -> None:
    def unknown(m: CursorMachine, event: ev.FooterWriteUnknown, now: float) -> None:
        if m.commit.is_waiting_for(event.token):
            footer_answers.decide(m, m.commit.on_written(m.commit.version + 1), now)

    patch.setitem(machine.HANDLERS, ev.FooterWriteUnknown, unknown)


@mutant
def rule_5_generation_of_a_deleted_cursor_restarts(patch: pytest.MonkeyPatch) -> None:
    def create(m: CursorMachine, tombstone: Any) -> None:
        before(m, tombstone and replace(tombstone, generation=1))

    before = opening._create
    patch.setattr(opening, "_create", create)


# ---- claim


@mutant
def rule_6_claimer_does_not_fence(patch: pytest.MonkeyPatch) -> None:
    async def fence(self: simulator.NodeGateway, ledger: int) -> LedgerEnd:
        found = self.inner.store.ledger(ledger)
        return found.end if found.state is LedgerState.CLOSED else LedgerEnd(found.visible_end, 0)

    patch.setattr(simulator.NodeGateway, "fence", fence)


@mutant_of(simulator.DUELS)
def rule_6_a_missing_ledger_is_damage_at_once(patch: pytest.MonkeyPatch) -> None:
    def suspect(m: CursorMachine, why: str) -> None:
        m.refuse(opening.Refusal.DAMAGED, why, "")

    patch.setattr(opening, "_suspect", suspect)


@mutant
def rule_8_duplicates_are_not_confirmed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Progress, "bind_to_newest", lambda _self: None)


@mutant
def rule_9_a_deposed_owner_tidies_up(patch: pytest.MonkeyPatch) -> None:
    def depose(self: CursorMachine, epoch: int) -> None:
        if self.writer.current is not None:
            self.emit(fx.DeleteLedgers((self.writer.current.ledger,)))
        before(self, epoch)

    before = CursorMachine.depose
    patch.setattr(CursorMachine, "depose", depose)


# ---- append, confirm, roll


@mutant
def rule_10_confirm_before_the_ledger_is_named(patch: pytest.MonkeyPatch) -> None:
    def confirm(m: CursorMachine) -> None:
        ledger = m.writer.current
        named, really = ledger is not None and ledger.named, ledger is not None
        if ledger is not None:
            ledger.named = really
        before(m)
        if ledger is not None:
            ledger.named = named

    before = flushing.confirm
    patch.setattr(flushing, "confirm", confirm)


@mutant
def rule_11_nothing_is_put_back(patch: pytest.MonkeyPatch) -> None:
    def abandon(m: CursorMachine) -> None:
        m.writer.put_back()
        m.progress.put_back()
        m.writer.forget()

    patch.setattr(rolling, "abandon", abandon)


@mutant
def rule_11_a_fenced_ledger_is_kept(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(rolling, "fail", lambda _m, _reason: None)


@mutant
def rule_12_last_entry_is_counted(patch: pytest.MonkeyPatch) -> None:
    def recover(m: CursorMachine) -> None:
        left = m.writer.current
        assert left is not None
        if left.named:
            m.end_ledger(left.ledger, left.next_entry - 1)
        rolling.abandon(m)

    patch.setattr(rolling, "_recover", recover)


# ---- snapshot


@mutant
def rule_14_the_old_chain_is_deleted_before_the_answer(patch: pytest.MonkeyPatch) -> None:
    def propose(self: CursorMachine, footer: Any, purpose: Purpose) -> None:
        before(self, footer, purpose)
        if purpose is Purpose.SWITCH and self.commit.committed is not None:
            self.emit(fx.DeleteLedgers(tuple(sorted(self.commit.committed.named_ledgers() - footer.named_ledgers()))))

    before = CursorMachine.propose
    patch.setattr(CursorMachine, "propose", propose)


@mutant
def rule_16_an_aborted_snapshot_goes_on(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(snapshotting, "abort", lambda _m: None)


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
    async def replay(self: ChainReader, footer: Any, base: Any, chain: Any) -> Any:
        previous = footer.previous
        return await before(self, footer, base, previous.chain if previous is not None and base is previous.base else chain)

    before = ChainReader._replay
    patch.setattr(ChainReader, "_replay", replay)


# ---- reset, inline, delete


@mutant
def rule_19_a_reset_is_confirmed_before_it_is_committed(patch: pytest.MonkeyPatch) -> None:
    def on_reset(m: CursorMachine, event: ev.Reset, now: float) -> None:
        before(m, event, now)
        m.emit_all(m.progress.decide_all())

    before = intake.on_reset
    patch.setitem(machine.HANDLERS, ev.Reset, on_reset)


@mutant
def rule_20_the_next_ledger_replaces_the_inline_base(patch: pytest.MonkeyPatch) -> None:
    def named(m: CursorMachine, done: Committed, now: float) -> None:
        before(m, done, now)
        m.base = EmptyBase(FIRST)

    before = rolling.named
    patch.setattr(rolling, "named", named)


@mutant
def rule_20_inline_confirms_before_it_is_committed(patch: pytest.MonkeyPatch) -> None:
    def propose(m: CursorMachine, *rest: Any) -> None:
        before(m, *rest)
        m.emit_all(m.progress.made_durable(m.covered.record))

    before = finishing._propose_inline
    patch.setattr(finishing, "_propose_inline", propose)


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
    def ask(m: CursorMachine, number: int, **rest: Any) -> None:
        before(m, number, **rest)
        m.answers.questions[number].proved = m.state in machine.LIVE

    before = answers.ask
    patch.setattr(answers, "ask", ask)


def _reads_instead(patch: pytest.MonkeyPatch, *, sync: bool) -> None:
    """The version that a read shows counts as a proof."""

    async def check(self: FooterStore, name: Any, token: int, version: int) -> ev.Event:
        found = await self.read(name, token, sync=sync)
        if isinstance(found, ev.FooterRead):
            return ev.FooterChecked(token) if found.version == version else ev.FooterCheckFailed(token)
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
    def proved(self: answers.Answers) -> None:
        for question in self.questions.values():
            question.by_check = True
        before(self)

    def on_detach(m: CursorMachine, event: ev.Detach, now: float) -> None:
        waiting = m.attach_waiting
        leave(m, event, now)
        if waiting is not None and m.state in machine.LIVE:
            m.answers.retry_at_s = None

    before, leave = answers.Answers.proved_by_check, intake.on_detach
    patch.setattr(answers.Answers, "proved_by_check", proved)
    patch.setitem(machine.HANDLERS, ev.Detach, on_detach)


@mutant_of(simulator.MOVES)
def rule_24_a_claim_that_was_joined_is_a_proof(patch: pytest.MonkeyPatch) -> None:
    def ask(m: CursorMachine, number: int, **rest: Any) -> None:
        before(m, number, **rest)
        m.answers.questions[number].proved = m.state in machine.OPENING and m.opening.claim_sent

    before = answers.ask
    patch.setattr(answers, "ask", ask)


@mutant_of(simulator.DUELS)
def rule_25_who_had_a_claim_claims_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(answers, "wants_reopening", lambda m: m.attach_waiting)


@mutant_of(simulator.MOVES)
def rule_27_what_is_shown_is_not_durable(patch: pytest.MonkeyPatch) -> None:
    def drive(m: CursorMachine, now: float) -> None:
        flushing.absorb(m)
        if m.attach_waiting is not None and m.answers.is_proved(m.attach_waiting) and m.state in machine.LIVE and not m.resets:
            m.attach, m.attach_waiting, m.last_seq = m.attach_waiting, None, 0
            m.answers.drop(m.attach)
            m.emit(fx.StreamState(m.attach))
        before(m, now)

    before = flushing.drive
    patch.setattr(flushing, "drive", drive)


@mutant_of(simulator.MOVES)
def rule_28_whoever_held_it_before_resumes(patch: pytest.MonkeyPatch) -> None:
    def may(m: CursorMachine, event: ev.Attach) -> bool:
        return event.resume is not None and before(m, replace(event, source=m.answers.answered))

    before = answers.may_resume
    patch.setattr(answers, "may_resume", may)


@mutant_of(simulator.MOVES)
def rule_28_another_generation_is_resumed(patch: pytest.MonkeyPatch) -> None:
    def may(m: CursorMachine, event: ev.Attach) -> bool:
        return event.resume is not None and before(m, replace(event, resume=ev.Resume(event.resume.epoch, m.generation)))

    before = answers.may_resume
    patch.setattr(answers, "may_resume", may)


# ---- fencing tokens


@mutant_of(simulator.BROKERS)
def rule_29_an_ordinary_write_drops_the_token(patch: pytest.MonkeyPatch) -> None:
    def footer(self: CursorMachine, **changes: Any) -> Any:
        return before(self, **{"fencing_token": 0, **changes})

    before = CursorMachine.footer
    patch.setattr(CursorMachine, "footer", footer)


@mutant_of(simulator.BROKERS)
def rule_29_a_tombstone_has_no_token(patch: pytest.MonkeyPatch) -> None:
    def footer(self: CursorMachine, **changes: Any) -> Any:
        return before(self, **(changes | {"fencing_token": 0} if changes.get("state") is FooterState.DELETED else changes))

    before = CursorMachine.footer
    patch.setattr(CursorMachine, "footer", footer)


def _lets_in(patch: pytest.MonkeyPatch, who: Callable[[CursorMachine], bool]) -> None:
    """These machines take every open for one that is not lower."""

    def asked(m: CursorMachine) -> int:
        return max(before(m), fencing.committed(m) if who(m) else 0)

    def check(self: Keeper, name: Any, runner: Any, given: int) -> None:
        if runner is None or not who(runner.machine):
            compare(self, name, runner, given)

    before, compare = fencing.asked, Keeper._check_token
    patch.setattr(fencing, "asked", asked)
    patch.setattr(Keeper, "_check_token", check)


@mutant_of(simulator.BROKERS)
def rule_29_one_daemon_does_not_compare(patch: pytest.MonkeyPatch) -> None:
    _lets_in(patch, lambda m: m.writer_id.startswith("n2/"))


@mutant_of(simulator.BROKERS)
def rule_30_who_waits_is_not_compared_with(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(WaitingHandles, "fencing_token", lambda _self, _name: 0)
    patch.setattr(fencing, "known", lambda m: fencing.committed(m))


@mutant_of(simulator.BROKERS)
def rule_30_a_higher_token_needs_takeover(patch: pytest.MonkeyPatch) -> None:
    def opens(self: Keeper, name: Any, request: ev.Open, attach: int, listener: Any) -> None:
        runner = self.cursors.get(name)
        if runner is not None and not runner.is_ended and runner.handle is not None and not request.takeover:
            raise RefusedError(Refusal.ALREADY_OPEN, name.display, "", "")
        before(self, name, request, attach, listener)

    before = Keeper.open
    patch.setattr(Keeper, "open", opens)


@mutant_of(simulator.BROKERS)
def rule_31_the_claim_leaves_the_token_to_a_later_write(patch: pytest.MonkeyPatch) -> None:
    def propose(self: CursorMachine, footer: Any, purpose: Purpose) -> None:
        before(self, replace(footer, fencing_token=fencing.committed(self)) if purpose is Purpose.CLAIM else footer, purpose)

    def answerable(m: CursorMachine) -> int | None:
        return m.attach_waiting if m.attach_waiting is not None and m.answers.is_proved(m.attach_waiting) else None

    before = CursorMachine.propose
    patch.setattr(CursorMachine, "propose", propose)
    patch.setattr(fencing, "answerable", answerable)


@mutant_of(simulator.BROKERS)
def rule_31_a_lost_claim_is_not_compared_again(patch: pytest.MonkeyPatch) -> None:
    lost: set[str] = set()

    def lose(m: CursorMachine, decision: Lost) -> None:
        lost.add(m.writer_id)
        before(m, decision)

    def asked(m: CursorMachine) -> int:
        again = m.writer_id in lost and m.state is State.CLAIMING and not m.opening.claim_sent
        return max(ask(m), fencing.committed(m) if again else 0)

    before, ask = footer_answers._lost, fencing.asked
    patch.setattr(footer_answers, "_lost", lose)
    patch.setattr(fencing, "asked", asked)


@mutant_of(simulator.BROKERS)
def rule_32_the_token_is_kept_in_memory(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(fencing, "wanted", lambda _m: None)


@mutant_of(simulator.BROKERS)
def rule_32_the_raise_is_a_new_epoch(patch: pytest.MonkeyPatch) -> None:
    def drive(m: CursorMachine) -> bool:
        token, footer = fencing.wanted(m), m.commit.committed
        if token is None or footer is None or m.state not in machine.LIVE:
            return False
        m.write += 1
        m.epoch += 1
        m.propose(replace(footer, epoch=m.epoch, write=m.write, fencing_token=token), Purpose.TOKEN)
        return True

    patch.setattr(fencing, "drive", drive)


@mutant_of(simulator.BROKERS)
def rule_32_the_handle_before_goes_on(patch: pytest.MonkeyPatch) -> None:
    def on_attach(m: CursorMachine, event: ev.Attach, now: float) -> None:
        live, seq = m.attach, m.last_seq
        before(m, event, now)
        if m.attach is None and m.attach_waiting == event.attach:
            m.attach, m.last_seq = live, seq

    def displace(self: CursorRunner) -> None:
        if self.machine.attach is None:
            leave(self)

    before, leave = intake.on_attach, CursorRunner._displace
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
    _lets_in(patch, lambda m: m.opening.request.for_delete)


@mutant_of(simulator.BROKERS)
def rule_34_a_tombstone_has_the_token_of_the_handle_before(patch: pytest.MonkeyPatch) -> None:
    def on_delete(m: CursorMachine, event: ev.Delete, now: float) -> None:
        before(m, event, now)
        m.delete_token = 0

    before = finishing.on_delete
    patch.setitem(machine.HANDLERS, ev.Delete, on_delete)


@mutant_of(simulator.BROKERS)
def rule_36_token_0_is_let_in(patch: pytest.MonkeyPatch) -> None:
    def asked(m: CursorMachine) -> int:
        return before(m) or fencing.committed(m)

    def check(self: Keeper, name: Any, runner: Any, given: int) -> None:
        if given:
            compare(self, name, runner, given)

    before, compare = fencing.asked, Keeper._check_token
    patch.setattr(fencing, "asked", asked)
    patch.setattr(Keeper, "_check_token", check)


# ---- promises: what a source is told in time, and what an event may cost


@mutant
def promise_nobody_is_told_that_bookkeeper_is_silent(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(evidence, "away_at_s", lambda _m: None)


@mutant
def promise_a_machine_is_woken_for_nothing(patch: pytest.MonkeyPatch) -> None:
    def wake(m: CursorMachine) -> float | None:
        at = before.fget(m)
        return at if m.state not in machine.LIVE else min(at or m.now + 0.02, m.now + 0.02)

    before: Any = CursorMachine.timer_at_s
    patch.setattr(CursorMachine, "timer_at_s", property(wake))


@mutant_of(simulator.CHAINS)
def promise_a_chain_grows_without_an_end(patch: pytest.MonkeyPatch) -> None:
    def needs(m: CursorMachine) -> bool:
        limits, m.limits = m.limits, replace(m.limits, chain_ledgers_hard_max=1_000, chain_ledgers_max=1_000)
        try:
            return before(m)
        finally:
            m.limits = limits

    before = rolling._needs_ledger
    patch.setattr(rolling, "_needs_ledger", needs)


# ---- whole states in Pulsar's form


@mutant_of("pulsar")
def whole_named_before_the_last_entry_of_the_state_is_acknowledged(patch: pytest.MonkeyPatch) -> None:
    def appended(m: CursorMachine, event: ev.Appended, now: float) -> None:
        ledger = m.writer.current
        if ledger is not None and ledger.ledger == event.ledger:
            ledger.first_acked = True
        before(m, event, now)

    before = flushing.on_appended
    patch.setitem(machine.HANDLERS, ev.Appended, appended)


@mutant_of("pulsar")
def whole_confirmed_when_the_first_entry_of_the_state_is_acknowledged(patch: pytest.MonkeyPatch) -> None:
    def take(m: CursorMachine) -> None:
        before(m)
        box = list(m.writer.outbox)
        if len(box) > 1 and box[0].record is None and box[-1].record is not None:
            first, last = replace(box[0], record=box[-1].record, delta=box[-1].delta), replace(box[-1], record=None)
            m.writer.outbox.clear()
            m.writer.outbox.extend([first, *box[1:-1], last])

    before = whole_states.take
    patch.setattr(whole_states, "take", take)


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
    def take(m: CursorMachine) -> None:
        real, m.acks = m.acks, AckState(m.acks.mark_delete)
        m.acks.join_delta(m.carried)
        try:
            before(m)
        finally:
            m.acks = real

    before = whole_states.take
    patch.setattr(whole_states, "take", take)


@mutant_of("pulsar")
def whole_properties_are_confirmed_before_the_footer_holds_them(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(whole_states, "is_held", lambda _m, _outgoing: True)


@mutant_of("pulsar")
def whole_the_footer_forgets_the_properties(patch: pytest.MonkeyPatch) -> None:
    def footer(self: CursorMachine, **changes: Any) -> Any:
        return before(self, **{"cursor_properties": None, **changes})

    before = CursorMachine.footer
    patch.setattr(CursorMachine, "footer", footer)
    patch.setattr(whole_states, "is_held", lambda _m, _outgoing: True)
    patch.setattr(whole_states, "_has_newer_properties", lambda _m: False)


@mutant_of("mixed")
def whole_a_native_owner_forgets_what_only_the_footer_held(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(whole_states, "are_notes_needed", lambda _m, footer: any(map(is_pulsar, [footer.base, *footer.chain])))


@mutant_of("pulsar")
def whole_a_close_at_a_limit_confirms_what_was_not_written(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(finishing, "_closed", lambda m: m.emit_all(m.progress.decide_all()))


@mutant_of("pulsar")
def whole_a_handle_at_a_limit_gets_what_is_not_durable(patch: pytest.MonkeyPatch) -> None:
    def reopen(m: CursorMachine) -> None:
        if m.attach_waiting is not None and m.state in machine.LIVE and whole_states.is_stuck(m):
            m.attach, m.attach_waiting, m.last_seq = m.attach_waiting, None, 0
            m.emit(fx.StreamState(m.attach))

    patch.setattr(finishing, "reopen_at_s", reopen)


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
    print(f"{name}: seed {found[0]}: {found[1][:150]}")

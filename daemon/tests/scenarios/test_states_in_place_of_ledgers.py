"""A small state goes into the footer in place of a ledger, after a restart and when the handles of
all ledgers are lost: what holds of both.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from cursorkeeper.core import effects as fx
from cursorkeeper.core.footer import InlineBase
from cursorkeeper.core.table import State
from daemon.tests.support.machine_bench import DATA, Bench, Owner, restarted, working


def _after_a_restart(bench: Bench) -> tuple[Owner, int]:
    owner = restarted(bench)
    return owner, owner.ack(1)


def _after_a_lost_handle(bench: Bench) -> tuple[Owner, int]:
    owner = working(bench)
    seq = owner.ack(1)
    owner.handle_lost(owner.hold(fx.Append))
    return owner, seq


Begin = Callable[[Bench], tuple[Owner, int]]
both = pytest.mark.parametrize("begin", [_after_a_restart, _after_a_lost_handle])


@both
def test_the_next_acks_get_a_ledger_beside_the_state(begin: Begin) -> None:
    bench = Bench()
    owner, _ = begin(bench)
    owner.go()
    assert not bench.chain
    seq = owner.ack(3)
    owner.go()
    assert owner.durable == seq and len(bench.chain) == 1 and owner.state is State.READY
    assert isinstance(bench.footer.base, InlineBase)
    state = bench.ask()
    assert all(state.is_acked(DATA, entry) for entry in (0, 1, 2, 3, 4, 6, 8))


@both
def test_acks_that_come_meanwhile_are_not_confirmed_by_it(begin: Begin) -> None:
    bench = Bench()
    owner, first = begin(bench)
    write = owner.hold(fx.WriteFooter)
    second = owner.ack(3)
    owner.go()
    assert owner.durable < first, "its outcome is waited for"
    owner.do(write)
    assert owner.durable == first
    owner.go()
    assert owner.durable == second
    bench.ask()


@both
def test_one_whose_answer_is_lost_is_decided_and_holds_what_it_holds(begin: Begin) -> None:
    bench = Bench()
    owner, seq = begin(bench)
    owner.applied_but_unknown(owner.hold(fx.WriteFooter))
    assert owner.durable < seq and not owner.deletions(), "nothing goes before the answer is known"
    owner.go()
    assert owner.durable == seq
    bench.ask()

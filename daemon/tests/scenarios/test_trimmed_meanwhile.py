"""Stories of a topic whose ledgers were trimmed while its cursor was closed: the source is told the
known layout first, and says of those that are gone that they were trimmed.

The keeper knows 1, 2 and 3; 4 was made and trimmed while nobody listened; the topic has 5 and 6.
"""

from __future__ import annotations

import pytest

from cursorkeeper.core import effects as fx
from cursorkeeper.core import events as ev
from cursorkeeper.core.errors import Refusal
from cursorkeeper.core.limits import Limits
from cursorkeeper.core.positions import Position
from cursorkeeper.core.state import AckState
from cursorkeeper.core.values import LayoutItem, LayoutState
from daemon.tests.support.machine_bench import Bench, Owner
from daemon.tests.support.whole import whole_bench
from daemon.tests.support.world import acks, closed, opened

KNOWN = (closed(1, 10), closed(2, 10), opened(3))
OWN = (closed(5, 4), opened(6))


def trimmed(*ledgers: int) -> tuple[LayoutItem, ...]:
    return tuple(LayoutItem(ledger, LayoutState.TRIMMED, 0) for ledger in ledgers)


def tells(owner: Owner, *run: LayoutItem) -> None:
    owner.seq += 1
    owner.step(ev.SetLayout(owner.attach, owner.seq, owner.machine.generation, run))
    owner.go()


def left(bench: Bench) -> Owner:
    """The first source: acks in each ledger and un-acked entries in each; then it is gone."""
    first = bench.owner("A").open(layout=KNOWN)
    first.send(acks(1, *range(5)), acks(2, 1), acks(3, 0, 7))
    first.go()
    return first


def comes_back(bench: Bench, nonce: str = "B") -> Owner:
    """Without a layout of its own."""
    owner = bench.opened(nonce)
    assert tuple(owner.machine.acks.layout) == KNOWN
    return owner


def check(state: AckState) -> None:
    """What 5 and 6 hold is as it was acked."""
    assert [e for e in range(6) if state.is_acked(5, e)] == [1]
    assert [e for e in range(6) if state.is_acked(6, e)] == [0]


def test_the_first_ledgers_are_gone_and_one_was_never_known() -> None:
    bench = Bench(Limits(inline_state_max_bytes=0))
    left(bench)
    b = comes_back(bench)
    tells(b, *trimmed(1, 2, 3), *OWN)
    b.send(acks(5, 1), acks(6, 0))
    b.go()
    assert b.durable == b.seq
    check(b.machine.acks)
    check(bench.opened("C").machine.acks)
    c = bench.opened("D")
    c.send(acks(5, 0, 2, 3))
    c.go()
    assert c.durable == c.seq
    assert c.machine.acks.mark_delete == Position(6, 0), "it crosses what is gone, and nothing else"


def test_only_the_first_one_is_gone() -> None:
    """Un-acked entries of those that are there stay un-acked, whatever is trimmed before and
    between them.
    """
    bench = Bench()
    left(bench)
    b = comes_back(bench)
    tells(b, *trimmed(1), closed(2, 10), *trimmed(3), *OWN)
    state = bench.opened("C").machine.acks
    assert [e for e in range(10) if state.is_acked(2, e)] == [1]
    assert state.mark_delete < Position(2, 0)


@pytest.mark.parametrize(
    "run",
    [
        OWN,  # touches nothing that is known
        (*trimmed(1), *trimmed(3), *OWN),  # 2 is left out
        (*trimmed(1, 2), *OWN),  # so is 3
    ],
)
def test_a_run_that_may_hide_a_ledger_is_refused(run: tuple[LayoutItem, ...]) -> None:
    bench = Bench()
    left(bench)
    b = comes_back(bench)
    tells(b, *run)
    assert b.refused_handle is not None and b.refused_handle.code is Refusal.LAYOUT_CONTRADICTS
    assert "TRIMMED" in b.refused_handle.remedy
    assert tuple(bench.opened("C").machine.acks.layout) == KNOWN


def test_a_crash_before_the_layout_is_durable_leaves_what_was_known() -> None:
    bench = Bench(Limits(inline_state_max_bytes=0))
    left(bench)
    b = comes_back(bench)
    b.seq += 1
    b.step(ev.SetLayout(b.attach, b.seq, b.machine.generation, (*trimmed(1, 2, 3), *OWN)))
    b.hold(fx.Append)
    assert b.durable < b.seq
    c = comes_back(bench, "C")
    tells(c, *trimmed(1, 2, 3), *OWN)
    c.send(acks(5, 1), acks(6, 0))
    c.go()
    check(bench.opened("D").machine.acks)


def test_who_tells_the_same_at_each_load_is_understood_each_time() -> None:
    bench = Bench()
    left(bench)
    for nonce in "BCD":
        owner = bench.opened(nonce)
        tells(owner, *trimmed(1, 2, 3), *OWN)
        assert owner.refused_handle is None and owner.durable == owner.seq


def test_where_the_layout_is_not_kept_it_begins_with_the_ledger_of_mark_delete() -> None:
    """Pulsar's form: after a recovery nothing is known, and mark-delete crosses only from a ledger
    that was told.
    """
    bench = whole_bench()
    left(bench)
    b = bench.opened("B")
    assert not len(b.machine.acks.layout) and b.machine.acks.mark_delete.ledger == 1
    tells(b, *trimmed(1), *OWN)
    b.send(acks(5, 1), acks(6, 0))
    b.go()
    check(b.machine.acks)
    b.send(acks(5, 0, 2, 3))
    b.go()
    assert b.durable == b.seq and b.machine.acks.mark_delete == Position(6, 0)

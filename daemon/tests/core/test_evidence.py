"""When a source may be told that something is away: by what was sent and is not answered, or has
failed, and by nothing that waits for this daemon's own turn.
"""

from __future__ import annotations

import pytest

from cursorkeeper.core import effects as fx
from cursorkeeper.core import events as ev
from cursorkeeper.core.limits import Limits
from daemon.tests.support.machine_bench import Bench, Owner

AWAY_S = Limits().bookkeeper_away_ms / 1000
BEGAN_S = 100.0


def _at(second: float) -> tuple[Bench, Owner]:
    bench = Bench(Limits(inline_state_max_bytes=0))
    a = bench.opened("A")
    bench.now = BEGAN_S + second
    return bench, a


def test_nothing_that_waits_is_no_evidence() -> None:
    _, a = _at(0)
    assert a.machine.evidence.waited_at_s is None and a.machine.evidence.away_at_s is None


def test_a_request_that_waits_for_its_turn_here_is_no_evidence_until_it_is_sent() -> None:
    bench, a = _at(0)
    a.ack(1)
    creating = a.hold(fx.CreateLedger)
    assert a.machine.evidence.away_at_s == BEGAN_S + AWAY_S
    a.machine.turn.hold(creating.token)
    assert (
        a.machine.evidence.away_at_s is None and a.machine.evidence.waited_at_s == BEGAN_S + AWAY_S
    )
    bench.now = BEGAN_S + 5
    a.step(ev.Sent(creating.token))
    assert a.machine.evidence.away_at_s == BEGAN_S + 5 + AWAY_S, (
        "it was sent five seconds later than the acks came"
    )


def test_what_has_failed_is_evidence_from_then_on_however_often_it_is_tried_again() -> None:
    bench, a = _at(0)
    a.ack(1)
    creating = a.hold(fx.CreateLedger)
    bench.now = BEGAN_S + 5
    a.step(ev.LedgerCreateFailed(creating.token, "no bookies"))
    assert a.machine.evidence.away_at_s == BEGAN_S + 5
    a.todo.clear()
    again = a.hold(fx.CreateLedger)
    assert a.machine.evidence.away_at_s == BEGAN_S + 5, "the second try is not answered yet"
    a.machine.turn.hold(again.token)
    assert a.machine.evidence.away_at_s is None, "nor is it sent"


def test_an_append_that_is_not_answered() -> None:
    bench, a = _at(0)
    a.ack(1)
    a.hold(fx.Append)
    bench.now = BEGAN_S + 1
    a.ack(2)
    a.hold(fx.Append)
    assert a.machine.evidence.away_at_s == BEGAN_S + AWAY_S, "the oldest one counts"


@pytest.mark.parametrize("is_lost", [False, True])
def test_a_footer_write(is_lost: bool) -> None:
    """Sent and not answered for so long; an answer that was lost says it at once."""
    bench, a = _at(0)
    a.ack(1)
    naming = a.hold(fx.WriteFooter)
    a.go(lambda: not a.machine.writer.in_flight)
    a.machine.turn.hold(naming.token)
    assert a.machine.evidence.away_at_s is None
    bench.now = BEGAN_S + 5
    a.step(ev.Sent(naming.token))
    assert a.machine.evidence.away_at_s == BEGAN_S + 5 + AWAY_S
    if is_lost:
        a.unknown(naming)
        assert a.machine.evidence.away_at_s == BEGAN_S + 5


def test_a_chain_at_its_hard_limit_is_evidence_only_while_no_snapshot_is_under_way() -> None:
    bench, a = _at(0)
    a.machine.turn.limits = Limits(
        chain_ledgers_max=1, chain_ledgers_hard_max=2, snapshot_interval_min_s=50.0
    )
    for entry in (1, 2):
        a.ack(entry)
        a.go()
        a.step(ev.Roll())
        a.go(horizon_s=1.0)
    assert len(bench.chain) == 2
    began = bench.now
    a.ack(3)
    a.go(lambda: not a.todo)
    assert a.machine.snapshots.run is None and a.machine.evidence.away_at_s == began + AWAY_S
    a.snapshot()
    creating = a.hold(fx.CreateLedger)
    a.machine.turn.hold(creating.token)
    assert a.machine.snapshots.run is not None and a.machine.evidence.away_at_s is None, (
        "it waits for its turn"
    )

"""Random stories of owners that may leave acks out: whatever a crash loses of what was confirmed,
the footer had said.

The simulator's daemons never truncate, because its checker would have to forgive what is lost. Here
the rule is this one: a next owner that misses a confirmed ack read a footer with the note; nothing
is acked that was never sent; nothing stalls.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from cursorkeeper.core import effects as fx
from cursorkeeper.core import events as ev
from cursorkeeper.core.limits import Limits
from cursorkeeper.core.table import LIVE
from daemon.tests.support.machine_bench import DATA, Bench, Owner
from daemon.tests.support.whole import whole_bench

FAST, ALL = 100, 3_000
LOST_OR_LATE = (fx.Append, fx.WriteFooter)


def next_owner(bench: Bench, nonce: str, *, native: bool) -> Owner:
    """It is told of everything that it misses."""
    noted = bench.znode is not None and bench.footer.truncated is not None
    writer = bench.state_writer
    bench.state_writer = None if native else writer
    owner = bench.owner(nonce).start()
    bench.state_writer = writer
    owner.go(lambda: owner.streamed == 1 or owner.machine.is_ended)
    assert owner.streamed == 1, owner.refused
    state = owner.machine.acks
    lost = {ack for ack in bench.confirmed if not state.is_acked(*ack)}
    assert noted or not lost, f"confirmed, lost, and no footer said so: {sorted(lost)}"
    bench.confirmed -= lost
    found = {(ledger, entry) for ledger in state.ledgers for entry in state.acked_of(ledger)}
    assert found <= bench.sent, f"acked by nobody: {sorted(found - bench.sent)}"
    return owner


def _ack(owner: Owner, rng: random.Random) -> None:
    owner.ack(*rng.sample(range(1, 20), rng.randrange(1, 4)), ledger=rng.choice((DATA, DATA + 3)))


def _lose(owner: Owner, rng: random.Random) -> None:
    """An answer, or the request with it. Of the appends the first: a ledger's answers come in
    order.
    """
    waiting = [e for e in owner.todo if isinstance(e, LOST_OR_LATE)]
    if waiting:
        lost = rng.choice([next(e for e in waiting if isinstance(e, type(one))) for one in waiting])
        owner.todo.remove(lost)
        (owner.applied_but_unknown if rng.random() < 0.7 else owner.unknown)(lost)


def _a_little(owner: Owner, rng: random.Random) -> None:
    for _ in range(rng.randrange(1, 5)):
        if owner.todo:
            owner.do(owner.todo.popleft())
        elif (at := owner.wake_at_s) is not None and not owner.machine.is_ended:
            owner.bench.now = max(owner.bench.now, at)
            owner.step(ev.Tick(64))


def _properties(owner: Owner, rng: random.Random) -> None:
    owner.seq += 1
    owner.step(ev.SetProperties(1, owner.seq, owner.machine.generation, {"n": str(rng.random())}))


DEEDS: dict[Callable[[Owner, random.Random], None], float] = {
    _ack: 8,
    _a_little: 10,
    _lose: 3,
    _properties: 0.5,
    lambda owner, _rng: owner.step(ev.Roll()): 1,
    lambda owner, _rng: owner.go(): 1,
    lambda owner, _rng: owner.step(ev.Close()): 0.5,
}


def tell(seed: int) -> int:
    """One story; returns how many truncated states were sent."""
    rng = random.Random(seed)
    limits = Limits(
        appends_in_flight_max=rng.choice((2, 4)),
        whole_state_interval_ms=rng.choice((1, 100)),
        inline_state_max_bytes=rng.choice((0, 0, 32 << 10)),
        ledger_bytes_max=rng.choice((300, 1 << 20)),
    )
    bench = whole_bench(limits, ranges_max=rng.choice((1, 2, 4)), truncate=True)
    native_chance, truncated = rng.choice((0.0, 0.0, 0.3)), 0
    for life in range(rng.randrange(2, 6)):
        bench.keep_tail = rng.random() < 0.7
        owner = next_owner(bench, f"owner {life}", native=rng.random() < native_chance)
        for _ in range(rng.randrange(1, 30)):
            deed = rng.choices([*DEEDS], [*DEEDS.values()])[0]
            if owner.state in LIVE or deed in (_a_little, _lose):
                deed(owner, rng)
            if owner.machine.is_ended:
                break
        if rng.random() < 0.3:
            owner.go()
            assert owner.durable == owner.seq, (
                f"a stall: {owner.state}, waits for {owner.machine.waiting_for!r}"
            )
        truncated += owner.machine.counters.truncated_flushes
    return truncated


def tell_all(seeds: range) -> None:
    truncated = 0
    for seed in seeds:
        try:
            truncated += tell(seed)
        except AssertionError as e:
            pytest.fail(f"seed {seed}: {e}", pytrace=False)
    assert truncated > len(seeds), "the stories do not come to the limit"


def test_what_a_truncated_state_loses_was_said_before() -> None:
    tell_all(range(1, FAST + 1))


@pytest.mark.slow
def test_what_a_truncated_state_loses_was_said_before_in_thousands_of_stories() -> None:
    tell_all(range(FAST + 1, ALL + 1))

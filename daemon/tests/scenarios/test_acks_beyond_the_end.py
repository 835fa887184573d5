"""Stories of acks of entries that their ledger turns out not to have when it is closed: a client
acked what was never written, or the ledger was recovered shorter. Nobody could tell while it was
open, and what was confirmed stays.
"""

from __future__ import annotations

import pytest

from cursorkeeper.core.limits import Limits
from cursorkeeper.core.positions import Position
from daemon.tests.support.machine_bench import Bench, Owner
from daemon.tests.support.world import acks, closed, opened

THEN = (opened(1),)
NOW = (closed(1, 7), opened(2))


def poisoned(limits: Limits | None = None) -> Bench:
    bench = Bench(limits) if limits else Bench()
    first = bench.owner("A").open(layout=THEN)
    first.send(acks(1, 0, 1, 5, 1_000))
    first.go()
    assert first.durable == first.seq
    return bench


def goes_on(owner: Owner) -> None:
    assert owner.refused_handle is None
    assert owner.machine.counters.acks_beyond_end == 1
    owner.send(acks(2, 0), acks(1, 2, 3, 4))
    owner.go()
    assert owner.durable == owner.seq
    assert owner.machine.acks.mark_delete == Position(1, 5), (
        "what exists and was not acked holds mark-delete"
    )
    owner.send(acks(1, 6))
    owner.go()
    assert owner.durable == owner.seq
    assert owner.machine.acks.mark_delete == Position(2, 0), "what does not exist does not"


@pytest.mark.parametrize("limits", [None, Limits(inline_state_max_bytes=0)])
def test_the_next_owner_is_told_the_count(limits: Limits | None) -> None:
    bench = poisoned(limits)
    goes_on(bench.owner("B").open(layout=NOW))
    after = bench.opened("C").machine
    assert after.acks.mark_delete == Position(2, 0) and after.counters.acks_beyond_end == 0


def test_the_count_is_told_twice() -> None:
    bench = poisoned()
    owner = bench.owner("B").open(layout=NOW)
    again = bench.owner("C").open(layout=NOW)
    assert owner.refused_handle is None and again.refused_handle is None
    assert again.machine.acks.acked_of(1).to_array().tolist() == [0, 1, 5, 1_000]

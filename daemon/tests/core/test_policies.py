"""When to flush and when to snapshot: numbers in, an answer out."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from cursorkeeper.core.flush_policy import flush_at
from cursorkeeper.core.limits import Limits
from cursorkeeper.core.snapshot_policy import ReplayCost, snapshot_reason

LIMITS = Limits()


def at(
    acks: int = 5,
    size: int = 100,
    oldest: float | None = 100.0,
    in_flight: int = 0,
    *,
    urgent: bool = False,
    at_once: bool = False,
    limits: Limits = LIMITS,
) -> float | None:
    return flush_at(
        limits,
        pending_acks=acks,
        pending_bytes=size,
        oldest_s=oldest,
        in_flight=in_flight,
        urgent=urgent,
        at_once=at_once,
    )


@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        (partial(at, oldest=None), None),  # nothing waits
        (partial(at), 100.010),  # few acks: the interval is the longest wait
        # worth its header, nothing in flight: cut the interval short
        (partial(at, acks=10), 100.001),
        (partial(at, acks=9), 100.010),
        (partial(at, acks=10, in_flight=1), 100.010),  # something in flight: the batch grows
        # a full window waits for an answer, not for a time
        (partial(at, in_flight=4, acks=1_000_000), None),
        (partial(at, acks=65_536, in_flight=3), 100.0),
        (partial(at, size=512 * 1024, in_flight=3), 100.0),
        (partial(at, urgent=True), 100.0),
        (partial(at, urgent=True, in_flight=4), None),
        (partial(at, acks=10, limits=Limits(flush_interval_ms=0)), 100.0),
        (partial(at, acks=1, at_once=True), 100.0),  # the daemon has nothing else to do
        (partial(at, acks=1, at_once=True, in_flight=1), 100.010),
        (partial(at, oldest=None, at_once=True), None),
    ],
)
def test_decision_18_when_to_flush(asked: Callable[[], float | None], answer: float | None) -> None:
    found = asked()
    assert found == pytest.approx(answer) if answer is not None else found is None


def reason(
    cost: ReplayCost, *, chain: int = 1, now: float = 1_000.0, jitter: float = 0.0
) -> str | None:
    return snapshot_reason(LIMITS, cost, chain_ledgers=chain, now_s=now, jitter=jitter)


MIB = 1 << 20


@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        (partial(reason, ReplayCost()), None),
        (partial(reason, ReplayCost(delta_bytes=MIB - 1, records=1)), None),
        (partial(reason, ReplayCost(delta_bytes=MIB, records=1)), "cost"),
        # 1.0 x the snapshot's bytes
        (partial(reason, ReplayCost(delta_bytes=MIB, records=1, snapshot_bytes=MIB + 1)), None),
        (
            partial(reason, ReplayCost(delta_bytes=5 * MIB, records=1, snapshot_bytes=5 * MIB)),
            "cost",
        ),
        (partial(reason, ReplayCost(delta_bytes=MIB, records=1), jitter=0.1), None),  # jitter: 10 %
        (partial(reason, ReplayCost(delta_bytes=950_000, records=1), jitter=-0.1), "cost"),
        (partial(reason, ReplayCost(records=2_500_000)), "replay"),  # 0.8 us each: two seconds
        (partial(reason, ReplayCost(records=2_499_000)), None),
        (partial(reason, ReplayCost(records=1, acks=25_000_000)), "replay"),  # 80 ns each
        (partial(reason, ReplayCost(), chain=32), "chain"),
        (partial(reason, ReplayCost(), chain=31), None),
        (partial(reason, ReplayCost(records=1), now=86_400.0), "age"),
        (partial(reason, ReplayCost(records=0), now=1e9), None),  # nothing to put into it
        # at least a second apart
        (partial(reason, ReplayCost(delta_bytes=MIB, records=1, snapshot_at_s=999.5)), None),
        (partial(reason, ReplayCost(snapshot_at_s=999.5), chain=64), None),
    ],
)
def test_when_to_snapshot(asked: Callable[[], str | None], answer: str | None) -> None:
    assert asked() == answer


def test_cost_adds_up() -> None:
    cost = ReplayCost()
    cost.add(100, 7)
    cost.add(50, 3)
    assert (cost.delta_bytes, cost.records, cost.acks) == (150, 2, 10)
    assert cost.replay_estimate_s == pytest.approx(2 * 0.8e-6 + 10 * 80e-9)

"""R13, R19, R20: when something is written, how much of it, and how large one entry may become.

On the machine bench: real records, and a clock that the test moves.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import generate_latest
from pyroaring import BitMap

from cursorkeeper.core import bitmaps, sizes
from cursorkeeper.core import effects as fx
from cursorkeeper.core.batch import LedgerColumns
from cursorkeeper.core.limits import KIB, MIB, Limits
from cursorkeeper.core.positions import Position
from cursorkeeper.core.snapshot_plan import CONTAINER, SnapshotPlan
from cursorkeeper.core.state import AckState
from cursorkeeper.core.values import Delta, Record, RecordBody, Segment, SnapshotEnd
from cursorkeeper.format import record
from cursorkeeper.format.codec import Codec
from cursorkeeper.format.record import EncodeSettings
from cursorkeeper.telemetry.metrics import DaemonTelemetry
from daemon.tests.runtime.virtual import virtual
from daemon.tests.support.machine_bench import DATA, Bench, Owner
from daemon.tests.support.world import Source, World, acks, ranges

FULL_STATE_BYTES_MIN = 10_000


def bodies(owner: Owner, kind: type[RecordBody]) -> list[Record]:
    return [e.record for e in owner.did(fx.Append) if isinstance(e.record.body, kind)]


def deltas(owner: Owner) -> list[Delta]:
    return [e.record.body for e in owner.did(fx.Append) if isinstance(e.record.body, Delta)]


def started(**limits: int) -> Owner:
    """With a named ledger, so that only acks cost records from now on."""
    owner = Bench(Limits(**limits)).opened("A")
    owner.ack(1)
    owner.go()
    return owner


# ---- R13: regularly, not per ack; the window is known and published; a confirmation says durable


@pytest.mark.parametrize("interval_ms", [1, 10, 250, 1000])
def test_r13_the_window_is_the_flush_interval(interval_ms: int) -> None:
    """A lone ack waits exactly so long before it is sent, and is confirmed only when it is
    durable.
    """
    owner = started(flush_interval_ms=interval_ms)
    began, before = owner.bench.now, len(deltas(owner))
    seq = owner.ack(5)
    append = owner.hold(fx.Append)
    assert len(deltas(owner)) == before + 1
    assert owner.bench.now - began == pytest.approx(interval_ms / 1000)
    assert owner.durable < seq, "sent is not durable"
    owner.do(append)
    assert owner.durable == seq


@pytest.mark.parametrize(("interval_ms", "records_max"), [(10, 110), (100, 30)])
def test_r13_records_follow_time_and_not_acks(interval_ms: int, records_max: int) -> None:
    """4,000 acks of one message each in 100 ms, while an append takes 5 ms."""
    owner = started(flush_interval_ms=interval_ms, flush_acks_min=1_000)
    before, unanswered = len(deltas(owner)), list[tuple[float, fx.Append]]()
    began = owner.bench.now
    for number in range(4_000):
        owner.bench.now = began + number / 40_000
        owner.ack(3 + 2 * number)
        if owner.wake_at_s is not None and owner.wake_at_s <= owner.bench.now:
            owner.go_a_little()
        unanswered += [(owner.bench.now + 0.005, e) for e in owner.todo if isinstance(e, fx.Append)]
        owner.todo.clear()
        while unanswered and unanswered[0][0] <= owner.bench.now:
            owner.do(unanswered.pop(0)[1])
    for _, append in unanswered:
        owner.do(append)
    owner.go()
    assert owner.durable == owner.seq == 4_001
    assert 0.1 / (interval_ms / 1000) - 1 <= len(deltas(owner)) - before <= records_max


def test_r13_nothing_is_confirmed_before_its_ledger_is_named() -> None:
    """Durable = acknowledged by the quorum in a ledger that the committed footer leads to."""
    owner = Bench().opened("A")
    seq = owner.ack(1)
    naming = owner.hold(fx.WriteFooter)
    owner.go(horizon_s=1.0)
    assert deltas(owner) and not owner.todo, "sent and acknowledged"
    assert owner.durable < seq
    owner.do(naming)
    owner.go()
    assert owner.durable == seq


@virtual
async def test_r13_the_window_is_published() -> None:
    """As metrics: the interval, and how long the oldest message waits now."""
    world = World(limits=Limits(flush_interval_ms=250))
    source = Source(await world.keeper())
    await source.open()
    telemetry = DaemonTelemetry()
    telemetry.watch(source.keeper)

    def metric(name: str) -> float:
        lines = generate_latest(telemetry.registry).decode().splitlines()
        return float(next(line for line in lines if line.startswith(name + " ")).split()[1])

    assert metric("cursorkeeper_flush_interval_seconds") == 0.25
    assert metric("cursorkeeper_oldest_unconfirmed_seconds") == 0
    world.bookkeeper.stall_acks()
    source.ack(acks(DATA, 1))
    began = source.keeper._services.clock()
    await source.told.until(lambda: bool(source.told.pauses))
    assert metric("cursorkeeper_oldest_unconfirmed_seconds") == pytest.approx(
        source.keeper._services.clock() - began
    )
    world.bookkeeper.stall_acks(False)
    await source.durable()
    assert metric("cursorkeeper_oldest_unconfirmed_seconds") == 0


# ---- R19: only changed parts are appended


def holes_in(ledgers: range) -> Owner:
    """A backlog with holes in every ledger, all of it durable."""
    owner = started(snapshot_bytes_min=1 << 40)
    for ledger in ledgers:
        even = 2 * np.flatnonzero(np.random.default_rng(ledger).random(2_500) < 0.3).astype(
            np.uint32
        )
        owner.send(LedgerColumns(ledger, BitMap(even)))
    owner.go()
    return owner


@pytest.mark.parametrize("ledgers", [1, 30, 300])
def test_r19_a_flush_costs_what_changed_whatever_the_backlog(ledgers: int) -> None:
    owner = holes_in(range(1_000 - ledgers, 1_000))
    state_bytes = sum(len(record.encode(r)) for r in bodies(owner, Delta))
    before = len(deltas(owner))
    owner.ack(*range(1, 1_400, 14), ledger=999)
    owner.go()
    (new,) = bodies(owner, Delta)[before:]
    assert len(record.encode(new)) == 63, (
        "the same bytes for the same change, be there one ledger or 300"
    )
    assert ledgers < 300 or state_bytes > FULL_STATE_BYTES_MIN


ACKED = st.lists(
    st.tuples(st.sampled_from([DATA, 17, 23]), st.integers(0, 60), st.integers(0, 12)),
    min_size=1,
    max_size=5,
)


@given(st.lists(ACKED, min_size=1, max_size=25))
@settings(max_examples=100, deadline=None)
def test_r19_no_ack_is_written_twice(history: list[list[tuple[int, int, int]]]) -> None:
    """Repeats and overlaps in any order: over all deltas every acked entry appears once."""
    owner = started()
    written: set[tuple[int, int]] = set()
    for batch in history:
        owner.send(*(ranges(ledger, (first, first + more)) for ledger, first, more in batch))
        owner.go()
    for delta in deltas(owner):
        found = {(ledger, entry) for ledger, entries in delta.acks.items() for entry in entries}
        assert not found & written
        written |= found
    assert len(written) == sum(
        map(len, (d for delta in deltas(owner) for d in delta.acks.values()))
    )
    assert owner.durable == owner.seq


def test_r19_snapshots_cost_no_more_than_the_deltas_between_them() -> None:
    """The one thing that is written again is paid for: the next one waits until the deltas have
    cost as much as the last.
    """
    rng = np.random.default_rng(19)
    owner = started(snapshot_bytes_min=4_000, snapshot_interval_min_s=0)
    flushes = 400
    for _ in range(flushes):
        owner.send(LedgerColumns(DATA, BitMap(rng.integers(0, 2_000_000, 300).astype(np.uint32))))
        owner.go()
    delta_bytes = sum(len(record.encode(r)) for r in bodies(owner, Delta))
    snapshots = [
        r.body.length for r in bodies(owner, SnapshotEnd) if isinstance(r.body, SnapshotEnd)
    ]
    assert len(snapshots) > 5
    assert sum(snapshots[:-1]) <= delta_bytes
    whole_states = sum(snapshots) / len(snapshots) * flushes
    assert delta_bytes + sum(snapshots) < whole_states / 15, (
        "against the whole state with every flush"
    )


# ---- R20: an entry holds a bounded range, by worst-case bounds


@pytest.mark.parametrize(
    ("max_entry_bytes", "entries"), [(64 * KIB, 458_752), (256 * KIB, 2_031_616), (MIB, 8_323_072)]
)
def test_r20_the_range_of_an_entry_follows_from_the_worst_case(
    max_entry_bytes: int, entries: int
) -> None:
    containers = sizes.containers_per_segment(max_entry_bytes)
    assert containers * CONTAINER == entries
    room = sizes.record_body_bytes_max(max_entry_bytes)
    assert (
        sizes.slice_bytes_max(0, entries - 1)
        <= room
        < sizes.slice_bytes_max(0, entries + CONTAINER - 1) + 30
    )


def acked_in(kind: str, entries: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    if kind == "random half":  # the worst there is for every set of 65,536
        return np.flatnonzero(rng.random(entries) < 0.5)
    if kind == "every other":
        return np.arange(seed % 2, entries, 2)
    if kind == "few holes":
        return np.flatnonzero(rng.random(entries) < 0.999)
    return np.flatnonzero(np.repeat(rng.random(entries // 17 + 1) < 0.5, 17)[:entries])  # runs


@given(
    st.sampled_from([64 * KIB, 100_000, 256 * KIB]),
    st.lists(
        st.tuples(
            st.sampled_from(["random half", "every other", "few holes", "runs"]),
            st.integers(1, 1_500_000),
        ),
        min_size=1,
        max_size=4,
    ),
    st.integers(0, 1 << 20),
)
@settings(max_examples=25, deadline=None)
def test_r20_every_entry_of_a_snapshot_is_bounded(
    max_entry_bytes: int, ledgers: list[tuple[str, int]], seed: int
) -> None:
    """Uncompressed, whatever the bitmaps hold; and the ranges are all there, once, in order."""
    state = AckState(Position(1, -1))
    for at, (kind, entries) in enumerate(ledgers):
        mine = state.ledgers.own(at + 1)
        mine.ack(bitmaps.from_sorted(acked_in(kind, entries, seed).astype(np.uint32)))
    plan, parts = SnapshotPlan(state, max_entry_bytes - sizes.RECORD_HEADER_BYTES), list[Segment]()
    while not plan.is_done:
        parts.append(plan.take(state))
        data = record.encode(
            Record(0, 1, 1, 1, parts[-1]), EncodeSettings(max_entry_bytes, Codec.NONE)
        )
        assert len(data) <= max_entry_bytes
    widest = sizes.containers_per_segment(max_entry_bytes) * CONTAINER
    slices = [s for part in parts for s in part.slices]
    assert all(s.last - s.first < widest for s in slices)
    for ledger, mine in state.ledgers.items():
        edges = [(s.first, s.last) for s in slices if s.ledger == ledger]
        assert [first for first, _ in edges] == [0, *(last + 1 for _, last in edges[:-1])][
            : len(edges)
        ]
        assert (edges[-1][1] + 1 if edges else 0) == mine.high_water


def test_r20_a_flush_that_is_too_large_for_an_entry_becomes_several() -> None:
    """A random half of 1.5 M entries at once, with entries of 64 KiB; every part is durable before
    the one confirmation.
    """
    owner = Bench(Limits(max_entry_bytes=64 * KIB)).opened("A")
    half = acked_in("random half", 1_500_000, 20).astype(np.uint32)
    seq = owner.send(LedgerColumns(DATA, BitMap(half)))
    owner.go()
    assert owner.durable == seq
    parts = bodies(owner, Delta)
    assert len(parts) >= 3
    assert all(
        len(record.encode(part, EncodeSettings(64 * KIB, Codec.NONE))) <= 64 * KIB for part in parts
    )
    recovered = owner.bench.opened("B").machine.acks
    assert recovered.acked_of(DATA) == bitmaps.from_sorted(half)

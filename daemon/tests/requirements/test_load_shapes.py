"""R14: the four loads of PIP-299, with small numbers on the core: nothing acked is lost, nothing
else is skipped.

The benchmark `load_shapes` runs the same generators with large numbers on the real stack.
"""

from __future__ import annotations

import pytest
from pyroaring import BitMap

from bench.load_shapes import Batch, Shape, shapes
from cursorkeeper.core import effects as fx
from cursorkeeper.core import events as ev
from cursorkeeper.core.batch import AckBatch, LedgerColumns
from cursorkeeper.core.limits import Limits
from cursorkeeper.core.positions import Position
from cursorkeeper.core.state import AckState
from cursorkeeper.core.values import Delta
from daemon.tests.support.machine_bench import Bench, Owner
from daemon.tests.support.world import closed

SMALL = shapes(0.002)
SNAPSHOTS = Limits(snapshot_bytes_min=2_000, snapshot_interval_min_s=0.0)


def send(owner: Owner, batch: Batch) -> None:
    owner.seq += 1
    columns = tuple(
        LedgerColumns(ledger, BitMap(entries)) for ledger, entries in batch.columns.items()
    )
    mark_delete = Position(*batch.mark_delete) if batch.mark_delete else None
    owner.step(
        ev.Acks(
            owner.attach,
            AckBatch(owner.seq, 1, mark_delete, columns, batch.properties, 100, batch.acks),
        )
    )
    assert owner.refused_handle is None, owner.refused_handle


def acked_in(state: AckState, ledger: int, entries: int) -> BitMap:
    return BitMap(e for e in range(entries) if state.is_acked(ledger, e))


@pytest.mark.parametrize("shape", SMALL, ids=lambda shape: shape.name.split(":")[0])
def test_r14_nothing_is_lost_and_nothing_is_skipped(shape: Shape) -> None:
    """Sent in its order, with snapshots on the way and a crash of the owner in the middle and at
    the end.
    """
    layout = tuple(closed(*item) for item in shape.layout())
    bench = Bench(SNAPSHOTS)
    bench.keep_tail = False
    owner = bench.owner("A").open(layout=layout)
    batches = list(shape.batches())
    for at, batch in enumerate(batches):
        send(owner, batch)
        if at % 3 == 0:
            owner.go()
        if at == len(batches) // 2:
            owner.go()
            owner = bench.owner("B").open(layout=())
    owner.go()
    assert owner.durable == owner.seq
    recovered = bench.owner("C").open().machine.acks
    truth = shape.acked()
    for ledger, entries in shape.layout():
        assert acked_in(recovered, ledger, entries) == truth.get(ledger, BitMap()), ledger
    properties = recovered.mark_delete_properties
    assert (dict(properties.values) if properties else {}) == shape.properties()


@pytest.mark.parametrize("shape", SMALL[:3], ids=lambda shape: shape.name.split(":")[0])
def test_r14_the_shapes_pile_up_holes(shape: Shape) -> None:
    """Each entry is acked once at most, out of order; mark-delete cannot move; holes are left in
    most ledgers.
    """
    keys = [
        (ledger, int(e))
        for batch in shape.batches()
        for ledger, entries in batch.columns.items()
        for e in entries
    ]
    assert len(keys) == len(set(keys)) == sum(map(len, shape.acked().values()))
    assert keys != sorted(keys)
    first = shape.layout()[0][0]
    assert (first, 0) not in set(keys)
    holes = [entries - len(shape.acked().get(ledger, ())) for ledger, entries in shape.layout()]
    assert sum(map(bool, holes)) > 0.7 * len(holes) and sum(holes) > shape.entries / 100


def test_r14_a_deduplication_cursor_carries_every_producer() -> None:
    shape = SMALL[3]
    assert len(shape.properties()) == shape.producers
    assert sum(shape.properties().values()) == shape.entries - shape.producers, (
        "every entry is somebody's next one"
    )
    owner = Bench().owner("A").open(layout=tuple(closed(*item) for item in shape.layout()))
    for batch in shape.batches():
        send(owner, batch)
        owner.go()
    written = [e.record.body for e in owner.did(fx.Append) if isinstance(e.record.body, Delta)]
    assert all(d.mark_delete_properties is not None and d.mark_delete is not None for d in written)

"""R9, R11, R12, R25 in the native format: no cap on what is persisted, a pause when it cannot be,
the footer only as a backstop, and sequence ids of more producers than a record holds.

`format=pulsar`, where Pulsar's own limits count, has its tests under the same names.
"""

from __future__ import annotations

import asyncio

import numpy as np
from pyroaring import BitMap

from cursorkeeper.core import events as ev
from cursorkeeper.core.batch import AckBatch, LedgerColumns
from cursorkeeper.core.footer import Footer, InlineBase
from cursorkeeper.core.limits import Limits
from cursorkeeper.core.positions import Position
from cursorkeeper.core.table import State
from cursorkeeper.core.values import Partial
from cursorkeeper.format import footer as footer_bytes
from daemon.tests.runtime.virtual import virtual
from daemon.tests.support.machine_bench import Bench
from daemon.tests.support.world import NAME, Source, World, acks

LEDGERS = range(10, 16)
RANGES_PER_LEDGER = 50_000
PARTIALS = 12_000


def test_r09_no_number_of_ranges_is_a_limit() -> None:
    """300,000 ranges of one entry and 12,000 half-acked batches: more than any cap of any Pulsar
    release. All of it survives.
    """
    bench = Bench()
    bench.keep_tail = False
    owner = bench.opened("A")
    odd = np.arange(1, 2 * RANGES_PER_LEDGER, 2, dtype=np.uint32)
    for ledger in LEDGERS:
        owner.send(LedgerColumns(ledger, BitMap(odd)))
    halves = tuple((2 * n, Partial(4, BitMap([1, n % 2 * 2]))) for n in range(PARTIALS))
    owner.seq += 1
    owner.step(
        ev.Acks(
            1,
            AckBatch(
                owner.seq, 1, None, (LedgerColumns(10, partials=halves),), None, 100, PARTIALS
            ),
        )
    )
    owner.go()
    assert owner.durable == owner.seq and owner.refused_handle is None
    recovered = bench.opened("B").machine.acks
    for ledger in LEDGERS:
        assert recovered.acked_of(ledger) == BitMap(odd)
    assert {k.entry: set(p.missing) for k, p in recovered.iter_partials()} == {
        e: set(p.missing) for e, p in halves
    }


def footer(world: World) -> Footer:
    return footer_bytes.decode(world.zookeeper.tree.get(NAME.path()).data, NAME)


async def opened(world: World) -> Source:
    made = Source(await world.keeper())
    await made.open()
    made.ack(acks(10, 1))
    await made.durable()
    return made


@virtual
async def test_r11_a_source_is_told_to_pause_while_acks_cannot_be_persisted() -> None:
    """One signal for the whole cursor, so for delayed messages and redeliveries too; what was
    accepted is kept meanwhile.
    """
    world = World(limits=Limits(inline_state_max_bytes=0))
    made = await opened(world)
    world.bookkeeper.bookies_up = 0
    before = asyncio.get_running_loop().time()
    made.ack(acks(10, 5))
    await made.told.until(lambda: bool(made.told.pauses))
    waited = asyncio.get_running_loop().time() - before
    assert Limits().bookkeeper_away_ms / 1000 <= waited < Limits().bookkeeper_away_ms / 1000 + 1
    assert made.machine.state is State.NOT_PERSISTABLE
    late = made.ack(acks(10, 7))
    await asyncio.sleep(30)
    assert made.told.durable < late and made.told.resumes == 0, "a pause is no confirmation"
    world.bookkeeper.bookies_up = 3
    await made.durable(late)
    assert (len(made.told.pauses), made.told.resumes) == (1, 1)


@virtual
async def test_r12_the_metadata_store_is_only_a_backstop_for_small_states() -> None:
    world = World(limits=Limits(inline_state_max_bytes=2_000))
    made = await opened(world)
    for entry in range(3, 400, 7):
        made.ack(acks(10, entry))
        await made.durable()
    assert not isinstance(footer(world).base, InlineBase), (
        "BookKeeper first: no ack is in the footer"
    )

    world.bookkeeper.bookies_up = 0
    await made.durable(made.ack(acks(10, 500)))
    assert isinstance(footer(world).base, InlineBase), "small enough: confirmed from the footer"
    assert made.machine.counters.inline_backstops == 1

    seq = made.ack(
        LedgerColumns(
            10,
            BitMap(
                np.random.default_rng(12).choice(200_000, 5_000, replace=False).astype(np.uint32)
            ),
        )
    )
    await asyncio.sleep(30)
    assert made.told.durable < seq and made.machine.state is State.NOT_PERSISTABLE, (
        "too large: nothing is cut to fit"
    )
    assert made.machine.counters.inline_backstops == 1
    world.bookkeeper.bookies_up = 3
    await made.durable(seq)


def test_r25_too_many_producers_are_refused_with_the_numbers_and_nothing_else_is_lost() -> None:
    """Their overflow is a non-goal: the one message is refused whole, and what was confirmed before
    it stays.
    """
    bench = Bench()
    owner = bench.opened("A")

    def deduplicated(producers: int, mark_delete: int) -> None:
        owner.seq += 1
        properties = {f"producer-{n:06}": n for n in range(producers)}
        owner.step(
            ev.Acks(1, AckBatch(owner.seq, 1, Position(10, mark_delete), (), properties, 100, 1))
        )
        owner.go()

    deduplicated(10_000, 999)
    assert owner.durable == 1 and owner.refused_handle is None
    deduplicated(14_000, 1_999)
    assert owner.durable == 1 and owner.refused_handle is not None
    assert owner.refused_handle.code == "TOO_LARGE"
    assert "378000" in owner.refused_handle.message and "376832" in owner.refused_handle.message
    recovered = bench.opened("B").machine.acks
    assert recovered.mark_delete == Position(10, 999)
    assert recovered.mark_delete_properties is not None
    assert dict(recovered.mark_delete_properties.values) == {
        f"producer-{n:06}": n for n in range(10_000)
    }

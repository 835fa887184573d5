"""Bytes that something else put into the footer's znode: an older copy, say. Nothing is concluded
from them, nothing is deleted.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace

import pytest

from cursorkeeper.core import effects as fx
from cursorkeeper.core import events as ev
from cursorkeeper.core.footer import FooterState
from cursorkeeper.core.limits import Limits
from cursorkeeper.core.positions import Position
from cursorkeeper.core.table import State
from cursorkeeper.format import footer as footer_bytes
from daemon.tests.runtime.virtual import virtual
from daemon.tests.support.machine_bench import Bench
from daemon.tests.support.world import NAME, Source, World, acks

DATA = 10
NO_INLINE = Limits(inline_state_max_bytes=0)


def put_back(bench: Bench, data: bytes) -> None:
    assert bench.znode is not None
    bench.znode = (data, bench.znode[1] + 1)


def older_copy(bench: Bench) -> bytes:
    """Of a footer that a later owner has left behind; everything that was confirmed since is
    missing from it.
    """
    a = bench.opened("A")
    a.ack(1)
    a.go()
    assert bench.znode is not None
    copy = bench.znode[0]
    b = bench.opened("B")
    b.ack(2)
    b.go()
    b.step(ev.Close())
    b.go()
    return copy


def test_an_older_copy_is_refused_by_name() -> None:
    bench = Bench(NO_INLINE)
    latest_is_in, copy = set(bench.ledgers), older_copy(bench)
    latest, version = bench.znode or (b"", 0)
    put_back(bench, copy)
    ledgers = set(bench.ledgers)
    c = bench.opened("C")
    assert (
        c.state is State.REFUSED and c.refused is not None and c.refused.code == "FOOTER_REPLACED"
    )
    assert (
        "its znode has version" in c.refused.message
        and "restore-footer" in c.refused.remedy
        and "*latest*" in c.refused.remedy
    )
    assert bench.znode == (copy, version + 1) and set(bench.ledgers) == ledgers > latest_is_in
    # the latest bytes, put back as a write of ours would
    put_back(bench, footer_bytes.encode(footer_bytes.decode(latest, NAME).written_at(version + 2)))
    bench.ask()


@pytest.mark.parametrize("how", ["poll", "write"])
def test_an_owner_stops_and_tells_what_it_had_committed(how: str) -> None:
    """Its footer is needed to go on, and may be nowhere else."""
    bench = Bench(NO_INLINE)
    copy = older_copy(bench)
    c = bench.opened("C")
    c.ack(3)
    c.go()
    committed, deleted = bench.footer, set(bench.deleted)
    put_back(bench, copy)
    c.step(
        ev.FooterChanged()
        if how == "poll"
        else ev.Reset(1, 9, c.machine.generation, Position(DATA, 1))
    )
    c.go()
    assert (
        c.state is State.REFUSED and c.refused is not None and c.refused.code == "FOOTER_REPLACED"
    )
    assert [kept.footer for kept in c.did(fx.KeepFooter)] == [committed]
    assert bench.deleted == deleted


def test_a_footer_of_a_release_that_does_not_say_its_version_is_taken() -> None:
    """And of one that copies the member, as 0.1.0 does: it is of another write then."""
    bench = Bench(NO_INLINE)
    older_copy(bench)
    assert bench.znode is not None
    members = json.loads(bench.znode[0])
    known = footer_bytes.decode(bench.znode[0], NAME)
    assert members["znode"] == {
        "version": bench.znode[1],
        "epoch": known.epoch,
        "write": known.write,
    }
    put_back(bench, footer_bytes.encode(replace(known, epoch=known.epoch + 1)))
    bench.ask()


def test_an_unknown_outcome_repeats_the_same_bytes() -> None:
    bench = Bench(NO_INLINE)
    a = bench.owner("A").start()
    first = a.hold(fx.WriteFooter)
    a.unknown(first)
    second = a.hold(fx.WriteFooter)
    assert footer_bytes.encode(first.footer) == footer_bytes.encode(second.footer)
    a.do(second)
    a.go()
    assert a.state is State.READY and bench.footer.written_as == 0


def test_every_write_says_its_version() -> None:
    bench = Bench()
    versions = []
    for nonce in ("A", "B"):
        owner = bench.opened(nonce)
        owner.ack(1)
        owner.go()
        owner.reset(Position(DATA, -1))
        owner.go()
        owner.step(ev.Delete() if nonce == "B" else ev.Close())
        owner.go()
        versions += [
            (write.footer.written_as, write.expected_version + 1)
            for write in owner.did(fx.WriteFooter)
        ]
    assert bench.footer.state is FooterState.DELETED and all(
        said == made for said, made in versions
    )
    assert bench.znode is not None and bench.footer.written_as == bench.znode[1]


@virtual
async def test_the_committed_bytes_are_in_the_log() -> None:
    world = World(limits=NO_INLINE)
    made = Source(await world.keeper())
    await made.open()
    node = world.zookeeper.tree.get(NAME.path())
    await made.durable(made.ack(acks(DATA, 1)))
    latest = world.zookeeper.tree.get(NAME.path())
    session = world.zookeeper.session()
    await session.start()
    await session.set(NAME.path(), node.data, latest.version)
    await made.told.until(lambda: bool(made.told.ended))
    assert made.told.refused is not None and made.told.refused[0] == "FOOTER_REPLACED"
    kept = [
        fields for event, fields in made.keeper.telemetry.events if event == "footer to restore"
    ]  # type: ignore[attr-defined]
    assert [fields["footer"].encode() for fields in kept] == [latest.data]
    await asyncio.sleep(60)
    assert set(world.bookkeeper.ledgers) >= {
        c.ledger for c in footer_bytes.decode(latest.data).chain
    }

"""One cursor's history on systems in memory: footers that move on under the reader, ledgers that
are short, bookies that are gone.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
from google_crc32c import value as crc32c
from pyroaring import BitMap

from cursorkeeper.bookkeeper.port import LedgerSpec
from cursorkeeper.core.footer import ChainLedger, EmptyBase, Footer, Previous
from cursorkeeper.core.names import CursorName
from cursorkeeper.core.positions import FIRST
from cursorkeeper.core.values import Delta, Record
from cursorkeeper.format import footer as codec
from cursorkeeper.format import record
from cursorkeeper.migration.errors import MigrationError
from cursorkeeper.problems import Kind, ProblemError
from cursorkeeper.terminal.failure import NO, exit_code
from cursorkeeper.zookeeper.values import ANY_VERSION
from cursorkeeper_pipeline.decode.deltas import ACK, DAMAGED, KINDS, MISSING, Piece
from cursorkeeper_pipeline.source import history
from cursorkeeper_pipeline.source.away import AWAY_IN_A_ROW_MAX
from cursorkeeper_pipeline.source.history import History
from cursorkeeper_pipeline.source.options import Options
from cursorkeeper_pipeline.source.plan import BUCKETS, BucketsPart
from cursorkeeper_pipeline.source.shards import Reader
from daemon.tests.fakes.bookkeeper.fake import Damage, FakeBookKeeper
from daemon.tests.fakes.zookeeper.fake import FakeZooKeeper, FakeZooKeeperServer
from pipeline.tests.fleet_maker import footer_of, write_footers

ROOT = "/cursorkeeper/cursors"
NAME = CursorName("persistent://t/n/x", "s")
GIVEN = {"table": "deltas", "zookeeper": "z:1", "gateway": "g:1", "waitS": "0.1"}
AWAY_KIND = KINDS.index("away")


def records(first: int, count: int, name: CursorName = NAME) -> list[bytes]:
    acks = [Delta(acks={7: BitMap([2 * at + 1])}) for at in range(first, first + count)]
    return [
        record.encode(Record(name.record_hash, 1, 1, first + at, delta))
        for at, delta in enumerate(acks)
    ]


def chained(
    *chain: ChainLedger,
    previous: Sequence[ChainLedger] = (),
    name: CursorName = NAME,
    **changes: Any,
) -> Footer:
    before = Previous(EmptyBase(FIRST), tuple(previous)) if previous else None
    return footer_of(name, base=EmptyBase(FIRST), chain=chain, previous=before, **changes)


class World:
    """ZooKeeper and BookKeeper, as `Systems` gives them to a task."""

    def __init__(self, zk: FakeZooKeeper) -> None:
        self.zk, self.bookies = zk, FakeBookKeeper(random.Random(1))

    async def zookeeper(self) -> Any:
        return self.zk

    async def ledgers(self) -> Any:
        return self.bookies.gateway(role="reader")

    def ledger(self, ledger: int, entries: Sequence[bytes], *, closed: bool = True) -> None:
        """An open one shows readers all but its last entry."""
        self.bookies.restore(
            ledger, LedgerSpec(), {"application": b"cursorkeeper"}, entries, closed=closed
        )

    async def moves_to(self, footer: Footer) -> None:
        path = CursorName(footer.topic, footer.subscription).path(ROOT)
        await self.zk.set(path, codec.encode(footer), ANY_VERSION)

    async def history(self, **given: str) -> History:
        options = Options.parse({**GIVEN, **given})
        reader = Reader(self.zk, options)
        found = await reader.one(NAME)
        assert found is not None
        return History(await self.ledgers(), reader, options, found)

    async def pieces(self, **given: str) -> list[Piece]:
        return [piece async for piece in (await self.history(**given)).pieces()]


def said(pieces: Sequence[Piece]) -> list[tuple[int, int, int]]:
    return [(piece.where.bk_ledger, piece.head.entry, piece.kind) for piece in pieces]


@pytest.fixture
async def world() -> AsyncIterator[World]:
    session = FakeZooKeeperServer(random.Random(1)).session()
    await session.start()
    yield World(session)
    await session.close()


@pytest.mark.parametrize("mode", ["permissive", "failfast"])
async def test_what_was_being_written_is_continued_with_the_next_footer(
    world: World, mode: str
) -> None:
    """The owner closes it, goes on with another one and takes a snapshot, while an older ledger is
    read.
    """
    world.ledger(1, records(0, 1))
    world.ledger(2, records(1, 1))
    world.ledger(5, records(2, 6), closed=False)
    await write_footers(
        world.zk, ROOT, [chained(ChainLedger(5), previous=(ChainLedger(1, 0), ChainLedger(2, 0)))]
    )
    pieces = (await world.history(mode=mode)).pieces()
    found = [await anext(pieces)]
    world.bookies.lose_ledger(2)
    world.ledger(5, records(2, 10))
    world.ledger(6, records(12, 4), closed=False)
    await world.moves_to(chained(ChainLedger(6), previous=(ChainLedger(5, 9),), write=18))
    found += [piece async for piece in pieces]
    read = [(1, 0)] + [(5, entry) for entry in range(10)] + [(6, entry) for entry in range(3)]
    assert said(found) == [(ledger, entry, ACK) for ledger, entry in read]


@pytest.mark.parametrize("closed_at", ["by its footer", "by BookKeeper"])
async def test_a_ledger_that_is_shorter_than_said_is_damage(
    world: World, closed_at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.ledger(1, records(0, 3))
    world.ledger(2, records(3, 2))
    await write_footers(world.zk, ROOT, [chained(ChainLedger(1, 9), ChainLedger(2, 1))])
    if closed_at == "by BookKeeper":
        await world.moves_to(chained(ChainLedger(1), ChainLedger(2, 1)))
        ledger = world.bookies.ledger(1)
        del ledger.entries[2:]
        said_of_it = replace(ledger.info(), last_entry=9)
        monkeypatch.setattr(ledger, "info", lambda: said_of_it)
    there = 3 if closed_at == "by its footer" else 2
    assert said(await world.pieces()) == [
        *[(1, at, ACK) for at in range(there)],
        (1, there, DAMAGED),
        (2, 0, ACK),
        (2, 1, ACK),
    ]
    with pytest.raises(
        ProblemError, match=rf"ledger 1 ends before entry {there}, and its last entry should be 9"
    ) as told:
        await world.pieces(mode="failfast")
    assert exit_code(told.value.problem) == NO


async def test_damage_is_told_where_it_is_and_hides_nothing_else(world: World) -> None:
    entries = records(0, 6)
    head = record.HEADER.pack(
        record.MAGIC, record.VERSION, record.Kind.DELTA, 0, NAME.record_hash, 1, 1, 9, 3, 0
    )
    odd = b"\xff\xff\xff"  # makes no sense under a right checksum
    entries[1] = head[: record.CRC_AT] + crc32c(head + odd).to_bytes(4, "little") + odd
    entries[2] = entries[2][:-1] + bytes([entries[2][-1] ^ 1])
    entries[3] = entries[3][:2] + b"\x63" + entries[3][3:]
    world.ledger(1, entries)
    world.bookies.damage(1, 4, Damage.DIGEST)
    await write_footers(world.zk, ROOT, [chained(ChainLedger(1, 5))])
    kinds = ["ack", "damaged", "damaged", "too_new", "damaged", "ack"]
    assert said(await world.pieces()) == [
        (1, at, KINDS.index(kind)) for at, kind in enumerate(kinds)
    ]
    pieces = (await world.history(mode="failfast")).pieces()
    assert said([await anext(pieces)]) == [(1, 0, ACK)]
    with pytest.raises(ProblemError, match=f"{NAME.topic}.*: ledger 1 entry 1: .*") as told:
        await anext(pieces)
    assert "cursorkeeper verify" in told.value.remedy


async def test_what_is_read_before_a_ledger_is_deleted_is_told(world: World) -> None:
    world.ledger(1, records(0, 5))
    world.bookies.damage(1, 4, Damage.GONE)
    await write_footers(world.zk, ROOT, [chained(ChainLedger(1, 4))])
    pieces = (await world.history()).pieces()
    found = [await anext(pieces)]
    world.bookies.lose_ledger(1)
    found += [piece async for piece in pieces]
    assert said(found) == [*[(1, at, ACK) for at in range(4)], (1, -1, MISSING)]


async def test_a_ledger_without_bookies_is_a_row_and_hides_nothing_else(world: World) -> None:
    world.ledger(1, records(0, 4))
    world.ledger(2, records(4, 2))
    world.bookies.damage(1, 2, Damage.GONE)
    await write_footers(world.zk, ROOT, [chained(ChainLedger(1, 3), ChainLedger(2, 1))])
    assert said(await world.pieces()) == [
        (1, 0, ACK),
        (1, 1, ACK),
        (1, 2, AWAY_KIND),
        (2, 0, ACK),
        (2, 1, ACK),
    ]
    with pytest.raises(ProblemError, match="ledger 1 cannot be read for") as told:
        await world.pieces(mode="failfast")
    assert told.value.kind is Kind.AWAY


async def test_a_cursor_whose_open_ledger_has_no_bookies_is_a_row(world: World) -> None:
    world.ledger(1, records(0, 4), closed=False)
    world.bookies.bookies_up = 0
    await write_footers(world.zk, ROOT, [chained(ChainLedger(1))])
    assert said(await world.pieces()) == [(-1, -1, AWAY_KIND)]
    with pytest.raises(MigrationError, match="READ_FAILED"):
        await world.pieces(mode="failfast")


async def test_a_cursor_that_is_busier_than_its_reader_is_a_row(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await write_footers(world.zk, ROOT, [chained(ChainLedger(1, 3))])
    one, write = Reader.one, iter(range(18, 100))

    async def moved_on(reader: Reader, name: CursorName) -> Any:
        await world.moves_to(chained(ChainLedger(1, 3), write=next(write)))
        return await one(reader, name)

    monkeypatch.setattr(Reader, "one", moved_on)
    assert said(await world.pieces()) == [(-1, -1, AWAY_KIND)]
    with pytest.raises(ProblemError, match="changes faster than it can be read"):
        await world.pieces(mode="failfast")


async def test_cursors_out_of_reach_one_after_another_are_a_system_that_is_away(
    world: World,
) -> None:
    """Some are rows; all of them would be an answer without any content."""
    names = [CursorName(f"persistent://t/n/x{at}", "s") for at in range(AWAY_IN_A_ROW_MAX + 10)]
    options = Options.parse({**GIVEN, "waitS": "0.01"})

    async def read(lost: int) -> list[tuple[int, int, int]]:
        for at in range(len(names)):
            world.bookies.damage(at + 1, 0, Damage.GONE) if at < lost else world.bookies.ledger(
                at + 1
            ).damage.clear()
        part = BucketsPart(BUCKETS)
        return said(
            [piece async for some in history._pieces(world, options, part) for piece in some]
        )  # type: ignore[arg-type]

    for at, name in enumerate(names):
        world.ledger(at + 1, records(0, 1, name))
    await write_footers(
        world.zk,
        ROOT,
        [chained(ChainLedger(at + 1, 0), name=name) for at, name in enumerate(names)],
    )
    assert sorted(await read(9)) == [
        (at + 1, 0, AWAY_KIND if at < 9 else ACK) for at in range(len(names))
    ]
    with pytest.raises(ProblemError, match=r"cursors one after another could not be read") as told:
        await read(len(names))
    assert told.value.kind is Kind.AWAY

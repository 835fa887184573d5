"""States of real cursors on real ledgers: what comes out is what was acked, and what `cursorkeeper
export` says.

In Spark: `test_tables_spark`.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any

import pyarrow as pa
import pytest

from cursorkeeper import connections
from cursorkeeper.core.footer import SnapshotBase
from cursorkeeper.core.limits import Limits
from cursorkeeper.core.names import CursorName
from cursorkeeper.demo.stack import Standalone
from cursorkeeper.format.record import EncodeSettings
from cursorkeeper.format.whole_state import PulsarStateWriter, WholeStateSettings
from cursorkeeper.inspection.reader import read_state
from cursorkeeper.migration import exchange
from cursorkeeper.runtime.keeper import Keeper
from cursorkeeper.runtime.ledgers import LedgerPolicy
from cursorkeeper.runtime.limits import KeeperLimits
from cursorkeeper.terminal.output import Bar
from cursorkeeper_pipeline.keys import cursor_key
from cursorkeeper_pipeline.source import states
from daemon.tests.support.world import SilentTelemetry, Source, partial, ranges
from pipeline.tests.real_cursors import EAGER, LEDGERS, Fleet, fleet, options_of, until

pytestmark = pytest.mark.jvm
ROOT = "/pipeline-states/cursors"
SMALL_SEGMENTS = replace(
    EAGER,
    max_entry_bytes=17_000,
    mark_delete_properties_bytes_max=2_000,
    cursor_properties_bytes_max=1_000,
)
CUT = {"splitBytes": "200", "tasks": "4"}
TABLES = {
    "holes": states.Holes,
    "hole_stats": states.HoleStats,
    "batch_partials": states.BatchPartials,
}


def name_of(what: str) -> CursorName:
    return CursorName(f"persistent://t/ns/{what}", "sub")


CHAIN, SNAPSHOT, INLINE, PULSAR, PULSAR_INLINE, OPEN, LARGE, DAMAGED, LOST = map(
    name_of,
    ("chain", "snapshot", "inline", "pulsar", "pulsar-inline", "open", "large", "damaged", "lost"),
)
GOOD = (CHAIN, SNAPSHOT, INLINE, PULSAR, PULSAR_INLINE, LARGE)


@dataclass
class Told:
    """What a cursor's source said, one by one."""

    acked: set[tuple[int, int]] = field(default_factory=set)
    partials: dict[tuple[int, int], frozenset[int]] = field(default_factory=dict)

    def un_acked(self) -> set[tuple[int, int]]:
        """Below the highest entry that was spoken of in each ledger; nothing was marked deleted."""
        top: dict[int, int] = {}
        for ledger, entry in self.acked | self.partials.keys():
            top[ledger] = max(top.get(ledger, -1), entry)
        return {(ledger, e) for ledger, last in top.items() for e in range(last + 1)} - self.acked


async def tell(
    source: Source, told: Told, rng: random.Random, rounds: int, entries: int = 9_000
) -> None:
    for _ in range(rounds):
        for ledger in (7, 8, 11):
            first = rng.randrange(entries)
            pairs = [(first + 100 * n, first + 100 * n + rng.randrange(80)) for n in range(10)]
            told.acked |= {(ledger, e) for low, high in pairs for e in range(low, high + 1)}
            batch = (ledger, rng.randrange(entries))
            source.ack(ranges(ledger, *pairs), partial(*batch, 9, {2, 8}))
            told.partials[batch] = frozenset({2, 8})
        await source.durable()
        await until(lambda: source.machine.snapshots.run is None, "the snapshot is written")
    told.partials = {
        key: missing for key, missing in told.partials.items() if key not in told.acked
    }


async def make(stack: Standalone, root: str) -> dict[CursorName, Told]:
    limits = {
        CHAIN: LEDGERS,
        INLINE: Limits(),
        PULSAR_INLINE: Limits(),
        SNAPSHOT: EAGER,
        LARGE: SMALL_SEGMENTS,
    }
    said: dict[CursorName, Told] = {}
    async with fleet(stack, root) as made:
        for seed, name in enumerate((*GOOD, DAMAGED, LOST)):
            source = await source_of(made, name, limits.get(name, LEDGERS))
            said[name] = Told()
            await tell(
                source, said[name], random.Random(seed), 3, 120_000 if name == LARGE else 9_000
            )
            assert await source.keeper.close() == []
        await made.flip(DAMAGED, 2)
        await made.ports.ledgers.delete((await made.footer(LOST)).chain[-1].ledger)
        assert (
            isinstance((await made.footer(SNAPSHOT)).base, SnapshotBase)
            and not (await made.footer(INLINE)).chain
        )
    return said


async def source_of(made: Fleet, name: CursorName, limits: Limits) -> Source:
    if name not in (PULSAR, PULSAR_INLINE):
        return await made.source(name, limits)
    keeper = Keeper(
        made.ports.ledgers,
        made.ports.zookeeper,
        SilentTelemetry(),
        limits=replace(limits, whole_state_interval_ms=10),
        keeper_limits=KeeperLimits(),
        policy=LedgerPolicy(),
        encode=EncodeSettings(limits.max_entry_bytes),
        identity="p",
        rng=random.Random(1),
        root=made.root,
        state_writer=PulsarStateWriter(WholeStateSettings()),
    )
    await keeper.start()
    made.keepers.append(keeper)
    source = Source(keeper, name)
    await source.open()
    return source


@pytest.fixture(scope="module")
def told(stack: Standalone) -> dict[CursorName, Told]:
    """One cursor of each kind; no test changes them."""
    return asyncio.run(make(stack, ROOT))


def rows(stack: Standalone, table: str, **given: str) -> list[dict[str, Any]]:
    options, kind = options_of(stack, given.pop("root", ROOT), table, **given), TABLES[table]()
    return pa.Table.from_batches(
        [b for part in kind.plan(options) for b in kind.read(options, part)], kind.schema
    ).to_pylist()


def entries(found: Iterable[Any]) -> set[tuple[int, int, int]]:
    return {(key, ledger, e) for key, ledger, first, last in found for e in range(first, last + 1)}


def wanted(told: dict[CursorName, Told]) -> set[tuple[int, int, int]]:
    return {(cursor_key(name), *place) for name in GOOD for place in told[name].un_acked()}


@pytest.mark.parametrize("given", [{}, CUT], ids=["whole", "cut"])
def test_holes_and_partials_are_what_was_not_acked(
    stack: Standalone, told: dict[CursorName, Told], given: dict[str, str]
) -> None:
    found = entries(row.values() for row in rows(stack, "holes", **given))
    assert found == wanted(told)
    batches = {
        (row["cursor_key"], row["ledger_id"], row["entry_id"]): (
            row["batch_size"],
            int.from_bytes(row["missing"], "little"),
        )
        for row in rows(stack, "batch_partials", **given)
    }
    sizes = dict.fromkeys(GOOD, 9) | {PULSAR: 0, PULSAR_INLINE: 0}  # Pulsar's form does not hold it
    said = {
        (cursor_key(name), *key): (sizes[name], 1 << 2 | 1 << 8)
        for name in GOOD
        for key in told[name].partials
    }
    assert batches == said and len(said) > 20


@pytest.mark.parametrize("given", [{}, CUT], ids=["whole", "cut"])
def test_statistics_of_every_kind(
    stack: Standalone, told: dict[CursorName, Told], given: dict[str, str]
) -> None:
    found: dict[int, list[dict[str, Any]]] = {}
    for row in rows(stack, "hole_stats", **given):
        found.setdefault(row["cursor_key"], []).append(row)
    assert found.keys() == {cursor_key(name) for name in told}
    for name in GOOD:
        (row,) = found[cursor_key(name)]
        assert row["status"] == "OK" and row["hole_entries"] == len(told[name].un_acked())
        assert row["acked_entries"] == len(told[name].acked) and row["partial_batches"] == len(
            told[name].partials
        ), name
        entries = sorted(told[name].un_acked())
        assert row["longest_run"] == max(
            len(list(run))
            for _, run in groupby(enumerate(entries), lambda x: (x[1][0], x[1][1] - x[0]))
        )
    (damaged,), (lost,) = found[cursor_key(DAMAGED)], found[cursor_key(LOST)]
    assert (
        damaged["status"] == "DAMAGED"
        and "entry 2" in damaged["error"]
        and damaged["span_entries"] is None
    )
    assert lost["status"] == "MISSING" and "does not exist" in lost["error"]


def test_it_is_what_export_says(stack: Standalone, told: dict[CursorName, Told]) -> None:
    async def exported() -> dict[CursorName, set[tuple[int, int]]]:
        found = {}
        async with connections.ports(options_of(stack, ROOT).settings) as ports:
            for name in GOOD:
                footer, answer, at_least = await read_state(ports, name, Bar("test"))
                lines = exchange.parse(
                    exchange.lines_of(footer, answer.state, at_least=at_least), "test"
                )
                acked = [
                    (x.ledger, pair)
                    for x in lines
                    if isinstance(x, exchange.AcksLine)
                    for pair in x.ranges
                ]
                found[name] = {
                    (ledger, e) for ledger, (first, last) in acked for e in range(first, last + 1)
                }
        return found

    holes = entries(row.values() for row in rows(stack, "holes"))
    for name, acked in asyncio.run(exported()).items():
        mine = {(ledger, e) for key, ledger, e in holes if key == cursor_key(name)}
        both = Told(acked | mine).un_acked()  # none: every entry up to the highest is either
        assert acked and mine and not mine & acked and not both


def test_an_open_cursor_is_read_and_not_disturbed(stack: Standalone, root: str) -> None:
    async def work() -> None:
        async with fleet(stack, root) as made:
            source, told = await made.source(OPEN, SMALL_SEGMENTS), Told()
            for seed in range(3):
                await tell(source, told, random.Random(seed), 1, 120_000)
                for given in ({}, CUT):
                    found = await asyncio.to_thread(rows, stack, "hole_stats", root=root, **given)
                    acked = sum(row["acked_entries"] for row in found)
                    assert {row["status"] for row in found} == {"AT_LEAST"} and acked <= len(
                        told.acked
                    )
                    holes = entries(
                        row.values()
                        for row in await asyncio.to_thread(rows, stack, "holes", root=root, **given)
                    )
                    assert (
                        not {(ledger, e) for _, ledger, e in holes} - told.un_acked() - told.acked
                    )
            assert seed == 2 and acked > 0
            assert await source.keeper.close() == []
            found = await asyncio.to_thread(rows, stack, "hole_stats", root=root)
            assert [(row["status"], row["acked_entries"]) for row in found] == [
                ("OK", len(told.acked))
            ]

    asyncio.run(work())

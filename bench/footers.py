"""Footers in bulk from a real ZooKeeper on one connection: multiRead against single gets, with
decoding, as Arrow rows; and planning.

Owns a fleet of footers of about 600 bytes below roots of its own. Rates are the best of `ROUNDS`:
the server and other programs share the cores. CPU is this process's alone.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import NamedTuple

from bench.rows import Row
from cursorkeeper.demo.stack import Standalone
from cursorkeeper.zookeeper.client import ZooKeeperClient
from cursorkeeper.zookeeper.settings import ZooKeeperSettings, parse_servers
from cursorkeeper_pipeline.source import shards
from cursorkeeper_pipeline.source.footers import Cursors
from cursorkeeper_pipeline.source.options import Options
from cursorkeeper_pipeline.source.plan import BUCKETS
from cursorkeeper_pipeline.source.states import HoleStats
from cursorkeeper_pipeline.source.table import Table
from pipeline.tests.fleet_maker import footer_of, name_of, write_footers

FLEETS = (10_000, 100_000)
GETS = 10_000
GETS_AHEAD = 256
ROUNDS = 3
WRITTEN_AT_ONCE = 10_000


class Cost(NamedTuple):
    """Of one thing: how many in a second, and microseconds of this process."""

    per_s: float
    cpu_us: float


def run(stack: Standalone) -> list[Row]:
    """Writes the fleets, then measures."""
    for cursors in FLEETS:
        asyncio.run(_write(stack, cursors))
    rows = asyncio.run(_reads(stack))
    rows.append(_table(stack))
    return [*rows, *_planning(stack)]


def _options(stack: Standalone, cursors: int) -> Options:
    return Options.parse(
        {
            "zookeeper": stack.zookeeper,
            "root": f"/bench-{cursors}/cursors",
            "splitBytes": str(1 << 30),
        }
    )


async def _client(stack: Standalone) -> ZooKeeperClient:
    client = ZooKeeperClient(ZooKeeperSettings(servers=parse_servers(stack.zookeeper)[0]))
    await client.start()
    return client


async def _write(stack: Standalone, cursors: int) -> None:
    client = await _client(stack)
    for start in range(0, cursors, WRITTEN_AT_ONCE):
        some = [
            footer_of(name_of(at), at) for at in range(start, min(cursors, start + WRITTEN_AT_ONCE))
        ]
        await write_footers(client, _options(stack, cursors).root, some)
    await client.close()


async def _best(things: int, work: Callable[[], Awaitable[object]]) -> Cost:
    best = Cost(0.0, float("inf"))
    for _ in range(ROUNDS):
        began_s, began_cpu_s = time.perf_counter(), time.process_time()
        await work()
        took_s, took_cpu_s = time.perf_counter() - began_s, time.process_time() - began_cpu_s
        best = Cost(max(best.per_s, things / took_s), min(best.cpu_us, 1e6 * took_cpu_s / things))
    return best


async def _reads(stack: Standalone) -> list[Row]:
    client, options = await _client(stack), _options(stack, FLEETS[-1])
    reader = shards.Reader(client, options)
    names = [name async for some in reader.names_in(await reader.buckets()) for name in some]
    paths = [name.path(options.root) for name in names]
    parts = [
        paths[start : start + shards.READ_BATCH]
        for start in range(0, len(paths), shards.READ_BATCH)
    ]
    data_bytes = sum(
        len(node.data) for node in await client.multi_read(paths) if node is not None
    ) // len(paths)

    async def each() -> AsyncIterator[Sequence[str]]:
        for part in parts:
            yield part

    async def multi_reads() -> None:
        read = sum(
            [
                len(nodes)
                async for nodes in shards.in_rounds(each(), client.multi_read, shards.READS_AT_ONCE)
            ]
        )
        assert read == len(paths)

    async def gets() -> None:
        for start in range(0, GETS, GETS_AHEAD):
            await asyncio.gather(
                *[client.get(path) for path in paths[start : min(GETS, start + GETS_AHEAD)]]
            )

    async def decoded() -> None:
        assert sum(
            [len(batch) async for batch in shards.Reader(client, options).in_buckets(BUCKETS)]
        ) == len(paths)

    single, multi = await _best(GETS, gets), await _best(len(paths), multi_reads)
    del names
    whole = await _best(len(paths), decoded)
    await client.close()
    case = f"{len(paths):,} footers of {data_bytes} B"
    gets_ahead = f"gets, {GETS_AHEAD} ahead"
    return [
        Row("footers", case, gets_ahead, single.per_s, "footers/s"),
        Row(
            "footers",
            case,
            "multiRead",
            multi.per_s,
            "footers/s",
            multi.per_s / single.per_s,
            gets_ahead,
            "100,000/s",
        ),
        Row(
            "footers",
            case,
            "multiRead, CPU",
            multi.cpu_us,
            "us/footer",
            multi.cpu_us / single.cpu_us,
            gets_ahead,
            "1/8",
        ),
        Row(
            "footers",
            case,
            "listed, read, decoded",
            whole.per_s,
            "footers/s",
            whole.per_s / multi.per_s,
            "multiRead",
        ),
        Row(
            "footers",
            case,
            "listed, read, decoded, CPU",
            whole.cpu_us,
            "us/footer",
            whole.cpu_us / multi.cpu_us,
            "multiRead",
        ),
    ]


def _table(stack: Standalone) -> Row:
    options, cursors = _options(stack, FLEETS[-1]), FLEETS[-1]
    best_s = float("inf")
    for _ in range(ROUNDS):
        began_s = time.perf_counter()
        rows = sum(
            batch.num_rows
            for part in Cursors().plan(options)
            for batch in Cursors().read(options, part)
        )
        best_s = min(best_s, time.perf_counter() - began_s)
        assert rows == cursors
    return Row(
        "footers",
        f"table cursors, {cursors:,}, one task after another",
        "Arrow rows",
        cursors / best_s,
        "rows/s",
    )


def _planning(stack: Standalone) -> list[Row]:
    """By the buckets' counts alone: what is read of footers and of large cursors, tasks read."""
    tables: dict[str, Table] = {"cursors": Cursors(), "hole_stats": HoleStats()}
    rows, before = [], dict.fromkeys(tables, 0.0)
    for cursors in FLEETS:
        options = _options(stack, cursors)
        for name, table in tables.items():
            took_s = min(_seconds(table, options) for _ in range(ROUNDS))
            ratio = took_s / before[name] if before[name] else None
            aim = "10 s, linear" if cursors == FLEETS[-1] else ""
            rows.append(
                Row(
                    "footers",
                    f"plan of {cursors:,} cursors",
                    f"table {name}",
                    took_s,
                    "s",
                    ratio,
                    f"{FLEETS[0]:,} cursors",
                    aim,
                )
            )
            before[name] = took_s
    return rows


def _seconds(table: Table, options: Options) -> float:
    began_s = time.perf_counter()
    assert table.plan(options)
    return time.perf_counter() - began_s

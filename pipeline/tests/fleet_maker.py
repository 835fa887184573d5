"""Footers for tests, as a daemon would have left them: any number, without a daemon."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from cursorkeeper import connections
from cursorkeeper.core.footer import (
    Base,
    ChainLedger,
    EmptyBase,
    Footer,
    FooterState,
    SnapshotBase,
    Stats,
)
from cursorkeeper.core.names import CursorName
from cursorkeeper.core.positions import Position
from cursorkeeper.demo.stack import Standalone
from cursorkeeper.format import footer as codec
from cursorkeeper.zookeeper.port import ZooKeeper
from cursorkeeper.zookeeper.values import Create, Stat
from cursorkeeper_pipeline.decode.footer_rows import Found
from cursorkeeper_pipeline.source.cuts import pieces_wanted
from cursorkeeper_pipeline.source.options import Options
from cursorkeeper_pipeline.source.plan import spread, tasks_for
from cursorkeeper_pipeline.source.state_size import state_bytes

CREATES = 500
CREATED_BYTES = 500_000
"""Of one multi."""


def name_of(at: int) -> CursorName:
    """Tenants t0 to t2, namespaces n0 and n1, every fifth subscription odd."""
    return CursorName(f"persistent://t{at % 3}/n{at % 2}/topic-{at}", "sub" if at % 5 else "süb/|x")


def footer_of(name: CursorName, seed: int = 0, **changes: object) -> Footer:
    """Open, with a snapshot or nothing below a chain of two ledgers; about 600 bytes."""
    rng = random.Random(seed)
    ledger = rng.randrange(1, 1 << 40)
    base: Base = (
        SnapshotBase(ledger, 5, 9, 4, rng.randrange(1 << 24), rng.getrandbits(32))
        if seed % 2
        else EmptyBase(Position(7, 4))
    )
    values: dict[str, object] = {
        "topic": name.topic,
        "subscription": name.subscription,
        "state": FooterState.OPEN,
        "epoch": 3,
        "writer": f"{rng.getrandbits(128):032x}",
        "write": 17,
        "generation": 1,
        "mark_delete": Position(7, 4),
        "base": base,
        "chain": (ChainLedger(ledger, 812), ChainLedger(ledger + 1)),
        "stats": Stats(3, 1_000_000, 1_000, 900, 3, 70_000),
    }
    return Footer(**{**values, **changes})  # type: ignore[arg-type]


STORED_BYTES = {"random": 0.105, "regular": 0.000087}
"""Of one entry in a snapshot as it is stored: every tenth not acked, by chance; every second not
acked.
"""
HOLES = {"random": 0.1, "regular": 0.5}
SEGMENT_ENTRIES = 127 << 16
RUNS_KNOWN_MAX = 1_000_000
"""Above so many holes a footer does not say how many runs they are."""


def pareto_fleet(cursors: int, seed: int = 7) -> Iterator[Found]:
    """Closed cursors of 20,000 entries and, few of them, up to a thousand million; random and
    regular holes in turn.
    """
    rng = random.Random(seed)
    for at in range(cursors):
        span, kind = (
            min(1_000_000_000, int(20_000 * rng.paretovariate(0.8))),
            ("random", "regular")[at % 2],
        )
        holes, segments, ledger = (
            int(span * HOLES[kind]),
            1 + span // SEGMENT_ENTRIES,
            rng.randrange(1, 1 << 40),
        )
        base = SnapshotBase(
            ledger, 0, segments, segments, max(60, int(span * STORED_BYTES[kind])), 1
        )
        stats = Stats(
            1 + span // 50_000, span, holes, holes if holes <= RUNS_KNOWN_MAX else 0, 0, 200
        )
        chain = (ChainLedger(ledger, segments + 1),)
        name = CursorName(f"persistent://t/n/{kind}-{at}", "sub")
        footer = footer_of(name, state=FooterState.CLOSED, base=base, chain=chain, stats=stats)
        yield Found(name, footer, Stat(*[0] * 11), 0)


def costs_of_tasks(found: Sequence[Found], options: Options, per_task: int) -> list[int]:
    """Bytes of unpacked states that each task of a plan holds in turn."""
    sizes: Counter[str] = Counter(one.name.bucket for one in found)
    held: Counter[str] = Counter()
    for one in found:
        assert isinstance(one.footer, Footer)
        held[one.name.bucket] += state_bytes(one.footer)
    return [
        sum(held[bucket] for bucket in part.buckets)
        for part in spread(sizes, tasks_for(len(found), per_task, options))
    ]


def cut_costs(found: Iterable[Found], options: Options) -> list[int]:
    """Bytes of unpacked states of the units that a second pass deals out."""
    costs = []
    for one in found:
        assert isinstance(one.footer, Footer)
        pieces = pieces_wanted(one.footer, options)
        costs += [state_bytes(one.footer) // pieces] * pieces
    return costs


def skew(values: Sequence[float]) -> float:
    """The largest over the mean."""
    return max(values) * len(values) / sum(values)


async def write_footers(
    zookeeper: ZooKeeper, root: str, footers: Sequence[Footer | tuple[CursorName, bytes]]
) -> None:
    """New ones, or any bytes in the place of one."""
    nodes = []
    for one in footers:
        name, data = (
            (CursorName(one.topic, one.subscription), codec.encode(one))
            if isinstance(one, Footer)
            else one
        )
        nodes.append((name, data))
    for bucket in sorted({name.bucket for name, _ in nodes}):
        await zookeeper.ensure_path(f"{root}/{bucket}")
    step = max(1, min(CREATES, CREATED_BYTES // max([1, *(len(data) for _, data in nodes)])))
    for start in range(0, len(nodes), step):
        await zookeeper.multi(
            [Create(name.path(root), data) for name, data in nodes[start : start + step]]
        )


async def add_footers(
    stack: Standalone, root: str, *footers: Footer | tuple[CursorName, bytes]
) -> None:
    """As `write_footers`, by a client of its own."""
    async with connections.zookeeper(
        Options(zookeeper=stack.zookeeper, root=root).settings.systems
    ) as zookeeper:
        await write_footers(zookeeper, root, footers)

"""Footers for tests, written as a daemon would have left them: any number, without a daemon."""

from __future__ import annotations

import random
from collections.abc import Sequence

from cursorkeeper.core.footer import Base, ChainLedger, EmptyBase, Footer, FooterState, SnapshotBase, Stats
from cursorkeeper.core.names import CursorName
from cursorkeeper.core.positions import Position
from cursorkeeper.format import footer as codec
from cursorkeeper_clients.zookeeper.port import ZooKeeper
from cursorkeeper_clients.zookeeper.values import Create

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
    base: Base = SnapshotBase(ledger, 5, 9, 4, rng.randrange(1 << 24), rng.getrandbits(32)) if seed % 2 else EmptyBase(Position(7, 4))
    values: dict[str, object] = {
        "topic": name.topic, "subscription": name.subscription, "state": FooterState.OPEN, "epoch": 3,
        "writer": f"{rng.getrandbits(128):032x}", "write": 17, "generation": 1, "mark_delete": Position(7, 4), "base": base,
        "chain": (ChainLedger(ledger, 812), ChainLedger(ledger + 1)), "stats": Stats(3, 1_000_000, 1_000, 900, 3, 70_000),
    }  # fmt: skip
    return Footer(**{**values, **changes})  # type: ignore[arg-type]


async def write_footers(zookeeper: ZooKeeper, root: str, footers: Sequence[Footer | tuple[CursorName, bytes]]) -> None:
    """New ones, or any bytes in the place of one."""
    nodes = []
    for one in footers:
        name, data = (CursorName(one.topic, one.subscription), codec.encode(one)) if isinstance(one, Footer) else one
        nodes.append((name, data))
    for bucket in sorted({name.bucket for name, _ in nodes}):
        await zookeeper.ensure_path(f"{root}/{bucket}")
    step = max(1, min(CREATES, CREATED_BYTES // max([1, *(len(data) for _, data in nodes)])))
    for start in range(0, len(nodes), step):
        await zookeeper.multi([Create(name.path(root), data) for name, data in nodes[start : start + step]])

"""Whose a ledger is, is asked each time: after ZooKeeper was restored from a copy, ids of later
ledgers are given out again.
"""

from __future__ import annotations

import pytest

from cursorkeeper.bookkeeper import GatewayRefused, LedgerSpec, Outcome
from cursorkeeper.bookkeeper.port import LedgerStore
from cursorkeeper.demo.stack import Standalone
from cursorkeeper.zookeeper.client import ZooKeeperClient
from cursorkeeper.zookeeper.settings import ZooKeeperSettings, parse_servers
from daemon.tests.bookkeeper.worlds import RealWorld

pytestmark = pytest.mark.jvm
MINE, OTHERS = "0" * 32, "1" * 32
SPEC = LedgerSpec(3, 3, 2)


async def becomes(stack: Standalone, ledger: int, old: bytes, new: bytes) -> None:
    """The ledger of this id is another one: its custom metadata says `new` where it said `old`, of
    the same length.
    """
    zookeeper = ZooKeeperClient(ZooKeeperSettings(servers=parse_servers(stack.zookeeper)[0]))
    await zookeeper.start()
    path = f"/ledgers/{ledger // 10**8:02d}/{ledger // 10**4 % 10**4:04d}/L{ledger % 10**4:04d}"
    node = await zookeeper.get(path)
    assert len(old) == len(new) and old in node.data
    await zookeeper.set(path, node.data.replace(old, new), node.version)
    await zookeeper.close()


async def refusal(waiting: object) -> str:
    with pytest.raises(GatewayRefused) as caught:
        await waiting  # type: ignore[misc]
    assert caught.value.outcome is Outcome.NOT_DONE
    return caught.value.reason


async def test_what_a_ledger_was_says_nothing_of_what_it_is(standalone: Standalone) -> None:
    world = RealWorld(standalone.gateway, lambda: None)  # type: ignore[arg-type,return-value]
    store: LedgerStore = await world.client()
    store.act_for(MINE)
    ledger = await store.create(SPEC, {"application": b"cursorkeeper", "deployment": MINE.encode()})
    await store.append(ledger, 0, b"x")
    assert (await store.metadata(ledger)).ledger == ledger
    await becomes(standalone, ledger, MINE.encode(), OTHERS.encode())
    for waiting in (store.close_ledger(ledger), store.fence(ledger), store.delete(ledger)):
        assert await refusal(waiting) == "OTHER_DEPLOYMENT"
    await becomes(standalone, ledger, b"cursorkeeper", b"somebodyelse")
    for waiting in (
        anext(aiter(store.read(ledger, 0))),
        store.end_of(ledger),
        store.metadata(ledger),
        store.delete(ledger),
    ):
        assert await refusal(waiting) == "NOT_OURS"
    await world.close()

"""Ledgers roll many times, and none is leaked: what BookKeeper holds of a closed cursor is what its
footer names, no more, no less.

A kill may leave a ledger that no footer names (one that was just created, or not yet deleted):
`cursorkeeper gc` takes it, and nothing else.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

from cursorkeeper.core.footer import FooterState
from daemon.tests.end_to_end.stored import Stored, reading, stored
from testcontainers_tests.cluster import faults
from testcontainers_tests.cluster.conditions import until
from testcontainers_tests.cluster.nodes import STREAM_PORT, DaemonNode, SourceNode
from testcontainers_tests.cluster.stack import ContainerStack
from testcontainers_tests.cluster.truth import Verdict

SMALL = {"ledger_bytes_max": 500, "snapshot_bytes_min": 5_000, "inline_state_max_bytes": 0}
"""A ledger holds a record or two, a snapshot comes after some ledgers, and closing leaves a chain.
(Acks come slowly enough that they are not all acked before so many ledgers were written, also where
a roll takes half a second.)
"""
CURSORS, ROLLS_MIN, SNAPSHOTS_MIN = 5, 60, 3
"""Of the cursors together, in each of two stretches."""


async def rolled(
    daemon: DaemonNode, rolls_min: int = ROLLS_MIN, snapshots_min: int = SNAPSHOTS_MIN
) -> None:
    """So many times, since its start."""

    def look() -> bool:
        metrics = daemon.metrics()
        rolls, snapshots = (
            metrics.get("cursorkeeper_rolls_total", 0),
            metrics.get("cursorkeeper_snapshots_total", 0),
        )
        assert rolls >= rolls_min and snapshots >= snapshots_min, (
            f"{rolls} rolls, {snapshots} snapshots"
        )
        return True

    await until(look, f"{rolls_min} rolls and {snapshots_min} snapshots")


async def kept(stack: ContainerStack, source: SourceNode) -> list[Stored]:
    async with reading(stack.gateway.client_address, stack.zookeeper.client_address) as ports:
        return [await stored(ports, topic, "steady") for topic in source.topics]


def said(daemon: DaemonNode, *command: str) -> list[dict[str, object]]:
    """What a command in the daemon's container says, as its user sees it; it must succeed."""
    code, output = daemon.run("cursorkeeper", *command, "--json")
    assert code == 0, output
    return [json.loads(line) for line in output.splitlines() if line.startswith("{")]


def garbage(daemon: DaemonNode, topics: Sequence[str], *more: str) -> set[int]:
    """Ledgers of these topics that may go, or are gone, as `cursorkeeper gc` says."""
    [report] = said(daemon, "gc", *more)
    found = report["ledgers"]
    assert isinstance(found, list)
    return {item["ledger"] for item in found if item["cursor"].rpartition("|")[0] in topics}


async def test_none_is_leaked_over_many_ledgers(
    stack: ContainerStack, accept: Callable[[Verdict], None]
) -> None:
    small, checker = stack.make_daemon(3, **SMALL), stack.daemons[1]
    await stack.add(small)
    where = f"{small.name}:{STREAM_PORT}"
    calm = await stack.source("rolls", CURSORS, daemon=where, interval_ms=40)
    await rolled(small)
    await calm.finish()
    assert small.stop() == 0, small.log_tail()
    after = await kept(stack, calm)
    print("ledgers of each cursor after a calm life:", [sorted(s.ledgers) for s in after])
    assert all(
        s.footer.state is FooterState.CLOSED and s.footer.chain and s.is_exact for s in after
    ), after
    assert not garbage(checker, calm.topics, "--dry-run")

    small.start_again()
    await small.ready()
    cut = await stack.source("rolls-cut", CURSORS, daemon=where, interval_ms=40)
    await rolled(small, 20, 1)
    async with faults.killed(small):
        pass
    await rolled(small)
    await cut.finish()
    assert small.stop() == 0, small.log_tail()
    left = {ledger for s in await kept(stack, cut) for ledger in s.leaked}
    print("ledgers that the kill left:", sorted(left))
    assert garbage(checker, cut.topics, "--dry-run") == garbage(checker, cut.topics) == left
    assert all(s.is_exact for s in await kept(stack, cut))
    assert not garbage(checker, cut.topics, "--dry-run")

    reports = {str(report["cursor"]): report for report in said(checker, "verify", "--all")}
    assert all(reports[f"{topic}|steady"]["ok"] for topic in (*calm.topics, *cut.topics)), reports
    accept(await stack.verdict(calm, cut))

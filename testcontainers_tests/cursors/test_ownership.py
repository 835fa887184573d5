"""Two daemons, one cursor: the one with the higher epoch has it, and whatever the other one
confirmed is there.

Sources send to both daemons; what either of them was told to be durable must be found by the last
owner, and nothing that neither sent. Acks come slowly: where nearly everything is acked, a loss
would not show.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from testcontainers_tests.cluster import faults
from testcontainers_tests.cluster.conditions import until
from testcontainers_tests.cluster.nodes import STREAM_PORT, DaemonNode, SourceNode
from testcontainers_tests.cluster.stack import ContainerStack
from testcontainers_tests.cluster.truth import Verdict

SLOWLY_MS = 50
TAKEOVERS_MIN = 4
"""Of each cursor by each of two sources that never give up."""


def on(daemon: DaemonNode) -> str:
    return f"{daemon.name}:{STREAM_PORT}"


async def deposed(source: SourceNode) -> None:
    """It ended because another owner has its cursors."""
    await until(lambda: source.status == "exited", f"{source.name} has ended")
    [last] = source.json_lines("done", tail=5)
    assert source.exit_code == 1 and "taken over" in last["problem"], last


async def test_the_older_owner_is_deposed_while_both_live(
    stack: ContainerStack, accept: Callable[[Verdict], None]
) -> None:
    one = await stack.source("duel", interval_ms=SLOWLY_MS)
    two = await stack.source(
        "duel", topics=one.topics, daemon=on(stack.daemons[1]), interval_ms=SLOWLY_MS
    )
    await deposed(one)
    await two.finish()
    assert all(
        min(newer) > max(older) for older, newer in zip(one.epochs(), two.epochs(), strict=True)
    )
    accept(await stack.verdict(one, two, daemon=stack.daemon))


async def test_an_owner_that_was_frozen_confirms_nothing_after_the_takeover(
    stack: ContainerStack, accept: Callable[[Verdict], None]
) -> None:
    # it waits for the frozen daemon, and would take minutes to fill its window of 200 batches
    one = await stack.source(
        "frozen", interval_ms=20 * SLOWLY_MS, flows=3, extra=["--keepalive-s", "300"]
    )
    with faults.paused(stack.daemon):
        two = await stack.source(
            "frozen", topics=one.topics, daemon=on(stack.daemons[1]), interval_ms=SLOWLY_MS
        )
        sent_before = one.sent_batches()  # whatever is sent from now on belongs to the next owner
        await until(
            lambda: all(
                now > then + 2 for now, then in zip(one.sent_batches(), sent_before, strict=True)
            ),
            "it sends on",
        )
    await deposed(one)
    confirmed = [truth.durable_batches for truth in one.truth()]
    assert all(mine <= before for mine, before in zip(confirmed, sent_before, strict=True)), (
        confirmed,
        sent_before,
    )
    await two.flows()  # nobody took it back
    await two.finish()
    assert [set(had) for had in two.epochs()] == [{max(had) + 1} for had in one.epochs()]
    accept(await stack.verdict(one, two, daemon=stack.daemon))


async def test_two_that_never_give_up_take_it_from_each_other(
    stack: ContainerStack, accept: Callable[[Verdict], None]
) -> None:
    again = ["--retake-ms", "400"]
    one = await stack.source("ping-pong", interval_ms=SLOWLY_MS, extra=again)
    two = await stack.source(
        "ping-pong",
        topics=one.topics,
        daemon=on(stack.daemons[1]),
        interval_ms=SLOWLY_MS,
        extra=again,
        flows=0,
    )
    both = (one, two)
    await until(
        lambda: all(len(had) >= TAKEOVERS_MIN for source in both for had in source.epochs()),
        "takeovers to and fro",
    )
    with faults.paused(stack.daemon):  # and one of them while the other one is frozen
        await two.flows()
    await one.flows()
    await asyncio.gather(one.finish(), two.finish())
    for mine, theirs in zip(one.epochs(), two.epochs(), strict=True):
        assert_alternate(mine, theirs)
    print(f"takeovers: {[len(had) for source in both for had in source.epochs()]}")
    accept(await stack.verdict(one, two))
    # whoever was the last owner: one of these readers is another one
    accept(await stack.verdict(one, two, daemon=stack.daemon))


def assert_alternate(mine: Sequence[int], theirs: Sequence[int]) -> None:
    """Every owner's epochs grow, and no two owners ever had the same one."""
    assert list(mine) == sorted(set(mine)), mine
    assert list(theirs) == sorted(set(theirs)), theirs
    assert not set(mine) & set(theirs), (mine, theirs)

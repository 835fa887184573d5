"""`format = "pulsar"`: whole states in Pulsar's own bytes, over a kill; and a cursor that changes
its format twice while acks flow.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from cursorkeeper.core.footer import FORMAT_NATIVE, FORMAT_PULSAR
from daemon.tests.end_to_end.stored import reading, stored
from testcontainers_tests.cluster import faults
from testcontainers_tests.cluster.conditions import until
from testcontainers_tests.cluster.nodes import STREAM_PORT, SourceNode
from testcontainers_tests.cluster.stack import ContainerStack
from testcontainers_tests.cluster.truth import Verdict

PULSAR = {"format": FORMAT_PULSAR, "flush_interval_ms": 20}
SLOWLY_MS = 50


async def is_stored_as(stack: ContainerStack, source: SourceNode, form: str) -> None:
    """Every footer says so: nothing of the other format is needed any more to read the cursor."""

    async def look() -> bool:
        async with reading(stack.gateway.client_address, stack.zookeeper.client_address) as ports:
            found = [(await stored(ports, topic, "steady")).footer for topic in source.topics]
        formats = {item.format for footer in found for item in footer.chain} | {
            footer.format for footer in found
        }
        assert formats == {form}, formats
        return True

    await until(look, f"every cursor is stored as {form}")


async def test_another_daemon_reads_pulsars_form_after_a_kill(
    stack: ContainerStack, accept: Callable[[Verdict], None]
) -> None:
    writer = stack.make_daemon(5, **PULSAR)
    await stack.add(writer)
    source = await stack.source(
        "pulsar", daemon=f"{writer.name}:{STREAM_PORT}", interval_ms=SLOWLY_MS, moves=True
    )
    async with faults.killed(writer):
        pass
    await source.flows()
    await is_stored_as(stack, source, FORMAT_PULSAR)
    await asyncio.to_thread(writer.kill)
    # nobody sends again: what was confirmed is in Pulsar's bytes, or lost
    await asyncio.to_thread(source.kill)
    accept(await stack.verdict(source))  # the reader's own format is native


@asynccontextmanager
async def pulsars_form_on_daemon_1(stack: ContainerStack) -> AsyncIterator[None]:
    """SIGTERM, and started again with other settings; and back, whatever happens."""
    assert await stack.replace_daemon(1, **PULSAR) == 0
    try:
        yield
    finally:
        code = await stack.replace_daemon(1)
    assert code == 0


async def test_a_cursor_changes_its_format_and_back_while_acks_flow(
    stack: ContainerStack, accept: Callable[[Verdict], None]
) -> None:
    source = await stack.source("formats", interval_ms=SLOWLY_MS)
    await is_stored_as(stack, source, FORMAT_NATIVE)
    async with pulsars_form_on_daemon_1(stack):
        await source.flows()
        await is_stored_as(stack, source, FORMAT_PULSAR)
    await source.flows()
    await is_stored_as(stack, source, FORMAT_NATIVE)
    async with faults.killed(stack.daemon):
        pass
    await source.finish()
    accept(await stack.verdict(source))

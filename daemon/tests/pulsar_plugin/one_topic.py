"""Stories of one broker and one topic with `java/brokers/traffic/Traffic.java`: it is filled,
consumed, the broker killed, and counted.

Serves the tests of receipts, of the way back and of the shadow. Owns: the sizes, and a process to
its last line. Does not own: the processes (`tools.brokers.traffic`).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

from cursorkeeper.demo.processes import LineProcess
from tools.brokers.traffic import Consumed, Topic, last_line

T = TypeVar("T")
MESSAGES, ENTRIES_PER_LEDGER = 20_000, 4_000
CONF = {
    "acknowledgmentAtBatchIndexLevelEnabled": "true",  # by default since 4.1
    "managedLedgerMaxEntriesPerLedger": str(ENTRIES_PER_LEDGER),
    "managedLedgerMinLedgerRolloverTimeMinutes": "0",
}


async def traffic(topic: Topic, command: str, shape: type[T]) -> T:
    """Runs it to its last line."""
    process = topic.process(command)
    await process.start()
    try:
        return await last_line(process, shape, lambda count: None)
    finally:
        await process.kill()


@asynccontextmanager
async def consumed(
    topic: Topic, begin: Callable[[LineProcess], Awaitable[None]] = LineProcess.start
) -> AsyncIterator[Consumed]:
    """All is consumed, and the consumer still connected: whoever kills the broker inside does it
    right after the last receipt.
    """
    consumer = topic.process("consume")
    try:
        await begin(consumer)
        yield await last_line(consumer, Consumed, lambda count: None)
    finally:
        await consumer.kill()

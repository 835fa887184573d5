"""One source through a row of faults: each step has a name, its seconds, and the proof that writes succeed again after it.

Owns: the names of steps in failures and in the output. Does not own: what a step does (the tests), or the verdict (`truth`).
Invariant: whatever fails inside a step says which step it was and what had gone well before it.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from testcontainers_tests.cluster.nodes import SourceNode
from testcontainers_tests.cluster.stack import ContainerStack
from testcontainers_tests.cluster.truth import Verdict

PROOF_BATCHES = 5
"""So many more batches of every cursor are durable: it goes on."""
INTERVAL_MS = 50
"""Of the sources here. Slow on purpose: where nearly everything is acked already, a loss would not show."""


class Story:
    """Made by `begin`."""

    def __init__(self, stack: ContainerStack, source: SourceNode) -> None:
        self.stack, self.source = stack, source
        self.steps: list[str] = []

    @staticmethod
    async def begin(stack: ContainerStack, name: str, **arguments: object) -> Story:
        """With a new source, whose acks flow."""
        return Story(stack, await stack.source(name, **{"interval_ms": INTERVAL_MS, "flows": PROOF_BATCHES, **arguments}))  # type: ignore[arg-type]

    async def flows(self, batches: int = PROOF_BATCHES) -> None:
        """Writes succeed now."""
        await self.source.flows(batches)

    @asynccontextmanager
    async def step(self, what: str) -> AsyncIterator[None]:
        """One fault and its healing; writes succeed at its end."""
        began = time.monotonic()
        try:
            yield
            healed = time.monotonic()
            await self.flows()
        except BaseException as e:
            e.add_note(
                f"step {len(self.steps) + 1}, {what!r}, after {time.monotonic() - began:.1f} s; before it: {self.steps or 'nothing'}"
            )
            raise
        now = time.monotonic()
        self.steps.append(f"{what}: {now - began:.1f} s")
        print(f"  {what}: {now - began:.1f} s, of these {now - healed:.1f} s until writes succeed again")

    async def end(self, accept: Callable[[Verdict], None]) -> Verdict:
        """Everything that was sent becomes durable; then every ack is judged, as a new owner finds it."""
        try:
            await self.source.finish()
            verdict = await self.stack.verdict(self.source)
            accept(verdict)
        except BaseException as e:
            e.add_note(f"after the steps {self.steps}")
            raise
        return verdict

"""One source through a row of faults: each step has a name, its seconds, and the proof that writes
succeed again after it.

Owns: the names of steps in failures and in the output. Does not own: what a step does (the tests),
or the verdict (`truth`). Invariant: whatever fails inside a step says which step it was and what
had gone well before it.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, asynccontextmanager, contextmanager
from typing import Any

from testcontainers_tests.cluster.nodes import SourceNode
from testcontainers_tests.cluster.stack import ContainerStack
from testcontainers_tests.cluster.truth import Verdict

PROOF_BATCHES = 5
"""So many more batches of every cursor are durable: it goes on."""
INTERVAL_MS = 60
"""Of the sources here. Slow on purpose: where nearly everything is acked already, a loss would
hardly show.
"""


class Story:
    """Made by `begin`."""

    def __init__(self, stack: ContainerStack, source: SourceNode, name: str) -> None:
        self.stack, self.source, self.name = stack, source, name
        self.steps: list[str] = []

    @staticmethod
    async def begin(stack: ContainerStack, name: str, **arguments: Any) -> Story:
        """With a new source, whose acks flow."""
        began = time.monotonic()
        source = await stack.source(
            name, **{"interval_ms": INTERVAL_MS, "flows": PROOF_BATCHES, **arguments}
        )
        story = Story(stack, source, name)
        story._say(f"{source.name} has begun", began)
        return story

    async def flows(self, batches: int = PROOF_BATCHES) -> None:
        """Writes succeed now."""
        await self.source.flows(batches)

    @asynccontextmanager
    async def step(self, what: str) -> AsyncIterator[None]:
        """One fault and its healing; writes succeed at its end."""
        began = time.monotonic()
        with self._known_as(f"step {len(self.steps) + 1}, {what!r}"):
            yield
            healed = time.monotonic()
            await self.flows()
        self.steps.append(what)
        self._say(f"{what}; flows again after {time.monotonic() - healed:.1f} s", began)

    async def paused_under(self, *faults: AbstractContextManager[None]) -> None:
        """The faults last until the source is asked to pause; without them it goes on by itself."""
        before = len(self.source.pauses())
        with ExitStack() as active:
            for fault in faults:
                active.enter_context(fault)
            await self.source.paused_by(since=before)
        await self.source.resumed()

    async def end(self, accept: Callable[[Verdict], None]) -> None:
        """Everything that was sent becomes durable; then every ack is judged, as a new owner finds
        it.
        """
        began = time.monotonic()
        with self._known_as("the end"):
            await self.source.finish()
            verdict = await self.stack.verdict(self.source)
            accept(verdict)
        self._say("judged", began)

    @contextmanager
    def _known_as(self, what: str) -> Iterator[None]:
        began = time.monotonic()
        try:
            yield
        except BaseException as e:
            e.add_note(
                f"{self.name}: {what}, after {time.monotonic() - began:.1f} s; before it went "
                f"well: {self.steps or 'nothing'}"
            )
            raise

    def _say(self, what: str, since: float) -> None:
        print(f"  {time.monotonic() - since:5.1f} s  {self.name}: {what}")

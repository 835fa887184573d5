"""Reading a cluster's cursors and judging them, one row each, topic by topic. Reads only; nothing
is recovered or fenced.

A topic's brokers are asked first, its cursors are read after: what was in memory then and is not
stored now would have been lost in between. What is wrong with one cursor, or with one topic's
answer, is a row with the error; ZooKeeper, BookKeeper or the admin address away ends the run. Held
in memory: `jobs` topics at once, each with its cursors' states one at a time.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

import msgspec

from cursorkeeper.assess.internals import InternalsError, TopicInternals
from cursorkeeper.assess.judge import Layout, Native, Stored, judge
from cursorkeeper.assess.memory import Memory, Told
from cursorkeeper.assess.totals import Row
from cursorkeeper.core.values import LayoutState, Stamp
from cursorkeeper.format.pulsar.names import encode_name
from cursorkeeper.format.pulsar.states import to_ack_state
from cursorkeeper.format.pulsar.values import PositionInfo
from cursorkeeper.migration.cluster import (
    PulsarCursorRef,
    PulsarPorts,
    Selection,
    SkippedPath,
    iter_cursors,
    nobody,
)
from cursorkeeper.migration.errors import MigrationError
from cursorkeeper.migration.patience import Patience
from cursorkeeper.migration.pulsar_cursor import PulsarCursor
from cursorkeeper.migration.pulsar_reader import read_cursor
from cursorkeeper.problems import Kind
from cursorkeeper.pulsar_broker.settings import PulsarSettings
from cursorkeeper.sizes.native import snapshot_records

NOT_IN_ZOOKEEPER = (
    "the broker has it, ZooKeeper has not: a reader without a durable "
    "subscription, or it was just made or deleted"
)
NOT_IN_MEMORY = "it is stored, and the broker's answer for its topic does not name it"


@dataclass(frozen=True, slots=True)
class Assessment:
    """What to judge by. `compare`: also what CursorKeeper would store."""

    ports: PulsarPorts
    memory: Memory
    settings: PulsarSettings
    compare: bool = False
    patience: Patience | None = None

    async def rows(
        self,
        selection: Selection,
        *,
        jobs: int = 4,
        skipped: Callable[[SkippedPath], None] = nobody,
        found: Callable[[int], None] = lambda _n: None,
    ) -> AsyncIterator[Row]:
        """One row per cursor, in the order of their paths. `found` hears of cursors as they are
        found. Raises MigrationError (AWAY, NOT_FOUND), AdminAway.
        """
        running: deque[asyncio.Task[list[Row]]] = deque()
        try:
            async for refs in self._topics(selection, skipped):
                found(len(refs))
                others = skipped if not selection.subscription else nobody
                running.append(asyncio.create_task(self._topic(refs, others)))
                while len(running) >= jobs:
                    for row in await running.popleft():
                        yield row
            while running:
                for row in await running.popleft():
                    yield row
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)

    async def _topics(
        self, selection: Selection, skipped: Callable[[SkippedPath], None]
    ) -> AsyncIterator[list[PulsarCursorRef]]:
        refs: list[PulsarCursorRef] = []
        async for ref in iter_cursors(
            self.ports.zookeeper, selection, skipped=skipped, patience=self.patience
        ):
            if refs and ref.topic != refs[0].topic:
                yield refs
                refs = []
            refs.append(ref)
        if refs:
            yield refs

    async def _topic(
        self, refs: list[PulsarCursorRef], others: Callable[[SkippedPath], None]
    ) -> list[Row]:
        """Rows of one topic's cursors; `others` hears of what only the broker has: nothing of it is
        stored, so nothing is at risk.
        """
        told: Told | InternalsError
        try:
            told = await self.memory.topic(refs[0].topic)
        except InternalsError as error:
            told = error
        rows = [await self._cursor(ref, told) for ref in refs]
        if isinstance(told, TopicInternals):
            known = {
                name for ref in refs for name in (ref.subscription, encode_name(ref.subscription))
            }
            for name in sorted(set(told.cursors) - known):
                others(SkippedPath(f"{refs[0].topic}|{name}", NOT_IN_ZOOKEEPER))
        return rows

    async def _cursor(self, ref: PulsarCursorRef, told: Told | InternalsError) -> Row:
        try:
            if isinstance(told, InternalsError):
                raise told
            memory = _memory_of(ref, told)
            cursor = await self._read(ref)
            return await asyncio.to_thread(self._judged, cursor, memory, told)
        except InternalsError as error:
            return Row(
                ref.topic,
                ref.subscription,
                error=f"internalStats: {error}",
                remedy=self.memory.remedy,
            )
        except MigrationError as error:
            if error.kind is Kind.AWAY:
                raise
            place = f"{error.where}: " if error.where else ""
            return Row(
                ref.topic, ref.subscription, error=f"{place}{error.message}", remedy=error.remedy
            )

    async def _read(self, ref: PulsarCursorRef) -> PulsarCursor:
        try:
            return await read_cursor(self.ports, ref, patience=self.patience)
        except MigrationError as error:
            if error.kind is not Kind.MISSING:
                raise
            # as Pulsar would
            return await read_cursor(
                self.ports, ref, roll_back_unreadable=True, patience=self.patience
            )

    def _judged(self, cursor: PulsarCursor, memory: PositionInfo | None, told: Told) -> Row:
        layout = _layout(cursor, told)
        fresh = cursor.freshness
        stored = Stored(
            cursor.state,
            fresh.ledger < 0,
            bool(fresh.rolled_back),
            cursor.bytes_read,
            cursor.cursor_properties,
        )
        verdict = judge(stored, memory, layout, self.settings)
        if self.compare:
            state = to_ack_state(
                memory or cursor.state,
                cursor.layout,
                stamp=Stamp(1, 1),
                cursor_properties=cursor.cursor_properties,
            )
            native = Native(snapshot_records(state)[0])
            verdict = msgspec.structs.replace(verdict, native=native)
        notes = (fresh.sentence, *cursor.warnings)
        return Row(cursor.ref.topic, cursor.ref.subscription, verdict, notes=notes)


def _memory_of(ref: PulsarCursorRef, told: Told) -> PositionInfo | None:
    if told is None:
        return None
    found = told.cursors.get(ref.subscription) or told.cursors.get(encode_name(ref.subscription))
    if found is None:
        raise InternalsError(NOT_IN_MEMORY)
    if isinstance(found, InternalsError):
        raise found
    return found


def _layout(cursor: PulsarCursor, told: Told) -> Layout:
    layout: dict[int, int | None] = {
        item.ledger: item.entries if item.state is LayoutState.CLOSED else None
        for item in cursor.layout
    }
    if isinstance(told, TopicInternals):
        for ledger, entries in told.entries_by_ledger.items():
            layout[ledger] = max(entries, layout.get(ledger) or 0)
    return dict(sorted(layout.items()))

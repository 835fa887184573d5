"""Footers from ZooKeeper in bulk, bucket by bucket: what every table starts from.

Owns: how buckets are listed and footers read (multiRead, several requests at once), and that a
footer which cannot be decoded is a value. Does not own: which bucket is whose task (`plan`), nor
the rows. Invariants: reads see everything that was committed before the task began
(one `sync`); a footer that vanishes between listing and read is not there; names are chosen before
their footers are read; at most `READS_AT_ONCE` answers wait to be looked at, and nothing is under
way while they are: Spark may take its time with a batch, and the loop that would hear ZooKeeper's
answers stands still meanwhile; only the cursor's own znode counts (a node of another name or in
another bucket is nobody's, as for the daemon); where nothing is found the root is looked at, and
one that cannot be right is refused as the commands refuse it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from typing import Final, TypeVar

from cursorkeeper.connections import footer_store
from cursorkeeper.core.footer import Footer, FooterState
from cursorkeeper.core.names import CursorName
from cursorkeeper.format.pulsar import names
from cursorkeeper.inspection import roots
from cursorkeeper.migration.cluster import Selection
from cursorkeeper.migration.errors import MigrationError
from cursorkeeper.problems import Kind, ProblemError
from cursorkeeper.zookeeper import errors as zk_errors
from cursorkeeper.zookeeper.port import ZooKeeper
from cursorkeeper_pipeline.decode.footer_rows import Found
from cursorkeeper_pipeline.source.options import Options
from cursorkeeper_pipeline.source.pace import Pace

A = TypeVar("A")
B = TypeVar("B")

LISTINGS_AT_ONCE: Final = 64
READ_BATCH: Final = 400
"""Footers of one read at most, which is one or two requests."""
READ_BATCH_FIRST: Final = 16
"""Before it is known how large they are."""
READ_BYTES: Final = 4 << 20
"""Of one read, by the mean of the one before: a footer may hold a whole state."""
READS_AT_ONCE: Final = 8


def now_us() -> int:
    """Microseconds since 1970."""
    return time.time_ns() // 1000


def is_tombstone(found: Found) -> bool:
    return isinstance(found.footer, Footer) and found.footer.state is FooterState.DELETED


def chooses(selection: Selection, name: CursorName) -> bool:
    """Whether a cursor is asked for. A topic that Pulsar could not have is chosen only where
    everything is.
    """
    if selection == Selection.everything():
        return True
    try:
        managed = names.managed_ledger_name(name.topic)
    except ValueError:
        return False
    return selection.takes(managed, name.subscription)


class Reader:
    """Footers below one root. Waits `options.wait_s` for a ZooKeeper that is away, then raises
    ProblemError.
    """

    def __init__(self, zookeeper: ZooKeeper, options: Options) -> None:
        self._zk, self._root = zookeeper, options.root
        self._footers = footer_store(zookeeper, options.settings)
        self._selection, self._wanted = options.selection, options.wanted
        self._with_deleted = options.deleted
        self._where, self._patience, self._systems = (
            options.zookeeper,
            options.patience,
            options.settings.systems,
        )
        self._batch, self._pace = READ_BATCH_FIRST, Pace(options.footer_rate_s)

    async def sync(self) -> None:
        """Reads from here on see everything that is committed now."""
        await self._patiently(self._footers.sync)

    async def check_root(self) -> None:
        """Where no bucket was found. Raises ProblemError if that cannot be believed."""
        await self._patiently(lambda: roots.check_root(self._zk, self._systems))

    async def buckets(self) -> list[str]:
        """In which a cursor that is wanted may be, in order; empty if there is no root."""
        there = await self._children(self._root)
        buckets = self._wanted.buckets
        return there if buckets is None else [bucket for bucket in there if bucket in buckets]

    async def bucket_sizes(self) -> dict[str, int]:
        """How many znodes each bucket has, chosen or not, from the buckets' own stats: no name is
        listed.
        """
        buckets = await self.buckets()
        nodes = await self._patiently(
            lambda: self._zk.multi_read([f"{self._root}/{bucket}" for bucket in buckets])
        )
        return {
            bucket: node.stat.children_count
            for bucket, node in zip(buckets, nodes, strict=True)
            if node is not None
        }

    async def one(self, name: CursorName) -> Found | None:
        """One cursor's footer, None if it has none."""
        found = await self._read([name])
        return found[0] if found else None

    async def alone(self) -> Found | None:
        """The one cursor that the options name: if it is there, it is all that is asked for. None:
        none is named, or it is not there, and then it may be the name of a partitioned topic, whose
        partitions have the cursors. The rule of every table.
        """
        if not self._selection.subscription:
            return None
        found = await self.one(CursorName(self._selection.topic, self._selection.subscription))
        return None if found is None or is_tombstone(found) else found

    async def in_buckets(self, buckets: Collection[str]) -> AsyncIterator[list[Found]]:
        """The footers of the chosen cursors in these buckets, in batches of at most `READ_BATCH`. A
        single named cursor is one read. Tombstones only with `options.deleted`. Raises ProblemError
        (ZooKeeper does not answer, or the root is none), ZooKeeperError (it refuses).
        """
        await self.sync()
        if (alone := await self.alone()) is not None:
            if alone.name.bucket in buckets and self._wanted.accepts(alone.name):
                yield [alone]
            return
        there = await self.buckets()
        if not there:
            await self.check_root()
        async for batch in self._found(self.names_in(sorted(set(there).intersection(buckets)))):
            yield batch

    async def named(self, names: Sequence[CursorName]) -> AsyncIterator[list[Found]]:
        """The footers of these cursors, each named once, where they have one."""
        await self.sync()

        async def at_once() -> AsyncIterator[Sequence[CursorName]]:
            yield names

        async for batch in self._found(at_once()):
            yield batch

    async def _found(
        self, names: AsyncIterator[Sequence[CursorName]]
    ) -> AsyncIterator[list[Found]]:
        async def answer(batch: list[CursorName]) -> list[Found]:
            found = await self._read(batch)
            mean_bytes = sum(one.stat.data_bytes for one in found) // max(1, len(found))
            self._batch = max(1, min(READ_BATCH, 2 * self._batch, READ_BYTES // max(1, mean_bytes)))
            return found

        async for found in in_rounds(self._batches(names), answer, READS_AT_ONCE):
            yield [one for one in found if self._with_deleted or not is_tombstone(one)]

    async def names_in(self, buckets: Sequence[str]) -> AsyncIterator[Sequence[CursorName]]:
        """The chosen cursors of each bucket."""

        async def each() -> AsyncIterator[str]:
            for bucket in buckets:
                yield bucket

        async def named(bucket: str) -> list[CursorName]:
            children = await self._children(f"{self._root}/{bucket}")
            return [name for child in children if (name := self._chosen(bucket, child)) is not None]

        async for found in in_rounds(each(), named, LISTINGS_AT_ONCE):
            yield found

    def _chosen(self, bucket: str, child: str) -> CursorName | None:
        try:
            name = CursorName.from_znode(child)
        except ValueError:
            return None
        if name.bucket != bucket or name.znode != child:
            return None
        return name if self._wanted.accepts(name) and chooses(self._selection, name) else None

    async def _batches(
        self, names: AsyncIterator[Sequence[CursorName]]
    ) -> AsyncIterator[list[CursorName]]:
        batch: list[CursorName] = []
        async for some in names:
            batch += some
            at = 0
            while len(batch) - at >= (size := self._batch):
                yield batch[at : at + size]
                at += size
            batch = batch[at:]
        if batch:
            yield batch

    async def _read(self, names: Sequence[CursorName]) -> list[Found]:
        """The footers of those that have one, in order."""
        stored = await self._patiently(lambda: self._footers.read_stored(names))
        read_at_us = now_us()
        await self._pace.pay(len(names))
        return [
            Found(name, one.footer, one.stat, read_at_us)
            for name, one in zip(names, stored, strict=True)
            if one.footer is not None and one.stat is not None
        ]

    async def _children(self, path: str) -> list[str]:
        try:
            return await self._patiently(lambda: self._zk.children(path))
        except zk_errors.NoNode:
            return []

    async def _patiently(self, call: Callable[[], Awaitable[B]]) -> B:
        try:
            return await self._patience.repeat("", call)
        except MigrationError as e:
            said = e.__cause__ or e
            raise ProblemError(
                f"ZooKeeper at {self._where} did not answer for {self._patience.wait_s:g} s: "
                f"{said}",
                "look at it and run this again, or give it longer with the option waitS",
                Kind.AWAY,
            ) from e


async def in_rounds(
    things: AsyncIterator[A], work: Callable[[A], Awaitable[B]], at_once: int
) -> AsyncIterator[B]:
    """`work` of each, in order, `at_once` of them at once. Nothing is under way when a result is
    handed out.
    """
    some: list[A] = []
    async for thing in things:
        some.append(thing)
        if len(some) == at_once:
            for result in await _round(some, work):
                yield result
            some = []
    for result in await _round(some, work):
        yield result


async def _round(things: Sequence[A], work: Callable[[A], Awaitable[B]]) -> list[B]:
    working = [asyncio.ensure_future(work(thing)) for thing in things]
    try:
        return await asyncio.gather(*working)
    finally:
        for one in working:
            one.cancel()
        await asyncio.gather(*working, return_exceptions=True)

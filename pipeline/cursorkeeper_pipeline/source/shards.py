"""Footers from ZooKeeper in bulk, bucket by bucket: what every table starts from.

Owns: how buckets are listed and footers read (multiRead, several requests at once), and that a
footer which cannot be decoded is a value. Does not own: which bucket is whose task (`fleet`,
`planning`), nor the rows. Invariants: reads see everything that was committed before the task began
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
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple, TypeVar

from cursorkeeper.core.errors import DamageError
from cursorkeeper.core.footer import Footer, FooterState
from cursorkeeper.core.names import CursorName
from cursorkeeper.format import footer as codec
from cursorkeeper.inspection import roots
from cursorkeeper.migration.cluster import Selection
from cursorkeeper.migration.errors import MigrationError
from cursorkeeper.migration.patience import Patience
from cursorkeeper.problems import Kind, ProblemError
from cursorkeeper.zookeeper import errors as zk_errors
from cursorkeeper.zookeeper.port import ZooKeeper
from cursorkeeper.zookeeper.values import Node, Stat
from cursorkeeper_pipeline.source.fleet import chooses
from cursorkeeper_pipeline.source.options import Options
from cursorkeeper_pipeline.source.pacing import Pace
from cursorkeeper_pipeline.source.systems import Systems

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


class Found(NamedTuple):
    """A footer as it was read, or why it cannot be read. `stat` is its znode's."""

    name: CursorName
    footer: Footer | DamageError
    stat: Stat


class Batch(list[Found]):
    """What one answer of ZooKeeper held. `read_at_us`: when it came, in microseconds since 1970."""

    def __init__(self, found: Iterable[Found], read_at_us: int) -> None:
        super().__init__(found)
        self.read_at_us = read_at_us


class Answer(NamedTuple):
    """Footers as ZooKeeper gave them, not decoded."""

    nodes: list[tuple[CursorName, Node]]
    read_at_us: int


def read_footers(
    systems: Systems, options: Options, buckets: Sequence[str] | None = None
) -> Iterator[Found]:
    """The footers of the chosen cursors in these buckets; None: in all of them. A single named
    cursor is one read. Tombstones only with `options.deleted`. Raises ProblemError (it does not
    answer, or the root is none), ZooKeeperError (it refuses).
    """

    for batch in read_batches(systems, options, buckets):
        yield from batch


def read_batches(
    systems: Systems, options: Options, buckets: Sequence[str] | None = None
) -> Iterator[Batch]:
    """The same in batches of at most `READ_BATCH`."""

    async def reading() -> AsyncIterator[Batch]:
        async for batch in footers_in(await systems.zookeeper(), options, buckets):
            yield batch

    yield from systems.iterate(reading())


async def footers_in(
    zookeeper: ZooKeeper,
    options: Options,
    buckets: Sequence[str] | None = None,
    reader: Reader | None = None,
) -> AsyncIterator[Batch]:
    """The same for those who have a loop, and perhaps a `reader` whose pace counts."""
    reader = reader or Reader(zookeeper, options)
    await reader.sync()
    if (alone := await reader.alone()) is not None:
        if (buckets is None or alone.name.bucket in buckets) and options.wanted.accepts(alone.name):
            yield Batch([alone], now_us())
        return
    there = await reader.buckets()
    if not there:
        await reader.check_root()
    async for answer in reader.nodes(
        there if buckets is None else sorted(set(there).intersection(buckets))
    ):
        found = [decoded(name, node) for name, node in answer.nodes]
        yield Batch(
            found if options.deleted else (one for one in found if not is_tombstone(one)),
            answer.read_at_us,
        )


async def footers_of(
    reader: Reader, options: Options, names: Sequence[CursorName]
) -> AsyncIterator[Batch]:
    """The same of these cursors, each named once."""
    await reader.sync()
    async for answer in reader.named(names):
        found = [decoded(name, node) for name, node in answer.nodes]
        yield Batch(
            found if options.deleted else (one for one in found if not is_tombstone(one)),
            answer.read_at_us,
        )


def now_us() -> int:
    """Microseconds since 1970."""
    return time.time_ns() // 1000


def decoded(name: CursorName, node: Node) -> Found:
    try:
        return Found(name, codec.decode(node.data, name, node.version), node.stat)
    except DamageError as e:
        return Found(name, e, node.stat)


def is_tombstone(found: Found) -> bool:
    """Whether the cursor was deleted."""
    return isinstance(found.footer, Footer) and found.footer.state is FooterState.DELETED


class Reader:
    """Footers below one root. Waits `options.wait_s` for a ZooKeeper that is away, then raises
    ProblemError.
    """

    def __init__(self, zookeeper: ZooKeeper, options: Options) -> None:
        self._zk, self._root = zookeeper, options.root
        self._selection = None if options.selection == Selection.everything() else options.selection
        self._wanted = None if options.wanted.is_everything else options.wanted
        self._where, self._patience, self._settings = (
            options.zookeeper,
            Patience(options.wait_s),
            options.settings,
        )
        self._batch, self._pace = READ_BATCH_FIRST, Pace(options.footer_rate_s)

    async def sync(self) -> None:
        """Reads from here on see everything that is committed now."""
        await self._patiently(lambda: self._zk.sync(self._root))

    async def check_root(self) -> None:
        """Where no bucket was found. Raises ProblemError if that cannot be believed."""
        await self._patiently(lambda: roots.check_root(self._zk, self._settings))

    async def buckets(self) -> list[str]:
        """In which a cursor that is wanted may be, in order; empty if there is no root."""
        there = await self._children(self._root)
        buckets = self._wanted.buckets if self._wanted is not None else None
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
        nodes = await self._patiently(lambda: self._zk.multi_read([name.path(self._root)]))
        await self._pace.pay(1)
        return None if nodes[0] is None else decoded(name, nodes[0])

    async def alone(self) -> Found | None:
        """The one cursor that the options name: if it is there, it is all that is asked for. None:
        none is named, or it is not there, and then it may be the name of a partitioned topic, whose
        partitions have the cursors. The rule of every table.
        """
        if self._selection is None or not self._selection.subscription:
            return None
        found = await self.one(CursorName(self._selection.topic, self._selection.subscription))
        return None if found is None or is_tombstone(found) else found

    async def nodes(self, buckets: Sequence[str]) -> AsyncIterator[Answer]:
        """The chosen cursors' znodes, read and not decoded."""
        async for read in self._answers(self._batches(buckets)):
            yield read

    async def named(self, names: Sequence[CursorName]) -> AsyncIterator[Answer]:
        """The znodes of these, in order, where they have one."""

        async def batches() -> AsyncIterator[list[CursorName]]:
            at = 0
            while at < len(names):
                size = self._batch
                yield list(names[at : at + size])
                at += size

        async for read in self._answers(batches()):
            yield read

    async def _answers(self, batches: AsyncIterator[list[CursorName]]) -> AsyncIterator[Answer]:
        async def answer(names: list[CursorName]) -> Answer:
            nodes = await self.read(names)
            mean_bytes = sum(len(node.data) for _, node in nodes) // max(1, len(nodes))
            self._batch = max(1, min(READ_BATCH, 2 * self._batch, READ_BYTES // max(1, mean_bytes)))
            return Answer(nodes, now_us())

        async for read in in_rounds(batches, answer, READS_AT_ONCE):
            yield read

    async def names(self, buckets: Sequence[str]) -> AsyncIterator[tuple[str, list[CursorName]]]:
        """The chosen cursors of each bucket."""

        async def each() -> AsyncIterator[str]:
            for bucket in buckets:
                yield bucket

        async def named(bucket: str) -> tuple[str, list[CursorName]]:
            children = await self._children(f"{self._root}/{bucket}")
            return bucket, [
                name for child in children if (name := self._chosen(bucket, child)) is not None
            ]

        async for found in in_rounds(each(), named, LISTINGS_AT_ONCE):
            yield found

    def _chosen(self, bucket: str, child: str) -> CursorName | None:
        try:
            name = CursorName.from_znode(child)
        except ValueError:
            return None
        if name.bucket != bucket or name.znode != child:
            return None
        if self._wanted is not None and not self._wanted.accepts(name):
            return None
        return name if self._selection is None or chooses(self._selection, name) else None

    async def _batches(self, buckets: Sequence[str]) -> AsyncIterator[list[CursorName]]:
        batch: list[CursorName] = []
        async for _, names in self.names(buckets):
            batch += names
            while len(batch) >= (size := self._batch):
                yield batch[:size]
                batch = batch[size:]
        if batch:
            yield batch

    async def read(self, names: Sequence[CursorName]) -> list[tuple[CursorName, Node]]:
        """The znodes of those that have one, in order."""
        paths = [name.path(self._root) for name in names]
        nodes = await self._patiently(lambda: self._zk.multi_read(paths))
        await self._pace.pay(len(paths))
        return [(name, node) for name, node in zip(names, nodes, strict=True) if node is not None]

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

"""A Pulsar cluster in memory beside our own world: topics, cursors in znodes and in ledgers,
written as Pulsar writes them.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

from pyroaring import BitMap

from cursorkeeper.bookkeeper.port import LedgerSpec
from cursorkeeper.core import events as ev
from cursorkeeper.core.footer import EmptyBase, FooterState
from cursorkeeper.core.positions import Position
from cursorkeeper.core.values import PartialKey
from cursorkeeper.format.pulsar import cursor_info, ledger_info, names, position_info
from cursorkeeper.format.pulsar.chunks import COMPRESSION_KEY, entries_of
from cursorkeeper.format.pulsar.values import (
    Compression,
    Form,
    LedgerInfo,
    ManagedCursorInfo,
    ManagedLedgerInfo,
    PositionInfo,
)
from cursorkeeper.inspection.reader import read_footer
from cursorkeeper.migration.cluster import (
    PulsarCursorRef,
    PulsarPorts,
    Selection,
    SkippedPath,
    iter_cursors,
)
from cursorkeeper.migration.importer import Import
from cursorkeeper.migration.patience import Patience
from cursorkeeper.zookeeper import errors as zk
from cursorkeeper.zookeeper.port import ZooKeeper
from daemon.tests.cli.conftest import NO_INLINE, CliWorld
from daemon.tests.fakes.bookkeeper.fake import FakeGateway
from daemon.tests.support.world import Source, acks

TOPIC, SUB = "persistent://t/ns/topic", "sub"
REF = PulsarCursorRef(TOPIC, SUB)
SPEC = LedgerSpec(2, 2, 2)
LAYOUT = ((7, 100), (9, 50), (12, 0))
"""Ledgers of `TOPIC`, the last one open."""
HASTY = Patience(wait_s=0.2)
PATIENT = Patience(wait_s=30.0)
BEFORE_ALL = Position(7, -1)


def state(
    mark_delete: tuple[int, int] = (7, 3),
    *,
    form: Form = Form.LONG_ARRAY,
    seed: int = 0,
    **changes: object,
) -> PositionInfo:
    """Some acked entries of `LAYOUT`, partly acked batches, properties."""
    rng = random.Random(seed)
    acked = {
        7: BitMap(rng.sample(range(10, 100), 30)),
        9: BitMap([0, 1, 2, 49]),
        12: BitMap([5, 700]),
    }
    batches = {PartialKey(7, 5): BitMap([0, 2, 63, 64]), PartialKey(12, 9): BitMap([1])}
    made = PositionInfo(Position(*mark_delete), acked, batches, {"dedup": -7}, form=form)
    return replace(made, **changes)  # type: ignore[arg-type]


def sealed(info: PositionInfo, form: Form = Form.LONG_ARRAY) -> bytes:
    """One entry of a cursor ledger."""
    return position_info.encode(info, form)


def inline(info: PositionInfo, properties: dict[str, str] | None = None) -> ManagedCursorInfo:
    """A znode that holds the state."""
    return ManagedCursorInfo(
        -1,
        info.mark_delete,
        info.acked,
        info.batches,
        info.properties,
        properties or {},
        last_active_ms=1,
    )


class PulsarWorld(CliWorld):
    """Ours and Pulsar's on the same fakes, as in life."""

    def __init__(self, seed: int = 1) -> None:
        super().__init__(seed=seed, limits=NO_INLINE)
        self._writer: FakeGateway | None = None
        self._session: ZooKeeper | None = None

    # ---- writing as Pulsar does

    async def broker(self) -> FakeGateway:
        """What a broker writes ledgers with; it lives as long as the world."""
        if self._writer is None:
            self._writer = self.bookkeeper.gateway(role="migrator")
            await self._writer.start()
        return self._writer

    async def zk(self) -> ZooKeeper:
        """A session of somebody else."""
        if self._session is None:
            self._session = self.zookeeper.session()
            await self._session.start()
        return self._session

    async def put(self, path: str, data: bytes) -> None:
        """Creates or overwrites a znode."""
        session = await self.zk()
        await session.ensure_path(path)
        node = await session.get(path)
        await session.set(path, data, node.version)

    async def remove(self, path: str) -> None:
        """Deletes a znode."""
        session = await self.zk()
        await session.delete(path, (await session.get(path)).version)

    async def data_ledger(self) -> int:
        """A message ledger that a broker writes to: the gateway would not make one."""
        self.bookkeeper._next_ledger += 100  # behind those of `LAYOUT`
        custom = {
            "application": b"pulsar",
            "component": b"managed-ledger",
            "pulsar/managed-ledger": b"t/ns/persistent/topic",
        }
        made = self.bookkeeper.new_ledger(SPEC, custom)
        return made.ledger

    async def half_imported(self, ref: PulsarCursorRef = REF, pid: int = os.getpid()) -> None:
        """A footer that an import left when it was killed: open, with a part of the acks."""
        host = self.settings.daemon.identity.rpartition("/")[0]
        keeper = await self.keeper(f"{host}/{pid}/import-pulsar")
        source = Source(keeper, ref.name)
        await source.open(create=True, takeover=False)
        source.ack(acks(7, 11, 12))
        await source.durable()
        keeper.abandon()

    async def loses_acks(self, ref: PulsarCursorRef = REF) -> None:
        """What only a comparison finds: a closed footer that is whole, and holds no acks."""
        footers = (await self.ports()).footers
        footer, version = await read_footer(footers, ref.name)
        assert footer.state is FooterState.CLOSED
        bare = replace(footer, base=EmptyBase(footer.mark_delete), chain=(), previous=None)
        answer = await footers.write(ref.name, 0, bare.written_at(version + 1), version)
        assert isinstance(answer, ev.FooterWritten)

    async def znode(self, path: str) -> bytes | None:
        """What is there."""
        try:
            return (await (await self.zk()).get(path)).data
        except zk.NoNode:
            return None

    async def topic(self, topic: str = TOPIC, ledgers: Iterable[tuple[int, int]] = LAYOUT) -> None:
        """A topic's znode."""
        found = tuple(LedgerInfo(ledger, entries or None) for ledger, entries in ledgers)
        await self.put(names.topic_path(topic), ledger_info.encode(ManagedLedgerInfo(found)))

    async def in_znode(
        self,
        info: PositionInfo,
        ref: PulsarCursorRef = REF,
        *,
        compression: Compression = Compression.NONE,
        properties: dict[str, str] | None = None,
    ) -> None:
        """A cursor whose znode holds it all, and its topic."""
        if await self.znode(ref.topic_path) is None:
            await self.topic(ref.topic)
        await self.put(
            ref.path, cursor_info.wrap(cursor_info.encode(inline(info, properties)), compression, 0)
        )

    async def ledger(
        self,
        entries: Sequence[bytes],
        ref: PulsarCursorRef = REF,
        *,
        closed: bool = True,
        metadata: dict[str, bytes] | None = None,
    ) -> int:
        """A cursor ledger with Pulsar's metadata and these entries."""
        custom = {
            "application": b"pulsar",
            "component": b"managed-ledger",
            "pulsar/managed-ledger": names.managed_ledger_name(ref.topic).encode(),
            "pulsar/cursor": names.encode_name(ref.subscription).encode(),
            **(metadata or {}),
        }
        broker = await self.broker()
        ledger = await broker.create(SPEC, custom)
        for entry, payload in enumerate(entries):
            await broker.append(ledger, entry, payload)
        if closed:
            await broker.close_ledger(ledger)
        return ledger

    async def in_ledger(
        self,
        *states: PositionInfo,
        ref: PulsarCursorRef = REF,
        closed: bool = True,
        compression: Compression | None = None,
        max_entry_bytes: int = 1 << 20,
        snapshot: Position = BEFORE_ALL,
        properties: dict[str, str] | None = None,
    ) -> int:
        """A cursor whose znode names a ledger with these states, in order."""
        if await self.znode(ref.topic_path) is None:
            await self.topic(ref.topic)
        entries: list[bytes] = []
        for info in states:
            raw = sealed(info, info.form or Form.LONG_ARRAY)
            entries += entries_of(
                raw, compression=compression, max_entry_bytes=max_entry_bytes, multiple=True
            )
        metadata = {COMPRESSION_KEY: compression.name.encode()} if compression is not None else {}
        ledger = await self.ledger(entries, ref, closed=closed, metadata=metadata)
        await self.names_ledger(ledger, ref, snapshot, properties)
        return ledger

    async def names_ledger(
        self,
        ledger: int,
        ref: PulsarCursorRef = REF,
        snapshot: Position = BEFORE_ALL,
        properties: dict[str, str] | None = None,
    ) -> None:
        """The znode, as it is while a ledger holds the state."""
        info = ManagedCursorInfo(
            ledger, snapshot, cursor_properties=properties or {}, last_active_ms=1
        )
        await self.put(ref.path, cursor_info.encode(info))

    # ---- reading and importing

    async def pulsar(self, role: str = "reader") -> PulsarPorts:
        """As the commands have it."""
        ports = await self.ports(role)
        return PulsarPorts(ports.zookeeper, ports.ledgers)

    async def importing(self, **options: object) -> Import:
        """One run of `import-pulsar`."""
        ports = await self.ports("writer")
        theirs = await self.pulsar()
        given = {"settings": self.settings, "patience": HASTY, "bar": self.bar, **options}
        return Import(ports, theirs, **given)  # type: ignore[arg-type]

    async def found(
        self, selection: Selection | None = None, patience: Patience = HASTY
    ) -> tuple[list[str], list[SkippedPath]]:
        """Cursors and skipped paths."""
        skipped: list[SkippedPath] = []
        chosen = selection or Selection.everything()
        walk = iter_cursors(await self.zk(), chosen, skipped=skipped.append, patience=patience)
        return [str(ref) async for ref in walk], skipped


@asynccontextmanager
async def within(limit_s: float = 20.0) -> AsyncIterator[None]:
    """Nothing waits for ever."""
    async with asyncio.timeout(limit_s):
        yield

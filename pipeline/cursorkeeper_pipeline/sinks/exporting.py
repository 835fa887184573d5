"""One cursor's export in a task: the command's own engine, under a claim and a record; and what attempts that died leave at Pulsar's side.

The cursor's znode decides, by its version: of two attempts that read the same version one swaps it, the other's compare-and-set fails and
its new ledger is deleted. With --replace a second look must not take what Pulsar has acked since for what is to be replaced: the first
attempt of a run *pins* the version, in a znode below the run's record, and no attempt of that run, however late, replaces another one.

What a process leaves that dies in between can be found again. A new ledger that no znode names has the run's id and the cursor in its
metadata (`marked_by`): `Leftovers` deletes it at the end of a run, if its cursor is well and its znode does not name it. A late attempt
cannot name it any more: the znode that it has read was replaced since, or held the state already, so that nothing was made. The old ledger
of a znode that was swapped is in the pin: the next attempt, which finds the cursor "already there", deletes it.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple, cast

import msgspec
from cursorkeeper.cli.export_pulsar import Exporting
from cursorkeeper.cli.migrating import FORESEEN, Outcome, failed
from cursorkeeper.cli.output import Bar
from cursorkeeper.cli.problems import NO, Problem
from cursorkeeper.format.pulsar import cursor_info
from cursorkeeper.migration.cluster import PulsarCursorRef, PulsarPorts
from cursorkeeper.migration.destination import destination_of
from cursorkeeper.migration.reading import STATE_BYTES_MAX
from cursorkeeper.migration.target import Target
from cursorkeeper.migration.writing import ABSENT, CHANGED, custom_metadata
from cursorkeeper.pulsar_broker.settings import PulsarSettings
from cursorkeeper_clients.bookkeeper.errors import NoSuchLedger
from cursorkeeper_clients.bookkeeper.port import LedgerSpec, LedgerState, LedgerStore
from cursorkeeper_clients.zookeeper import errors as zk
from cursorkeeper_clients.zookeeper.port import ZooKeeper
from cursorkeeper_clients.zookeeper.values import Version

from cursorkeeper_pipeline.sinks.claims import WAIT_S, Claims
from cursorkeeper_pipeline.sinks.record import RunDone, RunRecord, folder_of
from cursorkeeper_pipeline.sinks.tasks import JOBS, LEFT, One, Places

RACES_MAX: Final = 4
RUN_KEY, TOPIC_KEY, SUBSCRIPTION_KEY = "cursorkeeper-export", "cursorkeeper-topic", "cursorkeeper-subscription"
READ_BATCH: Final = 500
DELETE_BATCH: Final = 64


@dataclass(frozen=True, slots=True)
class Rules:
    """What the command's options say; see `Exporting`."""

    replace: bool = False
    live: bool = False
    broker_is_stopped: bool = False
    allow_loss: bool = False
    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class ExportWork:
    """See the module. `limits`: of the Pulsar that will open the cursors; `spec`: of its cursor ledgers."""

    places: Places
    run: str
    limits: PulsarSettings
    spec: LedgerSpec
    rules: Rules
    jobs: int = JOBS
    claim_wait_s: float = WAIT_S

    @asynccontextmanager
    async def opened(self, who: str) -> AsyncIterator[One]:
        """Raises CommandError."""
        places, rules = self.places, self.rules
        async with places.opened("reader", "reader" if rules.dry_run else "writer") as (ports, theirs):
            znode_bytes = places.pulsar.zookeeper_jute_maxbuffer_bytes
            entry_bytes = (await theirs.ledgers.describe()).entry_bytes_max
            target = Target(dataclasses.replace(self.limits, znode_bytes_max=znode_bytes), entry_bytes, znode_bytes)
            exporting = Exporting(
                ports, theirs, places.settings, target, self.spec, Bar("exporting"), None, rules.replace, rules.live,
                rules.broker_is_stopped, rules.allow_loss, rules.dry_run,
            )  # fmt: skip
            claims = Claims(ports.zookeeper, folder_of(places.settings.root, "claim"), who, self.claim_wait_s)
            record = RunRecord(ports.zookeeper, folder_of(places.settings.root, "export"), self.run)
            yield OneExport(exporting, claims, record, Pins(ports.zookeeper, record.path)).one


@dataclass(frozen=True, slots=True)
class OneExport:
    """One cursor at a time."""

    exporting: Exporting
    claims: Claims
    record: RunRecord
    pins: Pins

    async def one(self, ref: PulsarCursorRef) -> Outcome:
        """Never raises for what is wrong with one cursor."""
        if self.exporting.dry_run:
            return await self.exporting.one(ref)
        try:
            return await self._one(ref)
        except RunDone:
            return Outcome(str(ref), LEFT, ok=True)
        except FORESEEN as e:
            return failed(str(ref), e)

    async def _one(self, ref: PulsarCursorRef) -> Outcome:
        for race in range(1, RACES_MAX + 1):
            await self.exporting.patience.repeat(str(ref), self.record.check_open)
            async with self.claims.held(ref.name):
                outcome = await (self._replacing(ref) if self.exporting.replace else self._engine(ref).one(ref))
            if race == RACES_MAX or outcome.ok or outcome.problem is None or CHANGED not in outcome.problem.message:
                return outcome
        raise AssertionError("the last race is returned")

    def _engine(self, ref: PulsarCursorRef) -> Exporting:
        theirs = self.exporting.pulsar
        return replace(self.exporting, pulsar=PulsarPorts(theirs.zookeeper, marked_by(theirs.ledgers, self.record.id, ref)))

    async def _replacing(self, ref: PulsarCursorRef) -> Outcome:
        engine = self._engine(ref)
        there = await destination_of(engine.pulsar, ref, engine.patience)
        pin = await self.pins.pin(ref, Pin(there.version, there.cursor_ledger))
        await self.record.check_open(sync=True)  # the pins of a run that is done are gone: what was not found may have been there
        is_first = pin.version == there.version
        zookeeper = cast(ZooKeeper, Pinned(engine.pulsar.zookeeper, ref.path, pin.version))
        pinned = replace(engine, replace=is_first, pulsar=PulsarPorts(zookeeper, engine.pulsar.ledgers))
        outcome = await pinned.one(ref)
        if outcome.ok and pin.old_ledger >= 0:
            left = await Leftovers(self.exporting.pulsar).drop_old(pin.old_ledger, ref)
            return replace(outcome, notes=(*outcome.notes, *left))
        if outcome.status == "refused" and not is_first and outcome.problem is not None:
            message = f"Pulsar's cursor has changed since this run first looked at it: {outcome.problem.message}"
            return replace(outcome, problem=Problem(message, "find out who has acked there; a run with another --id looks anew", NO))
        return outcome


def marked_by(ledgers: LedgerStore, run: str, ref: PulsarCursorRef) -> LedgerStore:
    """The same; what is created says by whom and for what, beside what Pulsar looks at."""
    more = {RUN_KEY: run, TOPIC_KEY: ref.topic, SUBSCRIPTION_KEY: ref.subscription}
    return cast(LedgerStore, Marked(ledgers, {key: value.encode() for key, value in more.items()}))


class Marked:
    """See `marked_by`."""

    def __init__(self, ledgers: LedgerStore, more: Mapping[str, bytes]) -> None:
        self._ledgers, self._more = ledgers, more

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ledgers, name)

    async def create(self, spec: LedgerSpec, custom_metadata: Mapping[str, bytes]) -> int:
        """As the port's."""
        return await self._ledgers.create(spec, {**custom_metadata, **self._more})


class Pinned:
    """A ZooKeeper in which one node is only ever replaced at one version: what came since is somebody else's."""

    def __init__(self, zookeeper: ZooKeeper, path: str, version: int) -> None:
        self._zookeeper, self._path, self._version = zookeeper, path, version

    def __getattr__(self, name: str) -> Any:
        return getattr(self._zookeeper, name)

    async def set(self, path: str, data: bytes, version: Version) -> int:
        """As the port's."""
        if path == self._path and version != self._version:
            raise zk.BadVersion(path=path)
        return await self._zookeeper.set(path, data, version)

    async def create(self, path: str, data: bytes, *, ephemeral: bool = False, sequential: bool = False) -> str:
        """As the port's."""
        if path == self._path and self._version != ABSENT:
            raise zk.NodeExists(path=path)
        return await self._zookeeper.create(path, data, ephemeral=ephemeral, sequential=sequential)


class Pin(NamedTuple):
    """What a run may replace: this version of the znode (ABSENT: none), which named this ledger (-1: none)."""

    version: int
    old_ledger: int


@dataclass(frozen=True, slots=True)
class Pins:
    """Of one run, below its record, in shards."""

    zookeeper: ZooKeeper
    record: str

    async def pin(self, ref: PulsarCursorRef, seen: Pin) -> Pin:
        """What the run's first attempt has seen: `seen`, if this is it. Raises ZooKeeperError."""
        path = f"{self._folder}/{ref.name.bucket[:2]}/{ref.name.znode}"
        try:
            try:
                await self.zookeeper.create(path, msgspec.json.encode(seen))
            except zk.NoNode:
                await self.zookeeper.ensure_path(path.rpartition("/")[0])
                await self.zookeeper.create(path, msgspec.json.encode(seen))
        except zk.NodeExists:
            return msgspec.json.decode((await self.zookeeper.get(path)).data, type=Pin)
        return seen

    async def purge(self) -> None:
        """Only after the run was decided. Raises ZooKeeperError."""
        with suppress(zk.NoNode):
            for shard in await self.zookeeper.children(self._folder):
                names = await self.zookeeper.children(f"{self._folder}/{shard}")
                for first in range(0, len(names), DELETE_BATCH):
                    await asyncio.gather(*(self._delete(f"{self._folder}/{shard}/{n}") for n in names[first : first + DELETE_BATCH]))
                await self._delete(f"{self._folder}/{shard}")
            await self._delete(self._folder)

    async def _delete(self, path: str) -> None:
        with suppress(zk.NoNode, zk.NotEmpty):
            await self.zookeeper.delete(path, 0)

    @property
    def _folder(self) -> str:
        return f"{self.record}/pins"


@dataclass(frozen=True, slots=True)
class Leftovers:
    """Ledgers in Pulsar's store that attempts at an export have left."""

    pulsar: PulsarPorts

    async def made(self, run: str) -> dict[int, PulsarCursorRef]:
        """Ledgers that attempts of the run have made and that no znode names. Raises what the clients raise."""
        found: dict[int, PulsarCursorRef] = {}
        batch: dict[int, PulsarCursorRef] = {}
        async for info in self.pulsar.ledgers.list({RUN_KEY: run.encode()}):
            said = info.custom_metadata
            batch[info.ledger] = PulsarCursorRef(said[TOPIC_KEY].decode(), said[SUBSCRIPTION_KEY].decode())
            if len(batch) >= READ_BATCH:
                found |= await self._unnamed(batch)
                batch = {}
        return found | await self._unnamed(batch)

    async def _unnamed(self, batch: dict[int, PulsarCursorRef]) -> dict[int, PulsarCursorRef]:
        nodes = await self.pulsar.zookeeper.multi_read([ref.path for ref in batch.values()])
        pairs = zip(batch.items(), nodes, strict=True)
        return {ledger: ref for (ledger, ref), node in pairs if node is not None and not _may_name(node.data, ledger)}

    async def delete(self, made: Mapping[int, PulsarCursorRef], well: Collection[str]) -> list[str]:
        """Those of the cursors that are well. Raises what the clients raise."""
        gone = [ledger for ledger, ref in made.items() if str(ref) in well]
        for ledger in gone:
            await self.pulsar.ledgers.delete(ledger)
        return [f"deleted ledger {ledger} of an attempt that died: {made[ledger]}" for ledger in gone]

    async def drop_old(self, ledger: int, ref: PulsarCursorRef) -> list[str]:
        """An old cursor ledger, unless the znode still names it, or it is not certainly a closed one of this cursor. Notes. Raises what the
        clients raise."""
        await self.pulsar.zookeeper.sync(ref.path)
        try:
            node = await self.pulsar.zookeeper.get(ref.path)
        except zk.NoNode:
            return []
        return [] if _may_name(node.data, ledger) else await self._drop(ledger, ref)

    async def _drop(self, ledger: int, ref: PulsarCursorRef) -> list[str]:
        try:
            info = await self.pulsar.ledgers.metadata(ledger)
        except NoSuchLedger:
            return []
        is_its = all(info.custom_metadata.get(key) == value for key, value in custom_metadata(ref).items())
        if info.state is not LedgerState.CLOSED or not is_its:
            return [f"the old cursor ledger {ledger} of {ref} is left: it is not closed, or not certainly its"]
        await self.pulsar.ledgers.delete(ledger)
        return [f"deleted the old cursor ledger {ledger} of {ref}"]


def _may_name(znode: bytes, ledger: int) -> bool:
    """Whether a cursor's znode names the ledger, or cannot be read."""
    try:
        raw, _ = cursor_info.unwrap(znode, limit_bytes=STATE_BYTES_MAX)
        return cursor_info.decode(raw).cursors_ledger == ledger
    except FORESEEN:
        return True

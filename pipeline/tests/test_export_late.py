"""Exports on fakes: what late attempts, sweeps at the wrong time and runs that are decided
meanwhile must not do, and what is pinned.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from cursorkeeper.bookkeeper.errors import NoSuchLedger
from cursorkeeper.format.pulsar import cursor_info
from cursorkeeper.migration.cluster import PulsarPorts
from cursorkeeper.migration.exporter import Export, ledger_spec
from cursorkeeper.migration.outcome import Outcome
from cursorkeeper.migration.pulsar_reader import read_cursor
from cursorkeeper.migration.target import Target
from cursorkeeper.pulsar_broker.settings import of_version
from cursorkeeper.zookeeper import errors as zk
from cursorkeeper_pipeline.sinks.claims import Claims
from cursorkeeper_pipeline.sinks.cursor_export import OneExport
from cursorkeeper_pipeline.sinks.leftovers import Leftovers
from cursorkeeper_pipeline.sinks.pins import Pin, Pins
from cursorkeeper_pipeline.sinks.record import RunRecord, State, folder_of
from cursorkeeper_pipeline.sinks.swap import Seen, Swap, look
from cursorkeeper_pipeline.sinks.tasks import LEFT
from daemon.tests.fakes.zookeeper.fake import FakeZooKeeper
from daemon.tests.migration.pulsar_world import HASTY, REF, TOPIC, PulsarWorld, state, within
from daemon.tests.runtime.virtual import virtual
from daemon.tests.support.world import Source, acks

RUN = "r"
SWAP, BROKER_CHECK = "multi", "children"
"""Operations on Pulsar's ZooKeeper: the change itself, and what is asked right before anything is
made.
"""


@dataclass
class Gate:
    """A port that stands still before its first call of one operation, until `go`."""

    port: Any
    operation: str
    reached: asyncio.Event = field(default_factory=asyncio.Event)
    go: asyncio.Event = field(default_factory=asyncio.Event)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.port, name)
        if name != self.operation:
            return found

        async def later(*arguments: Any, **named: Any) -> Any:
            self.reached.set()
            await self.go.wait()
            return await found(*arguments, **named)

        return later


def open_gate(port: Any, operation: str) -> Gate:
    """It only tells that it was reached."""
    gate = Gate(port, operation)
    gate.go.set()
    return gate


async def waited_for(claims: Claims) -> None:
    """Until it has found that somebody else has the claim."""
    await cast(Gate, claims.zookeeper).reached.wait()


@dataclass
class Attempt:
    """One attempt, on a host of its own, with sessions of its own."""

    one: OneExport
    ours: FakeZooKeeper
    gate: Gate

    async def run(self) -> Outcome:
        return await self.one.one(REF)

    async def until_its_gate(self) -> asyncio.Task[Outcome]:
        """It stands still there."""
        task, reached = (
            asyncio.create_task(self.run()),
            asyncio.create_task(self.gate.reached.wait()),
        )
        await asyncio.wait({task, reached}, return_when=asyncio.FIRST_COMPLETED)
        reached.cancel()
        assert not task.done(), task.result()
        return task


class ExportWorld(PulsarWorld):
    """`REF` is imported, and a run that exports it is begun."""

    @property
    def folder(self) -> str:
        return folder_of(self.settings.root, "export")

    async def record(self) -> RunRecord:
        return RunRecord(await self.zk(), self.folder, RUN)

    async def begun(self, *, acked_on: bool = True) -> None:
        await self.topic(ledgers=((7, 100), (9, 50), (12, 10)))
        await self.in_ledger(state())
        assert (await (await self.importing()).one(REF)).ok
        if acked_on:
            await self.acked_on()
        await (await self.record()).begin("export", {})

    async def acked_on(self) -> None:
        """Ours: a daemon has had it."""
        source = Source(await self.keeper("daemon/1"), REF.name)
        await source.open()
        source.ack(acks(7, 4))
        await source.durable()
        assert await source.keeper.close() == []

    async def attempt(
        self, host: str = "here", *, replace: bool = True, stopped: bool = True, before: str = SWAP
    ) -> Attempt:
        ports, theirs = await self.ports("reader"), await self.pulsar("migrator")
        gate = open_gate(theirs.zookeeper, before)
        target = Target(of_version("4.2"), 5_000_000, 1_000_000)
        exporting = Export(
            ports,
            PulsarPorts(cast(Any, gate), theirs.ledgers),
            self.settings,
            target,
            ledger_spec({}),
            self.bar,
            None,
            replace,
            broker_is_stopped=stopped,
            patience=HASTY,
        )
        record = RunRecord(ports.zookeeper, self.folder, RUN)
        one = OneExport(
            exporting,
            self.claims(ports.zookeeper, host, 5.0),
            record,
            Pins(ports.zookeeper, record.path),
        )
        return Attempt(one, cast(FakeZooKeeper, ports.zookeeper), gate)

    async def gated(self, **more: Any) -> Attempt:
        made = await self.attempt(**more)
        made.gate.go.clear()
        return made

    def claims(self, zookeeper: Any, host: str, wait_s: float) -> Claims:
        """They ask who has the claim, only if somebody has it, or to give it back."""
        return Claims(
            cast(Any, open_gate(zookeeper, "get")),
            folder_of(self.settings.root, "claim"),
            "test",
            wait_s,
            host=host,
        )

    async def swept(self, claims: Claims | None = None) -> list[str]:
        """As a driver does at its end."""
        given = claims or self.claims(await self.zk(), "driver", 0.1)
        record = await (await self.record()).find()
        assert record is not None
        return await Leftovers(await self.pulsar("migrator"), HASTY).sweep(record, given)

    async def named(self) -> int:
        """The ledger that Pulsar's cursor names; what is in it can be read."""
        return (await read_cursor(await self.pulsar(), REF, patience=HASTY)).znode.cursors_ledger

    async def made(self) -> set[int]:
        """Ledgers that attempts have made, and that are there."""
        return {
            i.ledger
            async for i in (await self.pulsar()).ledgers.list({"cursorkeeper-export": RUN.encode()})
        }

    async def pins(self) -> list[str]:
        try:
            return await (await self.zk()).children(f"{self.folder}/{RUN}/pins")
        except zk.NoNode:
            return []

    async def unsubscribed(self) -> None:
        """A broker loads the topic, which rewrites its znode, and deletes the subscription."""
        await self.topic(ledgers=((7, 100), (9, 50), (12, 10), (13, 0)))
        await self.remove(REF.path)


@pytest.fixture
def world() -> ExportWorld:
    return ExportWorld()


# ---- sweeps


@pytest.mark.parametrize("has_its_claim", [True, False])
@virtual
async def test_a_late_sweep_leaves_a_ledger_that_is_about_to_be_named(
    world: ExportWorld, has_its_claim: bool
) -> None:
    """Two drivers of one run: for the first the cursor is well; ours is acked on; the second is
    replacing it when the first one sweeps.
    """
    async with within():
        await world.begun(acked_on=False)
        assert (await (await world.attempt("one")).run()).status == "already there"
        await world.acked_on()
        second = await world.gated(host="two")
        task = await second.until_its_gate()
        if not has_its_claim:
            second.ours.expire()
        (ledger,) = await world.made()
        assert "1 ledger(s) of attempts stay" in str(await world.swept())
        second.gate.go.set()
        assert (await task).status == "replaced" and await world.named() == ledger
        assert await world.swept() == [] and await world.named() == ledger


@virtual
async def test_what_a_dead_attempt_made_goes_when_its_znode_has_moved_on(
    world: ExportWorld,
) -> None:
    async with within():
        await world.begun()
        task = await (await world.gated()).until_its_gate()
        task.cancel()
        await asyncio.wait({task})
        (dead,) = await world.made()
        assert "stay" in (await world.swept())[0] and await world.made() == {dead}, (
            "nobody has moved the znode"
        )
        assert (await (await world.attempt()).run()).status == "replaced"
        assert await world.swept() == [f"deleted ledger {dead} of an attempt that died: {REF}"]
        assert await world.made() == {await world.named()} and await world.swept() == []


@virtual
async def test_an_attempt_whose_ledger_was_swept_names_nothing(world: ExportWorld) -> None:
    """It has lost its claim and wakes after the sweep."""
    async with within():
        await world.begun()
        zombie = await world.gated(host="zombie")
        task = await zombie.until_its_gate()
        (swept,) = await world.made()
        zombie.ours.expire()
        assert (await (await world.attempt()).run()).status == "replaced"
        named = await world.named()
        assert str(swept) in str(await world.swept())
        with pytest.raises(NoSuchLedger):
            await (await world.pulsar()).ledgers.metadata(swept)
        zombie.gate.go.set()
        assert (await task).status == "already there" and await world.named() == named
        assert await world.made() == {named}


@virtual
async def test_a_sweep_keeps_off_a_cursor_that_is_claimed(world: ExportWorld) -> None:
    async with within():
        await world.begun()
        task = await (await world.gated()).until_its_gate()
        task.cancel()
        await asyncio.wait({task})
        assert (await (await world.attempt()).run()).status == "replaced"
        other = await world.attempt("elsewhere")
        async with other.one.claims.held(REF.name):
            assert "stay" in (await world.swept())[0] and len(await world.made()) == 2
        assert len(await world.swept()) == 1 and len(await world.made()) == 1


@virtual
async def test_a_sweep_looks_again_when_it_has_the_claim(world: ExportWorld) -> None:
    """The subscription was deleted meanwhile: whoever makes it anew begins with its versions
    anew.
    """
    async with within():
        await world.begun()
        task = await (await world.gated()).until_its_gate()
        task.cancel()
        await asyncio.wait({task})
        (dead,) = await world.made()
        assert (await (await world.attempt()).run()).status == "replaced"
        other = await world.attempt("elsewhere")
        async with other.one.claims.held(REF.name):
            claims = world.claims(await world.zk(), "driver", 5.0)
            sweep = asyncio.create_task(world.swept(claims))
            await waited_for(claims)
            await world.unsubscribed()
        assert "stay" in (await sweep)[0] and dead in await world.made()


# ---- a run that is decided while an attempt waits or sleeps


@pytest.mark.parametrize(("decided", "status"), [(State.DONE, LEFT), (State.ABORTED, "failed")])
@pytest.mark.parametrize("replace", [False, True])
@virtual
async def test_who_waited_for_a_claim_until_the_run_was_decided_makes_nothing(
    world: ExportWorld, decided: State, status: str, replace: bool
) -> None:
    async with within():
        await world.begun()
        await world.remove(REF.path)
        other = await world.attempt("elsewhere")
        late = await world.attempt("late", replace=replace)
        async with other.one.claims.held(REF.name):
            task = asyncio.create_task(late.run())
            await waited_for(late.one.claims)
            await (await world.record()).decide(decided)
        assert (await task).status == status
        assert (
            await world.znode(REF.path) is None
            and await world.made() == set()
            and await world.pins() == []
        )


@pytest.mark.parametrize(("decided", "status"), [(State.DONE, LEFT), (State.ABORTED, "failed")])
@virtual
async def test_who_slept_until_the_run_was_decided_makes_nothing(
    world: ExportWorld, decided: State, status: str
) -> None:
    async with within():
        await world.begun()
        before, ledgers = await world.znode(REF.path), world.bookkeeper._next_ledger
        late = await world.gated(before=BROKER_CHECK)
        task = await late.until_its_gate()
        await (await world.record()).decide(decided)
        await late.one.pins.purge()
        late.gate.go.set()
        assert (await task).status == status
        assert (await world.znode(REF.path), world.bookkeeper._next_ledger, await world.pins()) == (
            before,
            ledgers,
            [],
        )


@pytest.mark.parametrize("replace", [False, True])
@virtual
async def test_a_late_swap_does_not_bring_a_deleted_subscription_back(
    world: ExportWorld, replace: bool
) -> None:
    """It has seen none; another attempt makes it, a broker loads the topic and deletes it: there is
    none again.
    """
    async with within():
        await world.begun()
        await world.remove(REF.path)
        zombie = await world.gated(host="zombie", replace=replace)
        task = await zombie.until_its_gate()
        zombie.ours.expire()
        assert (await (await world.attempt(replace=replace)).run()).status == "exported"
        await world.unsubscribed()
        assert (await (await world.record()).decide(State.DONE)).state is State.DONE
        zombie.gate.go.set()
        assert (await task).status == LEFT
        assert await world.znode(REF.path) is None and len(await world.made()) == 1, (
            "its own ledger is gone"
        )


@virtual
async def test_a_broker_that_loads_the_topic_between_look_and_swap_is_seen(
    world: ExportWorld,
) -> None:
    async with within():
        await world.begun()
        before = await world.znode(REF.path)
        attempt = await world.gated(stopped=False)
        task = await attempt.until_its_gate()
        open_ledger = await world.data_ledger()
        await world.topic(ledgers=((7, 100), (9, 50), (12, 10), (open_ledger, 0)))
        attempt.gate.go.set()
        outcome = await task
        assert (
            outcome.status == "refused"
            and outcome.problem is not None
            and "a broker may have the topic" in outcome.problem.message
        )
        assert await world.znode(REF.path) == before and await world.made() == set()


# ---- pins


@virtual
async def test_a_cursor_that_was_refused_for_its_broker_is_exported_when_it_is_unloaded(
    world: ExportWorld,
) -> None:
    async with within():
        await world.begun()
        await world.in_ledger(state(), closed=False)
        refused = await (await world.attempt(stopped=False)).run()
        assert (
            refused.status == "refused"
            and refused.problem is not None
            and "a broker may have the topic" in refused.problem.message
        )
        assert await world.pins() == []
        # the unload: another ledger, closed, and another version of the znode
        await world.in_ledger(state())
        outcome = await (await world.attempt(stopped=False)).run()
        assert outcome.status == "replaced", outcome.problem
        assert await world.named() in await world.made() and len(await world.pins()) == 1


@pytest.mark.parametrize("acked_on", [False, True], ids=["already there", "replaced"])
@virtual
async def test_what_pulsar_acks_after_the_run_was_at_the_cursor_is_never_replaced(
    world: ExportWorld, acked_on: bool
) -> None:
    async with within():
        await world.begun(acked_on=acked_on)
        assert (await (await world.attempt()).run()).status == (
            "replaced" if acked_on else "already there"
        )
        ledger = await world.in_ledger(state((7, 60)))
        refused = await (await world.attempt()).run()
        assert refused.status == "refused" and refused.problem is not None
        assert (
            "has changed since this run first looked at it: Pulsar has this cursor and it is not"
            in refused.problem.message
        )
        assert await world.named() == ledger and len(await world.made()) == acked_on


@virtual
async def test_who_slept_while_another_attempt_pinned_looks_again(world: ExportWorld) -> None:
    async with within():
        await world.begun()
        late = await world.gated(host="zombie", before=BROKER_CHECK)
        task = await late.until_its_gate()
        late.ours.expire()
        await world.in_ledger(state((7, 5)))
        assert (await (await world.attempt()).run()).status == "replaced"
        ledgers = world.bookkeeper._next_ledger
        late.gate.go.set()
        assert (
            await task
        ).status == "already there" and world.bookkeeper._next_ledger == ledgers, "it has made none"


@virtual
async def test_a_run_replaces_the_version_that_it_has_seen_first(world: ExportWorld) -> None:
    pins = Pins(await world.zk(), "/ck/exports/r")
    assert await pins.find(REF) is None
    seen = Pin(3, 70)
    assert await pins.pin(REF, seen) is seen
    assert await pins.pin(REF, Pin(9, 80)) == await pins.find(REF) == seen, (
        "a later attempt may not move it"
    )
    await pins.purge()
    assert await pins.pin(REF, Pin(9, 80)) == Pin(9, 80)
    await pins.unpin(REF)
    assert await pins.find(REF) is None


@virtual
async def test_a_znode_is_swapped_as_it_was_seen_and_no_other_way(world: ExportWorld) -> None:
    from cursorkeeper.migration.errors import MigrationError

    await world.begun()
    theirs = await world.pulsar("migrator")

    def guarded(seen: Seen, record: RunRecord) -> Any:
        return Swap(REF, seen, record).ports(theirs).zookeeper

    record, seen = await world.record(), await look(theirs.zookeeper, REF)
    version, data = (
        seen.cursor.version,
        cursor_info.encode((await read_cursor(theirs, REF, patience=HASTY)).znode),
    )
    with pytest.raises(MigrationError, match="its znode changed"):
        await guarded(seen, record).set(REF.path, data, version + 1)
    with pytest.raises(MigrationError, match="its znode changed"):
        await guarded(seen, record).create(REF.path, data)
    assert await guarded(seen, record).set(REF.path, data, version) == version + 1
    with pytest.raises(zk.BadVersion):
        await guarded(seen, record).set(REF.path, data, version)
    now = await look(theirs.zookeeper, REF)
    await world.topic(TOPIC)
    with pytest.raises(zk.BadVersion, match="topic"):
        await guarded(now, record).set(REF.path, data, now.cursor.version)
    with pytest.raises(AssertionError, match="writes nothing else"):
        await guarded(now, record).create("/beside", b"")
    assert await theirs.zookeeper.exists("/beside") is None
    await world.remove(REF.path)
    absent = await look(theirs.zookeeper, REF)
    assert absent.cursor == Pin(-1, -1)
    with pytest.raises(MigrationError, match="its znode changed"):
        await guarded(Seen(now.topic, absent.cursor), record).create(REF.path, data)
    assert await guarded(absent, record).create(REF.path, data) == REF.path

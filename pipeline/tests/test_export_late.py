"""Exports on fakes: what late attempts, sweeps at the wrong time and runs that are decided
meanwhile must not do, and what is pinned.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from typing import Any, cast

import pytest

from cursorkeeper.bookkeeper.errors import NoSuchLedger
from cursorkeeper.migration.cluster import PulsarPorts
from cursorkeeper.migration.exporter import Export, Rules, ledger_spec
from cursorkeeper.migration.leftovers import sweep
from cursorkeeper.migration.outcome import Outcome
from cursorkeeper.migration.pulsar_reader import read_cursor
from cursorkeeper.migration.target import Target
from cursorkeeper.pulsar_broker.settings import of_version
from cursorkeeper.zookeeper import errors as zk
from cursorkeeper_pipeline.jobs.export import notes_of
from cursorkeeper_pipeline.sinks.cursor_export import PINS, OneExport
from cursorkeeper_pipeline.sinks.record import RunRecord, State, folder_of
from cursorkeeper_pipeline.sinks.tasks import LEFT
from daemon.tests.migration.pulsar_world import HASTY, REF, PulsarWorld, state, within
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


@dataclass
class Attempt:
    """One attempt, on a host of its own, with sessions of its own."""

    one: OneExport
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
        return folder_of(self.settings.systems.root, "export")

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
        self, *, replace: bool = True, stopped: bool = True, before: str = SWAP
    ) -> Attempt:
        ports, theirs = await self.ports("reader"), await self.pulsar("migrator")
        gate = open_gate(theirs.zookeeper, before)
        target = Target(of_version("4.2"), 5_000_000)
        exporting = Export(
            ports,
            PulsarPorts(cast(Any, gate), theirs.ledgers),
            self.settings,
            target,
            ledger_spec({}),
            self.bar,
            rules=Rules(replace, broker_is_stopped=stopped),
            patience=HASTY,
        )
        record = RunRecord(ports.zookeeper, self.folder, RUN)
        return Attempt(OneExport(exporting, record), gate)

    async def gated(self, **more: Any) -> Attempt:
        made = await self.attempt(**more)
        made.gate.go.clear()
        return made

    async def swept(self, between: Gate | None = None) -> list[str]:
        """As a driver does at its end. `between`: stands still in its ZooKeeper."""
        record = await (await self.record()).find()
        assert record is not None
        theirs = await self.pulsar("migrator")
        if between is not None:
            between.port = theirs.zookeeper
            theirs = PulsarPorts(cast(Any, between), theirs.ledgers)
        return notes_of([pair async for pair in sweep(theirs, record.token, HASTY)])

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


@virtual
async def test_a_late_sweep_leaves_a_ledger_that_is_about_to_be_named(world: ExportWorld) -> None:
    """Two drivers of one run: for the first the cursor is well; ours is acked on; the second is
    replacing it when the first one sweeps.
    """
    async with within():
        await world.begun(acked_on=False)
        assert (await (await world.attempt()).run()).status == "already there"
        await world.acked_on()
        second = await world.gated()
        task = await second.until_its_gate()
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
    """It wakes after the sweep."""
    async with within():
        await world.begun()
        zombie = await world.gated()
        task = await zombie.until_its_gate()
        (swept,) = await world.made()
        assert (await (await world.attempt()).run()).status == "replaced"
        named = await world.named()
        assert str(swept) in str(await world.swept())
        with pytest.raises(NoSuchLedger):
            await (await world.pulsar()).ledgers.metadata(swept)
        zombie.gate.go.set()
        assert (await task).status == "already there" and await world.named() == named
        assert await world.made() == {named}


@virtual
async def test_an_attempt_whose_ledger_is_swept_while_it_writes_it_looks_again(
    world: ExportWorld,
) -> None:
    async with within():
        await world.begun()
        slow = await world.gated()
        writes = Gate(slow.one.exporting.pulsar.ledgers, "append")
        theirs = PulsarPorts(slow.one.exporting.pulsar.zookeeper, cast(Any, writes))
        slow.one = replace(slow.one, exporting=replace(slow.one.exporting, pulsar=theirs))
        slow.gate.go.set()
        task = asyncio.create_task(slow.run())
        await writes.reached.wait()
        assert (await (await world.attempt()).run()).status == "replaced"
        assert len(await world.swept()) == 1
        writes.go.set()
        assert (await task).status == "already there"
        assert await world.made() == {await world.named()}


@virtual
async def test_a_sweep_looks_again_before_it_deletes(world: ExportWorld) -> None:
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
        looks = Gate(None, "sync")
        sweep = asyncio.create_task(world.swept(looks))
        await looks.reached.wait()
        await world.unsubscribed()
        looks.go.set()
        assert "stay" in (await sweep)[0] and dead in await world.made()


# ---- a run that is decided while an attempt waits or sleeps


@pytest.mark.parametrize(("decided", "status"), [(State.DONE, LEFT), (State.ABORTED, "failed")])
@pytest.mark.parametrize(("is_there", "replace"), [(False, False), (False, True), (True, True)])
@virtual
async def test_who_slept_until_the_run_was_decided_makes_nothing(
    world: ExportWorld, decided: State, status: str, is_there: bool, replace: bool
) -> None:
    async with within():
        await world.begun()
        if not is_there:
            await world.remove(REF.path)
        before, ledgers = await world.znode(REF.path), world.bookkeeper._next_ledger
        late = await world.gated(replace=replace, before=BROKER_CHECK)
        task = await late.until_its_gate()
        await (await world.record()).decide(decided)
        await (await world.record()).forget(PINS)
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
        zombie = await world.gated(replace=replace)
        task = await zombie.until_its_gate()
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
        late = await world.gated(before=BROKER_CHECK)
        task = await late.until_its_gate()
        await world.in_ledger(state((7, 5)))
        assert (await (await world.attempt()).run()).status == "replaced"
        ledgers = world.bookkeeper._next_ledger
        late.gate.go.set()
        assert (
            await task
        ).status == "already there" and world.bookkeeper._next_ledger == ledgers, "it has made none"


@virtual
async def test_an_old_ledger_that_a_dead_attempt_has_left_goes_with_the_next(
    world: ExportWorld,
) -> None:
    async with within():
        await world.begun()
        old = await world.named()
        dying = await world.attempt()
        ledgers = Gate(dying.one.exporting.pulsar.ledgers, "delete")
        theirs = PulsarPorts(dying.one.exporting.pulsar.zookeeper, cast(Any, ledgers))
        dying.one = replace(dying.one, exporting=replace(dying.one.exporting, pulsar=theirs))
        task = asyncio.create_task(dying.run())
        await ledgers.reached.wait()
        task.cancel()
        await asyncio.wait({task})
        assert old in world.bookkeeper.ledgers and await world.named() != old
        outcome = await (await world.attempt()).run()
        assert outcome.status == "already there"
        assert f"deleted the old cursor ledger {old} of {REF}" in outcome.notes
        assert old not in world.bookkeeper.ledgers
        again = await (await world.attempt()).run()
        assert again.status == "already there" and again.notes == outcome.notes[:-1]

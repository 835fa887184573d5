"""Exports on real systems, without Spark: attempts that die after each step, that stand still and
are late, two at once.

Whatever happened: Pulsar has every cursor as ours is, and nothing is left in its store that no
znode names.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from cursorkeeper.bookkeeper.port import LedgerSpec
from cursorkeeper.demo.stack import Standalone
from cursorkeeper.migration.cluster import PulsarCursorRef
from cursorkeeper.migration.pulsar_reader import read_cursor
from cursorkeeper.migration.pulsar_writer import custom_metadata
from cursorkeeper.problems import ProblemError
from cursorkeeper_pipeline.jobs import export
from cursorkeeper_pipeline.jobs.frame import CLEAN, Reporter
from cursorkeeper_pipeline.sinks.comparison import Comparison
from cursorkeeper_pipeline.sinks.record import State
from pipeline.tests.migration_world import (
    RUN,
    StopsAt,
    dies,
    migration_world,
    state,
)

pytestmark = [pytest.mark.jvm, pytest.mark.slow]
STEPS_MAX = 30


async def test_there_and_back_and_then_left_alone(stack: Standalone, root: str) -> None:
    async with migration_world(stack, root) as world:
        await world.begun(kind="export")
        refs = await world.with_acks_of_its_own(range(2))
        before = await world.pulsar_ledgers()
        refused = await world.exported(refs[0], replace=False)
        assert (
            refused.status == "refused"
            and refused.problem is not None
            and "1 acked entries are missing" in refused.problem.message
        )
        assert (
            await world.exported(refs[0], dry_run=True)
        ).status == "would be replaced" and await world.pulsar_ledgers() == before
        assert [(await world.exported(ref)).status for ref in refs] == ["replaced"] * 2
        assert [(await world.exported(ref)).status for ref in refs] == ["already there"] * 2
        assert len(before & await world.pulsar_ledgers()) == len(before) - 2, (
            "the old ones are gone"
        )
        assert [(await Comparison(world.ports, world.theirs).one(ref)).status for ref in refs] == [
            "same"
        ] * 2
        await world.are_pulsars(refs, before)
        assert await world.swept() == []


async def test_an_attempt_that_dies_after_any_step_is_made_good_by_the_next(
    stack: Standalone, root: str
) -> None:
    async with migration_world(stack, root) as world:
        await world.begun(kind="export")
        before, refs, olds, left = await world.pulsar_ledgers(), [], set(), 0
        for step in range(1, STEPS_MAX):
            (ref,) = await world.with_acks_of_its_own([step])
            refs.append(ref)
            olds.add((await read_cursor(world.theirs, ref)).znode.cursors_ledger)
            at = StopsAt(step, dead=True)
            died = await dies(world.exported(ref, at), at)
            outcome = await world.exported(ref)
            assert outcome.ok and outcome.status in ("replaced", "already there"), (
                step,
                at.steps,
                outcome,
            )
            left += len(await world.swept()) + ("deleted the old" in str(outcome.notes))
            if not died:
                break
        assert not died and step > 6, "every step was one after which an attempt died"
        assert left >= 3, (
            "a new ledger that was never named, and an old one that was not deleted, were left "
            "at some steps"
        )
        await world.are_pulsars(refs, before)
        assert not olds & await world.pulsar_ledgers(), "no old ledger is left"


@pytest.mark.parametrize("acks_on", [False, True])
async def test_an_attempt_that_stood_still_after_any_step_harms_nobody(
    stack: Standalone, root: str, acks_on: bool
) -> None:
    """A zombie: another attempt exports the cursor, Pulsar loads it, acks on and unloads it, or
    does not; then the zombie goes on.
    """
    async with migration_world(stack, root) as world:
        await world.begun(kind="export")
        before, refs = await world.pulsar_ledgers(), []
        for step in range(1, STEPS_MAX):
            (ref,) = await world.with_acks_of_its_own([step])
            at = StopsAt(step)
            zombie = asyncio.create_task(world.exported(ref, at, host="elsewhere"))
            reached = asyncio.create_task(at.reached.wait())
            await asyncio.wait({zombie, reached}, return_when=asyncio.FIRST_COMPLETED)
            reached.cancel()
            if not at.reached.is_set():
                break
            refs.append(ref)
            outcome = await world.exported(ref)
            assert outcome.ok, (step, at.steps, outcome)
            if acks_on:
                await world.cursor(ref, state(20), "closed")
            znode = await world.theirs.zookeeper.get(ref.path)
            at.go.set()
            late = await zombie
            now = await world.theirs.zookeeper.get(ref.path)
            assert (now.data, now.version) == (znode.data, znode.version), (step, at.steps, late)
            assert late.status in (
                "already there",
                "replaced",
                "refused",
                "failed" if acks_on else "",
            ), (step, at.steps, late)
            if acks_on:
                again = await world.exported(ref)
                assert again.status == "refused" and again.problem is not None, again
                assert "has changed since this run first looked at it" in again.problem.message
        assert step > 6
        await zombie
        if not acks_on:
            await world.swept()
            await world.are_pulsars([*refs, ref], before)


async def test_a_run_that_is_over_leaves_nothing(
    stack: Standalone, root: str, tmp_path: Path
) -> None:
    """Aborted: what a dead attempt left goes. Done, by a driver that died right after it said so:
    its pins go with the next look.
    """
    async with migration_world(stack, root) as world:
        await world.begun(kind="export")
        (ref,) = await world.with_acks_of_its_own([1])
        before = await world.pulsar_ledgers()
        # two folders and its note; then its ledger is whole, and nothing names it
        at = StopsAt(4, dead=True, kinds=frozenset({"multi", "close_ledger", "delete"}))
        assert await dies(world.exported(ref, at), at)
        assert (await world.exported(ref)).status == "replaced" and len(
            await world.pulsar_ledgers() - before
        ) == 2
        pins = f"{world.record(kind='export').path}/pins"
        assert await world.ports.zookeeper.children(pins)

        def look(**arguments: bool) -> int | None:
            given = export.Arguments(settings=world.settings, id=RUN, **arguments)
            return export.before(world.options(), given, Reporter("export", str(tmp_path)))

        assert await asyncio.to_thread(look) is None, "there is something to do"
        assert await asyncio.to_thread(look, abort=True) == CLEAN
        await world.are_pulsars([ref], before)
        assert await world.ports.zookeeper.exists(pins) is None
        await world.ports.zookeeper.delete(world.record(kind="export").path, 1)
        await world.begun(kind="export")
        assert (
            await world.exported(ref)
        ).status == "already there" and await world.ports.zookeeper.children(pins)
        await world.record(kind="export").decide(State.DONE)
        assert (
            await asyncio.to_thread(look) == CLEAN
            and await world.ports.zookeeper.exists(pins) is None
        )


async def test_a_sweep_leaves_the_live_ledgers_of_another_cluster(
    stack: Standalone, root: str, tmp_path: Path
) -> None:
    """Two Pulsar clusters (two chroots) on one BookKeeper, with topics of the same name and runs of
    the same id.
    """
    async with (
        migration_world(stack, root) as one,
        migration_world(stack, root.replace("/cursors", "-b/cursors")) as other,
    ):
        await one.begun(kind="export")
        (ref,) = await one.with_acks_of_its_own([1])
        assert (await one.exported(ref)).status == "replaced"
        live = (await read_cursor(one.theirs, ref)).znode.cursors_ledger
        await other.begun(kind="export")
        assert await other.with_acks_of_its_own([1]) == [ref]
        at = StopsAt(4, dead=True, kinds=frozenset({"multi"}))  # two folders, the pin, the swap
        assert await dies(other.exported(ref, at), at)
        for _ in range(3):  # its znode is past the version that the other cluster's ledger replaced
            znode = await other.theirs.zookeeper.get(ref.path)
            await other.theirs.zookeeper.set(ref.path, znode.data, znode.version)
        await other.swept()
        assert live in await one.pulsar_ledgers(), "it is named, at the other cluster"
        assert await one.differs(ref) == ""
        old = await one.theirs.ledgers.create(
            LedgerSpec(2, 2, 2), {**tokenless(ref), **custom_metadata(ref)}
        )
        await one.theirs.ledgers.close_ledger(old)
        assert await one.swept() == []
        assert {old, live} <= await one.pulsar_ledgers()
        given = export.Arguments(
            settings=one.settings,
            id=RUN,
            abort=True,
            pulsar_zookeeper=other.pulsar.systems.zookeeper,
        )
        for also in (given, replace(given, verify=True)):
            with pytest.raises(ProblemError, match="exports to the Pulsar of"):
                await asyncio.to_thread(
                    export.before, one.options(), also, Reporter("export", str(tmp_path))
                )
        record = await one.record(kind="export").find()
        assert record is not None and record.state is State.OPEN, (
            "an abort at the wrong Pulsar decides nothing"
        )


def tokenless(ref: PulsarCursorRef) -> dict[str, bytes]:
    """A ledger that says this run, for a version that was passed long ago, without its token."""
    names = {
        "cursorkeeper-export": RUN,
        "cursorkeeper-topic": ref.topic,
        "cursorkeeper-subscription": ref.subscription,
    }
    return {**{key: text.encode() for key, text in names.items()}, "cursorkeeper-replaces": b"0"}


async def test_two_attempts_at_once(stack: Standalone, root: str) -> None:
    async with migration_world(stack, root) as world:
        await world.begun(kind="export")
        (ref,) = await world.with_acks_of_its_own([1])
        before = await world.pulsar_ledgers()
        outcomes = await asyncio.gather(*(world.exported(ref, host=f"host-{n}") for n in range(3)))
        assert sorted(o.status for o in outcomes) == [
            "already there",
            "already there",
            "replaced",
        ], outcomes
        await world.are_pulsars([ref], before)


async def test_a_half_import_and_an_open_cursor_are_never_exported(
    stack: Standalone, root: str
) -> None:
    async with migration_world(stack, root) as world:
        await world.begun()
        await world.begun(kind="export")
        half, opened = await world.cursors(range(2), form="closed")
        at = StopsAt(6, dead=True)
        assert await dies(world.imported(half, at), at)
        assert (await world.imported(opened)).ok
        await world.acked(opened, 911)
        await world.cursor(opened, state(seed=1), "closed")
        znodes = [(await world.theirs.zookeeper.get(ref.path)).data for ref in (half, opened)]
        refused = [await world.exported(ref, live=ref is half) for ref in (half, opened)]
        assert [o.status for o in refused] == ["refused"] * 2
        assert refused[0].problem is not None and "died half-way" in refused[0].problem.message
        assert refused[1].problem is not None and "it is open" in refused[1].problem.message
        assert [
            (await world.theirs.zookeeper.get(ref.path)).data for ref in (half, opened)
        ] == znodes

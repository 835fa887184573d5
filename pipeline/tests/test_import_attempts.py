"""Imports on real systems, without Spark: attempts that die after each step, that stand still and
are late, two at once.

Whatever happened: afterwards every cursor is there once, whole, and what a daemon has confirmed
since is untouched.
"""

from __future__ import annotations

import asyncio

import pytest

from cursorkeeper.core.footer import FooterState
from cursorkeeper.demo.stack import Standalone
from cursorkeeper_pipeline.sinks.comparison import Comparison
from cursorkeeper_pipeline.sinks.record import State
from cursorkeeper_pipeline.sinks.tasks import LEFT
from pipeline.tests.migration_world import (
    LAST,
    RUN,
    StopsAt,
    dies,
    migration_world,
    ref_of,
    state,
)

pytestmark = [pytest.mark.jvm, pytest.mark.slow]
STEPS_MAX = 40


async def test_there_verified_and_then_left_alone(stack: Standalone, root: str) -> None:
    async with migration_world(stack, root) as world:
        refs = await world.cursors(range(3))
        await world.begun()
        assert [(await world.imported(ref)).status for ref in refs] == ["imported"] * 3
        footers = [await world.footer(ref) for ref in refs]
        assert [(await world.imported(ref)).status for ref in refs] == ["already there"] * 3
        assert [await world.footer(ref) for ref in refs] == footers
        compared = [await Comparison(world.ports, world.theirs).one(ref) for ref in refs]
        assert [(o.status, o.numbers["missing"], o.numbers["extra"]) for o in compared] == [
            ("same", 0, 0)
        ] * 3
        footer = footers[0]
        assert (
            footer is not None
            and "+test-run/" in footer.writer
            and footer.writer.split("/")[-2] == "import-pulsar"
        )
        await world.are_whole(refs)


async def test_an_attempt_that_dies_after_any_step_is_made_good_by_the_next(
    stack: Standalone, root: str
) -> None:
    async with migration_world(stack, root) as world:
        await world.begun()
        refs = []
        for step in range(1, STEPS_MAX):
            (ref,) = await world.cursors([step])
            refs.append(ref)
            at = StopsAt(step, dead=True)
            died = await dies(world.imported(ref, at), at)
            # it has this process's number, so that only its footer, which stays as it is, tells
            outcome = await world.imported(ref, wait_s=0.2)
            assert outcome.ok and outcome.status in ("imported", "redone", "already there"), (
                step,
                at.steps,
                outcome,
            )
            if not died:
                break
        assert not died and step > 8, "every step was one after which an attempt died"
        await world.are_whole(refs)


@pytest.mark.parametrize("then", ["another attempt", "a daemon has it", "a daemon had it"])
async def test_an_attempt_that_stood_still_after_any_step_harms_nobody(
    stack: Standalone, root: str, then: str
) -> None:
    """A zombie on another host. Another attempt takes it for dead and makes the cursor; a daemon
    opens it and acks.
    """
    async with migration_world(stack, root) as world:
        await world.begun()
        for step in range(1, STEPS_MAX):
            (ref,) = await world.cursors([step])
            at = StopsAt(step)
            zombie = asyncio.create_task(world.imported(ref, at, host="elsewhere"))
            reached = asyncio.create_task(at.reached.wait())
            await asyncio.wait({zombie, reached}, return_when=asyncio.FIRST_COMPLETED)
            reached.cancel()
            if not at.reached.is_set():
                break
            outcome = await world.imported(ref, wait_s=0.2)
            assert outcome.ok, (step, at.steps, outcome)
            source = None if then == "another attempt" else await world.acked(ref, 900)
            if source is not None and then == "a daemon had it":
                assert await source.keeper.close() == []
            before = await world.footer(ref)
            at.go.set()
            late = await zombie
            assert await world.footer(ref) == before, (step, at.steps, late)
            assert late.status in ("already there", "refused", "imported"), (step, at.steps, late)
            if source is not None:
                assert await source.keeper.close() == [], "it was never deposed"
                assert 900 in (await world.state(ref)).acked_of(LAST)
            else:
                assert await world.differs(ref) == ""
        else:
            raise AssertionError("there are more steps than were tried")
        assert step > 8
        await zombie


async def test_two_attempts_at_once(stack: Standalone, root: str) -> None:
    async with migration_world(stack, root) as world:
        await world.begun()
        refs = await world.cursors(range(4))
        for ref in refs:
            outcomes = await asyncio.gather(
                *(world.imported(ref, host=f"host-{n}") for n in range(3))
            )
            assert sorted(o.status for o in outcomes) == [
                "already there",
                "already there",
                "imported",
            ], outcomes
            footer = await world.footer(ref)
            assert footer is not None and footer.epoch == 1, "made once, and not redone"
        await world.are_whole(refs)


async def test_who_works_on_a_cursor_is_waited_for(stack: Standalone, root: str) -> None:
    async with migration_world(stack, root) as world:
        await world.begun()
        (ref,) = await world.cursors([0])
        at = StopsAt(3)
        slow = asyncio.create_task(world.imported(ref, at, host="elsewhere"))
        await at.reached.wait()
        second = asyncio.create_task(world.imported(ref))
        done, _ = await asyncio.wait({second}, timeout=1.5)
        assert not done
        at.go.set()
        assert (await slow).status == "imported"
        assert (await second).status == "already there"
        footer = await world.footer(ref)
        assert footer is not None and footer.epoch == 1
        await world.are_whole([ref])


@pytest.mark.parametrize("refresh", [False, True])
async def test_a_live_or_newer_cursor_is_never_overwritten(
    stack: Standalone, root: str, refresh: bool
) -> None:
    async with migration_world(stack, root) as world:
        for run in (RUN, "another"):
            await world.begun(run)
        live, newer, moved_on = refs = await world.cursors(range(3))
        for ref in refs:
            assert (await world.imported(ref)).ok
        source = await world.acked(live, 901)
        had = await world.acked(newer, 902)
        assert await had.keeper.close() == []
        for ref in refs:
            await world.cursor(ref, state(20), "closed")
        before = [await world.footer(ref) for ref in refs]
        again = [await world.imported(ref, refresh=refresh) for ref in refs]
        assert [o.status for o in again] == ["refused", "refused", "imported before"]
        outcomes = [await world.imported(ref, refresh=refresh, run="another") for ref in refs]
        assert [o.status for o in outcomes] == [
            "refused",
            "refused",
            "refreshed" if refresh else "refused",
        ]
        assert [await world.footer(ref) for ref in refs[:2]] == before[:2]
        assert await source.keeper.close() == [], "it was never deposed"
        assert 901 in (await world.state(live)).acked_of(LAST) and 902 in (
            await world.state(newer)
        ).acked_of(LAST)
        assert (await world.differs(moved_on) == "") == refresh


async def test_a_run_that_is_decided_begins_no_cursor(stack: Standalone, root: str) -> None:
    async with migration_world(stack, root) as world:
        await world.begun()
        refs = await world.cursors(range(2))
        assert (await world.record().decide(State.ABORTED)).state is State.ABORTED
        outcome = await world.imported(refs[0])
        assert (
            outcome.status == "failed"
            and outcome.problem is not None
            and "ABORTED: nothing more is begun" in outcome.problem.message
        )
        assert await world.footer(refs[0]) is None
        assert (await world.record().decide(State.DONE)).state is State.ABORTED, (
            "what is decided stays"
        )


async def test_what_is_late_for_a_run_that_is_done_is_no_failure(
    stack: Standalone, root: str
) -> None:
    async with migration_world(stack, root) as world:
        await world.begun()
        refs = await world.cursors(range(1))
        assert (await world.record().decide(State.DONE)).state is State.DONE
        outcome = await world.imported(refs[0])
        assert (outcome.status, outcome.ok, outcome.problem) == (LEFT, True, None)
        assert await world.footer(refs[0]) is None


async def test_a_comparison_tells_what_differs_and_what_is_on_one_side_only(
    stack: Standalone, root: str
) -> None:
    async with migration_world(stack, root) as world:
        await world.begun()
        same, differs, only_pulsar = await world.cursors(range(3))
        for ref in (same, differs):
            await world.imported(ref)
        source = await world.acked(differs, 903)
        assert await source.keeper.close() == []
        only_here = ref_of(77)._replace(topic=same.topic)
        await world.acked(only_here, 904)
        comparing = Comparison(world.ports, world.theirs)
        found = [await comparing.one(ref) for ref in (same, differs, only_pulsar, only_here)]
        assert [o.status for o in found] == ["same", "differs", "only in Pulsar", "only here"]
        assert (found[1].numbers["missing"], found[1].numbers["extra"]) == (0, 1)
        assert (await world.footer(only_here)).state is FooterState.OPEN  # type: ignore[union-attr]

"""Attempts of the job `import` that are late, on fakes: they stand still after any step, between
two reads too, and come back.

Meanwhile Pulsar moves on, another attempt takes the claim, the run ends, a daemon deletes. What a
late one then does is nothing.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from cursorkeeper.connections import Ports, footer_store
from cursorkeeper.core.footer import EmptyBase, Footer, FooterState
from cursorkeeper.core.positions import Position
from cursorkeeper.hold import Purpose, delete
from cursorkeeper.migration.cluster import PulsarPorts
from cursorkeeper.migration.cursor_maker import footer_of
from cursorkeeper.migration.importer import Import
from cursorkeeper.migration.outcome import Outcome
from cursorkeeper_pipeline.sinks.claims import Claims
from cursorkeeper_pipeline.sinks.comparison import HALF_MADE, Comparison
from cursorkeeper_pipeline.sinks.cursor_import import OneImport, is_nobodys, is_of_run, named
from cursorkeeper_pipeline.sinks.record import RunRecord, State, folder_of
from daemon.tests.fakes.zookeeper.fake import FakeZooKeeper
from daemon.tests.migration.pulsar_world import HASTY, REF, PulsarWorld, state
from daemon.tests.migration.test_import_pulsar import READ_BACK, quicker_after
from daemon.tests.runtime.virtual import virtual
from pipeline.tests.migration_world import MUTATIONS, READS, RUN, StopsAt

STEPS_MAX = 150


@dataclass
class Late:
    """One cursor, attempts at it, the run's record. `refresh`: of the run."""

    refresh: bool = False
    world: PulsarWorld = field(default_factory=PulsarWorld)

    async def attempt(
        self, host: str = "here", at: StopsAt | None = None, run: str = RUN, **options: Any
    ) -> tuple[OneImport, FakeZooKeeper]:
        """On a host of its own, and its session."""
        world = self.world
        settings = named(replace(world.settings, name=host, inline_state_max_bytes=0), run)
        real = await world.ports("writer")
        ports, theirs = real, await world.pulsar()
        if at is not None:
            zookeeper, ledgers = at.zookeeper(real.zookeeper), at.ledgers(real.ledgers)
            ports = Ports(zookeeper, ledgers, footer_store(zookeeper, settings))
            theirs = PulsarPorts(at.zookeeper(theirs.zookeeper), at.ledgers(theirs.ledgers))
        importing = Import(
            ports,
            theirs,
            settings,
            world.bar,
            patience=HASTY,
            refresh=self.refresh,
            is_left_over=lambda f: is_nobodys(f, settings),
            **options,
        )
        claims = Claims(ports.zookeeper, folder_of(settings.root, "claim"), "test", 5.0, host=host)
        record = RunRecord(ports.zookeeper, folder_of(settings.root, "import"), run)
        assert isinstance(real.zookeeper, FakeZooKeeper)
        return OneImport(importing, claims, record), real.zookeeper

    async def imported(self, **options: Any) -> Outcome:
        one, _ = await self.attempt(**options)
        return await one.one(REF)

    async def record(self, run: str = RUN) -> RunRecord:
        return RunRecord(await self.world.zk(), folder_of(self.world.settings.root, "import"), run)

    async def begun(self, run: str = RUN) -> None:
        await (await self.record(run)).begin("import", {})

    async def decided(self, how: State) -> None:
        assert (await (await self.record()).decide(how)).state is how

    async def deleted(self) -> None:
        """By a daemon."""
        purpose = Purpose("test", "tested", "look")
        await delete(
            REF.name,
            await self.world.ports(),
            self.world.settings,
            purpose,
            only=None,
            what="deleting it",
        )

    async def footer(self) -> Footer | None:
        return await footer_of(await self.world.ports(), REF.name)

    async def zombie(self, at: StopsAt) -> asyncio.Task[Outcome] | None:
        """An attempt that stands still, its claim lost with its session; None: it was through
        before.
        """
        one, session = await self.attempt("elsewhere", at)
        running = asyncio.create_task(one.one(REF))
        reached = asyncio.create_task(at.reached.wait())
        await asyncio.wait({running, reached}, return_when=asyncio.FIRST_COMPLETED)
        reached.cancel()
        if not at.reached.is_set():
            assert (await running).ok
            return None
        session.expire()
        return running


@pytest.mark.parametrize("found", ["nothing", "half-made", "an older import"])
@pytest.mark.parametrize(
    "then", ["its run is done", "its run is done, and a daemon has deleted", "its run goes on"]
)
@virtual
async def test_who_comes_back_puts_nothing_older_in_the_place_of_what_is_there(
    found: str, then: str
) -> None:
    for step in range(1, STEPS_MAX):
        late = Late(refresh=True)
        await late.begun()
        await late.world.in_ledger(state((7, 3)))
        if found == "half-made":
            await late.world.half_imported()
        elif found == "an older import":
            await late.begun("rehearsal")
            assert (await late.imported(run="rehearsal")).status == "imported"
            await late.world.in_ledger(state((7, 5)))
        at = StopsAt(step, kinds=MUTATIONS | READS)
        running = await late.zombie(at)
        if running is None:
            break
        await late.world.in_ledger(state((7, 60)))
        assert (await late.imported()).ok
        if then != "its run goes on":
            await late.decided(State.DONE)
        if then.endswith("deleted"):
            await late.deleted()
        before = await late.footer()
        at.go.set()
        outcome = await running
        assert await late.footer() == before, (step, at.steps, outcome)
        assert outcome.ok, (step, at.steps, outcome)
    else:
        raise AssertionError("there are more steps than were tried")
    assert step > 20 and {"get", "sync", "append"} <= set(at.steps)


@virtual
async def test_who_waited_for_a_claim_while_its_run_was_aborted_begins_nothing() -> None:
    late = Late()
    await late.begun()
    await late.world.in_ledger(state())
    holder, session = await late.attempt("elsewhere")
    holds = holder.claims.held(REF.name)
    await holds.__aenter__()
    at = StopsAt(2, kinds=frozenset({"get"}))  # the record, which is open; the claim, which is held
    one, _ = await late.attempt(at=at)
    waiting = asyncio.create_task(one.one(REF))
    async with asyncio.timeout(60):
        await at.reached.wait()
    await late.decided(State.ABORTED)
    session.expire()
    at.go.set()
    outcome = await waiting
    assert (
        outcome.status == "failed"
        and outcome.problem is not None
        and "ABORTED: nothing more is begun" in outcome.problem.message
    )
    assert await late.footer() is None


@virtual
async def test_what_an_import_has_open_is_not_the_same_whatever_it_holds() -> None:
    late = Late()
    await late.begun()
    await late.world.in_ledger(state())
    compared = 0
    for step in range(1, STEPS_MAX):
        at = StopsAt(step)
        running = await late.zombie(at)
        if running is None:
            break
        now = await late.footer()
        outcome = await Comparison(await late.world.ports(), await late.world.pulsar(), HASTY).one(
            REF
        )
        if now is not None and now.state is FooterState.OPEN:
            compared += 1
            assert (outcome.status, outcome.ok) == (
                HALF_MADE,
                False,
            ) and outcome.problem is not None, (step, at.steps, outcome)
            assert (
                now.writer in outcome.problem.message
                and outcome.problem.remedy == "run the import again"
            )
        else:
            assert outcome.ok == (now is not None), (step, at.steps, outcome)
        at.go.set()
        assert (await running).ok
        assert (
            await Comparison(await late.world.ports(), await late.world.pulsar(), HASTY).one(REF)
        ).status == "same"
        await late.deleted()
    assert compared >= 3


# ---- a run that goes on


@pytest.mark.parametrize("refresh", [False, True])
@virtual
async def test_what_a_run_has_imported_stays_done_though_pulsar_moves_on(refresh: bool) -> None:
    """A rehearsal beside live brokers whose driver dies, and that is continued: it ends."""
    late = Late(refresh)
    await late.begun()
    await late.begun("another")
    await late.world.in_ledger(state((7, 3)), closed=False)
    assert (await late.imported()).status == "imported"
    before = await late.footer()
    await late.world.in_ledger(state((7, 60)), closed=False)
    for dry_run in (True, False):
        outcome = await late.imported(dry_run=dry_run)
        assert (outcome.status, outcome.ok) == ("imported before", True)
        assert (
            "Pulsar's has moved on since this run imported it: " in outcome.notes[-1]
            and "missing" in outcome.notes[-1]
        )
    assert await late.footer() == before
    assert (await late.imported(run="another")).status == ("refreshed" if refresh else "refused")
    assert (await late.imported()).status == ("already there" if refresh else "imported before")


@virtual
async def test_what_its_run_has_imported_while_an_attempt_waited_for_the_claim_is_done() -> None:
    late = Late(refresh=True)
    await late.begun()
    await late.world.in_ledger(state((7, 3)))
    # record, footer, claim
    quicker, waits = StopsAt(1, kinds=frozenset({"append"})), StopsAt(3, kinds=frozenset({"get"}))
    running = []
    for host, at in (("elsewhere", quicker), ("here", waits)):
        running.append(asyncio.create_task(late.imported(host=host, at=at)))
        async with asyncio.timeout(60):
            await at.reached.wait()
    quicker.go.set()
    assert (await running[0]).status == "imported"
    await late.world.in_ledger(state((7, 60)))
    waits.go.set()
    assert (await running[1]).status == "imported before"


@virtual
async def test_what_somebody_had_open_since_is_not_of_the_run() -> None:
    late = Late(refresh=True)
    await late.begun()
    await late.world.in_ledger(state())
    assert (await late.imported()).ok
    await late.world.close(await late.world.source(REF.name))
    await late.world.in_ledger(state((7, 60)))
    assert (await late.imported()).status == "refused"


@pytest.mark.parametrize("refresh", [False, True])
@virtual
async def test_what_was_found_wrong_when_it_was_read_back_does_not_count_later(
    refresh: bool,
) -> None:
    late = Late(refresh)
    await late.begun()
    await late.world.in_ledger(state())
    quicker_after(late.world, READ_BACK + 1, late.world.loses_acks)
    outcome = await late.imported()
    assert (
        outcome.status == "failed"
        and outcome.problem is not None
        and "is not what was read" in outcome.problem.message
    ), outcome
    outcome = await late.imported()
    assert (outcome.status, outcome.ok) == (("refreshed", True) if refresh else ("refused", False))


@virtual
async def test_what_a_run_has_imported_and_cannot_be_read_is_not_done() -> None:
    late = Late()
    await late.begun()
    await late.world.in_ledger(state())
    assert (await late.imported()).ok
    footer = await late.footer()
    assert footer is not None and footer.named_ledgers()
    for ledger in footer.named_ledgers():
        late.world.bookkeeper.lose_ledger(ledger)
    outcome = await late.imported()
    assert (
        outcome.status == "refused"
        and outcome.problem is not None
        and "it cannot be read" in outcome.problem.message
    )


def test_whose_a_closed_footer_is() -> None:
    def footer(writer: str, how: FooterState = FooterState.CLOSED) -> Footer:
        return Footer("t", "s", how, 1, writer, 1, 1, Position(0, -1), EmptyBase(Position(0, -1)))

    for writer, its in [
        ("here+r-1/7/import-pulsar/ab", True),
        ("a+b+r-1/7/import-pulsar/ab", True),
        ("here+r-12/7/import-pulsar/ab", False),
        ("here+xr-1/7/import-pulsar/ab", False),
        ("r-1/7/import-pulsar/ab", False),  # the command's, on a host of that name
        ("here+r-1/7/import/ab", False),
        ("here+r-1/7/ab", False),  # a daemon with a strange name
    ]:
        assert is_of_run(footer(writer), "r-1") is its, writer
    assert not is_of_run(footer("here+r-1/7/import-pulsar/ab", FooterState.OPEN), "r-1")

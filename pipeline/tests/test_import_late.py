"""Attempts of the job `import` that are late, on fakes: they stand still after any step, between
two reads too, and come back.

Meanwhile Pulsar moves on, another attempt makes the cursor, the run ends, a daemon deletes. What a
late one then does is nothing.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from cursorkeeper.bookkeeper import LedgerStore
from cursorkeeper.connections import Ports, footer_store
from cursorkeeper.core.events import Roll
from cursorkeeper.core.footer import EmptyBase, Footer, FooterState
from cursorkeeper.core.positions import Position
from cursorkeeper.hold import Purpose, delete
from cursorkeeper.migration.cluster import PulsarPorts
from cursorkeeper.migration.cursor_maker import footer_of
from cursorkeeper.migration.importer import Import
from cursorkeeper.migration.outcome import Outcome
from cursorkeeper_pipeline.sinks.comparison import HALF_MADE, Comparison
from cursorkeeper_pipeline.sinks.cursor_import import OneImport, is_of_run, named
from cursorkeeper_pipeline.sinks.record import RunRecord, State, folder_of
from daemon.tests.migration.pulsar_world import HASTY, REF, PulsarWorld, state
from daemon.tests.migration.test_import_pulsar import READ_BACK, quicker_after
from daemon.tests.runtime.virtual import virtual
from daemon.tests.support.world import Source, acks
from pipeline.tests.migration_world import MUTATIONS, READS, RUN, StopsAt

STEPS_MAX = 150


@dataclass
class Late:
    """One cursor, attempts at it, the run's record. `refresh`: of the run."""

    refresh: bool = False
    world: PulsarWorld = field(default_factory=PulsarWorld)

    async def attempt(
        self,
        host: str = "here",
        at: StopsAt | None = None,
        run: str = RUN,
        wait_s: float = 60.0,
        **options: Any,
    ) -> OneImport:
        """On a host of its own, with sessions of its own."""
        world = self.world
        settings = named(world.settings.but(name=host, inline_state_max_bytes=0), run)
        real = await world.ports("writer")
        ports, theirs = real, await world.pulsar()
        if at is not None:
            zookeeper, ledgers = at(real.zookeeper), at(real.ledgers)
            ports = Ports(zookeeper, ledgers, footer_store(zookeeper, settings))
            theirs = PulsarPorts(at(theirs.zookeeper), at(theirs.ledgers))
        importing = Import(
            ports,
            theirs,
            settings,
            world.bar,
            patience=HASTY,
            refresh=self.refresh,
            **options,
        )
        record = RunRecord(ports.zookeeper, folder_of(settings.systems.root, "import"), run)
        return OneImport(importing, record, wait_s)

    async def imported(self, **options: Any) -> Outcome:
        return await (await self.attempt(**options)).one(REF)

    async def record(self, run: str = RUN) -> RunRecord:
        return RunRecord(
            await self.world.zk(), folder_of(self.world.settings.systems.root, "import"), run
        )

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
        """An attempt that stands still; None: it was through before."""
        running = asyncio.create_task(self.imported(host="elsewhere", at=at, wait_s=1.0))
        reached = asyncio.create_task(at.reached.wait())
        await asyncio.wait({running, reached}, return_when=asyncio.FIRST_COMPLETED)
        reached.cancel()
        if not at.reached.is_set():
            assert (await running).ok
            return None
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
async def test_who_waited_while_its_run_was_aborted_begins_nothing() -> None:
    late = Late()
    await late.begun()
    await late.world.in_ledger(state())
    at = StopsAt(1, kinds=frozenset({"append"}))
    assert await late.zombie(at) is not None
    before = await late.footer()
    assert before is not None and before.state is FooterState.OPEN
    waiting = asyncio.create_task(late.imported())
    await asyncio.sleep(30.0)
    await late.decided(State.ABORTED)
    outcome = await waiting
    assert (
        outcome.status == "failed"
        and outcome.problem is not None
        and "ABORTED: nothing more is begun" in outcome.problem.message
    )
    assert await late.footer() == before


# ---- who works on a cursor, and who is dead


@virtual
async def test_who_moves_is_waited_for_and_who_does_not_is_deposed() -> None:
    late = Late()
    await late.begun()
    await late.world.in_ledger(state())
    at = StopsAt(1, kinds=frozenset({"append"}))
    zombie = await late.zombie(at)
    assert zombie is not None
    clock_s = asyncio.get_running_loop().time
    began_s = clock_s()
    assert (await late.imported()).status == "redone"
    assert 60.0 <= clock_s() - began_s < 70.0
    before = await late.footer()
    at.go.set()
    assert (await zombie).status == "already there" and await late.footer() == before


@virtual
async def test_two_that_wait_for_the_same_dead_one_make_the_cursor_once() -> None:
    late = Late()
    await late.begun()
    await late.world.in_ledger(state())
    assert await late.zombie(StopsAt(1, kinds=frozenset({"append"}))) is not None
    epoch = (await late.footer() or pytest.fail("it is open")).epoch
    hosts = [late.imported(host=f"host-{n}") for n in range(3)]
    outcomes = await asyncio.gather(*hosts)
    assert sorted(o.status for o in outcomes) == ["already there", "already there", "redone"]
    footer = await late.footer()
    assert footer is not None and footer.epoch == epoch + 2, "a tombstone, and made once"


@virtual
async def test_a_footer_that_moves_is_no_sign_of_death() -> None:
    """A daemon's rules: a footer changes with each new ledger. An attempt that writes it now and
    then is waited for longer than one that does not.
    """
    late = Late()
    await late.begun()
    await late.world.in_ledger(state())
    keeper = await late.world.keeper("elsewhere+r-9/7/import-pulsar")
    source = Source(keeper, REF.name)
    await source.open(create=True, takeover=False)
    source.ack(acks(7, 11, 12))
    await source.durable()
    clock_s = asyncio.get_running_loop().time
    began_s, waiting = clock_s(), asyncio.create_task(late.imported())
    await asyncio.sleep(50.0)
    before = await late.footer()
    source.send(Roll())
    source.ack(acks(7, 13))
    await source.durable()
    await asyncio.sleep(20.0)
    assert await late.footer() != before and not waiting.done()
    keeper.abandon()
    assert (await waiting).status == "redone" and clock_s() - began_s > 110.0


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


# ---- two that live


class Slowly:
    """A port whose appends are answered late, in their order."""

    def __init__(self, port: LedgerStore, seconds: float) -> None:
        self._port, self._seconds = port, seconds
        self._last: asyncio.Future[None] | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._port, name)

    def append(self, ledger: int, entry: int, data: bytes) -> asyncio.Future[None]:
        before = self._last

        async def late() -> None:
            answer = self._port.append(ledger, entry, data)
            await asyncio.sleep(self._seconds)
            if before is not None:
                await asyncio.wait({before})
            await answer

        self._last = asyncio.ensure_future(late())
        return self._last


@pytest.mark.parametrize(
    ("hosts", "seconds", "wait_s"),
    [(("here", "here"), 0.5, 60.0), (("h-1", "h-2"), 20.0, 10.0)],
)
@virtual
async def test_two_that_take_one_another_for_dead_make_the_cursor_once(
    hosts: tuple[str, str], seconds: float, wait_s: float
) -> None:
    """Containers with one name and one process number; two hosts whose bookies are slow."""
    late = Late()
    await late.begun()
    await late.world.in_ledger(state())
    attempts = []
    for host in hosts:
        one = await late.attempt(host=host, wait_s=wait_s)
        ports = one.importing.ports
        slow = Ports(ports.zookeeper, Slowly(ports.ledgers, seconds), ports.footers)
        attempts.append(replace(one, importing=replace(one.importing, ports=slow)))

    async def begun(at: int) -> Outcome:
        await asyncio.sleep(0.3 * at)
        return await attempts[at].one(REF)

    outcomes = await asyncio.gather(begun(0), begun(1))
    assert all(outcome.ok for outcome in outcomes), outcomes
    footer = await late.footer()
    assert footer is not None and footer.state is FooterState.CLOSED
    assert "already there" in {outcome.status for outcome in outcomes}, outcomes


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
            "Pulsar's has moved on since this run imported it, or " in outcome.notes[-1]
            and "missing" in outcome.notes[-1]
        )
    assert await late.footer() == before
    assert (await late.imported(run="another")).status == ("refreshed" if refresh else "refused")
    assert (await late.imported()).status == ("already there" if refresh else "imported before")


@virtual
async def test_what_its_run_has_imported_while_an_attempt_waited_is_done() -> None:
    late = Late(refresh=True)
    await late.begun()
    await late.world.in_ledger(state((7, 3)))
    at = StopsAt(1, kinds=frozenset({"append"}))
    quicker = await late.zombie(at)
    assert quicker is not None
    waiting = asyncio.create_task(late.imported())
    await asyncio.sleep(30.0)
    await late.world.in_ledger(state((7, 60)))
    at.go.set()
    assert (await quicker).status == "imported"
    assert (await waiting).status == "imported before"


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

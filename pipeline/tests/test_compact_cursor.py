"""One cursor's compaction on systems in memory: what it leaves, and who wins when somebody else
comes at any of its steps.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from cursorkeeper.bookkeeper.errors import GatewayRefused
from cursorkeeper.core import events as ev
from cursorkeeper.core.footer import Footer, FooterState, InlineBase, SnapshotBase
from cursorkeeper.core.state import AckState
from cursorkeeper.inspection import checks, reader
from cursorkeeper.settings import Settings
from cursorkeeper_pipeline.jobs import compacting
from cursorkeeper_pipeline.jobs.compacting import Chosen, compact
from cursorkeeper_pipeline.transforms.cold import FIRST, SECOND, Rule
from daemon.tests.cli.conftest import NO_INLINE, CliWorld
from daemon.tests.fakes.bookkeeper.fake import Damage
from daemon.tests.runtime.virtual import virtual
from daemon.tests.support.world import NAME, Source, acks, closed, opened, partial
from pipeline.tests.real_cursors import until

SETTINGS = Settings(name="compactor", retry_min_ms=5, retry_max_ms=50, inline_state_max_bytes=0)
RULE = Rule(0.0, 1.0, 1)
STEPS = (
    "looked",
    "claimed",
    "snapshot",
    "closed",
    "compared",
    "claimed",
    "snapshot",
    "closed",
    "compared",
)


@pytest.fixture
def world() -> CliWorld:
    return CliWorld(seed=3, limits=NO_INLINE)


async def cold(world: CliWorld, ledgers: int = 2) -> Footer:
    """Closed: many small deltas, a partly acked batch, a layout, properties, several ledgers."""
    for turn in range(ledgers):
        source = await world.source()
        if not turn:
            source.send(
                ev.SetLayout(
                    source.attach, 1, source.machine.generation, (closed(7, 1_000), opened(8))
                )
            )
            source.seq = 1
        for at in range(10):
            source.ack(
                acks(7 + turn % 2, *range(1 + 20 * at, 19 + 20 * at, 2)),
                partial(8, 900 + at, 10, {1, at}),
                properties={"at": at},
            )
            await source.durable()
        await world.close(source)
    footer = await world.footer()
    assert len(footer.chain) == ledgers and not isinstance(footer.base, SnapshotBase)
    return footer


async def state(world: CliWorld) -> AckState:
    """As it is stored; it must be closed."""
    ports = await world.ports()

    async def work(footer: Footer, _version: int) -> ev.ChainRead | ev.ChainDamaged:
        ends = await reader.ends_of(ports.ledgers, footer)
        return await reader.replay(ports.ledgers, NAME, reader.pinned(footer, ends))

    answer = await reader.steadily(ports.footers, NAME, work)
    assert isinstance(answer, ev.ChainRead)
    return answer.state


async def chosen(world: CliWorld) -> Chosen:
    _, version = await reader.read_footer((await world.ports()).footers, NAME)
    return Chosen(NAME, version, "cold")


async def compacted(
    world: CliWorld,
    *,
    say: Callable[[str], None] = lambda _step: None,
    settings: Settings = SETTINGS,
    one: Chosen | None = None,
    stall_s: float = 5.0,
) -> dict[str, Any]:
    row = await compact(
        await world.ports("writer"),
        settings,
        one or await chosen(world),
        RULE,
        say=say,
        stall_s=stall_s,
    )
    assert set(row) | {"cursor_key"} == set(compacting_columns())
    return row


def compacting_columns() -> list[str]:
    from cursorkeeper_pipeline.schemas import COMPACTED

    return list(COMPACTED.names)


async def is_whole(world: CliWorld, before: AckState) -> bool:
    ports = await world.ports()
    report = await checks.check(ports.footers, ports.ledgers, NAME)
    return report.is_good and not compacting.differences(
        before, await state(world), ("before", "now")
    )


async def exist(world: CliWorld, ledgers: set[int]) -> set[int]:
    ports, found = await world.ports(), set()
    for ledger in ledgers:
        try:
            await ports.ledgers.metadata(ledger)
            found.add(ledger)
        except GatewayRefused:
            pass
    return found


@virtual
async def test_deltas_become_a_snapshot_and_what_was_there_goes(world: CliWorld) -> None:
    was = await cold(world)
    before = await state(world)
    steps: list[str] = []
    row = await compacted(world, say=steps.append)
    assert row["outcome"] == "COMPACTED" and row["error"] is None and tuple(steps) == STEPS
    now = await world.footer()
    assert (
        now.state is FooterState.CLOSED
        and isinstance(now.base, SnapshotBase)
        and now.stats.delta_bytes == 0
    )
    assert now.epoch == was.epoch + 2 == row["epoch"] and f"/{SECOND}/" in now.writer
    assert (
        row["read_bytes_before"]
        == was.stats.delta_bytes
        > row["read_bytes_after"]
        == now.base.length
    )
    assert await is_whole(world, before)
    assert now.previous is not None and isinstance(now.previous.base, SnapshotBase), (
        "a snapshot to fall back to"
    )
    assert await exist(world, set(was.named_ledgers())) == set() != set(was.named_ledgers())


@virtual
async def test_a_second_run_changes_nothing(world: CliWorld) -> None:
    await cold(world)
    one = await chosen(world)
    await compacted(world, one=one)
    now = await world.footer()
    assert (await compacted(world, one=one))["outcome"] == "ALREADY"
    assert await world.footer() == now


@virtual
async def test_deltas_that_a_snapshot_would_not_shorten_stay(world: CliWorld) -> None:
    """Scattered acks, each told once: the deltas say no more than the snapshot would."""
    source = await world.source()
    rng = random.Random(4)
    for _ in range(4):
        source.ack(acks(7, *sorted(rng.sample(range(1, 1_000_000), 2_000))))
        await source.durable()
    await world.close(source)
    was = await world.footer()
    row = await compacted(world)
    assert (
        row["outcome"] == "ALREADY"
        and "would replace them" in row["error"]
        and await world.footer() == was
    )
    # the size is the one that the snapshot really has
    would_take = compacting.snapshot_bytes_of(NAME, await state(world), SETTINGS.encode)
    assert would_take > was.stats.delta_bytes
    source = await world.source()
    source.send(ev.Snapshot())
    await until(lambda: source.machine.counters.snapshots == 1, "the snapshot is written")
    await world.close(source)
    base = (await world.footer()).base
    assert isinstance(base, SnapshotBase) and base.length == would_take


@virtual
async def test_a_small_state_ends_in_its_footer(world: CliWorld) -> None:
    was = await cold(world)
    before = await state(world)
    row = await compacted(world, settings=Settings(name="compactor", retry_min_ms=5))
    now = await world.footer()
    assert (
        row["outcome"] == "COMPACTED"
        and row["base_after"] == "inline"
        and row["read_bytes_after"] == row["stored_bytes_after"] == 0
    )
    assert isinstance(now.base, InlineBase) and now.named_ledgers() == frozenset()
    assert await is_whole(world, before) and not await exist(world, set(was.named_ledgers()))


@virtual
async def test_what_an_owner_has_open_is_left_to_it(world: CliWorld) -> None:
    await cold(world)
    one = await chosen(world)
    owner = await world.source()
    open_footer = await world.footer()
    row = await compacted(world, one=one)
    assert row["outcome"] == "BUSY" and open_footer.writer in row["error"]
    owner.ack(acks(8, 500))
    await owner.durable()
    assert not owner.told.ended, "unharmed"


@virtual
async def test_a_footer_that_moved_on_since_is_not_the_one_that_was_chosen(world: CliWorld) -> None:
    await cold(world)
    one = await chosen(world)
    owner = await world.source()
    owner.ack(acks(8, 500))
    await owner.durable()
    await world.close(owner)
    now = await world.footer()
    assert (await compacted(world, one=one))["outcome"] == "BUSY" and await world.footer() == now


@pytest.mark.parametrize(
    "at", range(len(STEPS) - 1), ids=[f"{n}-{step}" for n, step in enumerate(STEPS[:-1])]
)
@virtual
async def test_somebody_opens_it_in_the_middle_and_wins(world: CliWorld, at: int) -> None:
    """At every step: its acks are durable, nobody deposes it, and nothing is lost."""
    await cold(world)
    before = await state(world)
    steps: list[str] = []
    came: list[asyncio.Task[Source]] = []

    def say(step: str) -> None:
        if len(steps) == at:
            came.append(asyncio.get_running_loop().create_task(world.source()))
        steps.append(step)

    row = await compacted(world, say=say)
    owner = await came[0]
    # behind the last close there is nothing to win: it may be compacted before it is opened
    assert row["outcome"] == "BUSY" or (
        at == STEPS.index("closed", 4) and row["outcome"] == "COMPACTED"
    ), row
    assert not owner.told.ended, "the live owner is not deposed"
    seq = owner.ack(acks(8, 777))
    await owner.durable(seq)
    await world.close(owner)
    now = await state(world)
    assert 777 in now.acked_of(8)
    assert all(before.acked_of(ledger) <= now.acked_of(ledger) for ledger in before.ledgers)


async def fenced(world: CliWorld) -> None:
    """Cold, and opened with fencing token 7 last."""
    await cold(world)
    await world.close(await world.source(fencing_token=7))


@virtual
async def test_the_fencing_token_stays(world: CliWorld) -> None:
    await fenced(world)
    assert (await compacted(world))["outcome"] == "COMPACTED"
    assert (await world.footer()).fencing_token == 7
    assert (await world.source(fencing_token=6)).told.ended == "refused"
    assert (await world.source(fencing_token=7)).told.machine is not None


@virtual
async def test_a_broker_whose_token_is_not_lower_deposes_it(world: CliWorld) -> None:
    """Without takeover; and one with a lower token does not."""
    await fenced(world)
    came: list[asyncio.Task[Source]] = []

    def say(step: str) -> None:
        if step == "claimed" and not came:
            for token in (6, 7):
                came.append(
                    asyncio.get_running_loop().create_task(
                        world.source(fencing_token=token, takeover=token < 7)
                    )
                )

    assert (await compacted(world, say=say))["outcome"] == "BUSY"
    lower, equal = [await task for task in came]
    assert (
        lower.told.ended == "refused"
        and lower.told.refused is not None
        and lower.told.refused[0] == "FENCED"
    )
    await equal.durable(equal.ack(acks(8, 777)))


@pytest.mark.parametrize(
    "at", range(len(STEPS)), ids=[f"{n}-{step}" for n, step in enumerate(STEPS)]
)
@virtual
async def test_it_dies_at_any_step_and_the_next_run_goes_on(world: CliWorld, at: int) -> None:
    await cold(world)
    before = await state(world)
    one = await chosen(world)
    steps: list[str] = []

    class Died(BaseException):
        """As a process that is killed: nothing is done any more."""

    def say(step: str) -> None:
        steps.append(step)
        if len(steps) == at + 1:
            raise Died

    with pytest.raises(Died):
        await compacted(world, say=say, one=one)
    left = await world.footer()
    assert left.state is (
        FooterState.OPEN if STEPS[at] in ("claimed", "snapshot") else FooterState.CLOSED
    )
    row = await compacted(world, one=one)
    ended = at >= STEPS.index("closed", 4)
    assert row["outcome"] == ("ALREADY" if ended else "COMPACTED"), row
    now = await world.footer()
    assert (
        now.state is FooterState.CLOSED
        and isinstance(now.base, SnapshotBase)
        and now.stats.delta_bytes == 0
    )
    assert await is_whole(world, before)


@virtual
async def test_two_attempts_at_once_end_in_one_whole_cursor(world: CliWorld) -> None:
    """As Spark's speculation does it: the second deposes the first, which waits for it and claims
    no more.
    """
    await cold(world)
    before = await state(world)
    one = await chosen(world)
    second: list[asyncio.Task[dict[str, Any]]] = []

    def say(step: str) -> None:
        if step == "claimed" and not second:
            second.append(asyncio.get_running_loop().create_task(compacted(world, one=one)))

    first = await compacted(world, say=say, one=one)
    assert sorted([first["outcome"], (await second[0])["outcome"]]) == ["ALREADY", "COMPACTED"]
    assert (await world.footer()).state is FooterState.CLOSED and await is_whole(world, before)


@virtual
async def test_a_deleted_one_is_gone(world: CliWorld) -> None:
    await cold(world)
    one = await chosen(world)
    owner = await world.source()
    owner.send(ev.Delete())
    await owner.told.until(lambda: bool(owner.told.ended))
    assert (await compacted(world, one=one))["outcome"] == "GONE"


@virtual
async def test_a_damaged_one_is_refused_and_untouched(world: CliWorld) -> None:
    was = await cold(world)
    one = await chosen(world)
    world.bookkeeper.damage(was.chain[0].ledger, 3, Damage.FLIP)
    row = await compacted(world, one=one)
    assert row["outcome"] == "REFUSED" and row["error"]
    assert await world.footer() == was


@virtual
async def test_a_snapshot_that_cannot_be_read_back_costs_nothing(world: CliWorld) -> None:
    """A bit of the new snapshot flips before it is compared: what was there is still named, and
    whoever opens it recovers all of it.
    """
    was = await cold(world)
    before = await state(world)
    steps: list[str] = []

    def say(step: str) -> None:
        if step == "closed":
            world.bookkeeper.damage(max(world.bookkeeper.ledgers), 1, Damage.FLIP)
        steps.append(step)

    row = await compacted(world, say=say)
    assert (
        row["outcome"] == "REFUSED"
        and "cannot be trusted" in row["error"]
        and steps[-1] == "closed"
    )
    assert was.named_ledgers() < (await world.footer()).named_ledgers()
    owner = await world.source()
    assert not compacting.differences(before, owner.machine.acks, ("before", "recovered"))


@virtual
async def test_another_state_than_before_is_an_outcome_of_its_own(world: CliWorld) -> None:
    footer = await cold(world)
    before = await state(world)
    owner = await world.source()
    owner.ack(acks(8, 999))
    await owner.durable()
    await world.close(owner)
    now = await state(world)
    for stored, held in ((before, now), (None, before)):
        with pytest.raises(compacting.Ended) as ended:
            compacting.compare(compacting.Look(footer, 1, stored, 0), held, now)
        assert ended.value.outcome == "DIFFERENT" and "999" in ended.value.why
    compacting.compare(compacting.Look(footer, 1, now, 0), now, now)


@virtual
async def test_systems_that_are_away_are_said_so(world: CliWorld) -> None:
    await cold(world)
    one = await chosen(world)
    steps: list[str] = []

    def say(step: str) -> None:
        steps.append(step)
        if step == "claimed":
            world.bookkeeper.stall_acks()

    row = await compacted(world, say=say, one=one, stall_s=0.3)
    assert row["outcome"] == "AWAY" and "nothing moved" in row["error"]


@pytest.mark.parametrize(("slow", "each_s"), [("delay", 0.1), ("ack_delay", 0.4)])
@virtual
async def test_a_cursor_that_takes_long_is_not_given_up_while_something_moves(
    world: CliWorld, slow: str, each_s: float
) -> None:
    """Each step of a claim, or of a snapshot, is within the limit, and all of them together are
    not.
    """
    await cold(world, ledgers=4)
    before = await state(world)
    one = await chosen(world)

    def set_to(seconds: float) -> None:
        setattr(world.bookkeeper.faults, f"{slow}_min_s", seconds)
        setattr(world.bookkeeper.faults, f"{slow}_max_s", seconds)

    set_to(each_s)
    row = await compacted(world, one=one, stall_s=0.8)
    assert row["outcome"] == "COMPACTED", row["error"]
    set_to(0.0)
    assert await is_whole(world, before)


@pytest.mark.parametrize("at", [1, 5], ids=["first-claim", "second-claim"])
@virtual
async def test_what_is_given_up_is_closed_if_it_can_be(world: CliWorld, at: int) -> None:
    """So that a source without takeover may open it; the next run does all that was not done."""
    await cold(world)
    before = await state(world)
    one = await chosen(world)
    steps: list[str] = []

    def say(step: str) -> None:
        if len(steps) == at:
            world.bookkeeper.stall_acks()
        if step == "given up":
            world.bookkeeper.stall_acks(False)
        steps.append(step)

    row = await compacted(world, say=say, one=one, stall_s=0.3)
    assert row["outcome"] == "AWAY" and "nothing moved" in row["error"] and steps[-1] == "given up"
    left = await world.footer()
    assert left.state is FooterState.CLOSED and f"/{FIRST if at == 1 else SECOND}/" in left.writer
    assert await is_whole(world, before)
    steps.clear()
    row = await compacted(world, say=steps.append, one=one)
    assert tuple(steps) == (STEPS if at == 1 else ("looked",)), (
        "a first claim without its snapshot is made again"
    )
    now = await world.footer()
    assert (
        isinstance(now.base, SnapshotBase)
        and now.stats.delta_bytes == 0
        and await is_whole(world, before)
    )


@virtual
async def test_one_claim_ends_whatever_moves(
    world: CliWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    await cold(world)
    world.bookkeeper.faults.delay_min_s = world.bookkeeper.faults.delay_max_s = 0.1
    monkeypatch.setattr(compacting, "CLAIM_MAX_S", 0.3)
    row = await compacted(world)
    assert row["outcome"] == "AWAY" and "claiming it: not done in 0 s" in row["error"]


def test_the_first_claim_keeps_what_was_there() -> None:
    """A close into the footer would drop it before anything was compared."""
    small = replace(NO_INLINE, inline_state_max_bytes=1_000)
    assert compacting.limits_of(small, FIRST).inline_state_max_bytes == 0
    assert compacting.limits_of(small, SECOND) == small

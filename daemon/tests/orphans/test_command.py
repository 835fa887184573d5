"""`orphans` on fakes: what it prints, what it deletes, what it refuses."""

from __future__ import annotations

import json

import pytest

from cursorkeeper.cli.orphans import look, report, seconds
from cursorkeeper.core.footer import FooterState
from cursorkeeper.core.names import CursorName
from cursorkeeper.orphans.listing import rough
from cursorkeeper.problems import ProblemError
from cursorkeeper.terminal.failure import AWAY, NO, USAGE, exit_code
from daemon.tests.fakes.zookeeper.faults import NotNow
from daemon.tests.orphans.conftest import OrphanWorld
from daemon.tests.support.world import NAME, Recorder, Source

DAY_S = 86_400.0
WELL = [CursorName(f"persistent://t/ns/well-{number}", "sub") for number in range(4)]
LONG = CursorName(
    "persistent://tenant/namespace/" + "a-topic-with-a-long-name" * 4,
    "a-subscription-with-a-long-name",
)
OPEN = CursorName("persistent://t/ns/open", "sub")


class Told:
    """One run of the command on a world."""

    def __init__(self, world: OrphanWorld, capsys: pytest.CaptureFixture[str]) -> None:
        self._world, self._capsys = world, capsys
        self.out = self.err = ""

    async def run(
        self,
        *,
        delete: bool = False,
        age_s: float = 0.0,
        percent_max: float = 50.0,
        as_json: bool = False,
    ) -> int:
        """The exit code. The clock is a moment behind the newest footer."""
        world = self._world
        remover = await world.remover()
        try:
            fleet = await look((await world.ports()).footers, remover.pulsar, "zk:2181", world.bar)
            now_ms = max((orphan.written_ms for orphan in fleet.orphans), default=0) + 5_000
            return await report(
                fleet,
                remover if delete else None,
                world.bar,
                now_ms=now_ms,
                age_s=age_s,
                percent_max=percent_max,
                as_json=as_json,
            )
        finally:
            captured = self._capsys.readouterr()
            self.out, self.err = captured.out, captured.err

    @property
    def lines(self) -> list[dict]:
        return [json.loads(line) for line in self.out.splitlines()]


@pytest.fixture
async def told(world: OrphanWorld, capsys: pytest.CaptureFixture[str]) -> Told:
    for name in WELL:
        await world.closed(name)
        await world.subscribed(name)
    return Told(world, capsys)


async def test_a_dry_run_changes_nothing(world: OrphanWorld, told: Told) -> None:
    _, before = await world.orphan()
    zxid = (await (await world.zk()).get(NAME.path())).stat.mzxid
    assert await told.run() == 0 and await told.run(as_json=True) == 0
    assert (
        await world.footer() == before
        and (await (await world.zk()).get(NAME.path())).stat.mzxid == zxid
    )
    orphan, summary = told.lines
    assert orphan | {"writer": "", "writtenMs": 0, "storedBytes": 0} == {
        "cursor": NAME.display,
        "topic": NAME.topic,
        "subscription": NAME.subscription,
        "gone": "topic",
        "state": "closed",
        "writer": "",
        "writtenMs": 0,
        "ledgers": 1,
        "storedBytes": 0,
        "fencingToken": 0,
        "idleS": 5,
        "verdict": "may go",
    }
    assert summary == {
        "summary": "orphans",
        "orphans": 1,
        "cursors": 5,
        "foreign": 0,
        "unreadable": 0,
        "listed": 1,
        "verdicts": {"may go": 1},
        "endings": {},
        "ledgersLeft": 0,
        "doubt": "",
    }


async def test_a_terminal_of_eighty_columns_folds_only_the_name(
    world: OrphanWorld, told: Told
) -> None:
    await world.orphan(LONG)
    await world.orphan(NAME)
    assert await told.run() == 0
    header, *rows = told.out.splitlines()[:3]
    at = header.index("cursor")
    assert at < 60 and {row[at:] for row in rows} == {NAME.display, LONG.display}
    assert all(len(row[:at].split("  ")) >= 5 and row[at - 1] == " " for row in rows)
    assert (
        "2 orphans among 6 cursors: 2 may go" in told.out and "--delete deletes the 2" in told.out
    )


async def test_what_is_open_or_young_stays(world: OrphanWorld, told: Told) -> None:
    await world.orphan(NAME)
    await world.source(OPEN)
    assert await told.run(age_s=DAY_S) == 0
    assert {line.split()[-2:][0] for line in told.out.splitlines()[1:3]} == {"young", "open"}
    assert (
        "1 young" in told.out
        and "stays until a source deletes it by name" in told.out
        and "--delete deletes" not in told.out
    )
    assert await told.run(delete=True, age_s=DAY_S) == 0 and "none deleted" in told.out
    assert await told.run(delete=True) == 0 and "1 deleted" in told.out
    assert (await world.footer(NAME)).state is FooterState.DELETED and (
        await world.footer(OPEN)
    ).state is FooterState.OPEN


async def test_deleting_says_what_became_of_each(world: OrphanWorld, told: Told) -> None:
    _, before = await world.orphan()
    assert await told.run(delete=True, as_json=True) == 0
    ended, summary = told.lines
    assert (ended["cursor"], ended["ending"], ended["ledgersLeft"], summary["endings"]) == (
        NAME.display,
        "deleted",
        0,
        {"deleted": 1},
    )
    assert not (before.named_ledgers() & world.bookkeeper.ledgers.keys())
    assert await told.run(delete=True) == 0 and told.out.startswith(
        "0 orphans among 4 cursors\nnone deleted"
    )
    assert [(await world.footer(name)).state for name in WELL] == [FooterState.CLOSED] * 4, (
        "those that are well stay"
    )


async def test_many_at_once(world: OrphanWorld, told: Told) -> None:
    for number in range(20):
        await world.orphan(
            CursorName(f"persistent://t/ns/gone-{number}", "sub"), with_ledgers=False
        )
    assert await told.run(delete=True, percent_max=90) == 0 and "20 deleted" in told.out


async def test_too_many_are_not_believed(world: OrphanWorld, told: Told) -> None:
    _, before = await world.orphan()
    assert await told.run(percent_max=10) == NO
    assert (
        NAME.display in told.out
        and "1 of 5 cursors are orphans, 20.0 percent" in told.err
        and "--percent-max" in told.err
    )
    with pytest.raises(ProblemError, match="nothing was deleted") as refused:
        await told.run(delete=True, percent_max=10)
    assert exit_code(refused.value.problem) == NO and await world.footer() == before


async def test_a_store_without_any_topic_of_ours_is_not_believed(
    world: OrphanWorld, told: Told
) -> None:
    for name in WELL:
        await world.deleted_by_force(name)
    await world.subscribed(CursorName("persistent://another/cluster/of", "sub"))
    with pytest.raises(ProblemError, match="no topic of any of the 4 cursors"):
        await told.run(delete=True, percent_max=99)
    assert await told.run(delete=True, percent_max=100) == 0 and "4 deleted" in told.out


async def test_a_store_that_is_none_is_refused_whatever_is_allowed(
    world: OrphanWorld, told: Told
) -> None:
    await world.orphan()
    await world.put("/pulsar/migration-coordinator/migration", b'{"phase":"COMPLETED"}')
    for delete in (False, True):
        with pytest.raises(ProblemError, match="moved to another metadata store") as refused:
            await told.run(delete=delete, percent_max=100)
        assert (
            exit_code(refused.value.problem) == USAGE
            and "--pulsar-zookeeper" in refused.value.problem.remedy
        )


async def test_an_unreadable_footer_is_left_alone_and_told(world: OrphanWorld, told: Told) -> None:
    await world.closed(OPEN)
    await world.overwrite(OPEN, b"{}")
    assert await told.run(delete=True) == NO and "1 footer(s) cannot be read" in told.err


async def test_zookeeper_that_goes_away_is_exit_code_three(world: OrphanWorld, told: Told) -> None:
    _, before = await world.orphan()
    world.zookeeper.faults.chance("set", 1.0, NotNow())
    assert (
        await told.run(delete=True) == AWAY
        and "run it again when ZooKeeper is back" in told.err
        and "1 undecided" in told.out
    )
    world.zookeeper.faults.clear()
    assert await world.footer() == before


async def test_what_a_killed_daemon_left_open_goes_by_its_name_and_token(
    world: OrphanWorld, told: Told
) -> None:
    killed = Source(await world.keeper("killed"))
    await killed.open(fencing_token=7)
    killed.keeper.abandon()
    assert await told.run(delete=True, as_json=True) == 0
    assert (
        told.lines[-1]["verdicts"] == {"open": 1}
        and (await world.footer()).state is FooterState.OPEN
    )
    [orphan] = (await world.searched()).orphans
    gone = Recorder()
    (await world.keeper("next")).delete_unopened(NAME, gone, fencing_token=orphan.fencing_token)
    await gone.until(lambda: bool(gone.ended))
    assert gone.ended == "deleted" and await told.run() == 0 and told.out.startswith("0 orphans")


@pytest.mark.parametrize(
    ("text", "expected_s"), [("24h", DAY_S), ("90 m", 5_400.0), ("0s", 0.0), ("1.5d", 1.5 * DAY_S)]
)
def test_ages(text: str, expected_s: float) -> None:
    assert seconds(text) == expected_s


@pytest.mark.parametrize("text", ["", "24", "h", "-1h", "1w", "nan s"])
def test_what_is_no_age_is_told(text: str) -> None:
    with pytest.raises(ProblemError, match="is no age"):
        seconds(text)


def test_rough_durations() -> None:
    assert [rough(s) for s in (0, 59, 60, 3_600, 100_000, 1e9)] == [
        "0s",
        "59s",
        "1m",
        "1h",
        "1d",
        "11,574d",
    ]

"""Work that waits for its turn, in virtual time: bounded, the oldest first, sent only when it is
let in; and what busyness is not evidence of.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from typing import Any

import pytest

from cursorkeeper.bookkeeper import errors as bk
from cursorkeeper.bookkeeper.port import FencedEnd, ReadChunk
from cursorkeeper.core import events as ev
from cursorkeeper.core.footer import FooterState
from cursorkeeper.core.limits import Limits
from cursorkeeper.core.names import CursorName
from cursorkeeper.core.table import OPENING, State
from cursorkeeper.format import footer as footer_bytes
from cursorkeeper.runtime.admission import (
    STUCK_FACTOR,
    WAITING_OF_A_PLACE,
    Calm,
    Lane,
    Pace,
    Turn,
)
from cursorkeeper.runtime.chain import RETRY_MAX_S
from cursorkeeper.runtime.keeper import ROOM_MIN, Keeper
from cursorkeeper.runtime.ledgers import ASKED_AGAIN_MAX_S
from cursorkeeper.runtime.limits import KeeperLimits
from cursorkeeper.runtime.patience import PatientClock
from daemon.tests.fakes.zookeeper.fake import FakeZooKeeper
from daemon.tests.runtime.virtual import until, virtual
from daemon.tests.support.world import Recorder, Source, World, acks

DATA = 10


def named(number: int) -> CursorName:
    return CursorName("persistent://t/ns/topic", f"sub-{number}")


def now() -> float:
    return asyncio.get_running_loop().time()


async def sources(keeper: Keeper, count: int, first: int = 0) -> list[Source]:
    made = [Source(keeper, named(number)) for number in range(first, first + count)]
    await asyncio.gather(*(one.open() for one in made))
    return made


# ---- lanes


@virtual
async def test_the_oldest_goes_first_and_never_more_than_there_are_places() -> None:
    lane, begun = Lane(2), list[tuple[int, int]]()

    def work(number: int, age: float) -> bool:
        def begin(place: int) -> bool:
            begun.append((number, place))
            return True

        return lane.enter((age, 0), begin)

    assert [work(0, 5.0), work(1, 4.0), work(2, 3.0), work(3, 1.0), work(4, 2.0)] == [
        True,
        True,
        False,
        False,
        False,
    ]
    assert (len(lane), lane.at_work) == (3, 2)
    for wanted in (3, 4, 2):
        lane.leave(begun[0][1] if wanted == 3 else begun[-1][1])
        assert begun[-1][0] == wanted
    assert lane.at_work == 2 and not len(lane)


@virtual
async def test_there_are_more_places_where_more_wait_and_fewer_when_they_are_through() -> None:
    lane, places = Lane(10, at_once_min=2), list[int]()
    for number in range(400):
        lane.enter((float(number), 0), lambda place: not places.append(place))
    assert lane.at_work == 2, "the others came one by one, and each waited alone"
    at_work = list[int]()
    while len(lane):
        lane.leave(places.pop(0))
        wanted = {min(10, max(2, (len(lane) + n) // WAITING_OF_A_PLACE)) for n in (0, 1)}
        assert lane.at_work in wanted
        at_work.append(lane.at_work)
    assert at_work[0] == 10 and at_work == sorted(at_work, reverse=True) and at_work[-1] == 2


@virtual
@pytest.mark.parametrize(("most", "least", "stuck"), [(10, 2, 24), (10, 1, 20), (3, 24, 36)])
async def test_what_is_stuck_has_an_end_that_does_not_follow_what_waits(
    most: int, least: int, stuck: int
) -> None:
    lane, begun = Lane(most, lease_s=1.0, at_once_min=least), list[int]()
    for age in range(500):
        lane.enter((float(age), 0), lambda place: not begun.append(place))
    await asyncio.sleep(300)
    assert lane.at_work == len(begun) == stuck
    for place in list(begun):
        lane.leave(place)
    assert lane.at_work > 0, "what is answered lets others in"


@virtual
async def test_who_is_not_wanted_any_more_costs_no_place() -> None:
    lane, begun = Lane(1), list[int]()
    lane.enter((0.0, 0), lambda place: not begun.append(place))
    for age in (1.0, 2.0):
        lane.enter((age, 0), lambda _place: False)
    lane.enter((3.0, 0), lambda place: not begun.append(place))
    lane.leave(begun[0])
    assert len(begun) == 2 and lane.at_work == 1


@virtual
async def test_work_that_is_stuck_keeps_its_place_from_nobody() -> None:
    """Two recoveries are never answered: the third one waits for a lease, not for ever; and there
    is an end to that, too.
    """
    lane, begun = Lane(2, lease_s=1.0), list[int]()
    for age in range(40):
        lane.enter((age, 0), lambda place: not begun.append(place))
    await asyncio.sleep(0.9)
    assert len(begun) == 2
    await asyncio.sleep(0.2)
    assert len(begun) == 4
    await asyncio.sleep(60)
    assert lane.at_work == len(begun) == 2 * STUCK_FACTOR
    lane.leave(begun[0])
    assert len(begun) == 2 * STUCK_FACTOR + 1


@virtual
async def test_a_pace_is_kept_from_the_first_to_the_last() -> None:
    """Two hundred who need no turn any more are older, and take none from the three that do."""
    pace, turns = Pace(10), list[tuple[int, float]]()
    began = now()
    for number, age in enumerate((3.0, 1.0, 2.0)):
        pace.ask((age, 0), lambda number=number: not turns.append((number, now() - began)))  # type: ignore[misc]
    for age in range(200):
        pace.ask((age // 2 / 1000, 1), lambda: False)
    await asyncio.sleep(1)
    assert turns == [(1, pytest.approx(0.0)), (2, pytest.approx(0.1)), (0, pytest.approx(0.2))]


@virtual
async def test_who_waits_alone_is_let_in_when_the_lease_is_over_and_equal_ages_in_their_order() -> (
    None
):
    lane, begun = Lane(1, lease_s=1.0), list[int]()
    for number in range(4):
        lane.enter((7.0, 0), lambda place, number=number: not begun.append(number))  # type: ignore[misc]
        if number == 1:
            await asyncio.sleep(1.1)
            assert begun == [0, 1]
    await asyncio.sleep(2)
    assert begun == [0, 1, 2, 3]


@virtual
async def test_each_lease_ends_by_itself_and_one_timer_waits_for_the_first() -> None:
    lane, begun = Lane(2, lease_s=1.0), list[float]()
    lane.enter((0.0, 0), lambda _place: not begun.append(now()))
    await asyncio.sleep(0.9)
    for age in (1.0, 2.0):
        lane.enter((age, 0), lambda _place: not begun.append(now()))
    armed = lane._timer
    lane.enter((3.0, 0), lambda _place: not begun.append(now()))
    assert armed is not None and lane._timer is armed
    await asyncio.sleep(5)
    assert begun == [pytest.approx(at) for at in (0.0, 0.9, 1.0, 1.9)]


@virtual
async def test_who_comes_while_others_are_let_in_does_not_go_before_them() -> None:
    """Two leases end together: what the first one that is let in begins is younger than the second
    one.
    """
    lane, begun = Lane(2, lease_s=1.0), list[str]()

    def enter(name: str, age: float, then: str = "") -> None:
        def begin(_place: int) -> bool:
            begun.append(name)
            if then:
                enter(then, age + 9.0)
            return True

        lane.enter((age, 0), begin)

    for name, age, then in (("a", 0.0, ""), ("b", 1.0, ""), ("c", 2.0, "e"), ("d", 3.0, "")):
        enter(name, age, then)
    await asyncio.sleep(1.5)
    assert begun == ["a", "b", "c", "d"]
    await asyncio.sleep(1)
    assert begun == ["a", "b", "c", "d", "e"]


@virtual
async def test_what_waited_for_calm_goes_on_together_and_waits_again_for_the_next() -> None:
    lane, done = Lane(1), list[float]()
    calm = Calm(Lane(1), lane, wait_max_s=4.0, look_s=0.5)

    async def work() -> None:
        await calm.wait()
        done.append(now())

    await asyncio.wait_for(work(), 0.1)
    for age in range(2):
        lane.enter((float(age), 0), lambda _place: True)
    tasks = [asyncio.create_task(work()) for _ in range(3)]
    await asyncio.sleep(0.7)
    assert len(done) == 1, "somebody waits"
    await asyncio.sleep(0.9)  # the first one's lease is over
    assert len(done) == 4 and not len(lane)
    for age in range(STUCK_FACTOR):  # one more is let in each second
        lane.enter((float(age), 0), lambda _place: True)
    began = now()
    await asyncio.gather(*tasks, work())
    assert 3.9 <= now() - began <= 4.6, "not for ever"
    calm.close()


@virtual
async def test_nobodys_turn_comes_after_a_close() -> None:
    lane, pace, begun = Lane(1), Pace(10), list[int]()
    lane.enter((0.0, 0), lambda place: not begun.append(place))
    lane.enter((1.0, 0), lambda place: not begun.append(place))
    pace.ask((0.0, 0), lambda: not begun.append(-1))
    lane.close()
    pace.close()
    assert (
        lane._timer is not None
        and lane._timer.cancelled()
        and pace._timer is not None
        and pace._timer.cancelled()
    )
    lane.leave(begun[0])
    await asyncio.sleep(5)
    assert begun == [1]


@virtual
async def test_who_gave_up_waiting_for_another_turn_is_passed_over() -> None:
    lane, begun = Lane(1), list[int]()
    lane.enter((0.0, 0), lambda place: not begun.append(place))
    turn = Turn(lane, begun[0])
    turn.end()
    turn.end()
    lane.enter((1.0, 0), lambda place: not begun.append(place))
    tasks = [asyncio.create_task(Turn(lane, 0).again((age, 0))) for age in (2.0, 3.0)]
    await asyncio.sleep(0.1)
    tasks[0].cancel()
    await asyncio.sleep(0.1)
    lane.leave(begun[1])
    await asyncio.wait_for(tasks[1], 0.1)
    assert lane.at_work == 1 and not len(lane)


# ---- the clock


@virtual
async def test_a_loop_that_was_busy_has_not_waited() -> None:
    clock, loop = PatientClock(), asyncio.get_running_loop()
    await asyncio.sleep(5)
    clock.watch()
    began = clock()
    await asyncio.sleep(1)
    assert clock() - began == pytest.approx(1.0), "listening all the time"
    loop._now += 10.0  # type: ignore[attr-defined]  # one callback that took ten seconds
    assert clock() - began < 1.3
    await asyncio.sleep(1)
    assert 1.9 < clock() - began < 2.3
    clock.rest()
    await asyncio.sleep(30)
    assert clock() - began > 31.0, "nothing is unanswered: no beat is needed"


# ---- overload is not an outage


@virtual
async def test_cursors_that_wait_for_a_first_ledger_are_not_paused() -> None:
    """Creating takes a second and one may be created at once: the last of six waits for six
    seconds, in our queue, and nobody is away. Each gets one ledger, the oldest first, and no state
    goes into a footer.
    """
    world = World(keeper_limits=KeeperLimits(openings_at_once_max=1))
    keeper = await world.keeper()
    made = await sources(keeper, 6)
    world.bookkeeper.faults.delay_min_s = world.bookkeeper.faults.delay_max_s = 0.5
    order: list[int] = []
    for one in made:
        one.ack(acks(DATA, 1))
        await asyncio.sleep(0.001)
    for number, one in enumerate(made):
        await one.durable()
        order.append(number)
    assert not any(one.told.pauses for one in made)
    assert len(world.bookkeeper.ledgers) == len(made)
    assert not any(one.machine.counters.inline_backstops for one in made)
    assert keeper.failures == []


@virtual
async def test_a_create_that_is_sent_and_not_answered_is_evidence() -> None:
    """The same wait, but for somebody else: the one whose create is out is paused after two
    seconds; those behind it, whose creates have not been sent, are not.
    """
    world = World(
        limits=Limits(inline_state_max_bytes=0),
        keeper_limits=KeeperLimits(openings_at_once_max=1, detached_cursor_max_ms=10**9),
    )
    keeper = await world.keeper()
    made = await sources(keeper, 8)
    world.bookkeeper.faults.delay_min_s = world.bookkeeper.faults.delay_max_s = 4.0
    began = now()
    for one in made:
        one.ack(acks(DATA, 1))
    await made[0].told.until(lambda: bool(made[0].told.pauses))
    assert 2.0 <= now() - began < 2.2
    assert not made[-1].told.pauses
    for one in made:
        await one.durable(limit_s=120.0)


@virtual
async def test_inline_states_are_written_at_the_daemons_pace() -> None:
    """BookKeeper is away under thirty cursors: their states go into footers ten a second, the
    longest wait first, and no cursor is asked meanwhile.
    """
    world = World(keeper_limits=KeeperLimits(inline_states_per_s_max=10))
    keeper = await world.keeper()
    made = await sources(keeper, 30)
    world.bookkeeper.bookies_up = 0
    for one in made:
        one.ack(acks(DATA, 1))
    began = now()
    await until(lambda: any(one.told.durable for one in made))
    assert 2.0 <= now() - began < 2.5
    await asyncio.sleep(1.0)
    assert 8 <= sum(one.told.durable for one in made) <= 13
    for one in made:
        await one.durable()
    assert 4.7 <= now() - began < 6.0
    assert sum(one.machine.counters.inline_backstops for one in made) == 30


@virtual
async def test_cursors_without_bookies_do_not_all_ask_for_ledgers() -> None:
    """Two hundred cursors need ledgers while too few bookies are left, for half a minute. Each is
    paused in time, few of them ask, and when the bookies are back all are durable soon.
    """
    world = World(limits=Limits(inline_state_max_bytes=0))
    keeper = await world.keeper()
    made = await sources(keeper, 200)
    world.bookkeeper.bookies_up = 0
    before = world.bookkeeper.creates_asked
    for one in made:
        one.ack(acks(DATA, 1))
    await asyncio.sleep(2.5)
    assert all(one.told.pauses for one in made)
    at_first = world.bookkeeper.creates_asked - before
    await asyncio.sleep(30)
    # with the full ensemble and with the smallest
    assert world.bookkeeper.creates_asked - before - at_first <= 2 * (30 / ASKED_AGAIN_MAX_S + 2)
    world.bookkeeper.bookies_up = 3
    began = now()
    for one in made:
        await one.durable()
    assert now() - began < Limits().retry_max_ms / 1000 + ASKED_AGAIN_MAX_S + 1
    assert not any(one.told.ended for one in made) and keeper.failures == []


@virtual
async def test_openings_take_turns() -> None:
    """Two hundred opens, eight requests at once: never more are on their way, and one that was
    opened before is not held up.
    """
    world = World(keeper_limits=KeeperLimits(openings_at_once_max=8))
    keeper = await world.keeper()
    [neighbour] = await sources(keeper, 1)
    neighbour.ack(acks(DATA, 1))
    await neighbour.durable()
    world.zookeeper.faults.latency_s = (0.05, 0.05)
    recorders = [Recorder() for _ in range(200)]
    lane = keeper._lanes.openings
    for number, told in enumerate(recorders, 1):
        keeper.open(named(number), ev.Open(takeover=True), keeper.attach_id(), told)
    assert lane.at_work == 8 and len(lane) == 192
    neighbour.ack(acks(DATA, 2))
    await neighbour.durable()
    assert not any(told.machine for told in recorders)
    await until(lambda: any(told.machine for told in recorders))
    assert sum(told.machine is not None for told in recorders) <= 8, (
        "the first ones go all their way before others begin"
    )
    await until(lambda: all(told.machine is not None for told in recorders))
    assert lane.at_work == 0


@pytest.mark.parametrize("stall_s", [10.0, 100.0])
@virtual
async def test_deletions_let_cursors_that_wait_to_be_opened_go_first(stall_s: float) -> None:
    world = World(keeper_limits=KeeperLimits(openings_at_once_max=1))
    keeper = await world.keeper()
    source = Source(keeper)
    await source.open()
    source.ack(acks(DATA, 1))
    await source.durable()
    runner, ledger = keeper.cursors[source.name], source.machine.chain[0].ledger
    zookeeper = keeper.footers._zk
    assert isinstance(zookeeper, FakeZooKeeper)
    zookeeper.stall(stall_s)
    waiting = [Source(keeper, named(number)) for number in range(STUCK_FACTOR + 2)]
    opening = [asyncio.ensure_future(one.open()) for one in waiting]
    await asyncio.sleep(3)
    began = now()
    deleting = asyncio.ensure_future(runner._delete_in_turn(ledger))
    await asyncio.sleep(5)
    assert ledger in world.bookkeeper.ledgers, "somebody waits to be opened"
    await until(lambda: ledger not in world.bookkeeper.ledgers, 60.0)
    assert now() - began <= 31, "nor does it wait for ever"
    await deleting
    keeper.abandon()
    for task in opening:
        task.cancel()
    await asyncio.gather(*opening, return_exceptions=True)


@virtual
async def test_an_open_that_waits_for_its_turn_does_not_wait_for_zookeeper() -> None:
    """ZooKeeper answers every request in a second, one opening asks at once, and the tenth open
    waits for half a minute: longer than anybody may wait for ZooKeeper, and it is opened all the
    same.
    """
    world = World(
        limits=Limits(answer_wait_max_ms=10_000), keeper_limits=KeeperLimits(openings_at_once_max=1)
    )
    keeper = await world.keeper()
    world.zookeeper.faults.latency_s = (0.5, 0.5)
    began = now()
    made = [Source(keeper, named(number)) for number in range(10)]
    await asyncio.gather(*(one.open() for one in made), return_exceptions=True)
    assert now() - began > 15
    assert not any(one.told.refused for one in made), [one.told.refused for one in made]


@virtual
async def test_opens_that_wait_for_their_turn_hear_that_zookeeper_answers_nobody() -> None:
    """One opening asks at once, and nothing is answered: the twelfth open would get its turn after
    a minute and more.
    """
    world = World(
        limits=Limits(answer_wait_max_ms=3_000), keeper_limits=KeeperLimits(openings_at_once_max=1)
    )
    keeper = await world.keeper()
    world.zookeeper.stop()
    recorders = [Recorder() for _ in range(12)]
    for number, told in enumerate(recorders):
        keeper.open(named(number), ev.Open(takeover=True), keeper.attach_id(), told)
    began = now()
    await until(lambda: all(told.refused for told in recorders))
    assert now() - began < 8.0, "the last one that was let in was asked for four seconds before"
    assert {told.refused[0] for told in recorders if told.refused} == {"UNAVAILABLE"}
    assert not keeper.cursors


@virtual
async def test_the_first_ledger_is_part_of_an_opening() -> None:
    """A hundred opens, eight requests at once, each answered in 0.1 s, a ledger created in a
    second, and each source acks as soon as it is told Opened: its acks are durable in the time of a
    few requests, while others still wait to be opened.
    """
    world = World(keeper_limits=KeeperLimits(openings_at_once_max=8, ledger_requests_at_once_max=8))
    keeper = await world.keeper()
    world.zookeeper.faults.latency_s = (0.05, 0.05)
    world.bookkeeper.faults.delay_min_s = world.bookkeeper.faults.delay_max_s = 0.5
    waits, still_opening = list[float](), list[int]()
    made = [Source(keeper, named(number)) for number in range(100)]

    async def live(one: Source) -> None:
        await one.open()
        opened_at = now()
        one.ack(acks(DATA, 1))
        await one.durable(limit_s=60.0)
        waits.append(now() - opened_at)
        still_opening.append(sum(other.told.machine is None for other in made))

    await asyncio.gather(*(live(one) for one in made))
    assert max(waits) < 4.0
    assert still_opening[0] > 75 and keeper.failures == []


# ---- more messages than can be done


def _costs(keeper: Keeper, append_s: float) -> None:
    """Each append takes this loop so long."""
    append = keeper.ledgers.append

    def slow(ledger: int, entry: int, payload: bytes) -> asyncio.Future[None]:
        asyncio.get_running_loop()._now += append_s  # type: ignore[attr-defined]
        return append(ledger, entry, payload)

    keeper.ledgers.append = slow  # type: ignore[method-assign]


@virtual
async def test_of_messages_that_come_faster_than_they_can_be_written_many_become_one_record() -> (
    None
):
    """A message takes 0.2 ms to be taken in and 0.5 ms to be written, and they come without a
    pause, fifty cursors in turn.
    """
    world = World()
    keeper = await world.keeper()
    made = await sources(keeper, 50)
    for one in made:
        one.ack(acks(DATA, 0))
        await one.durable()
    before = sum(one.machine.counters.flushes for one in made)
    _costs(keeper, 0.0005)
    most = 0
    for entry in range(1, 101):
        for one in made:
            asyncio.get_running_loop()._now += 0.0002  # type: ignore[attr-defined]
            one.ack(acks(DATA, entry))
            for _ in range(3):
                await asyncio.sleep(0)
        most = max(most, *(one.seq - one.told.durable for one in made))
    for one in made:
        await one.durable()
    assert sum(one.machine.counters.flushes for one in made) - before < 50 * 100 / 5
    assert most < 30, "nobody waits for the end of it"


@virtual
async def test_a_slow_bookkeeper_is_not_left_idle() -> None:
    """A round of appends takes more than a second, for want of room, while messages come without a
    pause: they are taken in then, and need no time of their own behind it.
    """
    world = World(keeper_limits=KeeperLimits(daemon_appends_in_flight_max=16))
    keeper = await world.keeper()
    made = await sources(keeper, 100)
    for one in made:
        one.ack(acks(DATA, 0))
        await one.durable()
    world.bookkeeper.faults.ack_delay_min_s = world.bookkeeper.faults.ack_delay_max_s = 0.2
    idle_s, began = 0.0, now()
    for entry in range(1, 101):
        for one in made:
            one.ack(acks(DATA, entry))
            is_idle, at = not keeper.appends_in_flight, now()
            for _ in range(4):
                await asyncio.sleep(0.0001)
            idle_s += now() - at if is_idle else 0.0
    assert idle_s < (now() - began) / 10


@virtual
async def test_a_message_in_a_pause_is_written_when_its_linger_is_over() -> None:
    world = World()
    keeper = await world.keeper()
    [one] = await sources(keeper, 1)
    one.ack(acks(DATA, 0))
    await one.durable()
    for entry in range(10):
        began = now()
        one.ack(acks(DATA, *range(100 * entry + 1, 100 * entry + 50)))
        await one.durable()
        assert now() - began < 0.003
        await asyncio.sleep(0.01)


# ---- cursors that cannot be opened


async def _left_open(world: World, count: int) -> list[Source]:
    """Cursors with a ledger each, and then a crash."""
    before = await world.keeper("before")
    made = await sources(before, count)
    for one in made:
        one.ack(acks(DATA, 1))
    for one in made:
        await one.durable()
    before.abandon()
    return made


@virtual
async def test_a_place_that_rests_is_free_and_comes_again_with_its_new_age() -> None:
    lane, begun = Lane(1), list[int]()
    places = list[int]()
    lane.enter((0.0, 0), lambda place: not places.append(place))
    turn = Turn(lane, places[0])
    for number in (1, 2):
        lane.enter(
            (float(number), 0),
            lambda place, number=number: not begun.append(number) and not places.append(place),
        )  # type: ignore[misc]
    turn.end()
    turn.end()
    assert begun == [1], "given back once"
    again = asyncio.ensure_future(turn.again((1.5, 0)))
    await asyncio.sleep(0)
    lane.leave(places[-1])
    await again
    assert begun == [1] and lane.at_work == 1, "it is older than the second one"
    turn.end()
    assert begun == [1, 2]


@virtual
async def test_cursors_that_cannot_be_recovered_do_not_keep_others_from_opening() -> None:
    """The recovery of a thousand ledgers takes ten seconds each time, and fails. 256 of them at a
    time are tried, so each has had its first try after forty seconds; a cursor that comes last has
    its turn then, before their second.
    """
    world = World()
    stuck = await _left_open(world, 1_000)
    bad = set(world.bookkeeper.ledgers)
    keeper = await world.keeper()
    fence = keeper.ledgers.fence

    async def slow(ledger: int, *, entries_bytes_max: int = 0) -> FencedEnd:
        if ledger not in bad:
            return await fence(ledger, entries_bytes_max=entries_bytes_max)
        await asyncio.sleep(10)
        raise bk.GatewayRetry("LEDGER_RECOVERY", bk.Outcome.UNKNOWN, ledger=ledger)

    keeper.ledgers.fence = slow  # type: ignore[method-assign]
    for one in stuck:
        keeper.open(one.name, ev.Open(takeover=True), keeper.attach_id(), Recorder())
    await asyncio.sleep(1)
    began = now()
    healthy = Source(keeper, named(5_000))
    keeper.open(healthy.name, ev.Open(takeover=True), healthy.attach, healthy.told)
    await healthy.told.until(lambda: healthy.told.machine is not None, 600)
    assert now() - began < 60, "and the same for every one after it"
    assert len(keeper.cursors) == 1_001
    keeper.abandon()


@virtual
async def test_cursors_that_cannot_be_read_hold_no_place_while_they_wait() -> None:
    """Three hundred ledgers cannot be read: each read fails at once and is tried again, for
    ever.
    """
    world = World(keeper_limits=KeeperLimits(openings_at_once_max=16))
    stuck = await _left_open(world, 300)
    bad = set(world.bookkeeper.ledgers)
    keeper = await world.keeper()
    read = keeper.ledgers.read

    def failing(ledger: int, *args: Any, **kwargs: Any) -> AsyncIterator[ReadChunk]:
        if ledger in bad:
            raise bk.GatewayRetry("READ_FAILED", bk.Outcome.NOT_DONE, ledger=ledger)
        return read(ledger, *args, **kwargs)

    keeper.ledgers.read = failing  # type: ignore[method-assign]
    for one in stuck:
        keeper.open(one.name, ev.Open(takeover=True), keeper.attach_id(), Recorder())
    await asyncio.sleep(10)
    assert keeper._lanes.openings.at_work <= 16
    began = now()
    await sources(keeper, 1, first=5_000)
    assert now() - began < 1.0
    bad.clear()
    await until(
        lambda: all(runner.machine.state is State.READY for runner in keeper.cursors.values())
    )
    assert keeper._lanes.openings.at_work == 0 and keeper.failures == []


@virtual
async def test_a_reader_whose_cursor_ended_in_the_queue_reads_nothing_more() -> None:
    """It rests for five seconds, another opening has the only place when the rest is over, and a
    bug ends the cursor meanwhile.
    """
    world = World(keeper_limits=KeeperLimits(openings_at_once_max=1))
    [one] = await _left_open(world, 1)
    keeper = await world.keeper()
    world.bookkeeper.faults.fence_without_entries = 1.0
    reads = list[float]()

    def failing(ledger: int, *_: Any, **__: Any) -> AsyncIterator[ReadChunk]:
        reads.append(now())
        raise bk.GatewayRetry("READ_FAILED", bk.Outcome.NOT_DONE, ledger=ledger)

    keeper.ledgers.read = failing  # type: ignore[method-assign]
    told, lane = Recorder(), keeper._lanes.openings
    keeper.open(one.name, ev.Open(takeover=True), keeper.attach_id(), told)
    await until(lambda: len(reads) > 2 and reads[-1] - reads[-2] > RETRY_MAX_S - 0.1)
    await asyncio.sleep(RETRY_MAX_S - 0.1)
    world.zookeeper.faults.latency_s = (0.2, 0.2)
    other = asyncio.ensure_future(sources(keeper, 1, first=100))
    await until(lambda: len(lane) == 1)
    before = len(reads)
    keeper.cursors[one.name].dispatch(ev.Open())
    assert told.refused is not None and "an internal error" in told.refused[1]
    await other
    await asyncio.sleep(RETRY_MAX_S)
    assert len(reads) == before and not lane.at_work


# ---- a full window


@virtual
async def test_with_a_full_window_every_limit_in_milliseconds_holds() -> None:
    """Eighty busy cursors, a window of sixteen appends, and bookies that fall silent: those in the
    window and those who wait for room are paused after two seconds, small states go into footers, a
    new cursor opens, and a detached one closes in its time.
    """
    world = World(
        limits=Limits(bookkeeper_away_ms=2_000),
        keeper_limits=KeeperLimits(
            daemon_appends_in_flight_max=16,
            detached_cursor_max_ms=3_000,
            inline_states_per_s_max=100,
        ),
    )
    keeper = await world.keeper()
    made = await sources(keeper, 80)
    for one in made:
        one.ack(acks(DATA, 1))
    for one in made:
        await one.durable()
    leaves = (await sources(keeper, 1, first=100))[0]
    world.bookkeeper.stall_acks()
    began = now()
    for one in made:
        one.ack(acks(DATA, 3))
    await asyncio.sleep(0.1)
    assert keeper.appends_in_flight >= 15
    keeper.detach(leaves.name, leaves.attach)
    [late] = await sources(keeper, 1, first=200)
    assert now() - began < 0.5, "opening needs no room"
    await until(lambda: any(one.told.pauses for one in made))
    assert now() - began == pytest.approx(2.0, abs=0.1)
    await until(lambda: all(one.told.pauses for one in made))
    assert now() - began < 2.7, "also those who never got room"
    await until(lambda: leaves.name not in keeper.cursors)
    assert now() - began < 3.5
    await until(lambda: all(one.told.durable >= 2 for one in made))
    assert now() - began < 4.5, (
        "by the inline backstop, in turn; some got room meanwhile and waited for their own append"
    )
    stored = footer_bytes.decode(world.zookeeper.tree.get(leaves.name.path()).data, leaves.name)
    assert stored.state is FooterState.CLOSED
    assert not late.told.ended and keeper.failures == []


# ---- the end


@virtual
async def test_a_stop_closes_what_the_time_allows() -> None:
    """A footer write takes 0.2 s and ten cursors close at once: of two hundred, one second closes
    about fifty, and not none.
    """
    world = World(keeper_limits=KeeperLimits(closings_at_once_max=10))
    keeper = await world.keeper()
    await sources(keeper, 200)
    world.zookeeper.faults.latency_s = (0.1, 0.1)
    began = now()
    left = await keeper.close(timeout_s=1.0)
    assert now() - began == pytest.approx(1.0, abs=0.05)
    assert 130 <= len(left) <= 170


@virtual
async def test_a_stop_is_not_held_up_by_cursors_that_cannot_be_opened() -> None:
    """Ten cursors that were left open wait for bookies to be recovered, and five close at once: the
    open ones close all the same.
    """
    world = World(keeper_limits=KeeperLimits(closings_at_once_max=5))
    before = await world.keeper("before")
    for one in (made := await sources(before, 10)):
        one.ack(acks(DATA, 1))
    for one in made:
        await one.durable()
    before.abandon()
    keeper = await world.keeper()
    idle = await sources(keeper, 20, first=100)
    world.bookkeeper.bookies_up = 0
    for one in made:
        keeper.open(one.name, ev.Open(takeover=True), keeper.attach_id(), Recorder())
    await asyncio.sleep(1)
    left = await keeper.close(timeout_s=2.0)
    assert sorted(map(str, left)) == sorted(str(one.name) for one in made)
    assert all(one.told.ended == "closed" for one in idle)


@virtual
async def test_the_slow_poll_is_spread_over_its_period() -> None:
    """Each cursor is read once, because nobody knows what was missed; after that only when its
    znode has changed.
    """
    world = World(keeper_limits=KeeperLimits(footer_poll_s=10.0))
    keeper = await world.keeper()
    made = await sources(keeper, 50)

    def asked() -> dict[CursorName, int]:
        return {name: r.machine.turn._tokens for name, r in keeper.cursors.items()}

    began, most = asked(), 0
    for _ in range(100):
        before = sum(asked().values())
        await asyncio.sleep(0.1)
        most = max(most, sum(asked().values()) - before)
    assert most <= 5
    await asyncio.sleep(1.0)
    once = asked()
    assert all(once[name] > began[name] for name in began), "each of them"
    await asyncio.sleep(25.0)
    assert asked() == once
    made[7].ack(acks(DATA, 1))
    await made[7].durable()
    before = asked()
    await asyncio.sleep(11.0)
    assert [name for name, tokens in asked().items() if tokens > before[name]] == [made[7].name]


@virtual
async def test_the_slow_poll_waits_for_zookeeper_and_goes_on_where_it_was() -> None:
    world = World(keeper_limits=KeeperLimits(footer_poll_s=10.0))
    world.zookeeper.faults.watch_drop_probability = 1.0
    keeper = await world.keeper("first")
    made = await sources(keeper, 20)
    await asyncio.sleep(15.0)
    keeper.footers._zk.disconnect(for_s=5.0)  # type: ignore[attr-defined]
    await sources(await world.keeper("other"), 20)
    await asyncio.sleep(4.5)
    assert not any(one.told.ended for one in made)
    await asyncio.sleep(12.0)
    assert all(one.told.ended == "deposed" for one in made)


@virtual
async def test_a_footer_that_may_not_be_read_keeps_no_other_from_the_slow_poll() -> None:
    """Two hundred in ten seconds: some ten are looked at together."""
    world = World(keeper_limits=KeeperLimits(footer_poll_s=10.0))
    world.zookeeper.faults.watch_drop_probability = 1.0
    made = await sources(await world.keeper("first"), 200)
    await asyncio.sleep(15.0)
    await sources(await world.keeper("other"), 200)
    world.zookeeper.forbidden.add(made[3].name.path())
    await asyncio.sleep(11.0)
    assert [one for one in made if one.told.ended != "deposed"] == [made[3]]
    world.zookeeper.forbidden.clear()
    await asyncio.sleep(11.0)
    assert made[3].told.ended == "deposed"


def turns() -> int:
    return asyncio.get_running_loop().turns  # type: ignore[attr-defined, no-any-return]


@virtual
async def test_an_opening_that_nobody_waits_for_any_more_costs_no_turns() -> None:
    """Its handle went long ago, and BookKeeper is away: there is nothing to close yet, and nothing
    to look at again and again.
    """
    world = World(keeper_limits=KeeperLimits(detached_cursor_max_ms=1_000))
    made = Source(await world.keeper("first"), named(1))
    await made.open()
    made.ack(acks(DATA, 1))
    await made.durable()
    made.keeper.abandon()
    world.bookkeeper.bookies_up = 0
    keeper = await world.keeper("next")
    attach = keeper.attach_id()
    keeper.open(named(1), ev.Open(takeover=True), attach, Recorder())
    await asyncio.sleep(0.5)
    keeper.detach(named(1), attach)
    await asyncio.sleep(5)
    assert keeper.cursors[named(1)].machine.state in OPENING
    before = turns()
    await asyncio.sleep(10)
    assert turns() - before < 2_000
    world.bookkeeper.bookies_up = 3
    await until(lambda: not keeper.cursors)


async def slowest_of_a_stream(made: Source) -> float:
    """For how long, at most, one of a thousand messages waits that come without a pause."""
    slowest = 0.0
    for entry in range(1_000, 2_000):
        made.ack(acks(DATA, 2 * entry))
        await asyncio.sleep(0.0005)
        oldest = made.machine.progress.oldest_unconfirmed_s
        slowest = max(slowest, 0.0 if oldest is None else made.keeper._clock() - oldest)
    return slowest


@virtual
async def test_time_in_which_nobody_appends_is_no_share_that_intake_gets_back() -> None:
    """A cursor was closed for want of a handle, then nothing happened for a while: messages that
    come without a pause are not taken in for longer than it takes to write them.
    """
    world = World(keeper_limits=KeeperLimits(detached_cursor_max_ms=1_000))
    keeper = await world.keeper()
    made, other = await sources(keeper, 2)
    made.ack(acks(DATA, 0))
    await made.durable()
    keeper.detach(other.name, other.attach)
    await asyncio.sleep(30)
    assert len(keeper.cursors) == 1
    assert await slowest_of_a_stream(made) < 0.1


@virtual
async def test_time_in_which_appends_wait_for_room_is_no_share_that_intake_gets_back() -> None:
    world = World(keeper_limits=KeeperLimits(daemon_appends_in_flight_max=ROOM_MIN))
    made = await sources(await world.keeper(), 2)
    for entry in (0, 2):
        if entry:
            world.bookkeeper.stall_acks()
        for one in made:
            one.ack(acks(DATA, entry))
        if entry:
            await asyncio.sleep(1.5)
            world.bookkeeper.stall_acks(False)
        for one in made:
            await one.durable()
    assert await slowest_of_a_stream(made[0]) < 0.1


@virtual
async def test_a_bookkeeper_that_is_slow_is_not_away() -> None:
    """It writes a hundred records a second, one after the other, and a window of 256 of them would
    hold each for longer than what counts as no answer.
    """
    limits = KeeperLimits(daemon_appends_in_flight_max=256)
    world = World(limits=Limits(bookkeeper_away_ms=2_000), keeper_limits=limits)
    made = await sources(await world.keeper(), 400)
    for one in made:
        one.ack(acks(DATA, 0))
        await one.durable()
    world.bookkeeper.faults.acks_per_s = 100
    for entry in range(1, 11):
        for one in made:
            one.ack(acks(DATA, 2 * entry))
        await asyncio.sleep(1)
    for one in made:
        await one.durable()
    assert not any(one.told.pauses for one in made)


@virtual
async def test_many_small_records_are_on_their_way_and_few_large_ones() -> None:
    """A window of 100 records and 2,000 bytes, where bookies take their time: some 50 bytes a
    record of few acks, some 700 of 600 scattered ones.
    """
    scattered = sorted(random.Random(1).sample(range(60_000), 600))
    limits = KeeperLimits(daemon_appends_in_flight_max=100, daemon_append_bytes_in_flight_max=2_000)
    for entries, least, most in (([1, 3, 5], 20, 50), (scattered, 2, 6)):
        world = World(keeper_limits=limits)
        keeper = await world.keeper()
        made = await sources(keeper, 50)
        for one in made:
            one.ack(acks(DATA, 0))
            await one.durable()
        world.bookkeeper.faults.ack_delay_min_s = world.bookkeeper.faults.ack_delay_max_s = 0.2
        for one in made:
            one.ack(acks(DATA, *(entry + 1 for entry in entries)))
        seen = []
        while any(one.told.durable < one.seq for one in made):
            seen.append(keeper.appends_in_flight)
            await asyncio.sleep(0.01)
        assert least <= max(seen) <= most


@virtual
async def test_the_smallest_window_is_room_enough() -> None:
    smallest = KeeperLimits(daemon_appends_in_flight_max=ROOM_MIN)
    one_byte = KeeperLimits(daemon_append_bytes_in_flight_max=1)
    for limits in (smallest, one_byte):
        world = World(keeper_limits=limits)
        [made] = await sources(await world.keeper(), 1)
        for entry in range(5):
            made.ack(acks(DATA, 2 * entry))
            await made.durable()


@virtual
async def test_a_keeper_that_was_abandoned_beats_no_more() -> None:
    world = World()
    keeper = await world.keeper()
    [made] = await sources(keeper, 1)
    made.ack(acks(DATA, 1))
    await made.durable()
    world.bookkeeper.stall_acks()
    made.ack(acks(DATA, 3))
    await asyncio.sleep(1)
    keeper.abandon()
    await asyncio.sleep(1)
    before = turns()
    await asyncio.sleep(20)
    assert turns() - before < 100

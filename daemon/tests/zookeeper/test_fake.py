"""The fake's knobs, in virtual time. That it behaves like ZooKeeper without them is the contract
suite's matter.
"""

from __future__ import annotations

import asyncio
import random

import pytest

from cursorkeeper.zookeeper import ZooKeeper, ZooKeeperSettings
from cursorkeeper.zookeeper.errors import (
    BadVersion,
    ConnectionLost,
    MultiFailed,
    NotConnected,
    OutcomeUnknown,
    SessionExpired,
    ZooKeeperError,
)
from cursorkeeper.zookeeper.values import ANY_VERSION, Check, SessionState
from daemon.tests.fakes.zookeeper.fake import FakeZooKeeper, FakeZooKeeperServer
from daemon.tests.fakes.zookeeper.faults import (
    ANY,
    Delay,
    Expire,
    Fault,
    Late,
    NotNow,
    UnknownDone,
    UnknownNotDone,
)
from daemon.tests.support.virtual_loop import run


async def _two(seed: int = 1) -> tuple[FakeZooKeeperServer, FakeZooKeeper, FakeZooKeeper]:
    server = FakeZooKeeperServer(random.Random(seed))
    one, two = server.session(), server.session()
    await one.start()
    await two.start()
    await one.create("/n", b"0")
    return server, one, two


def test_the_fake_is_the_port() -> None:
    port: ZooKeeper = FakeZooKeeperServer(random.Random(1)).session()
    assert port.state is SessionState.SUSPENDED


@pytest.mark.parametrize(
    ("fault", "error", "done"),
    [
        (UnknownNotDone(), OutcomeUnknown, False),
        (UnknownNotDone(disconnect_s=1), OutcomeUnknown, False),
        (UnknownDone(), OutcomeUnknown, True),
        (UnknownDone(disconnect_s=1), OutcomeUnknown, True),
        (NotNow(), NotConnected, False),
        (Expire(), SessionExpired, False),
    ],
)
def test_fault_of_one_request(fault: Fault, error: type[ZooKeeperError], done: bool) -> None:
    async def story() -> None:
        server, one, two = await _two()
        server.faults.next("set", fault)
        with pytest.raises(error):
            await one.set("/n", b"1", 0)
        await two.sync("/n")
        assert (await two.get("/n")).version == int(done)
        if done:
            with pytest.raises(BadVersion):
                await one.set("/n", b"1", 0)
        else:
            assert await one.set("/n", b"1", 0) == 1

    run(story())


def test_late_write_checks_the_version_when_it_is_done() -> None:
    async def story() -> None:
        server, one, two = await _two()
        server.faults.next("set", Late(5), times=2)
        for _ in range(2):
            with pytest.raises(OutcomeUnknown):
                await one.set("/n", b"late", 0)
        assert (await two.get("/n")).version == 0
        await asyncio.sleep(6)
        assert (await two.get("/n"))[:2] == (b"late", 1), "the second found another version"
        server.faults.next("set", Late(5))
        with pytest.raises(OutcomeUnknown):
            await one.set("/n", b"too late", 1)
        assert await two.set("/n", b"two", 1) == 2
        await asyncio.sleep(6)
        assert (await two.get("/n"))[:2] == (b"two", 2)

    run(story())


def test_late_write_of_a_session_that_is_over_is_not_done() -> None:
    async def story() -> None:
        server, one, two = await _two()
        server.faults.next("set", Late(5))
        with pytest.raises(OutcomeUnknown):
            await one.set("/n", b"late", 0)
        one.expire()
        await asyncio.sleep(6)
        assert (await two.get("/n")).version == 0

    run(story())


def test_late_write_of_a_process_that_crashed_is_done() -> None:
    async def story() -> None:
        server, one, two = await _two()
        server.faults.next("set", Late(5))
        with pytest.raises(OutcomeUnknown):
            await one.set("/n", b"late", 0)
        one.crash()
        assert one.state is SessionState.CLOSED
        await asyncio.sleep(6)
        assert (await two.get("/n"))[:2] == (b"late", 1)

    run(story())


def test_delay_takes_time_and_keeps_the_order() -> None:
    async def story() -> None:
        server, one, _ = await _two()
        loop = asyncio.get_running_loop()
        server.faults.next("set", Delay(3))
        began_s = loop.time()
        assert await asyncio.gather(one.set("/n", b"1", 0), one.set("/n", b"2", 1)) == [1, 2]
        assert loop.time() - began_s == pytest.approx(3)

    run(story())


def test_slow_server_is_an_unknown_outcome_after_the_request_timeout() -> None:
    async def story() -> None:
        server, one, two = await _two()
        server.faults.next("set", Delay(30))
        with pytest.raises(OutcomeUnknown):
            await one.set("/n", b"1", 0)
        assert (await two.get("/n")).version == 0
        await asyncio.sleep(25)
        assert (await two.get("/n")).version == 1

    run(story())


def test_disconnect_loses_what_is_under_way_or_not() -> None:
    async def story(lost: float) -> int:
        server, one, two = await _two()
        server.faults.latency_s = (0.1, 0.1)
        server.faults.lost_with_connection_probability = lost
        writing = asyncio.create_task(one.set("/n", b"1", 0))
        await asyncio.sleep(0.05)
        one.disconnect(1)
        assert one.state is SessionState.SUSPENDED
        with pytest.raises(ConnectionLost):
            await writing
        await asyncio.sleep(0.2)
        return (await two.get("/n")).version

    assert [run(story(1)), run(story(0))] == [0, 1]


def test_stale_reads_until_sync() -> None:
    async def story() -> None:
        _, one, two = await _two()
        fired: list[str] = []
        two.faults = type(two.faults)(random.Random(2), stale_reads=True)
        assert (await two.get("/n", watch=fired.append)).version == 0
        await one.set("/n", b"1", 0)
        assert (await two.get("/n")).version == 0
        assert (await two.multi_read(["/n"]))[0] == await two.get("/n")
        assert fired == []
        await two.sync("/n")
        assert (await two.get("/n")).version == 1
        assert fired == ["/n"]

    run(story())


def test_a_stale_session_that_writes_has_caught_up() -> None:
    async def story() -> None:
        _, one, two = await _two()
        two.lag()
        await one.set("/n", b"1", 0)
        assert (await two.get("/n")).version == 0
        with pytest.raises(BadVersion):
            await two.set("/n", b"2", 0)
        assert (await two.get("/n")).version == 1

    run(story())


def test_stale_reads_that_catch_up_by_chance_never_go_back() -> None:
    async def story() -> None:
        server, one, two = await _two()
        server.faults.stale_reads, server.faults.catch_up_probability = True, 0.3
        seen = []
        for version in range(50):
            await one.set("/n", b"", version)
            seen.append((await two.get("/n")).version)
        assert seen == sorted(seen) and 3 < len(set(seen)) < 50

    run(story())


def test_away_longer_than_the_session_timeout_expires() -> None:
    async def story() -> None:
        server, one, two = await _two()
        loop = asyncio.get_running_loop()
        told: list[tuple[str, float]] = []
        await one.create("/e", b"", ephemeral=True)
        await two.get("/e", watch=lambda _: told.append(("ephemeral gone", loop.time())))
        one.on_state(lambda state: told.append((state.value, loop.time())))
        await asyncio.sleep(100)
        away_s = loop.time()
        one.disconnect(40)
        await asyncio.sleep(50)
        assert [what for what, _ in told] == [
            "suspended",
            "ephemeral gone",
            "expired",
            "connected",
        ]
        assert told[1][1] - away_s == pytest.approx(30)
        assert told[2][1] - away_s == pytest.approx(40)
        with pytest.raises(SessionExpired):
            server.write(12345, lambda tree, _: None)

    run(story())


def test_requests_without_a_connection_wait_and_then_were_not_sent() -> None:
    async def story() -> None:
        _, one, _ = await _two()
        loop = asyncio.get_running_loop()
        one.disconnect(5)
        began_s = loop.time()
        assert await one.set("/n", b"", 0) == 1
        assert loop.time() - began_s == pytest.approx(5)
        one.disconnect(25)
        with pytest.raises(NotConnected):
            await one.set("/n", b"", 1)
        assert loop.time() - began_s == pytest.approx(15)

    run(story())


def test_stopped_server_expires_nobody() -> None:
    async def story() -> None:
        server, one, two = await _two()
        await one.create("/e", b"", ephemeral=True)
        states: list[SessionState] = []
        one.on_state(states.append)
        server.stop()
        await asyncio.sleep(500)
        with pytest.raises(NotConnected):
            await two.get("/e")
        server.start()
        await asyncio.sleep(1)
        assert states == [SessionState.SUSPENDED, SessionState.CONNECTED]
        assert await two.exists("/e") is not None

    run(story())


def test_watches_dropped_late_or_spurious() -> None:
    async def story() -> None:
        server, one, two = await _two()
        fired: list[str] = []
        server.faults.watch_drop_probability = 1
        await two.get("/n", watch=fired.append)
        await one.set("/n", b"", 0)
        await asyncio.sleep(1)
        assert fired == []
        server.faults.watch_drop_probability, server.faults.watch_delay_s = 0, 2
        await two.get("/n", watch=fired.append)
        await one.set("/n", b"", 1)
        await asyncio.sleep(1)
        assert fired == []
        await asyncio.sleep(2)
        assert fired == ["/n"]
        server.faults.watch_delay_s, server.faults.spurious_watches_at_reconnect = 0, True
        await two.get("/n", watch=fired.append)
        two.disconnect()
        await asyncio.sleep(1)
        assert len(fired) == 2

    run(story())


def test_start_without_a_server() -> None:
    async def story() -> None:
        server = FakeZooKeeperServer(random.Random(1))
        server.stop()
        zk = server.session()
        with pytest.raises(NotConnected):
            await zk.start()
        server.start()
        await zk.start()
        assert zk.state is SessionState.CONNECTED

    run(story())


def _storm(seed: int) -> list[object]:
    """Three clients, faults of every kind, one counter: what happened, as a list."""
    happened: list[object] = []

    async def client(zk: FakeZooKeeper, name: int) -> None:
        zk.on_state(lambda state: happened.append((name, state)))
        await zk.start()
        for _ in range(40):
            try:
                node = await zk.get("/n", watch=lambda path: happened.append((name, path)))
                happened.append((name, await zk.set("/n", b"%d" % name, node.version)))
            except ZooKeeperError as error:
                happened.append((name, str(error)))

    async def story() -> None:
        server = FakeZooKeeperServer(random.Random(seed))
        server.faults.latency_s = (0.001, 0.05)
        server.faults.stale_reads, server.faults.catch_up_probability = True, 0.5
        clients = [
            server.session(settings=ZooKeeperSettings(session_timeout_ms=1_000)) for _ in range(3)
        ]
        await clients[0].start()
        await clients[0].create("/n", b"")
        for fault in (
            UnknownDone(),
            UnknownNotDone(0.3),
            Late(0.5),
            Late(2, disconnect_s=1.5),
            NotNow(),
            Delay(0.4),
            Expire(),
        ):
            server.faults.chance(ANY, 0.03, fault)
        await asyncio.gather(*(client(zk, name) for name, zk in enumerate(clients)))
        await asyncio.sleep(5)
        answered = [
            item[1] for item in happened if isinstance(item, tuple) and isinstance(item[1], int)
        ]
        assert len(answered) == len(set(answered)), "two compare-and-sets won the same version"
        stat = server.tree.stat("/n")
        assert stat is not None and stat.version >= len(answered)
        happened.append(stat)

    run(story())
    return happened


def test_a_run_is_its_seed() -> None:
    assert _storm(7) == _storm(7)
    assert _storm(7) != _storm(8)


def test_many_storms() -> None:
    for seed in range(30):
        _storm(seed)


def test_late_create_and_delete_too() -> None:
    async def story() -> None:
        server, one, two = await _two()
        server.faults.next("create", Late(1))
        server.faults.next("delete", Late(1))
        server.faults.next("multi", Late(1))
        for request in (one.create("/late", b""), one.delete("/n", 0)):
            with pytest.raises(OutcomeUnknown):
                await request
        assert await two.children("/") == ["n"]
        await asyncio.sleep(2)
        assert await two.children("/") == ["late"]
        assert await two.set("/late", b"", ANY_VERSION) == 1

    run(story())


def test_a_deposed_leader_answers_reads_and_syncs_and_no_check() -> None:
    async def story() -> None:
        _, one, two = await _two()
        one.follow_old_leader(for_s=3)
        await two.set("/n", b"1", 0)
        await one.sync("/n")
        assert (await one.get("/n")).version == 0, "as it was when it was deposed"
        with pytest.raises(OutcomeUnknown):
            await one.multi([Check("/n", 0)])
        with pytest.raises(MultiFailed):
            await one.multi([Check("/n", 0)])
        assert (await one.get("/n")).version == 1

    run(story())


def test_a_stalled_link_delivers_afterwards() -> None:
    async def story() -> None:
        _, one, two = await _two()
        fired: list[str] = []
        await one.get("/n", watch=fired.append)
        one.stall(2.0)
        asked = asyncio.ensure_future(one.multi([Check("/n", 0)]))
        await two.set("/n", b"1", 0)
        await asyncio.sleep(1.9)
        assert not asked.done() and not fired
        with pytest.raises(MultiFailed):
            await asked
        assert len(fired) == 1 and one.state is SessionState.CONNECTED

    run(story())

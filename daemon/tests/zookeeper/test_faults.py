"""The faults of facts/PYTHON_LIBRARIES 2.2, each under its number: what our session does where
other clients failed.

Against a real server behind a proxy that does harm. Those that a real server cannot be made to show
are in `test_faults_scripted`.

| fault | where |
| --- | --- |
| 1, 2, 5, 6, 7, 8, 9, 10, 11, 12, 13, 16, 17, 21, 22 | here (5, 7, 11 also in
`test_faults_scripted`, with short times) |
| 3, 4, 20, 24 | `test_faults_scripted` |
| 14, 15 | `test_contract`: test_multi_does_nothing_if_one_fails_and_names_it,
test_any_version_is_only_the_constant, test_chroot |
| 18 | no locks in this client: owners are decided by compare-and-set |
| 19 | no container nodes in the port |
| 23 | no DataWatcher; watch tables belong to one session, see
test_the_same_callback_twice_is_one_watch_and_two_callbacks_are_two |
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace

import pytest

from cursorkeeper.zookeeper import ZooKeeper
from cursorkeeper.zookeeper.errors import BadVersion, ConnectionLost, NotConnected, OutcomeUnknown
from cursorkeeper.zookeeper.values import Create, Delete, SessionState
from daemon.tests.support.frozen import freeze, thaw
from daemon.tests.zookeeper.server_process import ServerProcess
from daemon.tests.zookeeper.wait import LIMIT_S, until
from daemon.tests.zookeeper.worlds import SETTINGS, RealWorld

pytestmark = pytest.mark.jvm

SHORT = replace(SETTINGS, session_timeout_ms=6_000)
"""Where a session is to expire, or silence is to tell that a connection is gone."""
SOON_S = 10.0
"""Below the time after which silence tells (two thirds of a session's), far above what a busy
machine needs to notice a closed socket and connect again.
"""


def _recorded(zk: ZooKeeper) -> list[SessionState]:
    states: list[SessionState] = []
    zk.on_state(states.append)
    return states


async def _back(zk: ZooKeeper, states: list[SessionState], limit_s: float = LIMIT_S) -> None:
    await until(lambda: states and states[-1] is zk.state is SessionState.CONNECTED, limit_s)


async def test_fault_01_server_closes_tcp_while_idle(real: RealWorld) -> None:
    zk, proxy = await real.proxied()
    session_id, states = zk.session_id, _recorded(zk)
    proxy.cut()
    await _back(zk, states, SOON_S)
    assert states == [SessionState.SUSPENDED, SessionState.CONNECTED]
    assert zk.session_id == session_id


async def test_fault_01_server_closes_tcp_with_requests_in_flight(real: RealWorld) -> None:
    zk, proxy = await real.proxied()
    await zk.create("/n", b"")
    proxy.mute = True
    requests = [asyncio.create_task(zk.get("/n")) for _ in range(20)]
    await until(lambda: len(proxy.links[-1].frames_from_client) >= 20)
    began_s = time.monotonic()
    proxy.mute = False
    proxy.cut()
    results = await asyncio.gather(*requests, return_exceptions=True)
    assert {type(result) for result in results} == {ConnectionLost}
    assert time.monotonic() - began_s < SOON_S
    assert (await zk.get("/n")).version == 0


async def test_fault_02_reset_while_idle(real: RealWorld) -> None:
    zk, proxy = await real.proxied()
    states = _recorded(zk)
    proxy.cut(reset=True)
    began_s = time.monotonic()
    await until(lambda: states)
    assert await zk.exists("/") is not None
    assert time.monotonic() - began_s < SOON_S


async def test_fault_05_unanswered_handshake_is_not_a_session_swap(real: RealWorld) -> None:
    # the silent one is given a part of the session's time, as one of four servers
    zk, proxy = await real.proxied(servers=4)
    await zk.create("/e", b"", ephemeral=True)
    session_id, states = zk.session_id, _recorded(zk)
    proxy.silent = True
    proxy.cut()
    await until(lambda: proxy.accepted >= 2)
    proxy.silent = False
    await _back(zk, states)
    assert states == [SessionState.SUSPENDED, SessionState.CONNECTED]
    assert zk.session_id == session_id
    assert await zk.exists("/e") is not None


@pytest.mark.parametrize("times", range(3))
async def test_fault_06_reply_lost_after_a_compare_and_set(real: RealWorld, times: int) -> None:
    zk, proxy = await real.proxied()
    await zk.create("/n", b"old")
    _cut_instead_of_the_next_reply(proxy)
    with pytest.raises(OutcomeUnknown):
        await zk.set("/n", b"mine", 0)
    # One write, and the caller decides by repeating it: BadVersion, sync, read, mine.
    with pytest.raises(BadVersion):
        await zk.set("/n", b"mine", 0)
    await zk.sync("/n")
    assert (await zk.get("/n"))[:2] == (b"mine", 1)


async def test_fault_06_reply_lost_after_a_create(real: RealWorld) -> None:
    zk, proxy = await real.proxied()
    _cut_instead_of_the_next_reply(proxy)
    with pytest.raises(OutcomeUnknown):
        await zk.create("/n", b"")
    await zk.sync("/")
    assert await zk.exists("/n") is not None


def _cut_instead_of_the_next_reply(proxy) -> None:  # type: ignore[no-untyped-def]
    def hook(frame: bytes) -> bytes | None:
        if int.from_bytes(frame[:4], "big", signed=True) <= 0:
            return frame  # the answer to a heartbeat
        proxy.on_reply = None
        proxy.cut()
        return None

    proxy.on_reply = hook


async def test_fault_07_real_expiry_after_a_partition(real: RealWorld) -> None:
    """The session times out on the server while we are away, which says so when we are back."""
    zk, proxy = await real.proxied(settings=SHORT)
    other, _ = await real.proxied()
    await zk.create("/e", b"", ephemeral=True)
    told: list[object] = []
    gone: list[str] = []
    await other.sync("/")
    await other.get("/e", watch=gone.append)
    zk.on_state(told.append)
    proxy.refuse()
    await until(lambda: gone)
    await until(lambda: told)
    assert told == [SessionState.SUSPENDED]
    await proxy.listen()
    await until(lambda: SessionState.CONNECTED in told)
    assert told[1:] == [SessionState.EXPIRED, SessionState.CONNECTED]


async def test_fault_08_nothing_believes_in_an_expired_session(real: RealWorld) -> None:
    """No locks here; what an owner looks at, the version, is refused after the expiry."""
    zk, _ = await real.proxied()
    other, _ = await real.proxied()
    await zk.create("/footer", b"zk owns", ephemeral=False)
    states = _recorded(zk)
    await real.expire(zk)
    await other.sync("/")
    await other.set("/footer", b"other owns", 0)
    await until(lambda: SessionState.EXPIRED in states and zk.state is SessionState.CONNECTED)
    with pytest.raises(BadVersion):
        await zk.set("/footer", b"zk still owns", 0)


async def test_fault_09_server_away_for_a_second(real: RealWorld) -> None:
    zk, proxy = await real.proxied()
    session_id, states = zk.session_id, _recorded(zk)
    proxy.refuse()
    await asyncio.sleep(1)
    await proxy.listen()
    began_s = time.monotonic()
    await _back(zk, states)
    assert time.monotonic() - began_s < SETTINGS.back_off_max_ms / 1000 + SOON_S
    assert (zk.session_id, states) == (session_id, [SessionState.SUSPENDED, SessionState.CONNECTED])


async def test_fault_10_back_off_does_not_cost_the_session(real: RealWorld) -> None:
    """A long time away, in attempts: the pause stays at its most, so the time to notice the server
    stays below it.
    """
    zk, proxy = await real.proxied(settings=replace(SETTINGS, back_off_max_ms=100))
    session_id, states = zk.session_id, _recorded(zk)
    for _ in range(3):
        proxy.silent = False
        proxy.refuse()
        began_s = time.monotonic()
        await until(lambda: time.monotonic() - began_s > 0.6)  # noqa: B023  six pauses at their most
        await proxy.listen()
        began_s = time.monotonic()
        await _back(zk, states)
        assert time.monotonic() - began_s < 0.1 + SOON_S
    assert zk.session_id == session_id
    assert SessionState.EXPIRED not in states


async def test_fault_11_frozen_server(real: RealWorld, zookeeper_server: ServerProcess) -> None:
    zk, _ = await real.proxied(settings=SHORT)
    await zk.create("/n", b"")
    session_id, states = zk.session_id, _recorded(zk)
    freeze(zookeeper_server.pid)
    try:
        began_s = time.monotonic()
        with pytest.raises(ConnectionLost):
            await zk.get("/n")
        assert time.monotonic() - began_s < 2 / 3 * SHORT.session_timeout_ms / 1000 + SOON_S
        assert states == [SessionState.SUSPENDED]
    finally:
        thaw(zookeeper_server.pid)
    await _back(zk, states)
    assert (await zk.get("/n")).version == 0
    # a machine that stood still for a second more may expire it: that is said, too
    if SessionState.EXPIRED not in states:
        assert zk.session_id == session_id


async def test_fault_12_reply_cut_in_the_middle_of_a_frame(real: RealWorld) -> None:
    zk, proxy = await real.proxied()
    await zk.create("/n", b"x" * 1000)
    proxy.cut_reply_bytes = 500
    used_s = time.process_time()
    began_s = time.monotonic()
    with pytest.raises(ConnectionLost, match="middle of a frame"):
        await zk.get("/n")
    assert time.monotonic() - began_s < SOON_S
    assert (await zk.get("/n")).data == b"x" * 1000
    assert time.process_time() - used_s < 1.0


async def test_fault_13_close_while_disconnected(real: RealWorld) -> None:
    zk, proxy = await real.proxied()
    states = _recorded(zk)
    proxy.refuse()
    await until(lambda: states)
    waiting = asyncio.create_task(zk.get("/"))
    await asyncio.sleep(0)
    began_s = time.monotonic()
    await zk.close()
    await zk.close()
    assert time.monotonic() - began_s < SOON_S
    assert zk.state is SessionState.CLOSED
    with pytest.raises(NotConnected.__mro__[1]):  # NotSent
        await waiting


async def test_fault_16_and_21_watches_after_a_reconnect(real: RealWorld) -> None:
    """No watch fires that did not have to, and those for what happened meanwhile do, a deletion
    included.
    """
    zk, proxy = await real.proxied()
    other, _ = await real.proxied()
    await zk.multi([Create(f"/n{i}", b"") for i in range(50)])
    fired: list[str] = []
    for i in range(50):
        await zk.get(f"/n{i}", watch=fired.append)
    states = _recorded(zk)
    proxy.cut()
    await _back(zk, states)
    await zk.sync("/")
    assert fired == []
    proxy.refuse()
    await until(lambda: zk.state is SessionState.SUSPENDED)
    await other.sync("/")
    await other.multi([Delete("/n7", 0)])
    await proxy.listen()
    await until(lambda: fired)
    await zk.sync("/")
    assert fired == ["/n7"]


async def test_fault_17_requests_cancelled_while_suspended_leave_nothing(real: RealWorld) -> None:
    zk, proxy = await real.proxied()
    await zk.create("/n", b"")
    states = _recorded(zk)
    proxy.refuse()
    await until(lambda: states)
    requests = [asyncio.create_task(zk.get("/n", watch=lambda _: None)) for _ in range(200)]
    await asyncio.sleep(0)
    for request in requests:
        request.cancel()
    await asyncio.gather(*requests, return_exceptions=True)
    await proxy.listen()
    await _back(zk, states)
    session = zk
    assert (session._room.requests, session._room.bytes, session.watches.callbacks) == (0, 0, {})


async def test_fault_17_requests_cancelled_in_flight_leave_nothing(real: RealWorld) -> None:
    zk, proxy = await real.proxied()
    await zk.create("/n", b"")
    proxy.stall()
    requests = [asyncio.create_task(zk.get("/n", watch=lambda _: None)) for _ in range(200)]
    await until(lambda: zk._room.requests == 200)
    for request in requests:
        request.cancel()
    await asyncio.gather(*requests, return_exceptions=True)
    proxy.flow()
    await zk.sync("/")
    session = zk
    assert (session._room.requests, session._room.bytes, session.watches.callbacks) == (0, 0, {})


async def test_fault_22_watches_of_more_than_a_frame(real: RealWorld) -> None:
    """1,500 paths of 1,000 bytes: one setWatches of them would be above jute.maxbuffer and end the
    connection, for ever.
    """
    zk, proxy = await real.proxied()
    other, _ = await real.proxied()
    fired: list[str] = []
    paths = [f"/{i:04}{'x' * 995}" for i in range(1_500)]
    await asyncio.gather(*(zk.create(path, b"") for path in paths))
    await asyncio.gather(*(zk.get(path, watch=fired.append) for path in paths))
    session_id, states = zk.session_id, _recorded(zk)
    proxy.refuse()
    await until(lambda: states)
    await other.set(paths[3], b"", 0)
    await proxy.listen()
    await _back(zk, states)
    await other.set(paths[-1], b"", 0)
    await until(lambda: len(fired) == 2)
    assert zk.session_id == session_id
    frames = [len(frame) for frame in proxy.links[-1].frames_from_client]
    assert 128 * 1024 - 1_100 < max(frames) <= 128 * 1024


async def test_killed_server_comes_back_with_the_session(
    real: RealWorld, zookeeper_server: ServerProcess
) -> None:
    """The real thing once: kill -9, start, same data, same session, watches set again."""
    zk, _ = await real.proxied()
    await zk.create("/e", b"1", ephemeral=True)
    fired: list[str] = []
    await zk.get("/e", watch=fired.append)
    session_id, states = zk.session_id, _recorded(zk)
    zookeeper_server.kill()
    await until(lambda: states)
    await asyncio.to_thread(zookeeper_server.start)
    await _back(zk, states)
    assert (zk.session_id, (await zk.get("/e")).data, fired) == (session_id, b"1", [])
    await zk.set("/e", b"2", 0)
    await until(lambda: fired)

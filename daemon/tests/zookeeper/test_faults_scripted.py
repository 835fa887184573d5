"""Faults that a real server cannot be made to show, from a server that follows a script; no JVM.
Numbers as in `test_faults`.
"""

from __future__ import annotations

import asyncio
import random
import struct
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from cursorkeeper.zookeeper import ZooKeeperClient
from cursorkeeper.zookeeper.connection import XID_MAX
from cursorkeeper.zookeeper.errors import (
    ClientClosed,
    ConnectionLost,
    NotConnected,
    OutcomeUnknown,
    SessionExpired,
    TooManyRequests,
)
from cursorkeeper.zookeeper.settings import ZooKeeperSettings
from cursorkeeper.zookeeper.values import SessionState
from cursorkeeper_client.back_off import BackOff
from daemon.tests.zookeeper.scripted_server import EVENT, Peer, ScriptedServer, event, node, stat
from daemon.tests.zookeeper.wait import until

GET, EXISTS, SET_WATCHES, CLOSE = 4, 3, 101, -11
BUSY_S = 15.0
"""What a busy machine may add to a wait that is bounded: less than the next limit above it, which
would end in another error.
"""
SETTINGS = ZooKeeperSettings(
    session_timeout_ms=60_000,
    start_timeout_s=30,
    request_timeout_s=20,
    close_timeout_s=0.2,
    back_off_min_ms=5,
    back_off_max_ms=40,
)
HASTY = replace(SETTINGS, session_timeout_ms=3_000)
"""Of tests that wait until a server has been silent for too long. Elsewhere a busy machine must not
be taken for that.
"""


def _client(
    *servers: ScriptedServer, settings: ZooKeeperSettings = SETTINGS, seed: int = 1
) -> ZooKeeperClient:
    ports = tuple(("127.0.0.1", server.port) for server in servers)
    return ZooKeeperClient(replace(settings, servers=ports), random_source=random.Random(seed))


def _recorded(zk: ZooKeeperClient) -> list[SessionState]:
    states: list[SessionState] = []
    zk.on_state(states.append)
    return states


async def _serve(
    peer: Peer, answer: Callable[[Peer, int, int, bytes], Awaitable[None] | None] | None = None
) -> None:
    """Answer everything well; `answer` takes over for what it wants to."""
    while True:
        xid, opcode, body = await peer.request()
        if answer is not None:
            made = answer(peer, xid, opcode, body)
            if made is not None:
                await made
            continue
        peer.reply(xid, {GET: node(b"x"), EXISTS: stat()}.get(opcode, b""))


async def _healthy(peer: Peer) -> None:
    hello = await peer.hear_hello()
    peer.welcome(hello.session_id or 77, hello.timeout_ms)
    await _serve(peer)


async def _silent(peer: Peer) -> None:
    await peer.reader.read(-1)


async def test_fault_03_connection_drops_before_the_set_watches_reply() -> None:
    drops = 3

    async def handler(peer: Peer) -> None:
        hello = await peer.hear_hello()
        peer.welcome(hello.session_id or 77, hello.timeout_ms)
        while True:
            xid, opcode, _ = await peer.request()
            if opcode == SET_WATCHES and 2 <= len(server.peers) <= 1 + drops:
                return
            peer.reply(xid, node(b"x") if opcode == GET else b"")

    async with ScriptedServer(handler) as server:
        zk = _client(server)
        await zk.start()
        fired: list[str] = []
        await zk.get("/n", watch=fired.append)
        states = _recorded(zk)
        server.peers[0].writer.close()
        await until(lambda: states)
        assert (await zk.get("/n")).data == b"x"
        assert states == [SessionState.SUSPENDED, SessionState.CONNECTED]
        assert [peer.hello.session_id for peer in server.peers if peer.hello] == [0] + [77] * (
            drops + 1
        )
        server.peers[-1].reply(EVENT, event(3, "/n"), zxid=-1)
        await until(lambda: fired)
        await zk.close()
    assert zk.state is SessionState.CLOSED


async def test_set_watches_that_is_never_answered_is_bounded() -> None:
    async def handler(peer: Peer) -> None:
        hello = await peer.hear_hello()
        peer.welcome(hello.session_id or 77, hello.timeout_ms)
        while True:
            xid, opcode, _ = await peer.request()
            if opcode != SET_WATCHES or len(server.peers) > 2:
                peer.reply(xid, node(b"x") if opcode == GET else b"")

    async with ScriptedServer(handler) as server:
        zk = _client(server, settings=HASTY)
        await zk.start()
        await zk.get("/n", watch=lambda _: None)
        began_s = time.monotonic()
        server.peers[0].writer.close()
        await until(lambda: zk.state is SessionState.SUSPENDED)
        await zk.get("/n")
        assert 1 <= time.monotonic() - began_s < 1 + BUSY_S
        assert len(server.peers) == 3
        await zk.close()


async def test_watches_behind_a_cut_set_watches_do_not_miss_what_happened() -> None:
    """The zxid to compare with must not move with the first answer of several: the second part was
    not compared yet.
    """
    zxids: list[int] = []

    async def handler(peer: Peer) -> None:
        hello = await peer.hear_hello()
        peer.welcome(hello.session_id or 77, hello.timeout_ms)
        while True:
            xid, opcode, body = await peer.request()
            if opcode == SET_WATCHES:
                zxids.append(struct.unpack_from("!q", body)[0])
                if len(server.peers) == 2 and len(zxids) == 2:
                    return
            peer.reply(
                xid,
                node(b"x", mzxid=1) if opcode == GET else b"",
                zxid=10 if len(server.peers) == 1 else 50,
            )

    async with ScriptedServer(handler) as server:
        zk = _client(server, settings=replace(SETTINGS, set_watches_bytes_max=1_100))
        await zk.start()
        for i in range(3):
            await zk.get(f"/{i}{'x' * 900}", watch=lambda _: None)
        server.peers[0].writer.close()
        await until(lambda: len(zxids) == 5)
        assert zxids == [10] * 5
        assert server.peers[2].hello is not None and server.peers[2].hello.zxid == 10
        await zk.get("/n")
        await zk.close()


@pytest.mark.slow
async def test_fault_04_and_24_peer_that_accepts_and_never_answers() -> None:
    """No four-letter probe; a bounded wait for the handshake, then the next host."""
    async with ScriptedServer(_silent) as silent, ScriptedServer(_healthy) as healthy:
        zk = _client(silent, healthy, settings=HASTY, seed=_seed_that_begins_with_the_first())
        began_s = time.monotonic()
        await zk.start()
        assert 1 <= time.monotonic() - began_s < 1 + BUSY_S
        assert (len(silent.peers), len(healthy.peers)) == (1, 1)
        assert (await zk.get("/n")).data == b"x"
        await zk.close()


async def test_clients_spread_over_the_hosts() -> None:
    async with (
        ScriptedServer(_healthy) as one,
        ScriptedServer(_healthy) as two,
        ScriptedServer(_healthy) as three,
    ):
        clients = [_client(one, two, three, seed=seed) for seed in range(20)]
        for zk in clients:
            await zk.start()
        assert min(len(server.peers) for server in (one, two, three)) >= 3
        await asyncio.gather(*(zk.close() for zk in clients))


@pytest.mark.slow
async def test_fault_04_recovers_when_the_peer_does() -> None:
    async def handler(peer: Peer) -> None:
        await (_healthy(peer) if len(server.peers) > 1 else _silent(peer))

    async with ScriptedServer(handler) as server:
        zk = _client(server, settings=HASTY)
        await zk.start()
        assert len(server.peers) == 2
        await zk.close()


def _seed_that_begins_with_the_first() -> int:
    def begins(seed: int) -> bool:
        order = [0, 1]
        random.Random(seed).shuffle(order)
        return order == [0, 1]

    return next(seed for seed in range(100) if begins(seed))


@pytest.mark.slow
async def test_fault_05_handshake_unanswered_for_longer_than_the_session_timeout() -> None:
    """The same id is offered each time, and only a server's answer ends it: no swap in silence."""

    async def handler(peer: Peer) -> None:
        if len(server.peers) == 2:
            await peer.hear_hello()
            await _silent(peer)
        await _healthy(peer)

    async with ScriptedServer(handler) as server:
        zk = _client(server, settings=HASTY)
        await zk.start()
        states = _recorded(zk)
        server.peers[0].writer.close()
        await until(lambda: len(server.peers) == 3 and states[-1] is SessionState.CONNECTED)
        assert [peer.hello.session_id for peer in server.peers if peer.hello] == [0, 77, 77]
        assert states == [SessionState.SUSPENDED, SessionState.CONNECTED]
        await zk.close()


async def test_fault_11_frozen_peer_is_noticed_by_the_heartbeat() -> None:
    async def handler(peer: Peer) -> None:
        hello = await peer.hear_hello()
        peer.welcome(hello.session_id or 77, hello.timeout_ms)
        await (_silent(peer) if len(server.peers) == 1 else _serve(peer))

    async with ScriptedServer(handler) as server:
        zk = _client(server, settings=HASTY)
        began_s = time.monotonic()
        await zk.start()
        with pytest.raises(ConnectionLost, match="ping"):
            await zk.get("/n")
        assert 2 <= time.monotonic() - began_s < 2 + BUSY_S
        assert (await zk.get("/n")).data == b"x"
        await zk.close()


async def test_fault_13_close_of_a_server_that_does_not_answer() -> None:
    async def handler(peer: Peer) -> None:
        await peer.hear_hello()
        peer.welcome(77, 60_000)
        await _silent(peer)

    async with ScriptedServer(handler) as server:
        zk = _client(server, settings=replace(SETTINGS, close_timeout_s=0.4))
        await zk.start()
        waiting = asyncio.create_task(zk.get("/n"))
        await until(lambda: zk._room.requests)
        began_s = time.monotonic()
        await zk.close()
        assert 0.25 < time.monotonic() - began_s < 0.4 + BUSY_S
        assert zk.state is SessionState.CLOSED
        with pytest.raises(ConnectionLost):
            await waiting


async def test_idle_connection_stays_with_its_heartbeat() -> None:
    async with ScriptedServer(_healthy) as server:
        zk = _client(server, settings=HASTY)
        states = _recorded(zk)
        await zk.start()
        await until(lambda: server.peers[0].pings == 3)  # a session's whole time
        assert states == [SessionState.CONNECTED]
        await zk.close()


@pytest.mark.parametrize("reset", [False, True])
async def test_fault_20_handshake_closed_by_the_server_keeps_the_session(reset: bool) -> None:
    """What a member that lags behind us does. The session lives; the next host has it."""

    async def handler(peer: Peer) -> None:
        if 2 <= len(server.peers) <= 4:
            await peer.hear_hello()
            if reset:
                peer.writer.transport.abort()
            return
        await _healthy(peer)

    async with ScriptedServer(handler) as server:
        zk = _client(server)
        await zk.start()
        states = _recorded(zk)
        server.peers[0].writer.close()
        await until(lambda: len(server.peers) == 5 and states[-1] is SessionState.CONNECTED)
        assert states == [SessionState.SUSPENDED, SessionState.CONNECTED]
        assert [peer.hello.session_id for peer in server.peers if peer.hello] == [0, 77, 77, 77, 77]
        await zk.close()


async def test_last_seen_zxid_is_offered_and_never_goes_back() -> None:
    """A member that lags behind what we read refuses us by it. Events and pings do not count."""

    def answer(peer: Peer, xid: int, opcode: int, body: bytes) -> None:
        peer.reply(EVENT, event(3, "/n"), zxid=900)
        peer.reply(xid, node(b"x"), zxid=next(zxids))

    async def handler(peer: Peer) -> None:
        hello = await peer.hear_hello()
        peer.welcome(hello.session_id or 77, hello.timeout_ms)
        await _serve(peer, answer)

    zxids = iter([40, 39, 41])
    async with ScriptedServer(handler) as server:
        zk = _client(server)
        await zk.start()
        for seen in (40, 40, 41):
            peers = len(server.peers)
            await zk.get("/n")
            server.peers[-1].writer.close()
            await until(lambda: len(server.peers) > peers and zk.state is SessionState.CONNECTED)  # noqa: B023
            assert server.peers[-1].hello is not None and server.peers[-1].hello.zxid == seen
        await zk.close()


@pytest.mark.parametrize(("session_id", "timeout_ms"), [(0, 600), (77, 0), (77, -1), (0, 0)])
async def test_refused_session_is_a_real_expiry(session_id: int, timeout_ms: int) -> None:
    async def handler(peer: Peer) -> None:
        if len(server.peers) == 2:
            await peer.hear_hello()
            peer.welcome(session_id, timeout_ms)
            return
        await _healthy(peer)

    async with ScriptedServer(handler) as server:
        zk = _client(server)
        await zk.start()
        fired: list[str] = []
        await zk.get("/n", watch=fired.append)
        states = _recorded(zk)
        server.peers[0].writer.close()
        await until(lambda: len(states) == 3)
        assert states == [SessionState.SUSPENDED, SessionState.EXPIRED, SessionState.CONNECTED]
        assert [peer.hello.session_id for peer in server.peers if peer.hello] == [0, 77, 0]
        assert fired == ["/n"]
        assert all(opcode != SET_WATCHES for peer in server.peers for _, opcode in peer.requests)
        await zk.close()


async def test_another_session_id_in_the_answer_is_an_expiry() -> None:
    async def handler(peer: Peer) -> None:
        await peer.hear_hello()
        peer.welcome(76 + len(server.peers), 60_000)
        await _serve(peer)

    async with ScriptedServer(handler) as server:
        zk = _client(server)
        await zk.start()
        states = _recorded(zk)
        server.peers[0].writer.close()
        await until(lambda: len(states) == 3)
        assert states[1:] == [SessionState.EXPIRED, SessionState.CONNECTED]
        assert zk.session_id == 78
        await zk.close()


async def test_negotiated_timeout_is_used() -> None:
    async def handler(peer: Peer) -> None:
        await peer.hear_hello()
        peer.welcome(77, 600)
        await _serve(peer)

    async with ScriptedServer(handler) as server:
        zk = _client(server)
        await zk.start()
        # A third of what the server says, a hundredth of what was asked for.
        await until(lambda: server.peers[0].pings == 3)
        await zk.close()


async def test_xid_wraps() -> None:
    async with ScriptedServer(_healthy) as server:
        zk = _client(server)
        await zk.start()
        connection = zk._connection
        assert connection is not None
        connection._xid = XID_MAX - 1
        for _ in range(4):
            await zk.get("/n")
        assert [xid for xid, _ in server.peers[0].requests] == [XID_MAX - 1, XID_MAX, 1, 2]
        await zk.close()


@pytest.mark.parametrize(
    "frame",
    [
        b"\0\0\0\x05short",
        b"\xff\xff\xff\xf0",
        b"\x7f\xff\xff\xff",
        struct.pack("!iiqi", 16 + len(node(b"y")), 999, 1, 0) + node(b"y"),
        struct.pack("!iiqi", 16, 1, 1, 0),  # our request, but no node in the answer
        struct.pack("!iiqii", 20, 1, 1, 0, 2**30),
    ],
    ids=[
        "too short",
        "negative length",
        "too long",
        "wrong xid",
        "no body",
        "size beyond the frame",
    ],
)
async def test_nonsense_ends_the_connection_and_what_waits(frame: bytes) -> None:
    async def handler(peer: Peer) -> None:
        hello = await peer.hear_hello()
        peer.welcome(hello.session_id or 77, hello.timeout_ms)
        if len(server.peers) == 1:
            await peer.request()
            peer.writer.write(frame)
            await _silent(peer)
        await _serve(peer)

    async with ScriptedServer(handler) as server:
        zk = _client(server)
        await zk.start()
        with pytest.raises(ConnectionLost):
            await zk.get("/n")
        assert (await zk.get("/n")).data == b"x"
        await zk.close()


async def test_a_server_that_is_not_zookeeper() -> None:
    async def handler(peer: Peer) -> None:
        peer.writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await _silent(peer)

    async with ScriptedServer(handler) as server:
        zk = _client(server, settings=replace(SETTINGS, start_timeout_s=0.2))
        with pytest.raises(NotConnected):
            await zk.start()
        await until(lambda: len(server.peers) > 1)
        with pytest.raises(NotConnected, match="answered the handshake"):
            await zk.start()
        await zk.close()


async def test_a_server_that_takes_and_drops_is_not_hammered() -> None:
    async def handler(peer: Peer) -> None:
        await peer.hear_hello()
        peer.welcome(77, 60_000)

    async with ScriptedServer(handler) as server:
        zk = _client(server)
        await zk.start()
        began_s = time.monotonic()
        peers = len(server.peers)
        await until(lambda: time.monotonic() - began_s > 0.5)
        # back_off_max_ms is 40, half of it the least
        assert len(server.peers) - peers < (time.monotonic() - began_s) / 0.020 + 2
        await zk.close()


class Longest(random.Random):
    """Every pause is as long as its step."""

    def uniform(self, a: float, b: float) -> float:
        return b


async def test_a_connection_that_held_starts_the_back_off_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """After a long time away the pauses are long; a drop much later is not answered with such a
    pause.
    """

    async def handler(peer: Peer) -> None:
        if 2 <= len(server.peers) <= 10:
            await peer.hear_hello()
            return
        await _healthy(peer)

    async with ScriptedServer(handler) as server:
        settings = replace(
            SETTINGS,
            servers=(("127.0.0.1", server.port),),
            back_off_min_ms=1,
            back_off_max_ms=1_000,
        )
        pauses_ms: list[int] = []
        next_s = BackOff.next_s
        monkeypatch.setattr(
            BackOff,
            "next_s",
            lambda own: pauses_ms.append(round(1_000 * (pause_s := next_s(own)))) or pause_s,
        )
        zk = ZooKeeperClient(settings, random_source=Longest())
        await zk.start()
        server.peers[0].writer.close()
        await until(lambda: len(server.peers) == 11 and zk.state is SessionState.CONNECTED)
        held_s = time.monotonic()
        await until(lambda: time.monotonic() - held_s > 1.05)
        server.peers[10].writer.close()
        await until(lambda: len(server.peers) == 12)
        assert pauses_ms[-2:] == [512, 1]
        await zk.close()


async def test_multi_read_of_large_nodes_takes_more_requests() -> None:
    """The size of a node is known when it is read: after the first request the mean decides how
    many go into the next.
    """
    asked: list[int] = []

    def answer(peer: Peer, xid: int, opcode: int, body: bytes) -> None:
        asked.append(body.count(b"/n"))
        one = struct.pack("!i?i", GET, False, 0) + node(b"x" * 1_000)
        peer.reply(xid, one * asked[-1] + struct.pack("!i?i", -1, True, -1))

    async def handler(peer: Peer) -> None:
        await peer.hear_hello()
        peer.welcome(77, 60_000)
        await _serve(peer, answer)

    async with ScriptedServer(handler) as server:
        zk = _client(
            server,
            settings=replace(SETTINGS, multi_read_paths_max=50, multi_read_reply_bytes=20_000),
        )
        await zk.start()
        assert len(await zk.multi_read([f"/n{i}" for i in range(100)])) == 100
        assert asked == [50, 20, 20, 10]
        await zk.close()


# --- limits of requests ---------------------------------------------------------------------------


async def test_requests_without_a_connection_end_as_not_sent() -> None:
    async with ScriptedServer(_healthy) as server:
        zk = _client(server, settings=replace(SETTINGS, request_timeout_s=0.2))
        with pytest.raises(ClientClosed):
            await zk.get("/n")
        await zk.start()
        server.handler = _silent
        server.peers[0].writer.close()
        await until(lambda: zk.state is SessionState.SUSPENDED)
        began_s = time.monotonic()
        with pytest.raises(NotConnected) as caught:
            await zk.set("/n", b"", 0)
        assert 0.15 < time.monotonic() - began_s < 0.5 + BUSY_S
        assert caught.value.path == "/n"
        await zk.close()


async def test_unanswered_request_is_unknown_after_its_time_and_the_connection_stays() -> None:
    async def handler(peer: Peer) -> None:
        await peer.hear_hello()
        peer.welcome(77, 60_000)
        await _serve(
            peer,
            lambda peer, xid, opcode, _: peer.reply(xid, node(b"x")) if opcode == EXISTS else None,
        )

    async with ScriptedServer(handler) as server:
        zk = _client(server, settings=replace(SETTINGS, request_timeout_s=0.2))
        await zk.start()
        with pytest.raises(OutcomeUnknown) as caught:
            await zk.get("/n")
        assert not isinstance(caught.value, ConnectionLost)
        assert zk.state is SessionState.CONNECTED
        assert zk._room.requests == 1, "it is still in flight"
        await zk.close()
    assert zk._room.requests == 0


async def test_late_answer_of_a_request_given_up_does_not_disturb_the_next() -> None:
    release = asyncio.Event()

    async def answer(peer: Peer, xid: int, opcode: int, body: bytes) -> None:
        if len(peer.requests) == 1:
            await release.wait()
        peer.reply(xid, node(str(xid).encode()))

    async def handler(peer: Peer) -> None:
        await peer.hear_hello()
        peer.welcome(77, 60_000)
        await _serve(peer, answer)

    async with ScriptedServer(handler) as server:
        zk = _client(server, settings=replace(SETTINGS, request_timeout_s=1))
        await zk.start()
        with pytest.raises(OutcomeUnknown):
            await zk.get("/n", watch=lambda _: None)
        release.set()
        assert (await zk.get("/n")).data == b"2"
        assert not zk.watches.callbacks, "the caller that gave up gets no watch"
        await zk.close()


async def test_requests_in_flight_are_bounded() -> None:
    release = asyncio.Event()

    async def answer(peer: Peer, xid: int, opcode: int, body: bytes) -> None:
        await release.wait()
        peer.reply(xid, node(b"x"))

    async def handler(peer: Peer) -> None:
        await peer.hear_hello()
        peer.welcome(77, 60_000)
        await _serve(peer, answer)

    async with ScriptedServer(handler) as server:
        zk = _client(server, settings=replace(SETTINGS, requests_in_flight_max=3))
        await zk.start()
        first = [asyncio.create_task(zk.get("/n")) for _ in range(3)]
        await until(lambda: zk._room.requests == 3)
        second = [asyncio.create_task(zk.get("/n")) for _ in range(3)]
        await asyncio.sleep(0)
        assert zk._room.requests == 3
        release.set()
        assert len(await asyncio.gather(*first, *second)) == 6
        await zk.close()
        release.clear()
        zk = _client(
            server, settings=replace(SETTINGS, requests_in_flight_max=3, request_timeout_s=0.2)
        )
        await zk.start()
        stuck = [asyncio.create_task(zk.get("/n")) for _ in range(3)]
        await until(lambda: zk._room.requests == 3)
        with pytest.raises(TooManyRequests):
            await zk.get("/n")
        await asyncio.gather(*stuck, return_exceptions=True)
        await zk.close()


async def test_a_value_that_cannot_be_encoded_takes_no_room() -> None:
    async with ScriptedServer(_healthy) as server:
        zk = _client(server)
        await zk.start()
        with pytest.raises(TypeError):
            await zk.set("/n", [1, 2], 0)  # type: ignore[arg-type]
        assert zk._room.requests == 0
        await zk.close()


async def test_session_expired_as_an_answer_was_not_done() -> None:
    async def handler(peer: Peer) -> None:
        await peer.hear_hello()
        peer.welcome(77, 60_000)
        await _serve(peer, lambda peer, xid, opcode, _: peer.reply(xid, code=-112))

    async with ScriptedServer(handler) as server:
        zk = _client(server)
        await zk.start()
        with pytest.raises(SessionExpired):
            await zk.set("/n", b"", 0)
        await zk.close()


async def test_requests_that_wait_are_refused_by_close() -> None:
    async with ScriptedServer(_healthy) as server:
        zk = _client(server)
        await zk.start()
        server.handler = _silent
        server.peers[0].writer.close()
        await until(lambda: zk.state is SessionState.SUSPENDED)
        waiting = [asyncio.create_task(zk.get("/n")) for _ in range(3)]
        await asyncio.sleep(0)
        await zk.close()
        results = await asyncio.gather(*waiting, return_exceptions=True)
        assert {type(result) for result in results} == {ClientClosed}


async def test_close_says_goodbye() -> None:
    async with ScriptedServer(_healthy) as server:
        zk = _client(server)
        await zk.start()
        await zk.close()
        assert [opcode for _, opcode in server.peers[0].requests] == [CLOSE]


async def test_a_bug_in_the_session_fails_requests_instead_of_hanging_them() -> None:
    async with ScriptedServer(_healthy) as server:
        zk = _client(server)
        await zk.start()

        async def broken() -> None:
            raise RuntimeError("a bug")

        zk._try_hosts = broken  # type: ignore[assignment]
        server.peers[0].writer.close()
        await until(lambda: zk.state is SessionState.CLOSED)
        with pytest.raises(ClientClosed) as caught:
            await zk.get("/n")
        assert isinstance(caught.value.__cause__, RuntimeError)
        await zk.close()

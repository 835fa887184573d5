"""The small parts: sizes, paths, settings, errors, back-off, the gate, the split of
setWatches.
"""

from __future__ import annotations

import asyncio
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cursorkeeper.zookeeper import codec, errors, rearm
from cursorkeeper.zookeeper.ensure import ensure_path
from cursorkeeper.zookeeper.in_flight import InFlight
from cursorkeeper.zookeeper.paths import Chroot, check_path, parent
from cursorkeeper.zookeeper.settings import ZooKeeperSettings, parse_servers
from cursorkeeper.zookeeper.values import ANY_VERSION, Check, Create, Delete, SetData
from daemon.tests.support.virtual_loop import run
from daemon.tests.zookeeper.scripted_server import node

_paths = st.lists(
    st.text("abcé%.-", min_size=1, max_size=9).filter(lambda name: name not in (".", "..")),
    min_size=1,
    max_size=4,
).map(lambda names: "/" + "/".join(names))
_ops = st.one_of(
    st.builds(Create, _paths, st.binary(max_size=99), st.booleans()),
    st.builds(
        SetData, _paths, st.binary(max_size=99), st.integers(0, 2**31 - 1) | st.just(ANY_VERSION)
    ),
    st.builds(Delete, _paths, st.integers(0, 9)),
    st.builds(Check, _paths, st.integers(0, 9)),
)


@given(st.lists(_ops, max_size=5), st.lists(_paths, max_size=5))
def test_sizes_are_those_of_the_frames(
    ops: list[Create | SetData | Delete | Check], paths: list[str]
) -> None:
    for request in (codec.multi(ops), codec.multi_read(paths), *map(codec.write, ops)):
        assert request.size_bytes == len(request.encode(1))
    counted = sum(map(codec.multi_read_path_bytes, paths))
    assert codec.multi_read(paths).size_bytes == codec.multi_read([]).size_bytes + counted


def test_frames_are_those_of_the_protocol() -> None:
    """Byte for byte, as ZooKeeper's own client writes them (`zookeeper.jute`)."""
    name, data = b"\0\0\0\2/n", b"\0\0\0\2ab"
    everybody = b"\0\0\0\1\0\0\0\x1f\0\0\0\5world\0\0\0\6anyone"
    any_version, head, end = b"\xff" * 4, b"\0\xff\xff\xff\xff", b"\xff" * 4 + b"\1" + b"\xff" * 4
    create = name + data + everybody + b"\0\0\0\1"
    frames = {
        codec.get("/n", True): b"\0\0\0\4" + name + b"\1",
        codec.exists("/n"): b"\0\0\0\3" + name + b"\0",
        codec.children("/n"): b"\0\0\0\x08" + name + b"\0",
        codec.sync("/n"): b"\0\0\0\x09" + name,
        codec.close(): b"\xff\xff\xff\xf5",
        codec.write(Create("/n", b"ab", True)): b"\0\0\0\1" + create,
        codec.write(SetData("/n", b"ab", 7)): b"\0\0\0\5" + name + data + b"\0\0\0\7",
        codec.write(Delete("/n", ANY_VERSION)): b"\0\0\0\2" + name + any_version,
        codec.multi([Check("/n", 7)]): b"\0\0\0\x0e\0\0\0\x0d" + head + name + b"\0\0\0\7" + end,
        codec.multi_read(["/n"]): b"\0\0\0\x16\0\0\0\4" + head + name + b"\0" + end,
        codec.set_watches(5, ["/n"]): b"\0\0\0\x65" + struct.pack("!qi", 5, 1) + name + bytes(8),
    }
    for request, frame in frames.items():
        assert request.encode(9) == b"\0\0\0\x09" + frame
    assert codec.connect(3, 4_000, 5, b"secret") == (
        struct.pack("!iqiqi", 0, 3, 4_000, 5, 6) + b"secret\0"
    )


@given(_paths, _paths)
def test_chroot_there_and_back(chroot: str, path: str) -> None:
    for prefix in ("/", chroot):
        mapped = Chroot(prefix)
        assert mapped.outside(mapped.inside(path)) == path
        assert mapped.outside(mapped.inside("/")) == "/"


def test_chroot_refuses_its_neighbours() -> None:
    with pytest.raises(ValueError, match="not below"):
        Chroot("/a").outside("/ab/c")


def test_paths() -> None:
    assert (parent("/a"), parent("/a/b"), parent("/")) == ("/", "/a", "/")
    assert check_path("/cursorkeeper/cursors/3ff/persistent%3A%2F%2Ft%2Fns%2Ftopic|sub")
    for bad in ("/\x7f", "/\u200b", "/\ud800", "/\uf8ff"):
        with pytest.raises(ValueError, match="character"):
            check_path(bad)


def test_parse_servers() -> None:
    assert parse_servers("h1:2182, h2,[::1]:2183,[fe80::1]/ck/x") == (
        (("h1", 2182), ("h2", 2181), ("::1", 2183), ("fe80::1", 2181)),
        "/ck/x",
    )
    assert parse_servers("h") == ((("h", 2181),), "/")
    assert parse_servers("h/") == ((("h", 2181),), "/")
    for bad in ("", "h:", "h:x", ":2181", "h:0", "h:70000", "a,,b"):
        with pytest.raises(ValueError, match="host:port"):
            parse_servers(bad)


@pytest.mark.parametrize(
    "wrong",
    [
        {"servers": ()},
        {"chroot": "x"},
        {"session_timeout_ms": 0},
        {"back_off_min_ms": 2_000},
        {"close_timeout_s": 3.0},
        {"jute_maxbuffer_bytes": 1_500},
        {"request_bytes_in_flight_max": 1_000},
        {"set_watches_bytes_max": 2_000_000},
    ],
)
def test_settings_that_contradict(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"servers|path|_"):
        ZooKeeperSettings(**wrong)  # type: ignore[arg-type]


def test_every_error_says_what_to_do() -> None:
    classes = [
        value
        for value in vars(errors).values()
        if isinstance(value, type) and issubclass(value, errors.ZooKeeperError)
    ]
    assert len(classes) > 15
    for one in classes:
        assert isinstance(one.kind, errors.Kind) and one.remedy and one.__doc__
    assert {errors.Kind.UNKNOWN, errors.Kind.NOT_DONE, errors.Kind.BAD_VERSION} <= {
        one.kind for one in classes
    }
    for one in (errors.OutcomeUnknown, errors.ConnectionLost):
        assert one.kind is errors.Kind.UNKNOWN and not issubclass(one, errors.NotSent)
    for one in (errors.NotConnected, errors.TooManyRequests, errors.ClientClosed):
        assert one.kind is errors.Kind.NOT_DONE and issubclass(one, errors.NotSent)


def test_unknown_codes_are_nobodys_success() -> None:
    for code in (0, -2, -999, 17):
        error = errors.error_from_code(code, "/n")
        assert (
            type(error) is errors.ServerFault
            and error.kind is errors.Kind.UNKNOWN
            and error.code == code
        )
    assert type(errors.error_from_code(0, in_multi=True)) is errors.RolledBack
    assert type(errors.error_from_code(-103)) is errors.BadVersion


def test_answers_that_are_cut_are_refused() -> None:
    whole = node(b"abc")
    assert codec.get("/n", False).decode(whole)
    for length in range(len(whole)):
        with pytest.raises((struct.error, ValueError)):
            codec.get("/n", False).decode(whole[:length])
    created = struct.pack("!i", 9) + b"/n"
    with pytest.raises(ValueError, match="string"):
        codec.write(Create("/n", b"")).decode(created)


def test_multi_answers_that_make_no_sense_are_refused() -> None:
    ok, error = struct.pack("!i?i", 13, False, 0), struct.pack("!i?ii", -1, False, -1, -103)
    two = codec.multi([Check("/a", 0), Check("/b", 0)])
    for body in (
        ok,
        ok + struct.pack("!i?i", -1, True, -1),
        ok + error,
        struct.pack("!i?i", 99, False, 0) * 2,
    ):
        with pytest.raises((struct.error, ValueError)):
            two.decode(body)
    with pytest.raises(ValueError, match="multiRead"):
        codec.multi_read(["/a"]).decode(struct.pack("!i?ii", -1, True, -1, 0))


def test_multi_read_with_another_error_than_no_node() -> None:
    body = struct.pack("!i?ii", -1, False, -101, -101) + struct.pack("!i?ii", -1, False, -102, -102)
    answer = codec.multi_read(["/a", "/b"]).decode(body)
    assert isinstance(answer, errors.AccessDenied) and answer.path == "/b"


@given(
    st.lists(_paths, unique=True, max_size=30),
    st.integers(80, 400),
)
def test_set_watches_are_split_and_complete(paths: list[str], bytes_max: int) -> None:
    seen: tuple[list[str], list[str], list[str]] = ([], [], [])
    for request in rearm.requests(paths, 42, bytes_max):
        frame = request.encode(1)
        assert len(frame) <= max(bytes_max, 64 + 4 + max(len(path.encode()) for path in paths))
        assert struct.unpack_from("!iiq", frame) == (1, 101, 42)
        offset = 16
        for found in seen:
            (count,) = struct.unpack_from("!i", frame, offset)
            offset += 4
            for _ in range(count):
                (length,) = struct.unpack_from("!i", frame, offset)
                found.append(frame[offset + 4 : offset + 4 + length].decode())
                offset += 4 + length
        assert offset == len(frame)
    assert seen == (paths, [], [])


def test_gate_keeps_both_limits_and_the_order() -> None:
    async def story() -> None:
        gate = InFlight(3, 100)
        order: list[int] = []

        async def enter(size: int) -> None:
            await gate.enter(size)
            order.append(size)

        await gate.enter(60)
        tasks = [asyncio.create_task(enter(size)) for size in (50, 10, 20, 30)]
        await asyncio.sleep(0.1)
        assert (order, gate.requests, gate.bytes) == ([], 1, 60), (
            "10 bytes would fit, but came later"
        )
        tasks[0].cancel()
        await asyncio.sleep(0.1)
        assert (order, gate.requests, gate.bytes) == ([10, 20], 3, 90)
        gate.leave(60)
        await asyncio.sleep(0.1)
        assert order == [10, 20, 30]
        for size in order:
            gate.leave(size)
        assert (gate.requests, gate.bytes) == (0, 0)

    run(story())


def test_gate_waiter_cancelled_in_its_very_turn_gives_the_room_back() -> None:
    async def story() -> None:
        gate = InFlight(1, 100)
        await gate.enter(10)
        waiter = asyncio.create_task(gate.enter(10))
        await asyncio.sleep(0.1)
        gate.leave(10)
        waiter.cancel()
        await asyncio.sleep(0.1)
        assert (gate.requests, gate.bytes) == (0, 0)

    run(story())


def test_ensure_path_gives_up_when_somebody_deletes_faster() -> None:
    async def exists(_: str) -> bool:
        return False

    async def create(path: str) -> None:
        if path != "/a":
            raise errors.NoNode(path=path)

    with pytest.raises(errors.Retry):
        run(ensure_path("/a/b/c", exists, create))


def test_an_event_of_no_node_is_nobodys() -> None:
    assert codec.watch_event(struct.pack("!iii", -1, 3, -1)) == (-1, "")

"""The contract of `port.ZooKeeper`: every test runs against the fake, a real server, and an
ensemble of three in containers.

Clients may be at different members: one that reads what another wrote says `sync` first. What only
one of them can do (server faults, fault knobs) is in `test_faults` and `test_fake`.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace

import pytest

from cursorkeeper.zookeeper import ZooKeeper
from cursorkeeper.zookeeper.acl import OPEN, Entry
from cursorkeeper.zookeeper.errors import (
    AccessDenied,
    BadVersion,
    ClientClosed,
    Kind,
    MultiFailed,
    NoChildrenForEphemerals,
    NodeExists,
    NoNode,
    NotEmpty,
    NotTried,
    RolledBack,
    ValueTooLarge,
)
from cursorkeeper.zookeeper.values import (
    ANY_VERSION,
    Check,
    Create,
    Delete,
    SessionState,
    SetData,
)
from daemon.tests.zookeeper.wait import until
from daemon.tests.zookeeper.worlds import SETTINGS, World

# --- nodes ----------------------------------------------------------------------------------------


async def test_create_get_set_delete(world: World) -> None:
    zk = await world.client()
    await zk.create("/n", b"one")
    node = await zk.get("/n")
    assert (node.data, node.version, node.stat.data_bytes) == (b"one", 0, 3)
    assert await zk.set("/n", b"second", 0) == 1
    later = await zk.get("/n")
    assert (later.data, later.version) == (b"second", 1)
    assert later.stat.czxid == node.stat.czxid == node.stat.mzxid < later.stat.mzxid
    await zk.delete("/n", 1)
    assert await zk.exists("/n") is None


async def test_an_acl_has_a_version_of_its_own(world: World) -> None:
    zk = await world.client()
    await zk.create("/n", b"one")
    fired: list[str] = []
    before = await zk.get("/n", watch=fired.append)
    found, stat = await zk.acl("/n")
    assert (found, stat) == (OPEN, before.stat)
    more = (*OPEN, Entry(1, "digest", "reader:aaaaaaaaaaaaaaaaaaaaaaaaaaa="))
    assert (await zk.set_acl("/n", more, stat.aversion)).aversion == stat.aversion + 1
    assert (await zk.acl("/n"))[0] == more
    after = await zk.get("/n")
    assert after == before._replace(stat=before.stat._replace(aversion=stat.aversion + 1))
    with pytest.raises(BadVersion) as caught:
        await zk.set_acl("/n", OPEN, stat.aversion)
    assert caught.value.path == "/n"
    await zk.set_acl("/n", OPEN, ANY_VERSION)
    # nobody who waits for a change of the node is woken
    assert fired == []
    assert await zk.set("/n", b"two", before.version) == before.version + 1
    await until(lambda: fired == ["/n"])


async def test_an_acl_that_is_none(world: World) -> None:
    zk = await world.client()
    await zk.create("/n", b"")
    with pytest.raises(AccessDenied):
        await zk.set_acl("/n", (), ANY_VERSION)
    for request in (zk.acl("/none"), zk.set_acl("/none", OPEN, ANY_VERSION)):
        with pytest.raises(NoNode) as caught:
            await request
        assert caught.value.path == "/none"
    with pytest.raises(ValueError, match="ANY_VERSION"):
        await zk.set_acl("/n", OPEN, -1)


async def test_empty_data(world: World) -> None:
    zk = await world.client()
    await zk.create("/n", b"")
    assert (await zk.get("/n")).data == b""


async def test_missing_node(world: World) -> None:
    zk = await world.client()
    with pytest.raises(NoNode) as caught:
        await zk.get("/none")
    assert (caught.value.path, caught.value.kind) == ("/none", Kind.NO_NODE)
    for request in (
        zk.set("/none", b"", 0),
        zk.delete("/none", ANY_VERSION),
        zk.children("/none"),
        zk.create("/none/n", b""),
    ):
        with pytest.raises(NoNode):
            await request


async def test_wrong_version_changes_nothing(world: World) -> None:
    zk = await world.client()
    await zk.create("/n", b"one")
    await zk.set("/n", b"two", 0)
    for request in (zk.set("/n", b"x", 0), zk.set("/n", b"x", 2), zk.delete("/n", 0)):
        with pytest.raises(BadVersion) as caught:
            await request
        assert caught.value.path == "/n"
    assert (await zk.get("/n"))[:2] == (b"two", 1)


async def test_any_version_is_only_the_constant(world: World) -> None:
    zk = await world.client()
    await zk.create("/n", b"one")
    with pytest.raises(ValueError, match="ANY_VERSION"):
        await zk.set("/n", b"x", -1)
    with pytest.raises(ValueError, match="ANY_VERSION"):
        await zk.delete("/n", -1)
    with pytest.raises(ValueError, match="ANY_VERSION"):
        await zk.multi([Check("/n", -1)])
    assert await zk.set("/n", b"two", ANY_VERSION) == 1
    await zk.delete("/n", ANY_VERSION)


async def test_version_restarts_with_the_node(world: World) -> None:
    """Why a cursor's znode is never deleted: a slow old owner could hit a version that began
    again.
    """
    zk = await world.client()
    await zk.create("/n", b"")
    await zk.set("/n", b"", 0)
    await zk.delete("/n", 1)
    await zk.create("/n", b"")
    assert (await zk.get("/n")).version == 0


async def test_create_existing(world: World) -> None:
    zk = await world.client()
    await zk.create("/n", b"one")
    with pytest.raises(NodeExists) as caught:
        await zk.create("/n", b"two")
    assert caught.value.path == "/n"
    assert (await zk.get("/n")).data == b"one"


async def test_delete_with_children(world: World) -> None:
    zk = await world.client()
    await zk.ensure_path("/a/b")
    with pytest.raises(NotEmpty):
        await zk.delete("/a", ANY_VERSION)


async def test_children_are_sorted_names(world: World) -> None:
    zk = await world.client()
    await zk.create("/dir", b"")
    for name in ("b", "a", "c%2F1"):
        await zk.create(f"/dir/{name}", b"")
    assert await zk.children("/dir") == ["a", "b", "c%2F1"]
    assert await zk.children("/dir/a") == []


async def test_parent_stat_counts_changes_of_children(world: World) -> None:
    zk = await world.client()
    await zk.create("/dir", b"")
    await zk.create("/dir/a", b"")
    await zk.create("/dir/b", b"")
    await zk.delete("/dir/a", 0)
    stat = (await zk.get("/dir")).stat
    assert (stat.version, stat.cversion, stat.children_count) == (0, 3, 1)
    assert stat.pzxid > (await zk.get("/dir/b")).stat.czxid
    assert stat.mzxid == stat.czxid


async def test_ephemeral_belongs_to_the_session(world: World) -> None:
    zk, other = await world.client(), await world.client()
    await zk.create("/e", b"", ephemeral=True)
    await other.sync("/")
    stat = await other.exists("/e")
    assert stat is not None and stat.ephemeral_owner == zk.session_id != 0
    with pytest.raises(NoChildrenForEphemerals):
        await other.create("/e/child", b"")
    await zk.close()
    began_s = time.monotonic()
    # the goodbye of a client that does not wait for its answer may be under way
    while await other.exists("/e") is not None:
        assert time.monotonic() - began_s < SETTINGS.session_timeout_ms / 2_000, (
            "the session ran out, it was not closed"
        )
        await other.sync("/")


async def test_ensure_path_twice(world: World) -> None:
    zk = await world.client()
    await zk.ensure_path("/a/b/c")
    await zk.set("/a/b", b"kept", 0)
    await zk.ensure_path("/a/b/c/d")
    await zk.ensure_path("/a/b/c")
    assert (await zk.get("/a/b")).data == b"kept"
    assert await zk.children("/a/b/c") == ["d"]


async def test_ensure_path_of_many_at_once(world: World) -> None:
    clients = [await world.client() for _ in range(3)]
    await asyncio.gather(*(zk.ensure_path("/p/q/r/s") for zk in clients for _ in range(5)))
    assert await clients[0].children("/p/q/r") == ["s"]


async def test_bad_paths_are_bugs(world: World) -> None:
    zk = await world.client()
    for path in ("", "n", "/n/", "//n", "/a/../b", "/a/./b", "/a\0b"):
        with pytest.raises(ValueError, match="path"):
            await zk.get(path)


async def test_a_value_too_large_is_refused_here_and_harms_nothing(world: World) -> None:
    zk = await world.client()
    states: list[SessionState] = []
    zk.on_state(states.append)
    largest = SETTINGS.request_bytes_max - 8 - 4 - len(await _inside_path_bytes(zk)) - 4 - 31 - 4
    await zk.create("/n", b"x" * (largest - 1))
    with pytest.raises(ValueTooLarge) as caught:
        await zk.set("/n", b"x" * SETTINGS.request_bytes_max, 0)
    assert (caught.value.path, caught.value.kind) == ("/n", Kind.REFUSED)
    with pytest.raises(ValueTooLarge):
        await zk.create("/m", b"x" * SETTINGS.request_bytes_max)
    with pytest.raises(ValueTooLarge):
        await zk.multi([SetData("/n", b"x" * 600_000, 0)] * 2)
    assert (await zk.get("/n")).version == 0
    assert states == []


async def _inside_path_bytes(zk: ZooKeeper) -> bytes:
    return (zk.settings.chroot + "/n").encode()  # type: ignore[attr-defined]


# --- multi ----------------------------------------------------------------------------------------


async def test_multi_does_all(world: World) -> None:
    zk = await world.client()
    await zk.create("/a", b"1")
    await zk.create("/b", b"1")
    results = await zk.multi(
        [
            Check("/a", 0),
            SetData("/a", b"2", 0),
            Create("/c", b"3"),
            Delete("/b", 0),
        ]
    )
    assert results == [None, 1, None, None]
    assert (await zk.get("/a"))[:2] == (b"2", 1)
    assert await zk.exists("/b") is None
    assert (await zk.get("/c")).data == b"3"


async def test_multi_sees_its_own_earlier_operations(world: World) -> None:
    zk = await world.client()
    results = await zk.multi(
        [
            Create("/a", b""),
            Create("/a/b", b""),
            SetData("/a", b"x", 0),
            SetData("/a", b"y", 1),
            Delete("/a/b", 0),
        ]
    )
    assert results == [None, None, 1, 2, None]


async def test_multi_does_nothing_if_one_fails_and_names_it(world: World) -> None:
    zk = await world.client()
    await zk.create("/a", b"1")
    with pytest.raises(MultiFailed) as caught:
        await zk.multi(
            [SetData("/a", b"2", 0), Create("/b", b""), SetData("/a", b"3", 7), Create("/c", b"")]
        )
    failed = caught.value
    assert failed.culprit_index == 2
    assert [type(error) for error in failed.errors] == [
        RolledBack,
        RolledBack,
        BadVersion,
        NotTried,
    ]
    assert (failed.culprit.path, failed.kind) == ("/a", Kind.NOT_DONE)
    assert "'/a'" in str(failed)
    assert (await zk.get("/a"))[:2] == (b"1", 0)
    assert await zk.exists("/b") is None


async def test_multi_kinds_of_culprit(world: World) -> None:
    zk = await world.client()
    await zk.ensure_path("/a/b")
    for op, error in (
        (Create("/a", b""), NodeExists),
        (Create("/x/y", b""), NoNode),
        (Delete("/a", 0), NotEmpty),
        (Delete("/a/b", 3), BadVersion),
        (Check("/x", 0), NoNode),
        (Check("/a", 9), BadVersion),
    ):
        with pytest.raises(MultiFailed) as caught:
            await zk.multi([op])
        assert (type(caught.value.culprit), caught.value.culprit.path) == (error, op.path)


async def test_multi_of_nothing_but_checks(world: World) -> None:
    """It changes nothing, and its answer is the quorum's: of the first node that is not as
    expected.
    """
    zk, other = await world.client(), await world.client()
    await zk.multi([Create("/a", b""), Create("/b", b"")])
    assert await zk.multi([Check("/a", 0), Check("/b", 0)]) == [None, None]
    assert await zk.multi([Check("/a", ANY_VERSION)]) == [None]
    assert (await zk.get("/a")).version == 0
    await other.set("/b", b"x", 0)
    with pytest.raises(MultiFailed) as failed:
        await zk.multi([Check("/a", 0), Check("/b", 0), Check("/none", ANY_VERSION)])
    assert (failed.value.culprit_index, type(failed.value.culprit)) == (1, BadVersion)
    with pytest.raises(MultiFailed) as failed:
        await zk.multi([Check("/none", ANY_VERSION)])
    assert isinstance(failed.value.culprit, NoNode)


async def test_multi_of_nothing(world: World) -> None:
    assert await (await world.client()).multi([]) == []


async def test_multi_of_200_compare_and_sets(world: World) -> None:
    zk = await world.client()
    await zk.multi([Create(f"/n{i}", b"") for i in range(200)])
    assert await zk.multi([SetData(f"/n{i}", b"x" * 200, 0) for i in range(200)]) == [1] * 200


# --- multi read -----------------------------------------------------------------------------------


async def test_multi_read_in_the_order_asked_with_none_for_missing(world: World) -> None:
    zk = await world.client()
    await zk.create("/a", b"1")
    await zk.create("/b", b"")
    await zk.set("/b", b"22", 0)
    nodes = await zk.multi_read(["/b", "/none", "/a", "/b", "/none/below"])
    assert nodes[1] is None and nodes[4] is None
    assert nodes[0] == nodes[3] == await zk.get("/b")
    assert nodes[2] == await zk.get("/a")
    assert await zk.multi_read([]) == []


async def test_multi_read_of_more_than_one_request(world: World) -> None:
    zk = await world.client(settings=replace(SETTINGS, multi_read_paths_max=7))
    await zk.multi([Create(f"/n{i:02}", str(i).encode()) for i in range(50)])
    nodes = await zk.multi_read([f"/n{i:02}" for i in range(60)])
    assert [node.data if node else None for node in nodes] == [
        str(i).encode() for i in range(50)
    ] + [None] * 10


async def test_multi_read_of_long_paths(world: World) -> None:
    """Two requests by size: 1,500 paths of 1,000 bytes are above jute.maxbuffer."""
    zk = await world.client(settings=replace(SETTINGS, multi_read_paths_max=10_000))
    paths = [f"/{i:04}{'x' * 995}" for i in range(1_500)]
    await zk.create(paths[-1], b"last")
    nodes = await zk.multi_read(paths)
    assert [node.data for node in nodes if node] == [b"last"] and nodes[-1] is not None


async def test_multi_read_with_watches(world: World) -> None:
    """In several requests: each watch is of its own path, and fires once; that of a node which is
    missing fires at once.
    """
    settings = replace(SETTINGS, multi_read_paths_max=2, set_watches_bytes_max=100)
    one, two = await world.client(), await world.client(settings=settings)
    names = [f"/n{i}" for i in range(7)]
    await one.multi([Create(name, b"") for name in names])
    await two.sync("/")
    await two.get(names[0])  # what this session has seen: nothing before it may fire
    fired: list[str] = []
    nodes = await two.multi_read(
        [*names, "/none"],
        [*(None if name == "/n3" else fired.append for name in names), fired.append],
    )
    assert [node is not None for node in nodes] == [True] * 7 + [False]
    await until(lambda: fired)
    assert fired == ["/none"]
    await one.multi([SetData(name, b"1", 0) for name in names[1:]])
    await until(lambda: len(fired) > 5)
    assert set(fired) == {"/none", "/n1", "/n2", "/n4", "/n5", "/n6"}
    await one.set("/n1", b"2", 1)
    await one.delete("/n0", 0)
    await until(lambda: len(fired) > 6)
    assert fired[6:] == ["/n0"]


async def test_a_watch_of_a_multi_read_misses_nothing_after_the_read(world: World) -> None:
    one, two = await world.client(), await world.client()
    await one.multi([Create("/a", b"0"), Create("/b", b"0")])
    await two.sync("/")
    for version in range(20):
        fired: list[str] = []
        write = asyncio.create_task(one.set("/a", b"", version))
        node, _ = await two.multi_read(["/a", "/b"], [fired.append, None])
        assert node is not None
        if node.version == version:
            await until(lambda fired=fired: fired)
        await write


# --- two clients ----------------------------------------------------------------------------------


async def test_one_of_two_compare_and_sets_wins(world: World) -> None:
    one, two = await world.client(), await world.client()
    await one.create("/n", b"")
    await two.sync("/n")
    results = await asyncio.gather(
        one.set("/n", b"1", 0), two.set("/n", b"2", 0), return_exceptions=True
    )
    assert sorted(type(result).__name__ for result in results) == ["BadVersion", "int"]


async def test_requests_of_one_client_keep_their_order(world: World) -> None:
    zk = await world.client()
    await zk.create("/n", b"")
    versions = await asyncio.gather(*(zk.set("/n", str(i).encode(), i) for i in range(100)))
    assert versions == list(range(1, 101))


async def test_after_sync_another_clients_write_is_seen(world: World) -> None:
    one, two = await world.client(), await world.client()
    await one.create("/n", b"1")
    await two.sync("/n")
    assert (await two.get("/n")).data == b"1"


async def test_chroot(world: World) -> None:
    outer, inner = await world.client(), await world.client("/in/ner")
    fired: list[str] = []
    await inner.create("/n", b"1")
    await outer.sync("/")
    assert (await outer.get("/in/ner/n")).data == b"1"
    assert await inner.children("/") == ["n"]
    assert (await inner.get("/")).stat.children_count == 1
    await inner.get("/n", watch=fired.append)
    assert await inner.multi([Check("/n", 0), Create("/m", b"")]) == [None, None]
    await outer.sync("/")
    assert await outer.exists("/in/ner/m") is not None
    with pytest.raises(BadVersion):  # versions are checked below a chroot, too (facts: fault 15)
        await inner.set("/n", b"2", 5)
    await outer.set("/in/ner/n", b"2", 0)
    await until(lambda: fired)
    assert fired == ["/n"]
    assert [node.data for node in await inner.multi_read(["/n"]) if node] == [b"2"]
    with pytest.raises(NoNode) as caught:
        await inner.get("/x")
    assert caught.value.path == "/x" and "ner" not in str(caught.value)
    with pytest.raises(MultiFailed) as failed:
        await inner.multi([Check("/x", 0)])
    assert "ner" not in str(failed.value)


# --- watches --------------------------------------------------------------------------------------


async def test_data_watch_fires_once(world: World) -> None:
    one, two = await world.client(), await world.client()
    await one.create("/n", b"")
    await two.sync("/n")
    fired: list[str] = []
    await two.get("/n", watch=fired.append)
    await one.set("/n", b"1", 0)
    await one.set("/n", b"2", 1)
    await until(lambda: fired)
    await two.sync("/n")
    await two.get("/n")
    assert fired == ["/n"]


async def test_watch_is_told_before_the_new_value_is_read(world: World) -> None:
    one, two = await world.client(), await world.client()
    await one.create("/n", b"0")
    await two.sync("/n")
    for version in range(20):
        fired: list[str] = []
        node = await two.get("/n", watch=fired.append)
        write = asyncio.create_task(one.set("/n", str(version + 1).encode(), version))
        while (seen := await two.get("/n")) == node:
            pass
        assert fired, f"{seen} was read before the watch fired"
        await write


async def test_deletion_fires_data_watch(world: World) -> None:
    zk = await world.client()
    await zk.create("/n", b"")
    fired: list[str] = []
    await zk.get("/n", watch=fired.append)
    await zk.delete("/n", 0)
    await until(lambda: fired)
    assert fired == ["/n"]


async def test_get_of_a_missing_node_sets_no_watch(world: World) -> None:
    zk = await world.client()
    fired: list[str] = []
    with pytest.raises(NoNode):
        await zk.get("/n", watch=fired.append)
    await zk.create("/n", b"")
    await zk.set("/n", b"1", 0)
    assert fired == []


async def test_children_do_not_fire_data_watches(world: World) -> None:
    zk = await world.client()
    await zk.create("/n", b"")
    fired: list[str] = []
    await zk.get("/n", watch=fired.append)
    await zk.create("/n/child", b"")
    await zk.sync("/n")
    assert fired == []


async def test_the_same_callback_twice_is_one_watch_and_two_callbacks_are_two(world: World) -> None:
    zk = await world.client()
    await zk.create("/n", b"")
    one: list[str] = []
    two: list[str] = []
    callback = one.append
    await zk.get("/n", watch=callback)
    await zk.get("/n", watch=callback)
    await zk.get("/n", watch=two.append)
    await zk.set("/n", b"1", 0)
    await until(lambda: one and two)
    await zk.sync("/n")
    assert (len(one), len(two)) == (1, 1)


async def test_multi_fires_watches(world: World) -> None:
    zk = await world.client()
    await zk.create("/a", b"")
    fired: list[str] = []
    await zk.get("/a", watch=fired.append)
    await zk.create("/b", b"")
    await zk.get("/b", watch=fired.append)
    await zk.multi([SetData("/a", b"1", 0), Delete("/b", 0)])
    await until(lambda: len(fired) == 2)
    assert set(fired) == {"/a", "/b"}


async def test_watches_live_through_a_broken_connection(world: World) -> None:
    one, two = await world.client(), await world.client()
    for path in ("/changed", "/same", "/deleted"):
        await one.create(path, b"")
    await two.sync("/")
    fired: list[str] = []
    for path in ("/changed", "/same", "/deleted"):
        await two.get(path, watch=fired.append)
    states = _recorded(two)
    world.break_connection(two)
    await until(lambda: SessionState.SUSPENDED in states)
    await one.multi([SetData("/changed", b"1", 0), Delete("/deleted", 0)])
    await until(lambda: len(fired) >= 2)
    assert set(fired) == {"/changed", "/deleted"}
    await until(lambda: two.state is SessionState.CONNECTED)
    await one.set("/same", b"1", 0)
    await until(lambda: len(fired) == 3)


async def test_a_callback_that_raises_harms_nobody(world: World) -> None:
    zk = await world.client()
    raised: list[object] = []
    asyncio.get_running_loop().set_exception_handler(
        lambda _, context: raised.append(context["exception"])
    )

    def broken(_: str) -> None:
        raise RuntimeError("a caller's bug")

    fired: list[str] = []
    await zk.create("/n", b"")
    await zk.get("/n", watch=broken)
    await zk.get("/n", watch=fired.append)
    assert await zk.set("/n", b"", 0) == 1
    await until(lambda: fired and raised)
    assert zk.state is SessionState.CONNECTED


# --- session --------------------------------------------------------------------------------------


def _recorded(zk: ZooKeeper) -> list[SessionState]:
    states: list[SessionState] = []
    zk.on_state(states.append)
    return states


async def test_a_broken_connection_keeps_session_and_ephemerals(world: World) -> None:
    zk, other = await world.client(), await world.client()
    await zk.create("/e", b"", ephemeral=True)
    session_id, states = zk.session_id, _recorded(zk)
    world.break_connection(zk)
    await until(lambda: states == [SessionState.SUSPENDED, SessionState.CONNECTED])
    assert zk.session_id == session_id
    await other.sync("/")
    assert await other.exists("/e") is not None


async def test_a_request_while_disconnected_waits(world: World) -> None:
    zk = await world.client()
    await zk.create("/n", b"1")
    states = _recorded(zk)
    world.break_connection(zk)
    await until(lambda: states)
    assert (await zk.get("/n")).data == b"1"


async def test_expiry_is_said_and_takes_ephemerals_and_watches(world: World) -> None:
    zk, other = await world.client(), await world.client()
    await zk.create("/e", b"", ephemeral=True)
    await zk.create("/n", b"")
    fired: list[str] = []
    await zk.get("/n", watch=fired.append)
    session_id, states = zk.session_id, _recorded(zk)
    await world.expire(zk)
    await until(lambda: SessionState.EXPIRED in states and states[-1] is SessionState.CONNECTED)
    # another server of the ensemble may still take it back before it hears of the end
    *before, expired, connected = states
    assert (expired, connected) == (SessionState.EXPIRED, SessionState.CONNECTED)
    assert before and set(before) <= {SessionState.SUSPENDED, SessionState.CONNECTED}
    assert before[0] is before[-1] is SessionState.SUSPENDED
    assert zk.session_id not in (0, session_id)
    assert fired == ["/n"]
    await other.sync("/")
    assert await other.exists("/e") is None
    await zk.set("/n", b"1", 0)
    assert fired == ["/n"]


async def test_close_is_final_quiet_and_repeatable(world: World) -> None:
    zk = await world.client()
    states = _recorded(zk)
    await asyncio.gather(zk.close(), zk.close())
    await zk.close()
    await asyncio.sleep(0)
    assert states == [SessionState.CLOSED]
    assert (zk.state, zk.session_id) == (SessionState.CLOSED, 0)
    with pytest.raises(ClientClosed):
        await zk.get("/n")
    with pytest.raises(ClientClosed):
        await zk.start()

"""A root that is none: who reads cursors there is told so, and which ones there are; who makes
cursors is told that it is new.
"""

from __future__ import annotations

import pytest

from cursorkeeper.core.names import ROOT
from cursorkeeper.inspection.roots import as_flags, check_root, look_at, roots_in, told_if_new
from cursorkeeper.problems import ProblemError
from cursorkeeper.settings import Settings
from cursorkeeper.terminal.failure import USAGE, exit_code
from cursorkeeper.zookeeper.port import ZooKeeper
from cursorkeeper.zookeeper.values import ANY_VERSION
from daemon.tests.cli.conftest import CliWorld
from daemon.tests.support.world import NAME

HERE = "zk:2181"


async def refusal(zookeeper: ZooKeeper, root: str, *, needs_id: bool = False) -> str:
    with pytest.raises(ProblemError) as refused:
        await check_root(
            zookeeper, Settings.of(zookeeper=HERE, root=root).systems, needs_id=needs_id
        )
    assert exit_code(refused.value.problem) == USAGE and refused.value.problem.remedy
    return refused.value.problem.message


async def test_what_is_no_root_is_named_with_the_roots_that_are_there(world: CliWorld) -> None:
    await world.closed(l7=((1, 3),))
    zookeeper = (await world.ports()).zookeeper
    await check_root(zookeeper, Settings.of(zookeeper=HERE).systems, needs_id=True)
    await zookeeper.ensure_path("/ledgers/available")
    for root, why in (
        ("/cursorkeeper/cursor", "does not exist"),
        ("/cursorkeeper", "has no deployment id"),
        (f"{ROOT}/{NAME.bucket}", "has no deployment id"),
        ("/ledgers", "has no deployment id"),
    ):
        said = await refusal(zookeeper, root)
        assert said.startswith(f"{root} in ZooKeeper at {HERE} {why}"), said
        assert f"--zookeeper {HERE} --root {ROOT}" in said


async def test_an_id_that_is_lost_hides_no_cursor_and_makes_nothing_garbage(
    world: CliWorld,
) -> None:
    await world.closed(l7=((1, 3),))
    zookeeper = (await world.ports()).zookeeper
    await zookeeper.set(ROOT, b"", ANY_VERSION)
    await check_root(zookeeper, Settings.of(zookeeper=HERE).systems)
    assert "No other root was found" in await refusal(zookeeper, ROOT, needs_id=True)


async def test_roots_behind_chroots_are_found(world: CliWorld) -> None:
    for chroot in ("/east", "/teams/west"):
        session = world.zookeeper.session(chroot)
        await session.start()
        await session.ensure_path(ROOT)
        await session.set(ROOT, b"0123456789abcdef" * 2, ANY_VERSION)
    zookeeper = (await world.ports()).zookeeper
    assert await roots_in(zookeeper) == [f"/east{ROOT}", f"/teams/west{ROOT}"]
    assert as_flags(f"/east{ROOT}", HERE, "/other") == f"--zookeeper {HERE}/east --root {ROOT}"
    assert as_flags("/mine/here", HERE, "/here") == f"--zookeeper {HERE}/mine --root /here"
    assert as_flags("/mine/here", HERE, "/other") == f"--zookeeper {HERE} --root /mine/here"


async def test_who_makes_cursors_is_told_that_the_root_is_new(world: CliWorld) -> None:
    zookeeper = (await world.ports()).zookeeper
    assert f"{ROOT} in ZooKeeper at {HERE} is new" in await told_if_new(
        zookeeper, Settings.of(zookeeper=HERE).systems
    )
    assert not (await look_at(zookeeper, ROOT)).exists, "nothing is written by looking"
    await world.closed(l7=((1, 3),))
    assert await told_if_new(zookeeper, Settings.of(zookeeper=HERE).systems) == ""

"""`set-acl` on fakes: which nodes are ours, what is counted, and that a run that was cut off is
gone on with. What ZooKeeper refuses, and whom it hears then: `daemon/tests/tls/test_set_acl.py`.
"""

from __future__ import annotations

import pytest

from cursorkeeper.core.names import ROOT
from cursorkeeper.problems import Kind, ProblemError
from cursorkeeper.repair import acls
from cursorkeeper.repair.acls import Counts, Walk, Wanted, open_at
from cursorkeeper.terminal.output import lines
from cursorkeeper.zookeeper.acl import OPEN, Entry, User, digest_id
from cursorkeeper.zookeeper.port import ZooKeeper
from cursorkeeper.zookeeper.values import Stat
from daemon.tests.cli.conftest import CliWorld
from daemon.tests.fakes.zookeeper.faults import Meanwhile, UnknownDone, UnknownNotDone
from daemon.tests.support.world import NAME

ME = digest_id(b"keeper:secret")
MINE = (Entry(31, "digest", ME),)
FOOTER = NAME.path()


async def walked(
    world: CliWorld, zookeeper: ZooKeeper, *, dry_run: bool = False, wanted: Wanted | None = None
) -> Counts:
    of = wanted or Wanted(MINE, User("digest", ME))
    return await Walk(zookeeper, of, world.bar, dry_run=dry_run, pause_s=0.0).over(ROOT)


async def acl_of(zookeeper: ZooKeeper, path: str) -> tuple[Entry, ...]:
    return (await zookeeper.acl(path))[0]


async def test_every_node_of_the_deployment_and_no_other(world: CliWorld) -> None:
    await world.closed(l7=((1, 3),))
    zookeeper = (await world.ports()).zookeeper
    above = ROOT.rpartition("/")[0]
    for path in (f"{above}/imports/run/pins/ab/one", "/elsewhere/cursors/abc/x"):
        await zookeeper.ensure_path(path)
    before = await zookeeper.get(FOOTER)
    looked = await walked(world, zookeeper, dry_run=True)
    # above, root, bucket, footer; imports, run, pins, ab, one
    assert (looked.nodes, looked.changed, looked.already) == (9, 9, 0)
    assert looked.lose == {"world:anyone": 9}
    assert await acl_of(zookeeper, FOOTER) == OPEN
    done = await walked(world, zookeeper)
    assert (done.nodes, done.changed, done.refused) == (9, 9, 0)
    for path in (
        above,
        ROOT,
        FOOTER.rpartition("/")[0],
        FOOTER,
        f"{above}/imports/run/pins/ab/one",
    ):
        assert await acl_of(zookeeper, path) == MINE
    for path in ("/", "/elsewhere", "/elsewhere/cursors/abc/x"):
        assert await acl_of(zookeeper, path) == OPEN
    after = await zookeeper.get(FOOTER)
    assert (after.data, after.version, after.stat.mzxid) == (
        before.data,
        before.version,
        before.stat.mzxid,
    )
    again = await walked(world, zookeeper)
    assert (again.nodes, again.changed, again.already, again.lose) == (9, 0, 9, {})
    back = await walked(world, zookeeper, wanted=Wanted(OPEN, User("digest", ME)))
    assert (back.changed, back.lose) == (9, {})


async def test_the_node_above_stays_where_it_is_not_ours_alone(world: CliWorld) -> None:
    await world.closed()
    zookeeper = (await world.ports()).zookeeper
    above = ROOT.rpartition("/")[0]
    for name in ("exports", "of-somebody"):
        await zookeeper.ensure_path(f"{above}/{name}")
    assert await acls.places(zookeeper, ROOT) == [ROOT, f"{above}/exports"]
    assert (await walked(world, zookeeper)).changed == 4
    assert await acl_of(zookeeper, above) == await acl_of(zookeeper, f"{above}/of-somebody") == OPEN


async def test_answers_that_are_lost(world: CliWorld) -> None:
    """What was done all the same is counted as done, once."""
    await world.closed()
    zookeeper, faults = (await world.ports()).zookeeper, world.zookeeper.faults
    for fault in (UnknownDone(), UnknownNotDone()):
        faults.next("set_acl", fault)
    assert (await walked(world, zookeeper)).changed == 4
    faults.next("acl", UnknownNotDone(), times=acls.TRIES_MAX * 4)
    with pytest.raises(ProblemError, match="0 nodes have been changed") as caught:
        await walked(world, zookeeper)
    assert caught.value.kind is Kind.AWAY and "goes on with what is left" in caught.value.remedy


async def test_who_goes_on_with_what_was_cut_off(world: CliWorld) -> None:
    await world.closed()
    zookeeper, faults = (await world.ports()).zookeeper, world.zookeeper.faults
    faults.next("set_acl", UnknownNotDone(), path=FOOTER, times=acls.TRIES_MAX)
    with pytest.raises(ProblemError, match=r"could not be given its ACL.*; 3 nodes have been"):
        await walked(world, zookeeper)
    assert await acl_of(zookeeper, FOOTER) == OPEN
    again = await walked(world, zookeeper)
    assert (again.already, again.changed) == (3, 1)


async def test_somebody_else_who_is_quicker(world: CliWorld) -> None:
    await world.closed()
    zookeeper, other = (await world.ports()).zookeeper, (await world.ports()).zookeeper
    both = (*OPEN, *MINE)

    async def first() -> Stat:
        return await other.set_acl(FOOTER, both, 0)

    world.zookeeper.faults.next("set_acl", Meanwhile(first), path=FOOTER)
    assert (await walked(world, zookeeper)).changed == 4
    assert await acl_of(zookeeper, FOOTER) == MINE
    assert (await zookeeper.exists(FOOTER)).aversion == 2  # type: ignore[union-attr]


async def test_which_daemons_have_cursors_open(world: CliWorld) -> None:
    await world.source()
    ports = await world.ports()
    assert await open_at(ports.zookeeper, ports.footers, ROOT) == {
        "k/" + (await world.footer()).writer.split("/")[1]: 1
    }


def test_what_a_person_is_told_before_anything_is_written() -> None:
    found = Counts(nodes=9, changed=2, refused=3, unseen=1, refused_nodes=[("/a", "digest:other")])
    found.lose["world:anyone"] = 2
    told = {"acl": "digest:keeper", "root": ROOT, "written": False, **found.as_json()}
    told["openAt"] = {"host/1": 1_200}
    asked = lines("repair/templates/acls_wanted.txt", told)
    assert asked[1] == "world:anyone loses access to 2 of them"
    assert asked[2].startswith("host/1 has 1,200 cursors open: it loses them unless it is this")
    seen = lines("repair/templates/acls.txt", told)
    assert seen[0].endswith("0 were so already, 2 to be changed, 3 refused") and len(seen) == 3
    assert lines("repair/templates/acls.txt", {**told, "written": True})[1:] == []
    refused = lines("repair/templates/acls_refused.txt", told)
    assert refused[:2] == ["refused: /a is for digest:other", "and 2 more"]
    assert refused[-1].startswith("What to do: run it with zookeeper_acl = digest:USER:HASH")

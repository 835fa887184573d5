"""`restore-footer` on fakes: what it shows, what it refuses, and that a restored cursor loses
nothing and is again like any other.
"""

from __future__ import annotations

import asyncio
import re
import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from cursorkeeper.cli.restore_footer import WRITES_MAX, verification
from cursorkeeper.core.errors import DamageError
from cursorkeeper.core.footer import FooterState
from cursorkeeper.core.names import CursorName
from cursorkeeper.format import footer as footer_bytes
from cursorkeeper.problems import ProblemError
from cursorkeeper.repair.footer import WRITES_PER_REQUEST, Plan, look, write
from cursorkeeper.terminal import cursor_name
from cursorkeeper.terminal.files import bytes_of
from cursorkeeper.terminal.output import tell
from cursorkeeper.zookeeper import errors as zk
from daemon.tests.cli.conftest import CliWorld
from daemon.tests.fakes.zookeeper.faults import Delay, UnknownDone, UnknownNotDone
from daemon.tests.support.world import NAME, Source, acks


async def two_owners(world: CliWorld) -> tuple[bytes, bytes]:
    """(an older copy of the footer, the latest bytes): the second owner has confirmed more."""
    await world.closed(l7=((1, 3),))
    older = world.zookeeper.tree.get(NAME.path()).data
    source = await world.source()
    await source.durable(source.ack(acks(7, 20)))
    await world.close(source)
    return older, world.zookeeper.tree.get(NAME.path()).data


async def looked(world: CliWorld, data: bytes | None) -> Plan:
    return await look(await world.ports(), NAME, data)


async def restored(world: CliWorld, data: bytes | None) -> int:
    ports = await world.ports()
    return await write(ports, await look(ports, NAME, data), world.bar)


async def reopened(world: CliWorld) -> Source:
    """A new owner, which can work."""
    source = await world.source()
    assert source.told.refused is None, source.told.refused
    await source.durable(source.ack(acks(7, 90)))
    return source


async def test_the_latest_bytes_are_put_back(
    world: CliWorld, capsys: pytest.CaptureFixture[str]
) -> None:
    older, latest = await two_owners(world)
    await world.overwrite(NAME, older)
    refused = (await world.source()).told.refused
    assert refused is not None and refused[0] == "FOOTER_REPLACED"
    plan = await looked(world, latest)
    assert not plan.problems and "its znode has version" in plan.problem_there
    differences = plan.differences()
    assert differences["epoch"] == (1, 2) and {"writer", "chain"} <= differences.keys()
    tell("repair/templates/plan.txt", plan.as_json())
    shown = capsys.readouterr().out
    assert "epoch       there: 1\n" in shown and "bytes: 2\n" in shown
    version = await restored(world, latest)
    node = world.zookeeper.tree.get(NAME.path())
    assert node.version == version and footer_bytes.decode(node.data, NAME, version).epoch == 2
    source = await reopened(world)
    assert all(source.machine.acks.is_acked(7, entry) for entry in (1, 3, 20))


async def test_older_bytes_are_refused_and_nothing_is_written(world: CliWorld) -> None:
    older, latest = await two_owners(world)
    plan = await looked(world, older)
    assert any("the footer that is there is of epoch 2" in problem for problem in plan.problems)
    # also when the latest footer is not there any more: the ledgers know
    await world.overwrite(NAME, older)
    plan = await looked(world, older)
    newest = footer_bytes.decode(latest).chain[-1].ledger
    assert any(f"ledger {newest} is of epoch 2" in problem for problem in plan.problems)
    assert plan.as_json()["notTheLatest"] == plan.problems


async def test_older_bytes_that_somebody_wants_have_an_epoch_of_their_own(world: CliWorld) -> None:
    older, _ = await two_owners(world)
    await world.overwrite(NAME, older)
    await restored(world, older)
    footer = await world.footer()
    assert footer.epoch == 2 and footer.writer.startswith("restore-footer/")
    source = await reopened(world)
    assert source.machine.epoch == 3 and source.machine.acks.is_acked(7, 1)


async def test_a_lost_footer_comes_back_at_a_version_that_it_never_had(world: CliWorld) -> None:
    """A compare-and-set of before, however late, must not find the version that it expects."""
    _, latest = await two_owners(world)
    ports = await world.ports()
    before = (await ports.zookeeper.get(NAME.path())).version
    await ports.zookeeper.delete(NAME.path(), before)
    assert await restored(world, latest) == before + 1
    assert (await world.footer()).state is FooterState.CLOSED
    await reopened(world)


async def test_what_is_there_can_be_taken_as_it_is(world: CliWorld) -> None:
    """All znodes were copied to another ZooKeeper, say, where versions begin again."""
    _, latest = await two_owners(world)
    await world.overwrite(NAME, latest)
    assert (await looked(world, None)).problems == []
    await restored(world, None)
    await reopened(world)


async def test_an_answer_that_is_lost_is_looked_up(world: CliWorld) -> None:
    _, latest = await two_owners(world)
    await world.overwrite(NAME, latest)
    world.zookeeper.faults.next("multi", UnknownDone())
    version = await restored(world, latest)
    assert world.zookeeper.tree.get(NAME.path()).version == version


async def lost_at_a_high_version(world: CliWorld, version: int) -> bytes:
    """The latest bytes of a footer that is gone: its znode had this version."""
    _, latest = await two_owners(world)
    ports = await world.ports()
    await ports.zookeeper.delete(NAME.path(), (await ports.zookeeper.get(NAME.path())).version)
    return footer_bytes.encode(footer_bytes.decode(latest).written_at(version))


async def test_a_high_version_is_reached_in_few_requests(world: CliWorld) -> None:
    latest = await lost_at_a_high_version(world, 1_000)
    world.zookeeper.faults.latency_s = (0.3, 0.3)
    loop = asyncio.get_running_loop()
    plan = await looked(world, latest)
    began_s = loop.time()
    assert await write(await world.ports(), plan, world.bar) == 1_001
    assert loop.time() - began_s < 1_002 / WRITES_PER_REQUEST * 0.6 + 20
    await reopened(world)


async def test_a_write_that_breaks_off_leaves_nothing_that_counts_and_is_gone_on_with(
    world: CliWorld,
) -> None:
    latest = await lost_at_a_high_version(world, 1_000)
    for operation in ("create", "set", "multi"):
        world.zookeeper.faults.next(operation, Delay(0), times=2)
        world.zookeeper.faults.next(operation, UnknownNotDone())
    with pytest.raises(zk.OutcomeUnknown):
        await restored(world, latest)
    reached = world.zookeeper.tree.get(NAME.path()).version
    assert 0 < reached < 1_000
    refused = (await world.source()).told.refused
    assert refused is not None and refused[0] == "FOOTER_REPLACED"
    assert await restored(world, latest) == 1_001
    await reopened(world)


async def test_a_first_write_that_is_lost_is_told_as_unknown(world: CliWorld) -> None:
    """There is still no znode to look at."""
    latest = await lost_at_a_high_version(world, 3)
    world.zookeeper.faults.next("multi", UnknownNotDone())
    with pytest.raises(zk.OutcomeUnknown):
        await restored(world, latest)
    await restored(world, latest)
    await reopened(world)


async def test_a_version_that_takes_too_many_writes_is_refused(world: CliWorld) -> None:
    plan = await looked(world, await lost_at_a_high_version(world, 2_000_000))
    plan.check_writes(2_000_002)
    with pytest.raises(ProblemError, match=r"2,000,002 writes; at most 1,000,000"):
        plan.check_writes(WRITES_MAX)


async def test_who_came_in_between_is_not_overwritten(world: CliWorld) -> None:
    _, latest = await two_owners(world)
    ports = await world.ports()
    plan = await look(ports, NAME, latest)
    await reopened(world)
    with pytest.raises(ProblemError, match="has changed since it was shown"):
        await write(ports, plan, world.bar)


async def test_bytes_that_are_no_footer_of_this_cursor(world: CliWorld) -> None:
    _, latest = await two_owners(world)
    other = footer_bytes.encode(replace(footer_bytes.decode(latest), subscription="other"))
    for data, words in ((latest[:-9], "not JSON"), (other, "not of")):
        with pytest.raises(
            DamageError, match=f"^{re.escape(str(NAME))}: the bytes to put back: .*{words}"
        ):
            await looked(world, data)


async def test_a_ledger_that_is_gone_is_told(world: CliWorld) -> None:
    _, latest = await two_owners(world)
    gone = footer_bytes.decode(latest).chain[-1].ledger
    ports = await world.ports("writer")
    ports.ledgers.act_for(await ports.footers.deployment())
    await ports.ledgers.delete(gone)
    assert (await looked(world, latest)).problems == [
        f"ledger {gone}, which the bytes name, is not there"
    ]


def test_the_command_that_is_named_can_be_given_to_a_shell() -> None:
    name = CursorName("persistent://t/ns/it's|$(one)", "a b")
    *_, typed = shlex.split(verification(name))
    assert cursor_name.parse(typed) == name


def test_the_line_end_of_an_editor_is_none_of_the_bytes(tmp_path: Path) -> None:
    (tmp_path / "footer").write_bytes(b"{}\r\n")
    assert bytes_of(tmp_path / "footer") == b"{}"

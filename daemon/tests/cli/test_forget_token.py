"""`forget-token` on fakes: what it shows and refuses, that it takes a token away and nothing else,
and who keeps one.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from cursorkeeper.cli import forget_token
from cursorkeeper.core import events as ev
from cursorkeeper.core.footer import FooterState, mark_of
from cursorkeeper.core.state import AckState
from cursorkeeper.format import footer as footer_bytes
from cursorkeeper.inspection import footer_list, footer_view
from cursorkeeper.migration import cursor_maker
from cursorkeeper.migration.cursor_maker import make_cursor
from cursorkeeper.problems import Kind, NotFound, ProblemError
from cursorkeeper.repair import footer, token
from cursorkeeper.terminal.failure import NO, exit_code
from cursorkeeper.terminal.output import labelled
from daemon.tests.cli.conftest import CliWorld
from daemon.tests.support.world import NAME, Recorder, Source, acks

TOKEN = 4711
WRITER = "host/1/forget-token/ab"


async def fenced(world: CliWorld, *, closed: bool = True) -> Source:
    """Opened with a token."""
    source = await world.source(fencing_token=TOKEN)
    await source.durable(source.ack(acks(7, 1, 3)))
    if closed:
        await world.close(source)
    return source


async def looked(world: CliWorld) -> token.Seen:
    return await token.look(await world.ports(), NAME)


async def forgotten(world: CliWorld, seen: token.Seen) -> int:
    seen.check()
    return await token.forget(await world.ports(), seen, WRITER, pause_s=0.0)


async def test_a_source_without_tokens_opens_it_again(world: CliWorld) -> None:
    await fenced(world)
    assert (await world.source()).told.ended == "refused"
    before = await world.footer()
    seen = await looked(world)
    assert await forgotten(world, seen) == seen.version + 1
    after = await world.footer()
    assert (after.fencing_token, after.version, after.epoch, after.writer) == (
        0,
        1,
        before.epoch + 1,
        WRITER,
    )
    assert (
        replace(
            after,
            fencing_token=TOKEN,
            epoch=before.epoch,
            writer=before.writer,
            write=before.write,
            written=before.written,
        )
        == before
    )
    source = await world.source()
    assert source.machine.acks.is_acked(7, 3)
    await source.durable(source.ack(acks(7, 5)))


async def test_a_deleted_cursor_is_forgotten_too(world: CliWorld) -> None:
    source = await fenced(world, closed=False)
    source.keeper.end(NAME, ev.Delete(source.attach))
    await source.told.until(lambda: source.told.ended == "deleted")
    await forgotten(world, await looked(world))
    assert (await world.footer()).state is FooterState.DELETED
    assert (await world.source()).told.machine is not None


async def test_an_open_cursor_is_refused(world: CliWorld) -> None:
    await fenced(world, closed=False)
    with pytest.raises(ProblemError, match=r"it is open \(epoch 1, by k/") as refused:
        await forgotten(world, await looked(world))
    assert (
        "unload its topic" in refused.value.problem.remedy
        and exit_code(refused.value.problem) == NO
    )


async def test_what_has_changed_since_it_was_shown_is_left_alone(world: CliWorld) -> None:
    await fenced(world)
    seen = await looked(world)
    again = await world.source(fencing_token=TOKEN + 1)
    await world.close(again)
    with pytest.raises(ProblemError, match="has changed since it was shown"):
        await forgotten(world, seen)
    assert (await world.footer()).fencing_token == TOKEN + 1


@pytest.mark.parametrize("applied", [False, True])
async def test_a_lost_answer_is_decided(world: CliWorld, applied: bool) -> None:
    await fenced(world)
    seen, ports = await looked(world), await world.ports()
    through, tries = ports.footers.write, 0

    async def write(*rest: Any) -> ev.Event:
        nonlocal tries
        tries += 1
        if tries > 1:
            return await through(*rest)
        if applied:
            await through(*rest)
        return ev.FooterWriteUnknown(0, "lost")

    ports.footers.write = write  # type: ignore[method-assign]
    assert await token.forget(ports, seen, WRITER, pause_s=0.0) == seen.version + 1
    assert (await world.footer()).fencing_token == 0 and tries == 2


async def test_zookeeper_that_never_answers_is_said(world: CliWorld) -> None:
    await fenced(world)
    seen, ports = await looked(world), await world.ports()

    async def write(*_rest: Any) -> ev.Event:
        return ev.FooterWriteUnknown(0, "away")

    ports.footers.write = write  # type: ignore[method-assign]
    with pytest.raises(ProblemError, match="did not say") as away:
        await token.forget(ports, seen, WRITER, pause_s=0.0)
    assert away.value.kind is Kind.AWAY


async def test_a_cursor_that_is_not_there(world: CliWorld) -> None:
    with pytest.raises(NotFound):
        await looked(world)


async def test_what_is_shown(world: CliWorld, capsys: pytest.CaptureFixture[str]) -> None:
    await fenced(world)
    seen = await looked(world)
    labelled(NAME.display, 12, footer_view.footer_lines(seen.footer, seen.version))
    shown = capsys.readouterr().out
    assert (
        f"fencing token {TOKEN}: who comes with a lower one is refused" in shown
        and "epoch 1" in shown
    )
    told = msgspec.json.decode(msgspec.json.encode(forget_token.as_json(seen, None), enc_hook=str))
    assert (told["fencingToken"], told["footer"]["fencingToken"], told["written"]) == (
        TOKEN,
        TOKEN,
        False,
    )
    listed = [
        item async for item in footer_list.list_cursors((await world.ports()).footers, world.bar)
    ]
    assert [item.as_json()["fencingToken"] for item in listed] == [TOKEN]
    assert listed[0].as_row()[footer_list.COLUMNS.index("token")] == str(TOKEN)


async def test_a_cursor_without_one_is_shown_as_before(world: CliWorld) -> None:
    footer = await world.closed(l7=((1, 3),))
    assert not any(label == "token" for label, _ in footer_view.footer_lines(footer, 1))
    listed = [
        item async for item in footer_list.list_cursors((await world.ports()).footers, world.bar)
    ]
    assert listed[0].as_row()[footer_list.COLUMNS.index("token")] == "-"


# ---- other tools keep it


NOTHING = cursor_maker.Source(NAME, AckState().mark_delete, (), ())


async def test_an_import_keeps_the_token_of_what_it_replaces(world: CliWorld) -> None:
    await fenced(world)
    done = await make_cursor(
        await world.ports("writer"), world.settings, NOTHING, world.bar, replace=True
    )
    footer = await world.footer()
    assert (footer.state, footer.fencing_token, footer.epoch) == (
        FooterState.CLOSED,
        TOKEN,
        done.epoch,
    )
    assert (await world.source(fencing_token=TOKEN - 1)).told.ended == "refused"
    assert (await world.source(fencing_token=TOKEN)).told.machine is not None


async def test_an_import_takes_no_open_cursor_from_a_source_with_a_token(world: CliWorld) -> None:
    source = await fenced(world, closed=False)
    before = await world.footer()
    with pytest.raises(ProblemError, match=f"it is open .* with fencing token {TOKEN}"):
        await make_cursor(
            await world.ports("writer"), world.settings, NOTHING, world.bar, replace=True
        )
    assert mark_of(await world.footer()) == mark_of(before)
    await source.durable(source.ack(acks(7, 9)))


async def test_restore_footer_keeps_the_higher_token(world: CliWorld) -> None:
    """Bytes of before there were tokens are older, and may be put back all the same: the token
    stays.
    """
    await world.closed(l7=((1, 3),))
    older = world.zookeeper.tree.get(NAME.path()).data
    await fenced(world)
    ports = await world.ports()
    plan = await footer.look(ports, NAME, older)
    assert any(
        f"has fencing token {TOKEN}, and the bytes 0: the higher one is kept" in problem
        for problem in plan.problems
    )
    assert plan.differences()["fencingToken"] == (TOKEN, 0)
    await footer.write(ports, plan, world.bar)
    assert (await world.footer()).fencing_token == TOKEN


async def test_a_delete_of_a_tool_keeps_it(world: CliWorld) -> None:
    await fenced(world)
    gone = Recorder()
    keeper = await world.keeper("tool")
    keeper.delete_unopened(NAME, gone, mark_of(await world.footer()))
    async with asyncio.timeout(60):
        await gone.until(lambda: gone.ended == "deleted")
    assert (
        footer_bytes.decode(world.zookeeper.tree.get(NAME.path()).data, NAME).fencing_token == TOKEN
    )

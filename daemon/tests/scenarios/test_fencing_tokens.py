"""Stories of brokers that stood still and go on: who comes with a lower fencing token than was seen
gets nothing, anywhere.

A and B are two daemons. `old` and `new` are two brokers, with tokens 1 and 2. A number in a name
tells the stories apart; the rules are on ARCHITECTURE.md.
"""

from __future__ import annotations

import ast
import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cursorkeeper.core import effects as fx
from cursorkeeper.core import events as ev
from cursorkeeper.core.commit import Purpose
from cursorkeeper.core.errors import RefusedError
from cursorkeeper.core.footer import Footer, FooterState, mark_of, tombstone_of
from cursorkeeper.core.machine import CursorMachine
from cursorkeeper.core.names import CursorName
from cursorkeeper.core.ownership import Ownership
from cursorkeeper.core.positions import Position
from cursorkeeper.core.table import State
from cursorkeeper.format import footer as footer_codec
from cursorkeeper.format.record import EncodeSettings
from cursorkeeper.runtime.footers import FooterStore
from cursorkeeper.runtime.gc import collect
from cursorkeeper.runtime.keeper import Keeper
from daemon.tests.scenarios.test_limits import at_the_limit
from daemon.tests.simulator import simulator
from daemon.tests.support.world import NAME, Recorder, Source, World, acks

OLD, NEW = 1, 2
PROJECT = Path(__file__).parents[3]


def asks(keeper: Keeper, token: int, **request: Any) -> Source:
    """Not answered yet."""
    source = Source(keeper)
    try:
        keeper.open(NAME, ev.Open(fencing_token=token, **request), source.attach, source.told)
    except RefusedError as e:
        source.told.on_refused(e.code, e.message, e.remedy)
    return source


async def opens(keeper: Keeper, token: int, **request: Any) -> Source:
    """Opened, or refused: `told` says."""
    source = asks(keeper, token, **request)
    await source.told.until(lambda: source.told.machine is not None or bool(source.told.ended))
    return source


def is_fenced(source: Source) -> bool:
    return source.told.refused is not None and source.told.refused[0] == "FENCED"


def footer(world: World) -> Footer:
    return footer_codec.decode(world.zookeeper.tree.get(NAME.path()).data, NAME)


def version(world: World) -> int:
    return world.zookeeper.tree.get(NAME.path()).version


async def confirms(source: Source, *entries: int) -> None:
    source.ack(acks(7, *entries))
    await source.durable()


async def deletes(keeper: Keeper, token: int) -> Recorder:
    """By name."""
    told = Recorder()
    try:
        keeper.delete_unopened(NAME, told, fencing_token=token)
    except RefusedError as e:
        told.on_refused(e.code, e.message, e.remedy)
    await told.until(lambda: bool(told.ended))
    return told


class Gate:
    """Footer writes (or checks) of a daemon wait in front of it."""

    def __init__(self, keeper: Keeper, what: str = "write") -> None:
        self._opened, self.came = asyncio.Event(), asyncio.Event()
        self._through = getattr(keeper.footers, what)
        setattr(keeper.footers, what, self._wait)

    async def _wait(self, *rest: Any) -> ev.Event:
        self.came.set()
        await self._opened.wait()
        event: ev.Event = await self._through(*rest)
        return event

    def open(self) -> None:
        self._opened.set()


async def test_s24_a_token_is_in_the_footer_before_anything_is_told() -> None:
    """The successor opens where the cursor is held; that daemon crashes; its predecessor must not
    get the cursor from another one.
    """
    world = World()
    a, b = await world.keeper("a"), await world.keeper("b")
    old = await opens(a, OLD)
    await confirms(old, 1)
    new = await opens(a, NEW)
    assert new.told.machine is not None and footer(world).fencing_token == NEW
    assert (old.told.ended, footer(world).epoch) == ("deposed", 1), (
        "the old handle falls, and the epoch is kept"
    )
    a.abandon()
    assert is_fenced(await opens(b, OLD, takeover=True))
    assert footer(world).epoch == 1, "nothing else happened"
    again = await opens(b, NEW)
    assert again.machine.acks.is_acked(7, 1) and footer(world).epoch == 2


async def test_s25_the_claims_own_write_has_the_token() -> None:
    world = World()
    a, b = await world.keeper("a"), await world.keeper("b")
    await opens(a, OLD)
    gate = Gate(b)
    new = asks(b, NEW)
    await gate.came.wait()
    outstanding = b.cursors[NAME].machine.ownership.commit.outstanding
    assert outstanding is not None and (outstanding.purpose, outstanding.footer.fencing_token) == (
        Purpose.CLAIM,
        NEW,
    )
    gate.open()
    await new.told.until(lambda: new.told.machine is not None)
    assert footer(world).write == 1, "and no second write"


async def test_s26_who_waits_is_compared_with_too() -> None:
    world = World()
    a = await world.keeper("a")
    new = asks(a, NEW)  # its claim is on its way
    assert is_fenced(asks(a, OLD, takeover=True))
    await new.told.until(lambda: new.told.machine is not None)
    await confirms(new, 1)


async def test_s26_who_waits_for_the_end_of_a_cursor_is_compared_with_too() -> None:
    world = World()
    a = await world.keeper("a")
    old = await opens(a, OLD)
    gate = Gate(a)
    old.send_close()
    await gate.came.wait()
    new = asks(a, NEW)
    assert is_fenced(asks(a, OLD, takeover=True))
    assert (await deletes(a, OLD)).refused is not None
    gate.open()
    await new.told.until(lambda: new.told.machine is not None)
    assert old.told.ended == "closed" and footer(world).fencing_token == NEW


async def test_s26_a_token_whose_write_is_not_decided_counts() -> None:
    """The successor was sent away while the write of its token was on its way: that may be applied
    yet.
    """
    world = World()
    a = await world.keeper("a")
    await opens(a, OLD)
    gate = Gate(a)
    new = asks(a, NEW)
    await gate.came.wait()
    a.detach(NAME, new.attach)
    assert is_fenced(asks(a, OLD, takeover=True))
    gate.open()
    again = await opens(a, NEW)
    assert again.told.machine is not None and footer(world).epoch == 1


async def test_s27_a_claim_that_was_lost_is_compared_again() -> None:
    world = World()
    a, b = await world.keeper("a"), await world.keeper("b")
    first = await opens(b, OLD)
    first.send_close()
    await first.told.until(lambda: bool(first.told.ended))
    gate = Gate(a)
    old = asks(a, OLD)
    await gate.came.wait()
    new = await opens(b, NEW)  # from the same version
    gate.open()
    await old.told.until(lambda: bool(old.told.ended))
    assert is_fenced(old) and new.told.ended == ""
    await confirms(new, 1)


async def test_s28_a_tombstone_keeps_the_token() -> None:
    world = World()
    a, b = await world.keeper("a"), await world.keeper("b")
    new = await opens(a, NEW)
    a.end(NAME, ev.Delete(new.attach))
    await new.told.until(lambda: bool(new.told.ended))
    assert (footer(world).state, footer(world).fencing_token) == (FooterState.DELETED, NEW)
    assert is_fenced(await opens(b, OLD))
    again = await opens(b, NEW)
    assert again.told.machine is not None and footer(world).fencing_token == NEW


async def test_s29_a_tool_that_claims_a_closed_cursor_keeps_its_token() -> None:
    """As an import, a compaction and a repair do: they claim the footer that they have looked at,
    and no other.
    """
    world = World()
    a, b = await world.keeper("a"), await world.keeper("b")
    new = await opens(a, NEW)
    await confirms(new, 1)
    new.send_close()
    await new.told.until(lambda: bool(new.told.ended))
    assert tombstone_of(footer(world), "orphans").fencing_token == NEW
    tool = await world.keeper("tool")
    made = await opens(tool, 0, create=False, takeover=True, only=mark_of(footer(world)))
    assert made.told.machine is not None and footer(world).fencing_token == NEW
    tool.end(NAME, ev.Close(made.attach))
    await made.told.until(lambda: bool(made.told.ended))
    assert is_fenced(await opens(b, OLD)) and is_fenced(await opens(b, 0))
    gone = Recorder()
    tool.delete_unopened(NAME, gone, mark_of(footer(world)))
    await gone.until(lambda: gone.ended == "deleted")
    made = await opens(tool, 0, only=mark_of(footer(world)))  # an import on the tombstone
    assert made.told.machine is not None and footer(world).fencing_token == NEW
    again = await opens(b, NEW)
    assert again.told.machine is not None, "a broker whose token is not lower deposes a tool"


@pytest.mark.interpreted
def test_s30_every_footer_write_carries_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of whatever purpose, in both formats: none says less than the footer that it replaces, or
    than who waits for it.
    """
    seen: dict[Purpose, int] = {}

    def proposed(self: Ownership, value: Footer, purpose: Purpose) -> None:
        committed = self.committed
        known = committed.fencing_token if committed is not None else 0
        assert value.fencing_token >= known, f"{purpose} writes {value.fencing_token} over {known}"
        if value.fencing_token:
            assert (
                footer_codec.decode(
                    footer_codec.encode(value), CursorName(value.topic, value.subscription)
                ).version
                == 2
            )
            seen[purpose] = seen.get(purpose, 0) + 1
        propose(self, value, purpose)

    propose = Ownership.propose
    monkeypatch.setattr(Ownership, "propose", proposed)
    for seed in range(1, 200):
        outcome = simulator.run(seed, formats=simulator.BROKERS)
        assert not outcome.violations, outcome.violations[0]
        if set(seen) == set(Purpose):
            break
    assert set(seen) == set(Purpose), f"not seen: {set(Purpose) - set(seen)}"


def test_s30_who_makes_or_writes_footers_is_known() -> None:
    """What is not in this list yet needs a story of the token that it keeps."""
    makes: set[str] = set()
    writes: set[str] = set()
    for root in (
        PROJECT / "daemon" / "cursorkeeper",
        PROJECT / "pipeline" / "cursorkeeper_pipeline",
    ):
        for path in root.rglob("*.py"):
            for call in (
                n for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.Call)
            ):
                if isinstance(call.func, ast.Name) and call.func.id == "Footer":
                    makes.add(path.relative_to(root).as_posix())
                if isinstance(call.func, ast.Attribute) and call.func.attr in ("write", "encoded"):
                    to = call.func.value
                    if (
                        to.attr if isinstance(to, ast.Attribute) else getattr(to, "id", "")
                    ) == "footers":
                        writes.add(path.relative_to(root).as_posix())
    assert makes == {"core/ownership.py", "core/claim.py", "format/footer.py"}
    assert writes == {
        "runtime/runner.py",
        "orphans/removal.py",
        "repair/footer.py",
        "repair/token.py",
    }


async def test_s31_a_daemon_that_knows_no_tokens_refuses_the_footer() -> None:
    """It knows version 1 and sees 2, as this one would see 3."""
    world = World()
    a, b = await world.keeper("a"), await world.keeper("b")
    new = await opens(a, NEW)
    await confirms(new, 1)
    path, ours = NAME.path(), world.zookeeper.tree.get(NAME.path())
    assert ours.data.startswith(b'{"version":2,')
    newer = ours.data.replace(b'{"version":2,', b'{"version":3,', 1)
    session = world.zookeeper.session()
    await session.start()
    await session.set(path, newer, ours.version)
    before = version(world)
    refused = await opens(b, 0, takeover=True)
    assert refused.told.refused is not None and refused.told.refused[0] == "FORMAT_TOO_NEW"
    assert version(world) == before


async def test_s32_the_same_broker_comes_back() -> None:
    """Whatever it says of takeover: to the daemon that has the cursor, and to another one."""
    world = World()
    a, b = await world.keeper("a"), await world.keeper("b")
    first = await opens(a, NEW)
    second = await opens(a, NEW)
    assert second.told.machine is not None and first.told.ended == "deposed"
    third = await opens(b, NEW)
    assert third.told.machine is not None and footer(world).epoch == 2


async def test_s33_a_ledger_that_is_not_named_yet_is_no_garbage_after_the_raise() -> None:
    world = World()
    a = await world.keeper("a")
    old = await opens(a, OLD)
    world.bookkeeper.stall_acks()
    old.ack(acks(7, 1))
    async with asyncio.timeout(20):
        while not world.bookkeeper.ledgers:  # noqa: ASYNC110 - the store tells nobody
            await asyncio.sleep(0.01)
    new = asks(a, NEW)
    async with asyncio.timeout(20):
        while footer(world).fencing_token != NEW:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    assert footer(world).epoch == 1 and not footer(world).named_ledgers()
    gateway, session = world.bookkeeper.gateway(), world.zookeeper.session()
    await gateway.start()
    await session.start()
    report = await collect(gateway, FooterStore(session, EncodeSettings()))
    assert report.deleted == 0 and world.bookkeeper.ledgers
    assert new.told.machine is None, "what was accepted before is durable before the answer"
    world.bookkeeper.stall_acks(False)
    await new.told.until(lambda: new.told.machine is not None)
    assert new.machine.acks.is_acked(7, 1) and footer(world).named_ledgers() <= set(
        world.bookkeeper.ledgers
    )


async def test_s34_a_delete_by_name_of_a_lower_token() -> None:
    """At another daemon, at the one that holds it, and at one where it is open on no handle any
    more.
    """
    world = World()
    a, b = await world.keeper("a"), await world.keeper("b")
    new = await opens(b, NEW)
    for keeper in (a, b):
        gone = await deletes(keeper, OLD)
        assert gone.refused is not None and gone.refused[0] == "FENCED"
    await confirms(new, 1)
    b.detach(NAME, new.attach)
    assert (await deletes(b, OLD)).ended == "refused" and footer(world).state is FooterState.OPEN


async def test_s34_a_delete_by_name_of_a_higher_token() -> None:
    """The handle before falls, and the tombstone has the token of who deleted it, although nobody
    was told Opened with it.
    """
    world = World()
    a, b = await world.keeper("a"), await world.keeper("b")
    old = await opens(a, OLD)
    gone = await deletes(a, NEW)
    assert (gone.ended, old.told.ended) == ("deleted", "deposed")
    assert (footer(world).state, footer(world).fencing_token) == (FooterState.DELETED, NEW)
    assert is_fenced(await opens(b, OLD))


async def test_s34_a_delete_by_name_of_a_higher_token_while_the_cursor_is_claimed() -> None:
    world = World()
    a = await world.keeper("a")
    gate = Gate(a)
    old = asks(a, OLD)
    await gate.came.wait()
    gone = Recorder()
    a.delete_unopened(NAME, gone, fencing_token=NEW)
    assert old.told.ended == "deposed" and is_fenced(asks(a, OLD))
    gate.open()
    await gone.until(lambda: bool(gone.ended))
    assert (gone.ended, footer(world).fencing_token) == ("deleted", NEW)


async def test_s34_a_handle_that_deletes_before_its_token_is_written() -> None:
    world = World()
    a = await world.keeper("a")
    await opens(a, OLD)
    gate = Gate(a, "check")
    new = asks(a, NEW)
    a.end(NAME, ev.Delete(new.attach))
    gate.open()
    await new.told.until(lambda: bool(new.told.ended))
    assert (new.told.ended, footer(world).fencing_token) == ("deleted", NEW)


async def test_s35_0_is_the_lowest() -> None:
    world = World()
    a, b = await world.keeper("a"), await world.keeper("b")
    new = await opens(b, NEW)
    for keeper in (a, b):
        assert is_fenced(await opens(keeper, 0, takeover=True))
        assert (await deletes(keeper, 0)).ended == "refused"
    await confirms(new, 1)


# ---- what else the rules say


async def test_among_sources_without_tokens_nothing_is_new() -> None:
    world = World()
    a, b = await world.keeper("a"), await world.keeper("b")
    await opens(a, 0)
    codes = [
        source.told.refused[0]
        for source in (await opens(a, 0), await opens(b, 0))
        if source.told.refused
    ]
    assert codes == ["ALREADY_OPEN", "OPEN_ELSEWHERE"]
    assert (await opens(b, 0, takeover=True)).told.machine is not None
    assert footer(world).version == 1
    assert (await opens(b, OLD)).told.machine is not None, "the first token is higher than none"
    assert footer(world).version == 2


@pytest.mark.parametrize("elsewhere", [False, True])
async def test_a_lower_token_changes_nothing(elsewhere: bool) -> None:
    """No handle falls, nothing is written, and the refusal says what to do."""
    world = World()
    a, b = await world.keeper("a"), await world.keeper("b")
    new = await opens(a, NEW)
    await confirms(new, 1)
    before = version(world)
    refused = (await opens(b if elsewhere else a, OLD, takeover=True)).told.refused
    assert refused is not None and refused[1] == "fencing token 1, and 2 was seen"
    assert "unload it" in refused[2] and "cursorkeeper forget-token" in refused[2]
    assert version(world) == before and new.told.ended == ""
    await confirms(new, 2)


async def test_the_refusal_needs_no_proof() -> None:
    """Tokens only grow: what any server shows is enough, also when ZooKeeper's quorum does not
    answer.
    """
    world = World()
    a, b = await world.keeper("a"), await world.keeper("b")
    await opens(a, NEW)
    Gate(b, "check")
    assert is_fenced(await opens(b, OLD))


async def test_a_raise_changes_the_token_and_nothing_else_and_proves() -> None:
    world = World()
    a = await world.keeper("a")
    old = await opens(a, OLD)
    await confirms(old, 1)
    before = footer(world)
    check = Gate(a, "check")
    new = await opens(a, NEW)
    after = footer(world)
    assert not check.came.is_set(), "the write is the proof"
    assert new.told.machine is not None and (after.fencing_token, after.write) == (
        NEW,
        before.write + 1,
    )
    assert replace(after, fencing_token=OLD, write=before.write, written=before.written) == before


async def test_a_reset_that_was_accepted_is_decided_before_the_raise() -> None:
    world = World()
    a = await world.keeper("a")
    old = await opens(a, OLD)
    await confirms(old, 1, 2)
    gate = Gate(a)
    old.send(ev.Reset(old.attach, 50, 1, Position(7, 9)))
    old.send(ev.Reset(old.attach, 51, 1, Position(7, 5)))
    await gate.came.wait()
    new, kept = asks(a, NEW), []
    tell = new.told.on_state

    def on_state(machine: CursorMachine, **rest: Any) -> None:
        kept.append(footer(world).fencing_token)
        tell(machine, **rest)

    new.told.on_state = on_state  # type: ignore[method-assign]
    assert old.told.ended == "deposed"
    gate.open()
    await new.told.until(lambda: new.told.machine is not None)
    assert (new.machine.generation, new.machine.acks.mark_delete) == (3, Position(7, 5))
    assert kept == [NEW], (
        "the second reset was sent after the open came, and proves; it does not raise the token"
    )


def test_a_raise_comes_before_the_cursor_is_read_again() -> None:
    """At a limit a handle gets what is durable, by a close and another open: meanwhile the token is
    in the footer.
    """
    bench, a = at_the_limit()
    a.step(ev.Attach(2, fencing_token=NEW))
    a.go(lambda: bench.footer.fencing_token == NEW)
    assert bench.footer.state is FooterState.OPEN
    a.go()
    assert a.state is State.CLOSED and [ended.reopen for ended in a.did(fx.Ended)] == [2]


async def test_a_raise_that_is_lost_goes_on_as_a_claim() -> None:
    """Another daemon has claimed the cursor meanwhile, for a lower token: one claim, with the
    token.
    """
    world = World()
    a, b = await world.keeper("a"), await world.keeper("b")
    await opens(a, OLD)
    gate = Gate(a)
    new = asks(a, NEW)
    await gate.came.wait()
    elsewhere = await opens(b, OLD)
    await confirms(elsewhere, 1)
    gate.open()
    await new.told.until(lambda: new.told.machine is not None)
    assert new.machine.acks.is_acked(7, 1) and (
        footer(world).epoch,
        footer(world).fencing_token,
    ) == (3, NEW)


async def test_a_raise_whose_answer_is_lost_is_repeated() -> None:
    world = World()
    a = await world.keeper("a")
    await opens(a, OLD)
    through = a.footers.write
    lost = 0

    async def write(*rest: Any) -> ev.Event:
        nonlocal lost
        event = await through(*rest)
        lost += 1
        return ev.FooterWriteUnknown(rest[1], "lost") if lost == 1 else event

    a.footers.write = write  # type: ignore[method-assign]
    new = await opens(a, NEW)
    assert new.told.machine is not None and (footer(world).epoch, footer(world).fencing_token) == (
        1,
        NEW,
    )


async def test_another_token_does_not_resume() -> None:
    """The same process, and a later load of the topic: its token is written before it goes on, and
    it is shown the state.
    """
    world = World()
    a = await world.keeper("a")
    first = await opens(a, OLD, source="broker")
    point = ev.Resume(first.machine.epoch, first.machine.generation)
    a.detach(NAME, first.attach)
    same = await opens(a, OLD, source="broker", resume=point)
    assert same.told.continued
    a.detach(NAME, same.attach)
    later = await opens(a, NEW, source="broker", resume=point)
    assert (
        not later.told.continued
        and later.told.machine is not None
        and footer(world).fencing_token == NEW
    )


async def test_who_joins_is_not_sent_away_for_what_those_before_did_not_allow() -> None:
    """An open without a token waits to be told that another daemon has the cursor, when one with a
    token comes.
    """
    world = World()
    a, b = await world.keeper("a"), await world.keeper("b")
    await opens(a, 0)
    gate = Gate(b, "check")
    plain = asks(b, 0)
    await gate.came.wait()
    new = asks(b, NEW)
    assert plain.told.ended == "deposed"
    gate.open()
    await new.told.until(lambda: new.told.machine is not None or bool(new.told.ended))
    assert new.told.machine is not None and footer(world).fencing_token == NEW

"""Stories of brokers that stood still and go on: who comes with a lower fencing token than was seen gets nothing, anywhere.

A and B are two daemons. `old` and `new` are two brokers, with tokens 1 and 2. The rules are on ARCHITECTURE.md.
"""

from __future__ import annotations

from typing import Any

from cursorkeeper.core import events as ev
from cursorkeeper.core.errors import RefusedError
from cursorkeeper.core.footer import Footer, FooterState
from cursorkeeper.core.positions import Position
from cursorkeeper.format import footer as footer_codec
from cursorkeeper.runtime.keeper import Keeper

from daemon.tests.support.world import NAME, Recorder, Source, World, acks

OLD, NEW = 1, 2


async def opens(keeper: Keeper, token: int, **request: Any) -> Source:
    """Opened, or refused: `told` says."""
    source = Source(keeper)
    try:
        await source.open(**{"takeover": False, "fencing_token": token, **request})
    except RefusedError as e:
        source.told.on_refused(e.code, e.message, e.remedy)
    return source


def is_fenced(source: Source) -> bool:
    return source.told.refused is not None and source.told.refused[0] == "FENCED"


def footer(world: World) -> Footer:
    return footer_codec.decode(world.zookeeper.tree.get(NAME.path()).data, NAME)


async def confirms(source: Source, *entries: int) -> None:
    source.ack(acks(7, *entries))
    await source.durable()


async def test_s24_a_token_is_in_the_footer_before_anything_is_told() -> None:
    """The successor opens where the cursor is held; that daemon crashes; its predecessor must not get the cursor from another one."""
    world = World()
    a, b = await world.keeper("a"), await world.keeper("b")
    old = await opens(a, OLD)
    await confirms(old, 1)
    new = await opens(a, NEW)
    assert new.told.machine is not None and footer(world).fencing_token == NEW
    assert (old.told.ended, footer(world).epoch) == ("deposed", 1), "the old handle falls, and the epoch is kept"
    a.abandon()
    assert is_fenced(await opens(b, OLD, takeover=True))
    assert footer(world).epoch == 1, "nothing else happened"
    again = await opens(b, NEW)
    assert again.machine.acks.is_acked(7, 1) and footer(world).epoch == 2


async def test_s25_the_claims_own_write_has_the_token() -> None:
    world = World()
    a, b = await world.keeper("a"), await world.keeper("b")
    await opens(a, OLD)
    written: list[Footer] = []
    store, write = b.footers, b.footers.write

    async def seen(name: Any, token: int, value: Footer, expected: int) -> ev.Event:
        written.append(value)
        return await write(name, token, value, expected)

    store.write = seen  # type: ignore[method-assign]
    await opens(b, NEW)
    assert written[0].fencing_token == NEW and written[0].epoch == 2


async def test_s26_who_waits_is_compared_with_too() -> None:
    world = World()
    a = await world.keeper("a")
    new = Source(a)
    a.open(NAME, ev.Open(fencing_token=NEW), new.attach, new.told)  # its claim is on its way
    assert is_fenced(await opens(a, OLD, takeover=True))
    await new.told.until(lambda: new.told.machine is not None)
    await confirms(new, 1)


async def test_s28_s35_a_tombstone_keeps_the_token_and_0_is_the_lowest() -> None:
    world = World()
    a, b = await world.keeper("a"), await world.keeper("b")
    new = await opens(a, NEW)
    a.end(NAME, ev.Delete(new.attach))
    await new.told.until(lambda: bool(new.told.ended))
    assert (footer(world).state, footer(world).fencing_token) == (FooterState.DELETED, NEW)
    assert is_fenced(await opens(b, OLD))
    assert is_fenced(await opens(b, 0, takeover=True))
    assert (await opens(b, NEW)).told.machine is not None


async def test_s30_every_write_carries_it() -> None:
    """Naming a ledger, a snapshot's switch, a reset, a close."""
    world = World()
    a = await world.keeper("a")
    new = await opens(a, NEW)
    versions = []

    class Seen:
        def server_up(self) -> None: ...
        def server_down(self) -> None: ...
        def committed(self, paths: list[str]) -> None:
            if NAME.path() in paths:
                versions.append(footer(world).fencing_token)

    world.zookeeper.follow(Seen())
    await confirms(new, 1, 2, 5)
    new.send(ev.Snapshot())
    await confirms(new, 9)
    new.send(ev.Reset(new.attach, 50, 1, Position(7, 3)))
    await new.told.until(lambda: bool(new.told.resets))
    new.send_close()
    await new.told.until(lambda: bool(new.told.ended))
    assert len(versions) >= 3 and set(versions) == {NEW}


async def test_s32_the_same_broker_comes_back() -> None:
    world = World()
    a, b = await world.keeper("a"), await world.keeper("b")
    first = await opens(a, NEW)
    second = await opens(a, NEW)
    assert second.told.machine is not None and first.told.ended == "deposed"
    third = await opens(b, NEW)
    assert third.told.machine is not None and footer(world).epoch == 2


async def test_s34_a_delete_by_name_carries_it() -> None:
    world = World()
    a, b = await world.keeper("a"), await world.keeper("b")
    new = await opens(b, NEW)
    gone = Recorder()
    a.delete_unopened(NAME, gone, fencing_token=OLD)
    await gone.until(lambda: bool(gone.ended))
    assert gone.refused is not None and gone.refused[0] == "FENCED"
    await confirms(new, 1)

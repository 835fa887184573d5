"""`import-pulsar` on fakes: what is made equals what was read; done twice it is the same; nothing is harmed that is not to be."""

from __future__ import annotations

from cursorkeeper.cli import export
from cursorkeeper.core.footer import FooterState
from cursorkeeper.core.values import Stamp
from cursorkeeper.format.pulsar.states import to_ack_state
from cursorkeeper.migration.compare import difference
from cursorkeeper.migration.reading import read_cursor

from daemon.tests.migration.pulsar_world import REF, PulsarWorld, state


async def differs(world: PulsarWorld) -> str:
    """What ours and Pulsar's do not have in common."""
    theirs = await read_cursor(await world.pulsar(), REF)
    _, ours, _ = await export.read_state(await world.ports(), REF.name, world.bar)
    wanted = to_ack_state(theirs.state, theirs.layout, stamp=Stamp(0, 0), cursor_properties=theirs.cursor_properties)
    return str(difference(wanted, ours.state) or "")


async def test_a_cursor_in_its_znode(world: PulsarWorld) -> None:
    await world.in_znode(state(), properties={"a": "b"})
    outcome = await (await world.importing()).one(REF)
    assert (outcome.ok, outcome.status) == (True, "imported"), outcome
    assert await differs(world) == ""
    footer = await world.footer(REF.name)
    assert footer.state is FooterState.CLOSED and footer.writer.split("/")[-2] == "import-pulsar"


async def test_a_live_cursor_ledger(world: PulsarWorld) -> None:
    ledger = await world.in_ledger(state((7, 0), seed=1), state((7, 3), seed=2), closed=False)
    outcome = await (await world.importing()).one(REF)
    assert outcome.ok, outcome
    fresh = outcome.numbers["freshness"]
    assert (fresh["ledger"], fresh["entry"], fresh["beyondConfirmed"], fresh["ledgerState"]) == (ledger, 1, 1, "OPEN")
    assert await differs(world) == ""
    await (await world.broker()).append(ledger, 2, b"goes on")

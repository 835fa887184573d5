"""What a reader makes of every kind of damage (ARCHITECTURE rules 18 and 41): harmless, fall back,
or refuse loudly.

The cursor of these tests has a snapshot with a delta in front of it, a delta behind it, and a
previous chain to fall back to.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest
from msgspec import structs
from pyroaring import BitMap

from cursorkeeper.bookkeeper.errors import GatewayRefused, Outcome
from cursorkeeper.core import events as ev
from cursorkeeper.core.budget import DEFAULT, StateBudget
from cursorkeeper.core.footer import EntryAddress, Footer, InlineBase, SnapshotBase
from cursorkeeper.core.limits import Limits
from cursorkeeper.core.names import CursorName
from cursorkeeper.core.positions import Position
from cursorkeeper.core.snapshots import SnapshotPhase
from cursorkeeper.core.values import Delta, LayoutItem, LayoutState, Record, Segment
from cursorkeeper.core.window import WHOLE, StateWindow
from cursorkeeper.format import footer as footer_bytes
from cursorkeeper.format import record
from cursorkeeper.format.record import Kind
from cursorkeeper.runtime.chain import ChainReader
from cursorkeeper.runtime.ledger_join import THREAD_BYTES
from cursorkeeper.zookeeper.values import ANY_VERSION
from daemon.tests.fakes.bookkeeper.fake import Damage
from daemon.tests.fakes.bookkeeper.operation import Operation
from daemon.tests.runtime.virtual import until, virtual
from daemon.tests.support.virtual_loop import VirtualLoop
from daemon.tests.support.world import NAME, Source, World, acks

DATA = 10
EVERY = Limits(
    snapshot_bytes_min=1, snapshot_cost_ratio=0.0, snapshot_interval_min_s=0.0, flush_interval_ms=1
)
UNREADABLE = [Damage.FLIP, Damage.TRUNCATE, Damage.DIGEST]


@dataclass
class Kept:
    """A cursor on disk, its owner gone. Acks 1 to 4 are confirmed: 1 in the previous chain, 2 in
    front of the snapshot's first segment, 3 and 4 behind its end.
    """

    world: World
    footer: Footer

    @property
    def base(self) -> SnapshotBase:
        assert isinstance(self.footer.base, SnapshotBase)
        return self.footer.base

    @property
    def previous_ledger(self) -> int:
        assert self.footer.previous is not None
        return self.footer.previous.chain[-1].ledger

    def entry_of(self, ledger: int, kind: Kind, last: bool = False) -> int:
        found = [
            e
            for e, data in enumerate(self.world.bookkeeper.ledgers[ledger].entries)
            if record.peek(data).kind is kind
        ]
        return found[-1 if last else 0]

    async def change_footer(self, change: Callable[[Footer], Footer]) -> None:
        """As a writer of ours would have written it."""
        version = self.world.zookeeper.tree.get(NAME.path()).version
        await self.write_footer(footer_bytes.encode(change(self.footer).written_at(version + 1)))

    async def write_footer(self, data: bytes) -> None:
        session = self.world.zookeeper.session()
        await session.start()
        await session.set(NAME.path(), data, ANY_VERSION)

    async def opened(self, limits: Limits | None = None) -> Source:
        self.world.limits = limits or Limits(snapshot_interval_min_s=0.0)
        source = Source(await self.world.keeper("next"))
        await source.open()
        return source

    async def assert_all_there(self, source: Source) -> None:
        assert source.told.refused is None, source.told.refused
        for entry in (1, 2, 3, 4):
            assert source.machine.acks.is_acked(DATA, entry), entry
        source.ack(acks(DATA, 20))
        await source.durable()

    async def assert_refused(self, code: str, *says: str) -> None:
        before = self.world.zookeeper.tree.get(NAME.path()).data
        source = await self.opened()
        assert source.told.refused is not None, "it was opened"
        assert source.told.refused[0] == code
        for word in says:
            assert word in source.told.refused[1], source.told.refused
        assert source.told.refused[2], "a remedy"
        claimed = footer_bytes.decode(self.world.zookeeper.tree.get(NAME.path()).data)
        untouched = footer_bytes.decode(before)
        assert (claimed.base, claimed.previous) == (untouched.base, untouched.previous), (
            "untouched on disk but for the claim"
        )


async def kept() -> Kept:
    world = World(limits=EVERY)
    faults = world.bookkeeper.faults
    faults.delay_min_s = faults.delay_max_s = 0.01
    keeper = await world.keeper("first")
    source = Source(keeper)
    await source.open()
    source.ack(acks(DATA, 1))
    machine = source.machine
    await until(
        lambda: (
            machine.snapshots.run is not None
            and machine.snapshots.run.phase is SnapshotPhase.MOVING
        )
    )
    source.ack(acks(DATA, 2))
    await until(lambda: machine.counters.snapshots > 0)
    machine.turn.limits = Limits()
    source.ack(acks(DATA, 3))
    await source.durable()
    source.ack(acks(DATA, 4))
    await source.durable()
    keeper.abandon()
    footer = footer_bytes.decode(world.zookeeper.tree.get(NAME.path()).data)
    found = Kept(world, footer)
    assert found.base.first_entry == 2 and footer.previous is not None and footer.previous.chain
    faults.clear()
    return found


# ---- harmless


@virtual
async def test_nothing_is_damaged() -> None:
    here = await kept()
    source = await here.opened()
    await here.assert_all_there(source)


@virtual
async def test_a_footer_whose_mark_delete_is_ahead_of_every_record_is_believed() -> None:
    # written while acks were accepted and not yet durable: true acks, and `Opened` tells handles of
    # them as a bound
    here = await kept()
    ahead = Position(DATA, 15)
    await here.change_footer(lambda f: replace(f, mark_delete=ahead))
    source = await here.opened()
    assert source.machine.acks.mark_delete == ahead
    await here.assert_all_there(source)
    assert not source.machine.acks.is_acked(DATA, 16)


@pytest.mark.parametrize("how", UNREADABLE)
@virtual
async def test_rule_41_a_delta_that_previous_alone_holds_is_not_even_read(how: Damage) -> None:
    here = await kept()
    here.world.bookkeeper.damage(
        here.previous_ledger, here.entry_of(here.previous_ledger, Kind.DELTA), how
    )
    await here.assert_all_there(await here.opened())


@pytest.mark.parametrize("how", UNREADABLE)
@virtual
async def test_rule_41_a_delta_in_front_of_the_snapshot_is_harmless_and_bars_the_fall_back(
    how: Damage,
) -> None:
    here = await kept()
    here.world.bookkeeper.damage(here.base.ledger, 1, how)
    assert here.entry_of(here.base.ledger, Kind.DELTA) == 1
    source = await here.opened()
    await here.assert_all_there(source)
    await until(lambda: source.machine.counters.snapshots > 0)
    footer = source.machine.ownership.commit.committed
    assert (
        footer is not None
        and isinstance(footer.base, SnapshotBase)
        and footer.base.ledger != here.base.ledger
    )


@pytest.mark.parametrize("how", UNREADABLE)
@virtual
async def test_the_open_record_is_for_people(how: Damage) -> None:
    here = await kept()
    here.world.bookkeeper.damage(here.base.ledger, 0, how)
    await here.assert_all_there(await here.opened())


# ---- fall back


@pytest.mark.parametrize("part", ["segment", "end record"])
@pytest.mark.parametrize("how", UNREADABLE)
@virtual
async def test_a_damaged_snapshot_falls_back(how: Damage, part: str) -> None:
    here = await kept()
    entry = here.base.first_entry if part == "segment" else here.base.last_entry
    here.world.bookkeeper.damage(here.base.ledger, entry, how)
    assert here.footer.previous is not None
    source = await here.opened(Limits())
    await here.assert_all_there(source)
    # rebased in the next footer write, and a snapshot soon
    await until(lambda: source.machine.counters.snapshots > 0)
    committed = source.machine.ownership.commit.committed
    assert committed is not None and committed.previous is not None
    assert committed.previous.base == here.footer.previous.base
    assert {here.previous_ledger, here.base.ledger} <= {c.ledger for c in committed.previous.chain}
    assert committed.damaged == ((here.base.ledger, entry),)
    # and the next owner reads it
    source.keeper.abandon()
    await here.assert_all_there(await here.opened())


async def _assert_fell_back(here: Kept) -> None:
    source = await here.opened(Limits())
    assert (
        here.footer.previous is not None
        and source.machine.ownership.base == here.footer.previous.base
    )
    await here.assert_all_there(source)


@pytest.mark.parametrize("part", ["segment", "end"])
@virtual
async def test_a_record_that_the_next_one_was_not_made_of_falls_back(part: str) -> None:
    """A segment that is whole and not the one whose checksum the end record has; an end record that
    is whole, lists the same segments, and is not the one whose checksum the footer has.
    """
    here = await kept()
    entries = here.world.bookkeeper.ledgers[here.base.ledger].entries
    entry = here.base.first_entry if part == "segment" else here.base.last_entry
    good = record.decode(entries[entry], NAME.record_hash)
    entries[entry] = record.encode(replace(good, sequence=good.sequence + 77))
    await _assert_fell_back(here)


@virtual
async def test_an_end_record_that_begins_elsewhere_than_the_footer_says_falls_back() -> None:
    here = await kept()
    await here.change_footer(
        lambda f: replace(f, base=replace(here.base, first_entry=here.base.first_entry + 1))
    )
    await _assert_fell_back(here)


@virtual
async def test_a_listed_segment_that_is_something_else_falls_back() -> None:
    here = await kept()
    ledger = here.world.bookkeeper.ledgers[here.base.ledger]
    good = record.decode(ledger.entries[here.base.first_entry], NAME.record_hash)
    ledger.entries[here.base.first_entry] = record.encode(
        replace(good, body=Delta(acks={DATA: BitMap([1])}))
    )
    await _assert_fell_back(here)


@virtual
async def test_a_damaged_snapshot_without_a_previous_one_is_refused() -> None:
    here = await kept()
    await here.change_footer(lambda f: replace(f, previous=None))
    here.world.bookkeeper.damage(here.base.ledger, here.base.first_entry, Damage.FLIP)
    await here.assert_refused(
        "DAMAGED", f"ledger {here.base.ledger} entry {here.base.first_entry}", "no previous"
    )
    here.world.bookkeeper.damage(here.base.ledger, here.base.last_entry, Damage.FLIP)
    await here.assert_refused(
        "DAMAGED",
        f"ledger {here.base.ledger} entry {here.base.last_entry} (snapshot end)",
        "no previous",
    )


# ---- what a read costs, and what it does not believe


async def reader_of(
    here: Kept, window: StateWindow = WHOLE, budget: StateBudget = DEFAULT
) -> ChainReader:
    gateway = here.world.bookkeeper.gateway()
    await gateway.start()
    return ChainReader(NAME, gateway, window=window, budget=budget)


def ended(here: Kept, more: int | None = None) -> Footer:
    """The footer with every end: of the last ledger the recovered one, or, without recovery, so
    many entries more than it has: the last one cannot be read then.
    """
    last = here.footer.chain[-1]
    there = len(here.world.bookkeeper.ledgers[last.ledger].entries) - 1
    end = (
        there + more
        if more is not None
        else here.world.bookkeeper.fence_behind(last.ledger).last_entry
    )
    return replace(
        here.footer, chain=(*here.footer.chain[:-1], structs.replace(last, last_entry=end))
    )


@virtual
async def test_what_was_read_behind_the_snapshot_is_counted() -> None:
    """The next snapshot is due when the deltas have cost as much as the last one, whoever wrote
    them.
    """
    here = await kept()
    found = await (await reader_of(here)).read(7, ended(here))
    assert isinstance(found, ev.ChainRead) and not found.fell_back
    entries = here.world.bookkeeper.ledgers[here.base.ledger].entries[here.base.last_entry + 1 :]
    deltas = [data for data in entries if record.peek(data).kind is Kind.DELTA]
    assert len(deltas) == 2
    assert (found.delta_records, found.delta_bytes, found.delta_acks) == (
        2,
        sum(map(len, deltas)),
        2,
    )


@virtual
async def test_a_mark_delete_of_the_footer_takes_the_acks_behind_it_with_it() -> None:
    here = await kept()
    found = await (await reader_of(here)).read(
        7, replace(ended(here), mark_delete=Position(DATA, 0))
    )
    assert isinstance(found, ev.ChainRead) and found.state.mark_delete == Position(DATA, 4)


@virtual
async def test_a_state_that_is_too_large_is_said_with_its_place() -> None:
    here = await kept()
    found = await (await reader_of(here, budget=StateBudget(bytes_max=100))).read(7, ended(here))
    assert isinstance(found, ev.ChainDamaged) and found.too_large
    assert found.reason.startswith(f"ledger {here.base.ledger} entries ")


@virtual
async def test_a_large_record_is_joined_beside_the_loop() -> None:
    """A layout of a million ledgers takes seconds: other cursors do not wait for it."""
    here = await kept()
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    assert (
        isinstance(await (await reader_of(here)).read(7, ended(here)), ev.ChainRead)
        and loop.ran_beside == 0
    )
    many = tuple(LayoutItem(DATA + i, LayoutState.CLOSED, 1) for i in range(1, THREAD_BYTES // 2))
    old = here.world.bookkeeper.ledgers[here.base.ledger].entries
    at = here.entry_of(here.base.ledger, Kind.DELTA, last=True)
    old[at] = record.encode(
        replace(record.decode(old[at], NAME.record_hash), body=Delta(layout=many))
    )
    found = await (await reader_of(here)).read(7, ended(here))
    assert (
        isinstance(found, ev.ChainRead)
        and len(found.state.layout) >= len(many)
        and loop.ran_beside == 1
    )


@virtual
async def test_a_ledger_that_was_not_recovered_is_not_read() -> None:
    here = await kept()
    found = await (await reader_of(here)).read(7, here.footer)
    assert isinstance(found, ev.ChainDamaged) and "was not recovered" in found.reason


@pytest.mark.parametrize("more", [0, 5])
@virtual
async def test_an_open_ledger_that_holds_less_than_the_footer_says_is_damage_and_no_wait(
    more: int,
) -> None:
    here = await kept()
    found = await (await reader_of(here)).read(7, ended(here, more))
    assert isinstance(found, ev.ChainDamaged) and "the footer says" in found.reason


@virtual
async def test_segments_of_other_windows_are_not_read() -> None:
    here = await kept()
    base = here.base
    window = StateWindow(
        Position(DATA + 1, 0), None, EntryAddress(base.ledger, base.last_entry), frozenset()
    )
    here.world.bookkeeper.damage(base.ledger, base.first_entry, Damage.FLIP)
    found = await (await reader_of(here, window)).read(7, ended(here))
    assert isinstance(found, ev.ChainRead) and not found.fell_back


@virtual
async def test_of_entries_that_cannot_be_read_together_each_is_read_alone() -> None:
    """BookKeeper says of a range only that something in it is damaged: the others must not be given
    up.
    """
    here = await kept()
    error = GatewayRefused("DIGEST_MISMATCH", Outcome.NOT_DONE)
    here.world.bookkeeper.faults.spare(Operation.READ)
    here.world.bookkeeper.faults.refuse(Operation.READ, error, times=2)
    found = await (await reader_of(here)).read(7, ended(here))
    assert isinstance(found, ev.ChainRead) and not found.fell_back and not found.bars_fallback
    for entry in (1, 2, 3, 4):
        assert found.state.is_acked(DATA, entry)


@virtual
async def test_a_fall_back_that_needs_a_damaged_delta_is_refused() -> None:
    here = await kept()
    entry = here.entry_of(here.previous_ledger, Kind.DELTA)
    here.world.bookkeeper.damage(here.previous_ledger, entry, Damage.FLIP)
    here.world.bookkeeper.damage(here.base.ledger, here.base.last_entry, Damage.FLIP)
    await here.assert_refused("DAMAGED", f"ledger {here.previous_ledger} entry {entry}")


@virtual
async def test_a_fall_back_reads_deltas_in_front_of_the_damaged_snapshot() -> None:
    """What is harmless beside a good snapshot is needed without it."""
    here = await kept()
    here.world.bookkeeper.damage(here.base.ledger, here.base.last_entry, Damage.FLIP)
    here.world.bookkeeper.damage(here.base.ledger, 1, Damage.FLIP)
    await here.assert_refused("DAMAGED", f"ledger {here.base.ledger} entry 1")


# ---- refuse


@pytest.mark.parametrize("how", UNREADABLE)
@virtual
async def test_rule_41_any_other_damaged_delta_is_refused(how: Damage) -> None:
    here = await kept()
    entry = here.entry_of(here.base.ledger, Kind.DELTA, last=True)
    assert entry > here.base.last_entry
    here.world.bookkeeper.damage(here.base.ledger, entry, how)
    await here.assert_refused("DAMAGED", f"ledger {here.base.ledger} entry {entry}")


@pytest.mark.parametrize("change", [{"num_parts": 7}, {"length": 1}])
@virtual
async def test_a_snapshot_that_is_not_what_its_footer_says_is_refused(
    change: dict[str, int],
) -> None:
    """The end record is the one that the footer names, so no older state is any truer."""
    here = await kept()
    await here.change_footer(lambda f: replace(f, base=replace(here.base, **change)))
    await here.assert_refused(
        "DAMAGED", f"ledger {here.base.ledger} entry {here.base.last_entry}", "the footer says"
    )


@virtual
async def test_a_snapshot_outside_its_chain_is_refused() -> None:
    """Its segments would not be read, and the deltas alone would pass for the whole."""
    here = await kept()
    await here.change_footer(
        lambda f: replace(f, chain=tuple(c for c in f.chain if c.ledger != here.base.ledger))
    )
    source = await here.opened()
    assert source.told.refused is not None and source.told.refused[0] == "DAMAGED"
    assert (
        f"the snapshot is in ledger {here.base.ledger}, which is not in the chain"
        in source.told.refused[1]
    )
    assert "restore-footer" in source.told.refused[2]


@virtual
async def test_rule_41_a_read_shorter_than_last_entry_is_refused() -> None:
    here = await kept()
    ledger = here.world.bookkeeper.ledgers[here.base.ledger]
    end = here.world.bookkeeper.fence_behind(here.base.ledger).last_entry
    await here.change_footer(lambda f: f.with_last_entry(here.base.ledger, end))
    del ledger.entries[-1]
    await here.assert_refused("DAMAGED", f"ledger {here.base.ledger}", f"the footer says {end}")


@virtual
async def test_rule_41_records_of_another_cursor_are_refused() -> None:
    here = await kept()
    ledger = here.world.bookkeeper.ledgers[here.base.ledger]
    other = CursorName("persistent://t/ns/topic", "another").record_hash
    foreign = record.decode(ledger.entries[-1], None)
    ledger.entries[-1] = record.encode(replace(foreign, cursor_hash=other))
    await here.assert_refused(
        "DAMAGED", "another cursor", f"ledger {here.base.ledger} entry {len(ledger.entries) - 1}"
    )


@virtual
async def test_rule_41_a_whole_ledger_of_another_cursor_is_refused_at_its_first_entry() -> None:
    here = await kept()
    ledger = here.world.bookkeeper.ledgers[here.base.ledger]
    first: Record = record.decode(ledger.entries[0], None)
    ledger.entries[0] = record.encode(replace(first, cursor_hash=1))
    await here.assert_refused("DAMAGED", "another cursor", f"ledger {here.base.ledger} entry 0")


@virtual
async def test_rule_41_a_record_of_a_later_epoch_than_the_footer_is_refused() -> None:
    here = await kept()
    ledger = here.world.bookkeeper.ledgers[here.base.ledger]
    late = record.decode(ledger.entries[-1], None)
    ledger.entries[-1] = record.encode(replace(late, epoch=99))
    await here.assert_refused(
        "DAMAGED", "epoch 99", f"ledger {here.base.ledger} entry {len(ledger.entries) - 1}"
    )


@virtual
async def test_an_open_record_of_a_later_owner_is_refused_though_a_damaged_one_is_harmless() -> (
    None
):
    here = await kept()
    ledger = here.world.bookkeeper.ledgers[here.base.ledger]
    late = record.decode(ledger.entries[0], None)
    ledger.entries[0] = record.encode(replace(late, epoch=99))
    await here.assert_refused("DAMAGED", "epoch 99", f"ledger {here.base.ledger} entry 0")


@pytest.mark.parametrize("change", [{"generation": 7}, {"epoch": 99}])
@virtual
async def test_an_inline_state_of_another_generation_or_a_later_owner_is_refused(
    change: dict[str, int],
) -> None:
    here = await kept()
    base = InlineBase(
        Segment(mark_delete=Position(DATA, 9)), here.footer.epoch, here.footer.generation, 1
    )
    await here.change_footer(lambda f: replace(f, base=replace(base, **change)))  # type: ignore[arg-type]
    await here.assert_refused("DAMAGED", "inline state")


@pytest.mark.parametrize("at", ["segment", "delta", "open record"])
@virtual
async def test_a_newer_record_is_never_skipped(at: str) -> None:
    here = await kept()
    ledger = here.world.bookkeeper.ledgers[here.base.ledger]
    entry = {"segment": here.base.first_entry, "delta": len(ledger.entries) - 1, "open record": 0}[
        at
    ]
    data = ledger.entries[entry]
    ledger.entries[entry] = data[:2] + bytes([record.SEGMENT_VERSION + 1]) + data[3:]
    await here.assert_refused(
        "FORMAT_TOO_NEW", "version", f"ledger {here.base.ledger} entry {entry}"
    )


@virtual
async def test_a_missing_ledger_is_looked_for_once_more_and_then_refused() -> None:
    here = await kept()
    here.world.bookkeeper.lose_ledger(here.base.ledger)
    await here.assert_refused("DAMAGED", f"ledger {here.base.ledger} does not exist")


# ---- the footer


@virtual
async def test_a_footer_that_is_not_json() -> None:
    here = await kept()
    await here.write_footer(b"{{{")
    source = await here.opened()
    assert source.told.refused is not None and source.told.refused[0] == "DAMAGED"
    assert "not JSON" in source.told.refused[1]
    assert here.world.zookeeper.tree.get(NAME.path()).data == b"{{{"


@virtual
async def test_a_footer_with_a_flipped_byte() -> None:
    here = await kept()
    data = bytearray(footer_bytes.encode(here.footer))
    at = data.index(b'"epoch":') + 8
    data[at] = ord("9")
    await here.write_footer(bytes(data))
    source = await here.opened()
    assert source.told.refused is not None and source.told.refused[0] == "DAMAGED"


@virtual
async def test_a_newer_footer() -> None:
    here = await kept()
    data = footer_bytes.encode(here.footer).replace(b'{"version":1', b'{"version":3', 1)
    await here.write_footer(data)
    source = await here.opened()
    assert source.told.refused is not None and source.told.refused[0] == "FORMAT_TOO_NEW"
    assert here.world.zookeeper.tree.get(NAME.path()).data == data


@virtual
async def test_a_footer_that_is_lost_under_its_owner() -> None:
    here = await kept()
    source = await here.opened()
    await here.assert_all_there(source)
    session = here.world.zookeeper.session()
    await session.start()
    await session.delete(NAME.path(), ANY_VERSION)
    source.poll_footer()
    await source.told.until(lambda: bool(source.told.ended))
    assert source.told.refused is not None and source.told.refused[0] == "FOOTER_LOST"


# ---- never damage


@virtual
async def test_not_enough_bookies_is_never_damage() -> None:
    here = await kept()
    here.world.bookkeeper.bookies_up = 1
    world = here.world
    world.limits = Limits()
    slow = Source(await world.keeper("next"))
    opening = asyncio.get_running_loop().create_task(slow.open())
    await asyncio.sleep(15)
    machine = slow.keeper.cursors[NAME].machine
    assert not opening.done() and machine.state == "FENCING"
    assert "BookKeeper" in machine.waiting_for
    world.bookkeeper.bookies_up = 3
    await opening
    await here.assert_all_there(slow)


@virtual
async def test_an_entry_that_no_bookie_gives_is_waited_for() -> None:
    here = await kept()
    last = len(here.world.bookkeeper.ledgers[here.base.ledger].entries) - 1
    here.world.bookkeeper.damage(here.base.ledger, last, Damage.GONE)
    slow = Source(await here.world.keeper("next"))
    opening = asyncio.get_running_loop().create_task(slow.open())
    await asyncio.sleep(15)
    machine = slow.keeper.cursors[NAME].machine
    assert not opening.done() and machine.state == "READING"
    assert f"ledger {here.base.ledger}" in machine.waiting_for
    here.world.bookkeeper.ledgers[here.base.ledger].damage.clear()
    await opening
    await here.assert_all_there(slow)


@virtual
async def test_rights_that_are_missing_are_never_damage() -> None:
    """A refusal that says nothing about the bytes is waited for, visibly."""
    here = await kept()
    error = GatewayRefused("UNAUTHENTICATED", Outcome.NOT_DONE)
    here.world.bookkeeper.faults.refuse(Operation.READ, error, times=5)
    await here.assert_all_there(await here.opened())

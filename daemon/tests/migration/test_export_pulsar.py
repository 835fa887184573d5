"""`export-pulsar` on fakes: what Pulsar would read equals ours; what it cannot hold, or a broker
may have, is refused with reasons.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyroaring import BitMap

from cursorkeeper.bookkeeper.port import Digest, LedgerSpec, LedgerState
from cursorkeeper.core import events as ev
from cursorkeeper.core.names import CursorName
from cursorkeeper.core.positions import Position
from cursorkeeper.core.values import PartialKey, Stamp
from cursorkeeper.format.pulsar import cursor_info, names
from cursorkeeper.format.pulsar.states import to_ack_state
from cursorkeeper.format.pulsar.values import Form, ManagedCursorInfo, PositionInfo
from cursorkeeper.migration import target as target_module
from cursorkeeper.migration.cluster import PulsarCursorRef, Selection, SkippedPath, iter_ours
from cursorkeeper.migration.compare import difference
from cursorkeeper.migration.exporter import Export, Rules, ledger_spec
from cursorkeeper.migration.journal import Journal
from cursorkeeper.migration.leftovers import RunMark
from cursorkeeper.migration.outcome import Outcome
from cursorkeeper.migration.pulsar_reader import read_cursor
from cursorkeeper.migration.pulsar_writer import custom_metadata
from cursorkeeper.migration.string_properties import CREATED, IMPORTING, NOTES, ZNODE
from cursorkeeper.migration.target import Target, plan_write
from cursorkeeper.problems import ProblemError
from cursorkeeper.pulsar_broker.settings import of_version
from cursorkeeper.settings import Settings
from cursorkeeper.zookeeper.port import ZooKeeper
from daemon.tests.fakes.bookkeeper.operation import Operation
from daemon.tests.fakes.zookeeper.faults import Delay, Meanwhile, UnknownDone, UnknownNotDone
from daemon.tests.migration.pulsar_world import HASTY, REF, SUB, TOPIC, PulsarWorld, state
from daemon.tests.support.world import acks, partial

ROOT = Path(__file__).resolve().parents[3]
WIDE = replace(of_version("4.2"), ranges_max=1_000_000, batches_max=1_000_000)
NATIVE, PULSAR = (
    Settings.of(inline_state_max_bytes=0),
    Settings.of(format="pulsar", inline_state_max_bytes=0),
)
BUNDLE = "/namespace/t/ns/0x00000000_0xffffffff"


async def exporting(world: PulsarWorld, **options: Any) -> Export:
    names = {rule.name for rule in fields(Rules)} & options.keys()
    rules = Rules(**{name: options.pop(name) for name in names})
    ports, theirs = await world.ports(), await world.pulsar("migrator")
    target = options.pop("target", Target(WIDE, 5_000_000))
    return Export(
        ports,
        theirs,
        world.settings,
        target,
        LedgerSpec(2, 2, 2),
        world.bar,
        rules=rules,
        **{"patience": HASTY, **options},
    )  # type: ignore[arg-type]


async def ours(world: PulsarWorld, ref: PulsarCursorRef = REF, settings: Settings = NATIVE) -> None:
    """A cursor of ours that came from Pulsar, which has lost it since."""
    await world.in_znode(state(), ref, properties={"a": "b"})
    assert (await (await world.importing(settings=settings)).one(ref)).ok
    await world.remove(ref.path)


async def exported(world: PulsarWorld, **options: object) -> Outcome:
    return await (await exporting(world, **options)).one(REF)


async def test_a_small_state_with_no_batches_goes_into_the_znode(world: PulsarWorld) -> None:
    await world.in_znode(state(batches={}))
    before = await read_cursor(await world.pulsar(), REF)
    assert (await (await world.importing()).one(REF)).ok
    await world.remove(REF.path)
    ledgers = set(world.bookkeeper.ledgers)
    outcome = await exported(world)
    assert (outcome.ok, outcome.status, outcome.numbers["form"]) == (True, "exported", "znode"), (
        outcome
    )
    after = await read_cursor(await world.pulsar(), REF)
    assert (
        after.state == before.state
        and after.znode.is_inline
        and set(world.bookkeeper.ledgers) == ledgers
    )


@pytest.mark.parametrize("form", [NATIVE, PULSAR], ids=["native", "pulsar"])
async def test_partial_batches_go_into_a_ledger_because_pulsar_forgets_them_in_a_znode(
    world: PulsarWorld, form: Settings
) -> None:
    await ours(world, settings=form)
    outcome = await exported(world)
    assert (outcome.ok, outcome.numbers["form"]) == (True, "longArray"), outcome
    after = await read_cursor(await world.pulsar(), REF)
    assert after.state == state() and after.cursor_properties == {"a": "b"}
    assert after.znode.cursors_ledger == outcome.numbers[
        "ledger"
    ] and after.znode.mark_delete == Position(7, 3)
    info = world.bookkeeper.ledger(after.znode.cursors_ledger).info()
    assert (
        info.state is LedgerState.CLOSED
        and info.last_entry == 0
        and (info.ensemble, info.ack_quorum) == (2, 2)
    )
    assert (
        info.custom_metadata["pulsar/cursor"] == b"sub"
        and info.custom_metadata["application"] == b"pulsar"
    )
    assert after.freshness.is_final


async def test_a_pulsar_that_restores_batches_takes_them_in_the_znode(world: PulsarWorld) -> None:
    await ours(world)
    target = Target(replace(of_version("5.0"), ranges_max=1_000), 5_000_000)
    outcome = await exported(world, target=target)
    assert (outcome.ok, outcome.numbers["form"]) == (True, "znode"), outcome
    assert (await read_cursor(await world.pulsar(), REF)).state.batches == state().batches


async def test_done_twice_it_is_there_already(world: PulsarWorld) -> None:
    await ours(world)
    await exported(world)
    znode, ledgers = await world.znode(REF.path), set(world.bookkeeper.ledgers)
    outcome = await exported(world)
    assert (outcome.ok, outcome.status) == (True, "already there")
    assert await world.znode(REF.path) == znode and set(world.bookkeeper.ledgers) == ledgers


async def test_a_dry_run_writes_nothing(world: PulsarWorld) -> None:
    await ours(world)
    outcome = await exported(world, dry_run=True)
    assert (outcome.ok, outcome.status) == (True, "would be exported")
    assert await world.znode(REF.path) is None


@settings(max_examples=20, deadline=None)
@given(
    entries=st.dictionaries(
        st.sampled_from([7, 9, 12]),
        st.sets(st.integers(0, 99), min_size=1, max_size=40),
        max_size=3,
    ),
    batches=st.dictionaries(
        st.tuples(st.sampled_from([7, 9, 12]), st.integers(0, 99)),
        st.sets(st.integers(0, 200), min_size=1, max_size=9),
        max_size=6,
    ),
    mark_delete=st.tuples(st.sampled_from([7, 9, 12]), st.integers(-1, 99)),
    native=st.booleans(),
    version=st.sampled_from(["3.0", "4.0", "4.2", "5.0.0-M1", "5.0"]),
    seed=st.integers(0, 99),
)
def test_any_state_there_and_back(
    entries: dict[int, set[int]],
    batches: dict[tuple[int, int], set[int]],
    mark_delete: tuple[int, int],
    native: bool,
    version: str,
    seed: int,
) -> None:
    acked = {
        n: BitMap(e for e in found if (n, e) > mark_delete) for n, found in sorted(entries.items())
    }
    info = PositionInfo(Position(*mark_delete), {n: found for n, found in acked.items() if found})
    partly = {
        PartialKey(*at): BitMap(missing)
        for at, missing in sorted(batches.items())
        if at > mark_delete
    }
    info = replace(
        info,
        batches={
            key: missing
            for key, missing in partly.items()
            if key.entry not in acked.get(key.ledger, ())
        },
    )

    async def story() -> None:
        world = PulsarWorld(seed=seed)
        await world.topic(TOPIC, ((7, 100), (9, 100), (12, 0)))
        await world.in_ledger(info)
        first = await read_cursor(await world.pulsar(), REF)
        assert (await (await world.importing(settings=NATIVE if native else PULSAR)).one(REF)).ok
        await world.remove(REF.path)
        target = Target(replace(of_version(version), batch_index=True), 5_000_000)
        outcome = await exported(world, target=target)
        assert outcome.ok, outcome
        back = await read_cursor(await world.pulsar(), REF)
        one, other = (
            to_ack_state(found.state, found.layout, stamp=Stamp(0, 0)) for found in (first, back)
        )
        assert not difference(one, other)
        if back.state.form is Form.LONG_ARRAY:
            assert target.settings.long_array

    asyncio.run(story())


# ---- what is there already


async def test_a_cursor_that_differs_is_refused_and_replaced_only_when_told(
    world: PulsarWorld,
) -> None:
    await ours(world)
    old = await world.in_ledger(state((7, 50)), properties={"theirs": "x"})
    before = await world.znode(REF.path)
    refused = await exported(world)
    assert (refused.ok, refused.status) == (False, "refused") and refused.problem is not None
    assert (
        "35 acked entries too many" in refused.problem.message
        and "--replace" in refused.problem.remedy
    )
    assert await world.znode(REF.path) == before and old in world.bookkeeper.ledgers
    outcome = await exported(world, replace=True)
    assert (outcome.ok, outcome.status) == (True, "replaced"), outcome
    after = await read_cursor(await world.pulsar(), REF)
    assert after.state == state() and after.cursor_properties == {"a": "b"}
    assert old not in world.bookkeeper.ledgers, "it was closed, and nobody names it any more"


async def test_fields_of_a_newer_pulsar_and_properties_that_ours_never_had_stay(
    world: PulsarWorld,
) -> None:
    await world.in_znode(state())
    assert (await (await world.importing()).one(REF)).ok
    # field 9, idleSince
    info = ManagedCursorInfo(
        -1, Position(7, -1), cursor_properties={"kept": "1"}, unknown=b"\x48\x05"
    )
    await world.put(REF.path, cursor_info.encode(info))
    outcome = await exported(world, replace=True)
    assert outcome.ok, outcome
    after = (await read_cursor(await world.pulsar(), REF)).znode
    assert after.unknown == b"\x48\x05" and after.cursor_properties == {"kept": "1"}


async def kept_by_the_plugin(
    world: PulsarWorld,
    noted: str = "{}@{}/{}/{}",
    beside: tuple[int, ...] = (0, 0, 0, 0),
    **notes: str,
) -> None:
    """A cursor of ours as the broker plugin makes it, with its notes; the subscription's own
    properties are in Pulsar's znode. `noted`: of which znode; `beside`: by how much its numbers
    differ from what the znode has.
    """
    await world.in_znode(state())
    there = await (await world.zk()).get(REF.path)
    numbers = (there.version + 2, there.stat.ctime_ms, -1, 17)
    znode = noted.format(*(number + by for number, by in zip(numbers, beside, strict=True)))
    await world.in_znode(state(), properties={CREATED: "nonce", ZNODE: znode, **notes})
    assert (await (await world.importing()).one(REF)).ok
    info = ManagedCursorInfo(
        -1, Position(7, -1), cursor_properties={"kept": "1"}, last_active_ms=17
    )
    await world.put(REF.path, cursor_info.encode(info))


async def test_of_a_cursor_that_the_plugin_kept_the_subscriptions_own_properties_stay(
    world: PulsarWorld,
) -> None:
    await kept_by_the_plugin(world)
    outcome = await exported(world, replace=True)
    assert (outcome.ok, outcome.status) == (True, "replaced"), outcome
    after = await read_cursor(await world.pulsar(), REF)
    assert after.state == state() and after.cursor_properties == {"kept": "1"}
    assert (await exported(world)).status == "already there"


@pytest.mark.parametrize(
    ("noted", "beside", "words"),
    [
        ("{}@{}/{}/{}", (-1, 0, 0, 0), "ours belongs to"),
        ("{}@{}/{}/{}", (2, 0, 0, 0), "ours belongs to"),
        ("{}@{}/{}/{}", (0, -1, 0, 0), "deleted and made again"),
        ("{}@{}/{}/{}", (0, 0, 9, 0), "Pulsar's own work"),
        ("{}@{}/{}/{}", (0, 0, 0, -1), "Pulsar's own work"),
        ("{}@{}", (0, 0, 0, 0), "belongs to none"),
    ],
)
async def test_what_pulsar_itself_changed_since_is_replaced_only_by_a_flag_of_its_own(
    world: PulsarWorld, noted: str, beside: tuple[int, ...], words: str
) -> None:
    await kept_by_the_plugin(world, noted, beside)
    before = await world.znode(REF.path)
    refused = await exported(world, replace=True)
    assert (
        refused.status == "refused"
        and refused.problem is not None
        and words in refused.problem.message
    ), refused
    assert "--replace-newer" in refused.problem.remedy and await world.znode(REF.path) == before
    assert (await exported(world, replace_newer=True)).status == "replaced"
    assert (await read_cursor(await world.pulsar(), REF)).state == state()


async def test_a_write_of_the_znode_that_was_noted_and_never_came_is_none_of_pulsars(
    world: PulsarWorld,
) -> None:
    await kept_by_the_plugin(world, beside=(1, 0, 0, -5))
    assert (await exported(world, replace=True)).status == "replaced"


@pytest.mark.parametrize("note", ["true", "shadow"], ids=["a first load that died", "a copy"])
async def test_what_is_not_the_truth_is_never_exported(world: PulsarWorld, note: str) -> None:
    await kept_by_the_plugin(world, **{IMPORTING: note})
    before = await world.znode(REF.path)
    refused = await exported(world, replace=True)
    assert (
        refused.status == "refused"
        and refused.problem is not None
        and "a part or a copy of Pulsar's own state" in refused.problem.message
    )
    assert await world.znode(REF.path) == before


def test_the_plugins_notes_have_the_names_that_it_gives_them() -> None:
    source = (
        ROOT / "java/pulsar-plugin/src/main/java/io/cursorkeeper/pulsar/Imprint.java"
    ).read_text()
    assert set(re.findall(r'static final String \w+ = "(pulsar\.\w+)"', source)) == NOTES


async def test_a_damaged_znode_is_replaced_only_when_told(world: PulsarWorld) -> None:
    await ours(world)
    await world.put(REF.path, b"\xff\xff\xff")
    refused = await exported(world)
    assert refused.problem is not None and "cannot be read" in refused.problem.message
    assert (await exported(world, replace=True)).ok
    assert (await read_cursor(await world.pulsar(), REF)).state == state()


# ---- brokers


async def test_an_open_cursor_ledger_is_a_broker(world: PulsarWorld) -> None:
    await ours(world)
    old = await world.in_ledger(state((7, 50)), closed=False)
    refused = await exported(world, replace=True)
    assert refused.status == "refused" and refused.problem is not None
    assert (
        f"cursor ledger {old} is not closed" in refused.problem.message
        and "unload" in refused.problem.remedy
    )
    outcome = await exported(world, replace=True, broker_is_stopped=True)
    assert outcome.ok and old in world.bookkeeper.ledgers, "not closed, so it is left"
    assert any(f"ledger {old} is left" in note for note in outcome.notes) and any(
        "not heeded" in note for note in outcome.notes
    )


async def test_an_open_message_ledger_is_a_broker(world: PulsarWorld) -> None:
    await ours(world)
    data = await world.data_ledger()
    await world.topic(TOPIC, ((7, 100), (9, 50), (12, 7), (data, 0)))
    refused = await exported(world)
    assert (
        refused.problem is not None
        and f"newest message ledger {data} is not closed" in refused.problem.message
    )


async def test_an_owned_bundle_is_a_broker(world: PulsarWorld) -> None:
    await ours(world)
    session = await world.zk()
    await session.ensure_path("/namespace/t/ns")
    await session.create(BUNDLE, b"{}", ephemeral=True)
    await session.create("/namespace/t/ns/not-a-bundle", b"{}", ephemeral=True)
    refused = await exported(world)
    assert refused.problem is not None and BUNDLE in refused.problem.message
    await world.remove(BUNDLE)
    await session.create(BUNDLE, b"{}")  # not ephemeral: nobody's
    assert (await exported(world)).ok


async def test_somebody_writes_the_znode_meanwhile(world: PulsarWorld) -> None:
    await ours(world)
    await world.put(REF.path, cursor_info.encode(ManagedCursorInfo(-1, Position(7, -1))))
    run = await exporting(world, replace=True)
    ledgers = set(world.bookkeeper.ledgers)
    newer = cursor_info.encode(ManagedCursorInfo(-1, Position(7, 9)))
    world.zookeeper.faults.next("multi", Meanwhile(lambda: world.put(REF.path, newer)))
    outcome = await run.one(REF)
    assert (
        outcome.status == "refused"
        and outcome.problem is not None
        and "changed while it was exported" in outcome.problem.message
    )
    assert set(world.bookkeeper.ledgers) == ledgers, "the new ledger is deleted again"
    assert (await read_cursor(await world.pulsar(), REF)).state.mark_delete == (7, 9)


@pytest.mark.parametrize("is_there", [False, True])
async def test_a_broker_loads_the_topic_meanwhile(world: PulsarWorld, is_there: bool) -> None:
    """The cursor's znode is as it was; the topic's has one more message ledger."""
    await ours(world)
    if is_there:
        await world.put(REF.path, cursor_info.encode(ManagedCursorInfo(-1, Position(7, -1))))
    before, ledgers = await world.znode(REF.path), set(world.bookkeeper.ledgers)
    loads = Meanwhile(lambda: world.topic(TOPIC, ((7, 100), (9, 50), (12, 7), (13, 0))))
    world.zookeeper.faults.next("multi", loads)
    outcome = await exported(world, replace=True)
    assert (
        outcome.status == "refused"
        and outcome.problem is not None
        and "changed while it was exported" in outcome.problem.message
    )
    assert (await world.znode(REF.path), set(world.bookkeeper.ledgers)) == (before, ledgers)


# ---- limits


async def test_what_the_next_flush_would_drop_is_refused_with_the_numbers(
    world: PulsarWorld,
) -> None:
    await world.topic(TOPIC, ((7, 50_000), (9, 50_000), (12, 50_000), (13, 0)))
    dense = BitMap(range(1, 50_000))
    info = state(
        acked={7: dense - BitMap(range(0, 50_000, 10)), 9: dense, 12: dense},
        batches={},
        mark_delete=Position(7, -1),
    )
    await world.in_znode(info)
    assert (await (await world.importing()).one(REF)).ok
    await world.remove(REF.path)
    target = Target(of_version("4.2"), 5_000_000)
    refused = await exported(world, target=target)
    assert refused.status == "refused" and refused.problem is not None
    assert "99,998 of 144,998" in refused.problem.message and "10,000" in refused.problem.message, (
        refused.problem.message
    )
    assert "--allow-loss" in refused.problem.remedy
    outcome = await exported(world, target=target, allow_loss=True)
    assert outcome.ok and any("99,998" in note for note in outcome.notes)
    assert (await read_cursor(await world.pulsar(), REF)).state.acked == info.acked


async def test_an_entry_above_the_frame_is_refused_whatever_is_allowed(world: PulsarWorld) -> None:
    await ours(world)
    settings = replace(WIDE, frame_bytes_max=250, znode_bytes_max=300)
    refused = await exported(world, target=Target(settings, 5_000_000), allow_loss=True)
    assert refused.status == "refused" and refused.problem is not None
    assert "takes 50;" in refused.problem.message and "maxMessageSize" in refused.problem.remedy
    refused = await exported(world, target=Target(WIDE, 40))
    assert refused.problem is not None and "--entry-bytes-max" in refused.problem.remedy
    assert await world.znode(REF.path) is None


@pytest.mark.parametrize(
    ("znode_bytes", "ranges_max", "batches", "said"),
    [
        (1 << 20, 100_000, False, None),
        (1 << 20, 100_000, True, "forgets 0 acked entries and 1 partial batches"),
        (1 << 20, 1_500, False, "forgets 999 acked entries and 0 partial batches"),
        (40_000, 100_000, False, "bytes of at most 40,000, again and again, and does not end"),
    ],
)
def test_what_an_unload_before_the_first_flush_does_is_told(
    znode_bytes: int, ranges_max: int, batches: bool, said: str | None
) -> None:
    """Measured in `interop/test_known_losses.py`: a recovered cursor ledger cannot be written."""
    held = {PartialKey(7, 6_000): BitMap([1])} if batches else {}
    info = PositionInfo(
        Position(7, -1), {7: BitMap(range(1, 5_000, 2))}, held, form=Form.LONG_ARRAY
    )
    settings = replace(
        WIDE, ranges_max=ranges_max, znode_bytes_max=znode_bytes, znode_ranges_max=1_000
    )
    notes = plan_write("c", info, {}, Target(settings, 5_000_000), now_ms=1, allow_loss=True).notes
    early = [note for note in notes if "before Pulsar's first flush" in note]
    assert (
        early == []
        if said is None
        else (len(early) == 1 and said in early[0] and "ack a message" in early[0])
    ), notes
    few = replace(info, acked={7: BitMap(range(1, 2_000, 2))})
    noted = plan_write("c", few, {}, Target(settings, 5_000_000), now_ms=1, allow_loss=True).notes
    assert not any("first flush" in note for note in noted), "as any unload of it"


@pytest.mark.parametrize(("long_array", "form"), [(True, "longArray"), (False, "ranges")])
async def test_the_form_is_one_that_the_target_goes_on_writing(
    world: PulsarWorld, long_array: bool, form: str
) -> None:
    await ours(world)
    outcome = await exported(world, target=Target(replace(WIDE, long_array=long_array), 5_000_000))
    assert outcome.numbers["form"] == form
    assert (await read_cursor(await world.pulsar(), REF)).state.form is Form(form)


@pytest.mark.parametrize("properties", [True, False])
async def test_a_znode_is_compressed_only_where_it_must_be_and_never_with_properties(
    world: PulsarWorld, properties: bool
) -> None:
    """4.2.4 and 5.0.0-M1 cannot load a topic with a cursor whose compressed znode has
    properties.
    """
    await world.topic(TOPIC, ((7, 5_000), (9, 0)))
    info = state(
        acked={7: BitMap(range(5, 5_000, 2))}, batches={}, properties={"k": 1} if properties else {}
    )
    await world.in_znode(info)
    assert (await (await world.importing()).one(REF)).ok
    await world.remove(REF.path)
    settings = replace(of_version("5.0"), long_array=False)
    outcome = await exported(world, target=Target(settings, 5_000_000))
    assert outcome.ok and (await world.znode(REF.path) or b"")[:1] == b"\x08", outcome
    assert any("cannot load the topic again" in note for note in outcome.notes) == properties
    await world.remove(REF.path)
    small = replace(settings, znode_bytes_max=40_000)
    outcome = await exported(world, target=Target(small, 5_000_000))
    assert (outcome.ok, outcome.numbers["form"]) == (True, "ranges" if properties else "znode"), (
        outcome
    )
    value = await world.znode(REF.path) or b""
    assert (value[:2] == b"\x47\x78") == (not properties)
    assert (await read_cursor(await world.pulsar(), REF)).state.acked == info.acked


async def test_what_was_written_is_read_back_before_it_counts(world: PulsarWorld) -> None:
    await ours(world)

    async def forgets() -> None:
        assert await world.znode(REF.path) is not None, "it was written"
        whole = state()
        await world.in_ledger(replace(whole, acked={7: whole.acked[7]}))

    world.zookeeper.faults.next("sync", Delay(0), REF.path)
    world.zookeeper.faults.next("sync", Meanwhile(forgets), REF.path)
    outcome = await exported(world)
    assert not outcome.ok and outcome.problem is not None
    assert (
        "6 acked entries are missing" in outcome.problem.message
        and "do not start the broker" in outcome.problem.remedy
    )


async def test_batches_that_the_target_does_not_know_are_a_loss(world: PulsarWorld) -> None:
    await ours(world)
    refused = await exported(world, target=Target(replace(WIDE, batch_index=False), 5_000_000))
    assert refused.problem is not None and "2 of 2 partial batches" in refused.problem.message


# ---- our side


async def test_an_open_cursor_of_ours_needs_live(world: PulsarWorld) -> None:
    await world.topic()
    source = await world.source(CursorName(TOPIC, SUB))
    source.ack(acks(7, 1, 2, 3), partial(7, 9, 10, {1}))
    await source.durable()
    refused = await exported(world)
    assert (
        refused.status == "refused"
        and refused.problem is not None
        and "--live" in refused.problem.remedy
    )
    outcome = await exported(world, live=True)
    assert outcome.ok and any("it is open" in note for note in outcome.notes), outcome


@pytest.mark.parametrize("pid", [os.getpid, os.getppid])
async def test_a_half_import_is_never_exported(world: PulsarWorld, pid: Callable[[], int]) -> None:
    """Nor one whose process runs: an import under way, or another process of its number."""
    await world.topic()
    await world.half_imported(pid=pid())
    for live in (False, True):
        refused = await exported(world, live=live, replace=live)
        assert (
            refused.status == "refused"
            and refused.problem is not None
            and "half-way" in refused.problem.message
        )


async def test_a_topic_made_anew_is_refused(world: PulsarWorld) -> None:
    await ours(world)
    await world.topic(TOPIC, ((2, 5), (3, 0)))
    refused = await exported(world)
    assert (
        refused.status == "refused"
        and refused.problem is not None
        and "made anew" in refused.problem.remedy
    )


async def test_no_such_topic(world: PulsarWorld) -> None:
    await ours(world)
    await world.remove(names.topic_path(TOPIC))
    outcome = await exported(world)
    assert (
        not outcome.ok
        and outcome.problem is not None
        and "no such topic" in outcome.problem.message
    )


async def test_acks_of_ledgers_that_were_trimmed_are_left_out_and_told(world: PulsarWorld) -> None:
    await ours(world)
    await world.topic(TOPIC, ((9, 50), (12, 0)))
    outcome = await exported(world)
    assert outcome.ok and any("7:3" in note for note in outcome.notes), outcome
    after = await read_cursor(await world.pulsar(), REF)
    assert after.state.mark_delete == (9, -1) and set(after.state.acked) == {9, 12}


# ---- crashes and journals


@pytest.mark.parametrize("is_there", [False, True])
@pytest.mark.parametrize("fault", [UnknownDone(), UnknownNotDone()])
async def test_an_answer_that_was_lost_is_read_back(
    world: PulsarWorld, is_there: bool, fault: UnknownDone | UnknownNotDone
) -> None:
    """Done all the same: taken for somebody else's write, the ledger that the znode names by now
    would be deleted.
    """
    await ours(world)
    if is_there:
        await world.put(REF.path, cursor_info.encode(ManagedCursorInfo(-1, Position(7, -1))))
    world.zookeeper.faults.next("multi", fault)
    outcome = await exported(world, replace=True)
    assert outcome.ok and outcome.numbers["ledger"] in world.bookkeeper.ledgers, outcome
    assert (
        cursor_info.decode(await world.znode(REF.path) or b"").cursors_ledger
        == outcome.numbers["ledger"]
    )
    assert (await exported(world)).status == "already there"


class Broker:
    """ZooKeeper; a broker loads the topic before anybody looks again, and keeps the ledger that it
    finds.
    """

    def __init__(self, world: PulsarWorld, real: ZooKeeper) -> None:
        self._world, self._real, self.came = world, real, False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    async def sync(self, path: str) -> None:
        if path == REF.path and not self.came:
            found = cursor_info.decode(await self._world.znode(path) or b"")
            if found.cursors_ledger >= 0:
                self.came = True
                await self._world.put(
                    path,
                    cursor_info.encode(replace(found, cursor_properties={"broker": "was here"})),
                )
        await self._real.sync(path)


async def test_an_answer_that_was_lost_before_a_broker_came_loses_no_ledger(
    world: PulsarWorld,
) -> None:
    await ours(world)
    await world.put(REF.path, cursor_info.encode(ManagedCursorInfo(-1, Position(7, -1))))
    engine = await exporting(world, replace=True)
    broker = Broker(world, engine.pulsar.zookeeper)
    world.zookeeper.faults.next("multi", UnknownDone())
    outcome = await replace(engine, pulsar=replace(engine.pulsar, zookeeper=broker)).one(REF)
    named = cursor_info.decode(await world.znode(REF.path) or b"").cursors_ledger
    assert broker.came and named in world.bookkeeper.ledgers, outcome


def run_of(journal: Journal) -> dict[str, object]:
    """As the command has it."""
    run = RunMark(journal.path.name, journal.token) if journal.token else None
    return {"journal": journal, "run": run}


async def test_a_ledger_of_an_interrupted_run_is_deleted_by_the_next(
    world: PulsarWorld, tmp_path: Path
) -> None:
    await ours(world)
    journal = Journal.open(tmp_path / "j", "export-pulsar", {})
    before = set(world.bookkeeper.ledgers)
    world.zookeeper.faults.chance("multi", 1.0, UnknownNotDone())
    outcome = await exported(world, **run_of(journal))
    assert not outcome.ok
    journal.finished(str(REF), outcome.status, ok=False)
    (orphan,) = set(world.bookkeeper.ledgers) - before
    journal.close()
    world.zookeeper.faults.clear()
    journal = Journal.open(tmp_path / "j", "export-pulsar", {})
    engine = await exporting(world, **run_of(journal))
    assert await engine.sweep() == [] and orphan in world.bookkeeper.ledgers, (
        "its maker could name it yet"
    )
    outcome = await engine.one(REF)
    assert outcome.ok, outcome
    assert await engine.sweep() == [f"deleted ledger {orphan} of an interrupted run"]
    assert orphan not in world.bookkeeper.ledgers
    assert outcome.numbers["ledger"] in world.bookkeeper.ledgers
    journal.finished(str(REF), "exported", ok=True)
    assert (await exported(world, **run_of(journal))).status == "done before"
    await world.remove(REF.path)
    assert (await exported(world, **run_of(journal))).status == "exported", (
        "the journal is of a cursor that is gone"
    )


@pytest.mark.parametrize("has_token", [True, False])
async def test_a_ledger_without_the_journals_token_stays(
    world: PulsarWorld, tmp_path: Path, has_token: bool
) -> None:
    """The address of the journal's cluster is another cluster's by now, or the journal is of an
    earlier release: names and numbers say nothing.
    """
    await ours(world)
    Journal.open(tmp_path / "j", "export-pulsar", {}).close()
    theirs = await world.pulsar("migrator")
    there = await (await exporting(world)).destination(REF)
    marks = {**RunMark("j", "another").of(there), **custom_metadata(REF)}
    foreign = await theirs.ledgers.create(LedgerSpec(1, 1, 1), marks)
    if not has_token:
        header, _, rest = (tmp_path / "j").read_text().partition("\n")
        (tmp_path / "j").write_text(re.sub(',"token":"[0-9a-f]+"', "", header) + "\n" + rest)
    journal = Journal.open(tmp_path / "j", "export-pulsar", {})
    assert bool(journal.token) == has_token
    engine = await exporting(world, **run_of(journal))
    assert (await engine.one(REF)).ok
    assert await engine.sweep() == [] and foreign in world.bookkeeper.ledgers


async def test_a_ledger_whose_maker_never_heard_of_it_is_deleted_by_the_next_run(
    world: PulsarWorld, tmp_path: Path
) -> None:
    """The run died at the creation of a ledger. What others made, and what is named, stays."""
    await ours(world)
    journal = Journal.open(tmp_path / "j", "export-pulsar", {})
    world.bookkeeper.faults.lose_after(Operation.CREATE)
    before = set(world.bookkeeper.ledgers)
    killed = await exporting(world, **run_of(journal))
    assert not (await killed.one(REF)).ok
    (unknown,) = set(world.bookkeeper.ledgers) - before
    assert await killed.sweep() == [], "of a first run nothing can be left"
    journal.close()
    world.bookkeeper.faults.clear()
    journal = Journal.open(tmp_path / "j", "export-pulsar", {})
    again = await exporting(world, **run_of(journal))
    outcome = await again.one(REF)
    assert outcome.ok
    world.bookkeeper.faults.lose_before(Operation.LIST, times=100)
    assert "may be left" in str(await again.sweep()) and unknown in world.bookkeeper.ledgers
    world.bookkeeper.faults.clear()
    assert await again.sweep() == [f"deleted ledger {unknown} of an interrupted run"]
    assert set(world.bookkeeper.ledgers) == before | {outcome.numbers["ledger"]}


async def test_a_ledger_whose_creation_was_not_answered_is_not_made_again_and_again(
    world: PulsarWorld,
) -> None:
    await ours(world)
    ledgers = set(world.bookkeeper.ledgers)
    world.bookkeeper.faults.lose_after(Operation.CREATE, times=5)
    outcome = await exported(world)
    assert (
        not outcome.ok
        and outcome.problem is not None
        and "an empty one may be left" in outcome.problem.message
    )
    assert len(set(world.bookkeeper.ledgers) - ledgers) == 1
    world.bookkeeper.faults.clear()
    assert (await exported(world)).ok


async def test_lost_answers_of_bookkeeper_leave_nothing_behind(world: PulsarWorld) -> None:
    await ours(world)
    ledgers = set(world.bookkeeper.ledgers)
    world.bookkeeper.faults.lose_after(Operation.APPEND)
    outcome = await exported(world)
    assert (
        not outcome.ok
        and set(world.bookkeeper.ledgers) == ledgers
        and await world.znode(REF.path) is None
    )
    assert (await exported(world)).ok


# ---- which cursors, and the settings


async def chosen(world: PulsarWorld, selection: Selection) -> tuple[list[str], list[SkippedPath]]:
    skipped: list[SkippedPath] = []
    found = [
        str(ref)
        async for ref in iter_ours((await world.ports()).footers, selection, skipped=skipped.append)
    ]
    return sorted(found), skipped


async def test_our_cursors_by_tenant_namespace_and_topic(world: PulsarWorld) -> None:
    cursors: Sequence[tuple[str, str]] = [
        ("persistent://t/ns/a", "s1"),
        ("persistent://t/ns/a", "s2"),
        ("persistent://t/ns/a-partition-3", "s1"),
        ("persistent://t/ns/a-partition-x", "s1"),
        ("persistent://t/other/a", "s1"),
        ("persistent://tt/ns/a", "s1"),
        ("strange", "s1"),
    ]
    for topic, sub in cursors:
        await world.closed(CursorName(topic, sub), l7=((1, 2),))
    gone = await world.source(CursorName("persistent://t/ns/gone", "s1"))
    gone.send(ev.Delete())
    await gone.told.until(lambda: gone.told.ended == "deleted")
    found, skipped = await chosen(world, Selection.everything())
    assert found == sorted(f"{t}|{s}" for t, s in cursors if t != "strange") and [
        s.path for s in skipped
    ] == ["strange|s1"]
    assert len((await chosen(world, Selection.of_tenant("t")))[0]) == 5
    assert len((await chosen(world, Selection.of_namespace("t/ns")))[0]) == 4
    assert (await chosen(world, Selection.of_topic("persistent://t/ns/a")))[0] == [
        "persistent://t/ns/a-partition-3|s1",
        "persistent://t/ns/a|s1",
        "persistent://t/ns/a|s2",
    ]
    assert (await chosen(world, Selection.of_topic("persistent://t/ns/a", "s2")))[0] == [
        "persistent://t/ns/a|s2"
    ]
    assert (await chosen(world, Selection.of_topic("persistent://t/ns/gone", "s1")))[0] == []


def test_quorums_and_limits_of_a_broker_conf() -> None:
    assert ledger_spec({}) == LedgerSpec(2, 2, 2, Digest.CRC32C, b"")
    conf = {
        "managedLedgerDefaultEnsembleSize": "3",
        "managedLedgerDigestType": "MAC",
        "managedLedgerPassword": "x",
    }
    assert ledger_spec(conf) == LedgerSpec(3, 2, 2, Digest.MAC, b"x")
    for bad in (
        {"managedLedgerDefaultAckQuorum": "3"},
        {"managedLedgerDigestType": "MD5"},
        {"managedLedgerDefaultEnsembleSize": "x"},
    ):
        with pytest.raises(ProblemError):
            ledger_spec(bad)
    assert target_module.ENTRY_MARGIN_BYTES >= target_module.ADD_OVERHEAD_BYTES
    assert PartialKey(7, 5) in state().batches

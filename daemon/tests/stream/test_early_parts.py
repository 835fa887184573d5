"""A state that is sent while it is still being read: what a source of the Python client makes of it
is what the whole state says, and nothing if the reading fails.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap

from cursorkeeper.access.callers import Shown
from cursorkeeper.core.positions import Position
from cursorkeeper.core.state import AckState
from cursorkeeper.core.values import (
    Delta,
    LayoutItem,
    LayoutState,
    Partial,
    PartialKey,
    Segment,
    Slice,
)
from cursorkeeper.format import record
from cursorkeeper.format.record import Kind
from cursorkeeper.runtime import ledger_join
from cursorkeeper.stream import early_parts, state_parts
from cursorkeeper.stream.early_parts import EarlyParts
from cursorkeeper.stream.session import Session
from cursorkeeper_client._proto import acks_pb2 as pb
from cursorkeeper_client.ack_stream.handle import CursorHandle
from cursorkeeper_client.ack_stream.outbox import Outbox
from cursorkeeper_client.ack_stream.recovered import RecoveredParts
from cursorkeeper_client.errors import CursorDeposed, CursorRefused
from cursorkeeper_client.settings import ClientSettings
from cursorkeeper_client.values import CursorState
from daemon.tests.fakes.bookkeeper.fake import Damage
from daemon.tests.runtime.test_chain_damage import DATA, Kept, kept
from daemon.tests.runtime.virtual import virtual
from daemon.tests.support.guards import guard
from daemon.tests.support.machine_bench import Bench
from daemon.tests.support.outboxes import next_message
from daemon.tests.support.world import NAME


@pytest.fixture
def all_is_large() -> Iterator[None]:
    """Every slice leaves as soon as it is joined, and every record is joined alone."""
    before = early_parts.EARLY_FROM_BYTES, early_parts.SET_BYTES_MIN
    joined = ledger_join.YIELD_EVERY_RECORDS, ledger_join.YIELD_AFTER_RECORDS
    early_parts.EARLY_FROM_BYTES = early_parts.SET_BYTES_MIN = 1
    ledger_join.YIELD_EVERY_RECORDS, ledger_join.YIELD_AFTER_RECORDS = 1, 0
    yield
    early_parts.EARLY_FROM_BYTES, early_parts.SET_BYTES_MIN = before
    ledger_join.YIELD_EVERY_RECORDS, ledger_join.YIELD_AFTER_RECORDS = joined


class Source:
    """A handle of the Python client at a session of the daemon, without a transport."""

    def __init__(self, session: Session) -> None:
        self.session, self.kinds = session, list[str]()
        self.handle = CursorHandle(1, "c", ClientSettings(), Outbox(1 << 20))
        session.receive(pb.SourceMessage(hello=pb.Hello(name="t", protocol_versions=[1])))
        opening = pb.OpenCursor(
            handle=1, topic=NAME.topic, subscription=NAME.subscription, takeover=True
        )
        session.receive(pb.SourceMessage(open_cursor=opening))

    async def until(self, *kinds: str) -> None:
        async with asyncio.timeout(60):
            while not self.kinds or self.kinds[-1] not in kinds:
                message = await next_message(self.session.outbox)
                assert message is not None
                kind = message.WhichOneof("message")
                assert kind is not None
                if kind != "hello":
                    self.kinds.append(kind)
                    self.handle.receive(kind, message)


async def source_of(here: Kept) -> Source:
    keeper = await here.world.keeper("next")
    return Source(Session(keeper, guard(), Shown(), name="k", incarnation="1"))


@pytest.mark.usefixtures("all_is_large")
@virtual
async def test_parts_leave_before_the_last_record_is_read() -> None:
    here = await kept()
    here.world.bookkeeper.faults.delay_min_s = here.world.bookkeeper.faults.delay_max_s = 0.01
    source = await source_of(here)
    await source.until("state_part")
    assert source.kinds == ["opened", "state_part"]
    await source.until("credit")
    assert source.kinds.count("opened") == 1, "nothing is told twice"
    state = await source.handle.opened()
    assert {1, 2, 3, 4} <= set(state.acked[DATA])
    assert state.acked_entries == len(state.acked[DATA])


@pytest.mark.usefixtures("all_is_large")
@virtual
async def test_a_reading_that_fails_behind_parts_is_a_clear_error_and_no_state() -> None:
    here = await kept()
    here.world.bookkeeper.damage(
        here.base.ledger, here.entry_of(here.base.ledger, Kind.DELTA, last=True), Damage.FLIP
    )
    source = await source_of(here)
    await source.until("refused")
    assert source.kinds[:2] == ["opened", "state_part"] and "state_end" not in source.kinds
    with pytest.raises(CursorRefused, match="crc32c") as raised:
        await source.handle.opened()
    assert raised.value.remedy
    assert source.handle._parts is None, "what came is dropped"


@pytest.mark.usefixtures("all_is_large")
@virtual
async def test_who_is_deposed_behind_parts_has_no_state() -> None:
    here = await kept()
    source = await source_of(here)
    await source.until("state_part")
    second = Source(Session(source.session.keeper, guard(), Shown(), name="k", incarnation="1"))
    await source.until("deposed")
    assert "state_end" not in source.kinds
    with pytest.raises(CursorDeposed):
        await source.handle.opened()
    await second.until("credit")
    assert {1, 2, 3, 4} <= set((await second.handle.opened()).acked[DATA])


@pytest.mark.usefixtures("all_is_large")
@virtual
async def test_a_snapshot_that_is_found_damaged_behind_parts_begins_again() -> None:
    here = await kept()
    entries = here.world.bookkeeper.ledgers[here.base.ledger].entries
    good = record.decode(entries[here.base.first_entry], NAME.record_hash)
    entries[here.base.first_entry] = record.encode(replace(good, sequence=good.sequence + 77))
    source = await source_of(here)
    await source.until("credit")
    assert source.kinds.count("opened") == 2 and source.kinds[:2] == ["opened", "state_part"]
    state = await source.handle.opened()
    assert {1, 2, 3, 4} <= set(state.acked[DATA])
    assert state.acked_entries == len(state.acked[DATA])


@pytest.mark.usefixtures("all_is_large")
@virtual
async def test_too_much_for_a_source_that_does_not_read_comes_when_it_is_known() -> None:
    held, early_parts.HELD_BYTES_MAX = early_parts.HELD_BYTES_MAX, 1
    try:
        source = await source_of(await kept())
        await source.until("credit")
    finally:
        early_parts.HELD_BYTES_MAX = held
    assert source.kinds[-2:] == ["state_end", "credit"]
    assert {1, 2, 3, 4} <= set((await source.handle.opened()).acked[DATA])


# ---- whatever is joined


ENTRIES = 300
SETS = st.sets(st.integers(0, ENTRIES - 1), max_size=20).map(BitMap)
LEDGERS = st.integers(1, 4)


@st.composite
def slices(draw: st.DrawFn) -> Slice:
    first = draw(st.integers(0, ENTRIES - 1))
    last = draw(st.integers(first, ENTRIES - 1))
    inside = draw(SETS) & BitMap(range(first, last + 1))
    return Slice(draw(LEDGERS), first, last, draw(st.booleans()), inside)


PARTIALS = st.dictionaries(
    st.builds(PartialKey, LEDGERS, st.integers(0, ENTRIES - 1)),
    st.sets(st.integers(0, 3), min_size=1).map(lambda found: Partial(4, BitMap(found))),
    max_size=3,
)
LAYOUTS = st.dictionaries(LEDGERS, st.sampled_from(LayoutState), max_size=3).map(
    lambda found: tuple(LayoutItem(at, found[at], ENTRIES) for at in sorted(found))
)
POSITIONS = st.none() | st.builds(Position, LEDGERS, st.integers(-1, ENTRIES - 1))
JOINED = st.lists(
    st.builds(
        Delta,
        mark_delete=POSITIONS,
        layout=LAYOUTS,
        acks=st.dictionaries(LEDGERS, SETS.filter(bool), max_size=3),
        partials=PARTIALS,
    )
    | st.builds(Segment, partials=PARTIALS, slices=st.lists(slices(), max_size=3).map(tuple)),
    max_size=6,
)


def _recovered(messages: list[pb.KeeperMessage]) -> CursorState | None:
    parts = state = None
    for message in messages:
        if message.HasField("opened"):
            parts = RecoveredParts(message.opened)
        elif message.HasField("state_part"):
            assert parts is not None
            parts.add(message.state_part)
        else:
            assert parts is not None
            state = parts.end(message.state_end)
    return state


@given(JOINED, st.integers(0, 5), st.sampled_from([1, 20, 1 << 20]), st.booleans())
def test_what_was_sent_early_and_the_rest_are_the_state(
    joined: list[Delta | Segment], read: int, set_bytes_min: int, is_read: bool
) -> None:
    machine = Bench().opened("a").machine
    state, sent = AckState(), list[pb.KeeperMessage]()
    before = early_parts.EARLY_FROM_BYTES, early_parts.SET_BYTES_MIN
    early_parts.EARLY_FROM_BYTES, early_parts.SET_BYTES_MIN = 1, set_bytes_min
    try:
        early = EarlyParts(1, machine)
        for number, part in enumerate(joined):
            if isinstance(part, Delta):
                state.join_delta(part)
            else:
                state.join_segment(part)
            early.add([part])
            if early.is_due and (is_read or number >= read):
                sent += early.messages()
        state.settle()
        machine.flow.acks = state
        rest = early.rest(machine, created=False)
        whole = list(state_parts.messages(1, machine))
        found = _recovered([*sent, *(whole if rest is None else rest)])
    finally:
        early_parts.EARLY_FROM_BYTES, early_parts.SET_BYTES_MIN = before
    assert found == _recovered(whole)

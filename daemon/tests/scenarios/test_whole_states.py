"""Stories of daemons that write whole states in Pulsar's form: what is named when, what a crash
leaves, switching formats.
"""

from __future__ import annotations

import random

import pytest

from cursorkeeper.core import effects as fx
from cursorkeeper.core import events as ev
from cursorkeeper.core.errors import Refusal
from cursorkeeper.core.footer import (
    FORMAT_NATIVE,
    FORMAT_PULSAR,
    EmptyBase,
    InlineBase,
    PulsarBase,
    SnapshotBase,
)
from cursorkeeper.core.limits import Limits
from cursorkeeper.core.positions import Position
from cursorkeeper.core.table import State
from cursorkeeper.format.pulsar import chunks, position_info
from cursorkeeper.format.pulsar.values import Compression, Form
from daemon.tests.core.described import seen
from daemon.tests.support.machine_bench import DATA, Bench, Owner
from daemon.tests.support.whole import SLICE, footers, raw, whole_bench, writer
from daemon.tests.support.world import acks, closed, opened, partial

FAR = 5_000
"""An acked entry so far out makes a long array of many slices."""


def flushed(owner: Owner, *entries: int) -> Owner:
    owner.ack(*entries)
    owner.go()
    assert owner.durable == owner.seq
    return owner


def read_again(bench: Bench) -> Owner:
    """A new owner, and what it was told of the chain."""
    owner = bench.opened(f"reader {bench.now}")
    assert owner.state is State.READY, owner.refused
    return owner


# ---- what is in a ledger


@pytest.mark.parametrize("form", list(Form))
@pytest.mark.parametrize("compression", list(Compression))
def test_r01_a_state_of_any_size_is_several_entries(form: Form, compression: Compression) -> None:
    """From nothing to thousands of slices; the next owner finds every ack."""
    bench = whole_bench(form=form, compression=compression)
    a, rng = bench.opened("A"), random.Random(1)
    for count in (1, 30, 3_000):
        flushed(a, *rng.sample(range(1, 60_000), count))
    assert len(raw(a)) > 40
    assert all(len(entry) <= SLICE for entry in raw(a))
    assert seen(read_again(bench).machine.acks) == seen(a.machine.acks)
    bench.ask()


def test_r03_the_footer_counts_the_entries_in_front_of_it() -> None:
    bench = whole_bench()
    a = flushed(bench.opened("A"), 1, FAR)
    entries = bench.ledgers[bench.chain[0]].entries
    [at] = footers(entries)
    assert at == len(entries) - 1, "the last entry of the ledger"
    length = sum(map(len, entries[:at]))
    assert entries[at] == b'{"numParts":%d,"length":%d}' % (at, length)
    assert at == 1 + length // SLICE
    info = position_info.decode(b"".join(entries[:at]))
    assert set(info.acked[DATA]) == {1, FAR}
    assert raw(a) == entries


def test_r03_a_length_that_is_a_multiple_of_the_slice_ends_with_an_empty_one() -> None:
    """As PIP-381's code writes it: 1 + length div size parts."""
    for entry in range(3_000, 4_000, 64):
        one = whole_bench(max_entry_bytes=10_000)
        [state] = raw(flushed(one.opened("A"), 1, entry))
        slices = [size for size in range(64, len(state)) if len(state) % size == 0]
        if slices:
            bench = whole_bench(max_entry_bytes=slices[0])
            flushed(bench.opened("A"), 1, entry)
            entries = bench.ledgers[bench.chain[0]].entries
            assert entries[-2:] == [
                b"",
                b'{"numParts":%d,"length":%d}' % (1 + len(state) // slices[0], len(state)),
            ]
            bench.ask()
            return
    raise AssertionError("no such length was met")


def test_r04_the_last_entry_says_how_to_read() -> None:
    """A small state is one plain PositionInfo, also behind a chunked one; the newest counts."""
    bench = whole_bench()
    a = flushed(bench.opened("A"), 1, FAR)
    a.send(acks(DATA, 2), mark_delete=Position(DATA, FAR + 10))
    a.go()
    entries = bench.ledgers[bench.chain[0]].entries
    assert len(bench.chain) == 1 and chunks.parse_footer(entries[-1]) is None
    assert position_info.decode(entries[-1]).mark_delete == Position(DATA, FAR + 10)
    assert read_again(bench).machine.acks.mark_delete == Position(DATA, FAR + 10)


def test_r04_a_state_that_was_cut_off_is_walked_over_and_told() -> None:
    """The owner dies between the slices of its second flush: it was never confirmed, the first one
    was.
    """
    bench = whole_bench()
    a = flushed(bench.opened("A"), 1, FAR)
    whole = len(bench.ledgers[bench.chain[0]].entries)
    a.ack(2)
    first = a.hold(fx.Append)
    a.do(first)
    assert a.durable == 1
    b = bench.owner("B", retry_min_ms=50)
    b.start()
    reading = b.hold(fx.ReadChain)
    assert reading.footer.chain[0].last_entry == whole, "one slice behind the state"
    answer = b.arrives(reading)
    assert isinstance(answer, ev.ChainRead)
    assert answer.unfinished == ((bench.chain[0], whole),)
    b.step(answer)
    b.go()
    assert not b.machine.acks.is_acked(DATA, 2) and b.machine.acks.is_acked(DATA, FAR)
    flushed(b, 3)
    bench.ask()


def test_damage_is_never_an_older_state() -> None:
    """A slice of the newest state is spoilt: an older state is there, and is not taken."""
    bench = whole_bench()
    a = flushed(flushed(bench.opened("A"), 1, FAR), 2)
    [ledger] = bench.chain
    states = footers(bench.ledgers[ledger].entries)
    assert len(states) == 2
    before = bench.znode
    bench.damaged.add((ledger, states[1]))
    b = bench.opened("B")
    assert b.state is State.REFUSED and b.refused is not None and b.refused.code is Refusal.DAMAGED
    assert f"ledger {ledger}" in b.refused.message
    assert before is not None and bench.znode is not None and bench.footer.chain[0].ledger == ledger
    assert not b.deletions() and a.machine.acks.is_acked(DATA, 2)


@pytest.mark.parametrize(
    ("key", "value", "problem"),
    [
        ("cursor", b"somebody|else", "belongs to somebody|else"),
        ("generation", b"7", "is of generation 7"),
        ("epoch", b"99", "is of epoch 99"),
        ("format", b"native", "is of format 'native'"),
        ("entry-bytes-max", b"many", "lacks epoch, generation or entry-bytes-max"),
        ("pulsar/cursor-compressionType", b"BROTLI", "is compressed with BROTLI"),
    ],
)
def test_a_ledger_says_whose_it_is_before_it_is_believed(
    key: str, value: bytes, problem: str
) -> None:
    bench = whole_bench()
    flushed(bench.opened("A"), 1, FAR)
    bench.ledgers[bench.chain[0]].metadata[key] = value
    b = bench.opened("B")
    assert b.state is State.REFUSED and b.refused is not None
    assert problem in b.refused.message and f"ledger {bench.chain[0]}" in b.refused.message


# ---- when it is named, and what is confirmed


def test_a_ledger_is_named_when_its_first_state_is_complete_and_not_before() -> None:
    bench = whole_bench(Limits(appends_in_flight_max=2))
    a = bench.opened("A")
    a.ack(1, FAR)
    while True:
        append = a.hold(fx.Append)
        a.do(append)
        if footers(raw(a)) and append.entry == footers(raw(a))[0]:
            break
        assert not bench.chain and not [e for e in a.todo if isinstance(e, fx.WriteFooter)], (
            "a slice names nothing"
        )
        assert a.machine.writer.in_flight <= 2
    naming = a.hold(fx.WriteFooter)
    assert a.durable == 0, "not before the footer leads to it"
    assert [c.format for c in naming.footer.chain] == [FORMAT_PULSAR]
    a.do(naming)
    assert a.durable == 1
    bench.ask()


@pytest.mark.parametrize("waits_for", ["name", "properties"])
def test_while_zookeeper_is_away_states_do_not_pile_up(waits_for: str) -> None:
    """Nothing is confirmed meanwhile, and each state is the whole one: some are on their way, the
    rest is one value in memory.
    """
    bench = whole_bench(Limits(appends_in_flight_max=3, whole_state_interval_ms=1))
    a = bench.opened("A")
    if waits_for == "properties":
        flushed(a, 1)
        a.seq += 1
        a.step(ev.SetProperties(1, a.seq, 1, {"owner": "billing"}))
    else:
        a.ack(1)
    away, flushes = a.hold(fx.WriteFooter), a.machine.counters.flushes
    for entry in range(2, 60):
        a.ack(entry * 3)
        a.go()
    assert (
        a.durable < 2
        and len(a.machine.writer.unconfirmed) <= 3
        and a.machine.counters.flushes <= flushes + 3
    )
    a.do(away)
    a.go()
    assert a.durable == a.seq
    bench.ask()


def test_a_ledger_that_never_held_a_whole_state_is_dropped() -> None:
    bench = whole_bench()
    a = bench.opened("A")
    a.ack(1, FAR)
    a.do(a.hold(fx.Append))
    a.unknown(a.hold(fx.Append))
    a.go()
    assert a.durable == 1
    first, second = sorted({e.ledger for e in a.did(fx.Append)})
    assert bench.chain == [second] and first in a.deletions()
    bench.ask()


@pytest.mark.parametrize("how", ["fails", "rolls"])
def test_a_state_that_was_half_sent_is_taken_again_in_the_next_ledger_from_its_beginning(
    how: str,
) -> None:
    """A reader knows an unfinished state by its place, at the end of a ledger: the rest of it may
    stand nowhere.
    """
    bench = whole_bench(Limits(appends_in_flight_max=2))
    a = flushed(bench.opened("A"), 1, 10 * FAR)
    first, state = bench.chain[0], len(raw(a))
    a.ack(2)
    a.do(a.hold(fx.Append))
    assert len(a.machine.writer.outbox) > 4, "most of it has not left"
    if how == "fails":
        a.unknown(a.hold(fx.Append))
    else:
        a.step(ev.Roll())
    a.go()
    assert a.durable == a.seq
    [second] = bench.chain
    assert second != first and len(raw(a, first)) < 2 * state
    entries = bench.ledgers[second].entries
    assert footers(entries)[0] == state - 1 == len(entries) - 1
    assert set(position_info.decode(b"".join(entries[:-1])).acked[DATA]) == {1, 2, 10 * FAR}
    bench.ask()


def test_a_close_waits_for_the_rest_of_a_state() -> None:
    bench = whole_bench(Limits(appends_in_flight_max=2, inline_state_max_bytes=0))
    a = flushed(bench.opened("A"), 1, 10 * FAR)
    [ledger], state = bench.chain, len(raw(a))
    a.ack(2)
    a.do(a.hold(fx.Append))
    a.step(ev.Close())
    a.go()
    assert a.state is State.CLOSED and a.durable == a.seq
    assert bench.chain == [ledger] and len(bench.ledgers[ledger].entries) == 2 * state, (
        "no ledger more than it needs"
    )
    bench.ask()


def test_the_second_state_waits_until_the_first_has_left_and_the_newest_wins() -> None:
    bench = whole_bench(Limits(appends_in_flight_max=2, whole_state_interval_ms=1))
    a = flushed(bench.opened("A"), 1, FAR)
    sent = len(raw(a))
    a.ack(2)
    a.do(a.hold(fx.Append))
    for entry in range(3, 40):
        a.ack(entry)
        a.step(ev.Tick(64))
    a.go()
    assert a.durable == a.seq
    states = footers(raw(a)[sent:])
    assert len(states) == 2, (
        "one for the ack that was alone, one for all that came while it was on its way"
    )
    bench.ask()


def test_a_roll_replaces_the_ledger_by_one_that_holds_everything() -> None:
    bench = whole_bench(Limits(ledger_bytes_max=2_000))
    a = bench.opened("A")
    for entry in range(1, 30):
        flushed(a, entry * 7, FAR)
    assert a.machine.counters.rolls > 2
    assert (
        len(bench.footer.chain) == 1
        and bench.footer.previous is None
        and isinstance(bench.footer.base, EmptyBase)
    )
    assert set(bench.ledgers) == set(bench.chain), "what was named before is deleted"
    assert a.machine.counters.snapshots == 0
    bench.ask()


def test_repeats_of_what_is_durable_are_confirmed_without_a_flush() -> None:
    bench = whole_bench()
    flushed(bench.opened("A"), 1, FAR)
    b = read_again(bench)
    b.ack(1)
    b.go()
    assert b.durable == 1 and not b.did(fx.Append) and not b.did(fx.CreateLedger)


def test_r13_at_most_one_state_per_interval_and_no_ack_waits_longer() -> None:
    """The window: an ack waits for the interval at most, then for its append. What waits is not
    confirmed.
    """
    bench = whole_bench(Limits(whole_state_interval_ms=1_000))
    a, rng = bench.opened("A"), random.Random(7)
    began, waited = bench.now, []
    for entry in range(200):
        sent_at = bench.now
        seq = a.ack(entry)
        assert a.durable < seq
        a.go(lambda seq=seq: a.durable >= seq)  # type: ignore[misc]
        waited.append(bench.now - sent_at)
        bench.now += rng.random() / 10
    states = a.machine.counters.flushes
    assert max(waited) <= 1.0
    assert states <= (bench.now - began) / 1.0 + 2
    assert a.machine.form.interval_ms == 1_000


# ---- what only the footer holds


def test_properties_are_confirmed_when_the_committed_footer_holds_them() -> None:
    bench = whole_bench()
    a = flushed(bench.opened("A"), 1)
    a.seq += 1
    a.step(ev.SetProperties(1, a.seq, 1, {"owner": "billing"}))
    noting = a.hold(fx.WriteFooter)
    a.go()
    assert a.durable < a.seq, "the state is in BookKeeper, the properties are nowhere"
    a.do(noting)
    assert a.durable == a.seq
    assert bench.footer.cursor_properties is not None and bench.footer.cursor_properties.values == {
        "owner": "billing"
    }
    properties = read_again(bench).machine.acks.cursor_properties
    assert properties is not None and properties.values == {"owner": "billing"}
    bench.ask()


def test_properties_of_a_new_cursor_are_in_its_first_footer() -> None:
    bench = whole_bench()
    a = bench.owner("A").open(cursor_properties={"a": "b"})
    assert a.state is State.READY and bench.footer.format == FORMAT_PULSAR
    flushed(a, 1, FAR)
    a.step(ev.Close())
    a.go()
    properties = read_again(bench).machine.acks.cursor_properties
    assert properties is not None and properties.values == {"a": "b"}


def test_the_layout_is_not_kept_and_nothing_is_skipped_for_the_want_of_it() -> None:
    """The source tells it at each open. Until it does, mark-delete stays where it is, and every ack
    is there all the same.
    """
    bench = whole_bench()
    layout = (closed(10, 3), closed(14, 2), opened(20))
    a = bench.owner("A").open(layout=layout)
    a.send(acks(10, 0, 1))
    a.send(acks(14, 0, 1))
    a.send(acks(20, 0, 5))
    a.go()
    assert a.durable == a.seq and a.machine.acks.mark_delete == Position(10, 1)
    b = bench.opened("B")
    assert not len(b.machine.acks.layout)
    b.send(acks(10, 2))
    b.go()
    assert b.durable == b.seq
    assert b.machine.acks.mark_delete == Position(10, 2), (
        "it cannot know what comes after ledger 10"
    )
    assert b.machine.acks.is_acked(14, 1) and not b.machine.acks.is_acked(20, 1)
    c = bench.owner("C").open(layout=layout)
    c.go()
    assert c.machine.acks.mark_delete == Position(20, 0), "crosses as soon as it is told"
    assert c.machine.acks.is_acked(20, 5) and not c.machine.acks.is_acked(20, 1)


def test_batch_sizes_are_not_kept_and_the_remaining_indexes_are() -> None:
    bench = whole_bench()
    a = bench.opened("A")
    a.send(partial(DATA, 7, 10, {2, 9}), acks(DATA, 3))
    a.go()
    found = read_again(bench).machine.acks.partial(DATA, 7)
    assert found is not None and (found.batch_size, set(found.missing)) == (0, {2, 9})


# ---- footers that hold the state


def test_r12_a_small_state_closes_into_the_footer_as_pulsars_own_message() -> None:
    bench = whole_bench()
    a = flushed(bench.opened("A"), 1, 5)
    [ledger] = bench.chain
    a.send(partial(DATA, 7, 4, {1}))
    a.step(ev.Close())
    a.go()
    assert a.state is State.CLOSED and a.durable == a.seq
    assert (
        isinstance(bench.footer.base, PulsarBase)
        and not bench.chain
        and ledger not in bench.ledgers
    )
    b = read_again(bench)
    assert (
        seen(b.machine.acks)["acked"] == {DATA: {1, 5}}
        and b.machine.acks.partial(DATA, 7) is not None
    )
    flushed(b, 9)
    assert isinstance(bench.footer.base, EmptyBase) and len(bench.chain) == 1
    bench.ask()


def test_r12_bookkeeper_comes_first_and_the_footer_only_helps_small_states_out() -> None:
    """BookKeeper away: nothing goes into the footer for two seconds; then a small state does, a
    large one waits.
    """
    for far, helps in ((20, True), (600_000, False)):
        bench = whole_bench()
        a = flushed(bench.opened("A"), 1)
        bench.state_writer = None
        a.ack(*range(5, far, 2))
        a.unknown(a.hold(fx.Append))
        for _ in range(40):
            creating = next((e for e in a.todo if isinstance(e, fx.CreateLedger)), None)
            if creating is None:
                a.go(
                    lambda a=a: (
                        any(isinstance(e, fx.CreateLedger) for e in a.todo) or a.durable == a.seq
                    )
                )  # type: ignore[misc]
                continue
            a.todo.remove(creating)
            a.step(ev.LedgerCreateFailed(creating.token, "no bookies"))
        assert bool(isinstance(bench.footer.base, PulsarBase)) is helps
        assert (a.durable == a.seq) is helps
        assert a.did(fx.Pause)
        if helps:
            assert bench.now > 2.0
            continue
        a.go()
        assert a.durable == a.seq and a.did(fx.Resume), "it goes on by itself when bookies are back"


def test_a_reset_is_one_footer_write_at_the_target() -> None:
    bench = whole_bench()
    a = flushed(bench.owner("A").open(cursor_properties={"a": "b"}), 1, FAR)
    bench.new_generation()
    written = len(a.did(fx.WriteFooter))
    a.reset(Position(DATA, 3))
    a.go()
    [reset] = a.did(fx.WriteFooter)[written:]
    assert reset.footer.cursor_properties is not None, "nothing else holds them"
    assert a.resets and bench.footer.generation == 2
    assert bench.footer.base == EmptyBase(Position(DATA, 3)) and not bench.chain
    flushed(a, 7)
    b = read_again(bench)
    assert b.machine.acks.is_acked(DATA, 7) and not b.machine.acks.is_acked(DATA, FAR)
    assert b.machine.acks.cursor_properties is not None


# ---- switching formats


def native(owner: Owner) -> None:
    for entry in (1, 4, FAR):
        flushed(owner, entry)


def test_from_native_to_pulsar_without_a_new_ack() -> None:
    """The whole state is written right after READY and stands for everything that was named
    before.
    """
    bench = Bench()
    native(bench.opened("A"))
    old = bench.chain
    bench.state_writer = writer()
    b = bench.opened("B")
    b.go()
    assert [c.format for c in bench.footer.chain] == [
        FORMAT_PULSAR
    ] and bench.footer.format == FORMAT_PULSAR
    assert isinstance(bench.footer.base, EmptyBase) and bench.footer.previous is None
    assert not set(old) & set(bench.ledgers)
    assert not b.did(fx.Confirm)
    bench.ask()


def test_from_native_to_pulsar_the_old_chain_stands_until_the_new_one_is_named() -> None:
    bench = Bench()
    native(bench.opened("A"))
    old = bench.chain
    bench.state_writer = writer()
    b = bench.owner("B").start()
    b.do(b.hold(fx.WriteFooter))  # the claim
    naming = b.hold(fx.WriteFooter)
    assert bench.chain == old and not b.deletions()
    b.unknown(naming)  # lost, and B dies
    bench.state_writer = None
    bench.ask()


def test_from_pulsar_to_native_in_two_snapshots() -> None:
    """The first makes Pulsar's ledger the fall-back, the second drops it: at no time is there
    nothing to fall back to.
    """
    bench = whole_bench()
    flushed(bench.owner("A").open(cursor_properties={"a": "b"}), 1, 4, FAR)
    [old] = bench.chain
    bench.state_writer = None
    b = bench.owner("B").start()
    b.go(lambda: isinstance(bench.footer.base, SnapshotBase))
    assert bench.footer.format == FORMAT_PULSAR and bench.footer.previous is not None
    assert [c.ledger for c in bench.footer.previous.chain] == [old] and old in bench.ledgers
    b.go()
    assert bench.footer.format == FORMAT_NATIVE and old not in bench.ledgers
    assert b.machine.counters.snapshots == 2
    assert bench.footer.cursor_properties is None
    state = bench.ask()
    assert state.cursor_properties is not None and state.cursor_properties.values == {"a": "b"}


def test_a_chain_of_both_formats_is_joined() -> None:
    """The native owner dies before its snapshot: its deltas stand behind the whole state, and
    either format goes on.
    """
    for goes_on in (None, writer()):
        bench = whole_bench()
        flushed(bench.opened("A"), 1, FAR)
        bench.state_writer = None
        b = bench.owner("B").start()
        b.go(lambda b=b: b.streamed == 1)  # type: ignore[misc]
        b.ack(2)
        b.go(lambda b=b: b.durable == 1)  # type: ignore[misc]
        b.ack(3)
        b.go(lambda b=b: b.durable == 2)  # type: ignore[misc]
        assert bench.footer.format == FORMAT_PULSAR
        bench.state_writer = goes_on
        flushed(bench.opened("C"), 9)
        state = bench.ask()
        assert all(state.is_acked(DATA, e) for e in (1, 2, 3, 9, FAR))


def test_a_damaged_first_snapshot_falls_back_to_pulsars_ledger() -> None:
    bench = whole_bench()
    flushed(bench.opened("A"), 1, FAR)
    bench.state_writer = None
    b = bench.owner("B").start()
    b.go(lambda: isinstance(bench.footer.base, SnapshotBase))
    base = bench.footer.base
    assert isinstance(base, SnapshotBase)
    bench.damaged.add((base.ledger, base.first_entry))
    bench.ask()


def test_closed_inline_in_one_format_and_opened_in_the_other() -> None:
    for first, second, wanted in ((writer(), None, InlineBase), (None, writer(), PulsarBase)):
        bench = Bench(state_writer=first)
        a = flushed(bench.opened("A"), 1, 4)
        a.step(ev.Close())
        a.go()
        bench.state_writer = second
        b = flushed(bench.opened("B"), 9)
        b.step(ev.Close())
        b.go()
        assert isinstance(bench.footer.base, wanted) and not bench.chain
        bench.ask()

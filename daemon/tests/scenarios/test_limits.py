"""Stories at a limit: a state that may not be written is not written, nothing is lost, and it goes
on when it fits again.

And the one policy that leaves something out: said before it is done, to the source, in the footer,
and afterwards.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from cursorkeeper.core import effects as fx
from cursorkeeper.core import events as ev
from cursorkeeper.core.footer import FORMAT_PULSAR
from cursorkeeper.core.limits import Limits
from cursorkeeper.core.positions import Position
from cursorkeeper.core.state import AckState
from cursorkeeper.core.table import State
from cursorkeeper.core.values import LayoutItem, LayoutState
from cursorkeeper.format.pulsar import position_info
from cursorkeeper.format.whole_state import PulsarStateWriter
from daemon.tests.support.calls import calls_of
from daemon.tests.support.machine_bench import DATA, Bench, Owner
from daemon.tests.support.whole import raw, whole_bench, writer
from daemon.tests.support.world import acks, closed, opened, partial


def at_the_limit(
    ranges_max: int = 2, limits: Limits | None = None, **settings: Any
) -> tuple[Bench, Owner]:
    """Two ranges are durable, a third was acked."""
    bench = whole_bench(limits, ranges_max=ranges_max, **settings)
    a = bench.opened("A")
    a.ack(2, 4)
    a.go()
    assert a.durable == 1
    a.ack(6)
    a.go()
    return bench, a


def asked(bench: Bench) -> AckState:
    """What the next owner finds, and that it can work: without the limit."""
    bench.state_writer = None
    return bench.ask()


def pauses(owner: Owner) -> list[str]:
    return [e.reason for e in owner.did(fx.Pause)]


def test_r09_at_the_range_limit_nothing_is_written_and_nothing_is_dropped() -> None:
    bench, a = at_the_limit()
    entries = list(bench.ledgers[bench.chain[0]].entries)
    assert a.state is State.NOT_PERSISTABLE and a.durable == 1
    assert pauses(a) == [
        "the state has 3 ranges of acked entries, managedLedgerMaxUnackedRangesToPersist = 2: "
        "raise it, or let more be acked"
    ]
    for entry in (8, 10, 12):  # acks go on coming: they are kept, and not confirmed
        a.ack(entry)
        a.go()
    assert a.durable == 1 and bench.ledgers[bench.chain[0]].entries == entries
    assert all(a.machine.acks.is_acked(DATA, e) for e in (2, 4, 6, 8, 10, 12))
    assert len(pauses(a)) == 1 and not a.did(fx.Resume)
    a.ack(*range(3, 12, 2))  # the holes are filled: one range
    a.go()
    assert a.durable == a.seq and a.state is State.READY and len(a.did(fx.Resume)) == 1
    asked(bench)


def test_r09_what_was_not_confirmed_at_a_limit_is_not_there_after_a_crash_and_the_rest_is() -> None:
    bench, a = at_the_limit()
    state = asked(bench)
    assert state.is_acked(DATA, 4) and not state.is_acked(DATA, 6)
    assert a.durable == 1


def test_r09_the_limit_counts_ranges_and_never_entries() -> None:
    """Pulsar's long-array writer counts acked entries, and drops whole ledgers."""
    bench = whole_bench(ranges_max=2)
    a = bench.opened("A")
    a.send(acks(DATA, *range(1, 50_001)), acks(DATA + 5, *range(1, 50_001)))
    a.go()
    assert a.durable == 1 and a.state is State.READY
    asked(bench)


def test_r09_a_limit_does_not_undo_what_is_durable_already() -> None:
    """A native cursor is opened with a limit that its state breaks: it stays as it is on disk, and
    the source is paused.
    """
    bench = Bench()
    a = bench.opened("A")
    a.ack(2, 4, 6)
    a.go()
    chain = bench.chain
    bench.state_writer = writer(ranges_max=2)
    b = bench.opened("B")
    assert b.state is State.NOT_PERSISTABLE and bench.chain == chain and b.streamed == 1
    assert "3 ranges" in pauses(b)[0]
    b.ack(3, 5)
    b.go()
    assert (
        b.durable == b.seq
        and [c.format for c in bench.footer.chain] == [FORMAT_PULSAR]
        and b.did(fx.Resume)
    )
    asked(bench)


def test_r11_without_the_pause_setting_the_state_says_it_and_the_source_is_left_alone() -> None:
    _, a = at_the_limit(limits=Limits(pause_at_limit=False))
    assert (
        a.state is State.NOT_PERSISTABLE and not pauses(a) and a.machine.pause.paused_for == "limit"
    )
    assert "managedLedgerMaxUnackedRangesToPersist = 2" in a.machine.waiting_for
    assert [r.event for r in a.reports] == ["state does not fit"]
    a.ack(3, 5)
    a.go()
    assert a.durable == a.seq and a.state is State.READY and not pauses(a) and not a.did(fx.Resume)


def test_what_a_cursor_at_a_limit_waits_for_is_said_as_long_as_it_waits() -> None:
    """Also after a footer write that has nothing to do with it, and with the numbers of now."""
    _, a = at_the_limit()
    a.seq += 1
    a.step(ev.SetProperties(1, a.seq, 1, {"owner": "billing"}))
    a.ack(8)
    a.go()
    assert a.state is State.NOT_PERSISTABLE and "4 ranges" in a.machine.waiting_for
    a.ack(3, 5, 7)
    a.go()
    assert a.durable == a.seq and a.machine.waiting_for == ""


def test_acks_that_waited_at_a_limit_do_not_count_as_kept_from_bookkeeper_when_it_fits_again() -> (
    None
):
    """They are old by then; a source that may go on must not hear of another reason to wait."""
    _, a = at_the_limit()
    a.bench.now += 600.0
    a.ack(3, 5)
    a.hold(fx.Append)
    assert a.durable == 1 and not a.machine.form.unfit
    assert (
        len(pauses(a)) == 1
        and len(a.did(fx.Resume)) == 1
        and not a.machine.counters.inline_backstops
    )


def test_r11_the_size_it_looks_at_is_cached_at_each_flush() -> None:
    """PIP-299's cursorMetadataSizeInMemoryBytes: not real time."""
    bench = whole_bench()
    a = bench.opened("A")
    assert a.machine.form.metadata_bytes == 0
    a.ack(1, 5_000)
    assert a.machine.form.metadata_bytes == 0
    a.go()
    first = a.machine.form.metadata_bytes
    assert first == len(
        position_info.encode(position_info.decode(b"".join(raw(a)[:-1])), writer().settings.form)
    )
    a.ack(60_000)
    assert a.machine.form.metadata_bytes == first, "not before the next flush"
    a.go()
    assert a.machine.form.metadata_bytes > first


def test_r11_the_credit_of_acks_that_wait_at_a_limit_comes_back() -> None:
    """They are in the state already; the acks that make it fit again must be able to come."""
    _, a = at_the_limit()
    for entry in range(8, 100, 2):
        a.ack(entry)
        a.go()
    released = sum(e.released_bytes for e in a.did(fx.Confirm))
    assert a.durable == 1 and released == 100 * a.seq, "bytes, not confirmations"
    a.ack(*range(3, 100, 2))
    a.go()
    assert a.durable == a.seq and sum(e.released_bytes for e in a.did(fx.Confirm)) == 100 * a.seq


@pytest.mark.parametrize(
    "settings", [{"multiple": False, "entry_bytes_max": 300}, {"state_bytes_max": 300}]
)
def test_r23_the_size_is_checked_before_anything_is_sent(settings: dict[str, Any]) -> None:
    """No ledger is left, no entry fails, nothing is even encoded."""
    bench = whole_bench(**settings)
    a = bench.opened("A")
    a.ack(1)
    a.go()
    flushes, created = a.machine.counters.flushes, len(a.did(fx.CreateLedger))
    with calls_of(position_info.Writing.join) as encoded:
        for entry in range(2, 40):
            a.ack(entry * 500)
            a.go()
        tried = len(encoded)
        assert a.state is State.NOT_PERSISTABLE and "300" in pauses(a)[0]
        for entry in range(40, 60):
            a.ack(entry * 500)
            a.go()
        assert len(encoded) == tried, "the size was known without"
    assert (
        len(a.did(fx.CreateLedger)) == created and a.machine.counters.flushes - flushes == tried > 0
    )
    assert all(len(entry) <= 300 for entry in raw(a))
    asked(bench)


def test_r23_a_compressed_state_that_does_not_fit_one_entry_is_not_sent() -> None:
    from cursorkeeper.format.pulsar.values import Compression, Form

    bench = whole_bench(
        multiple=False, entry_bytes_max=200, compression=Compression.ZSTD, form=Form.RANGES
    )
    a = bench.opened("A")
    seen = 0
    for entry in range(1, 400):
        a.ack(entry * entry * 3)
        a.go()
        seen = max(seen, *map(len, raw(a)))
        if a.state is State.NOT_PERSISTABLE:
            break
    assert seen <= 200 and "one BookKeeper entry holds 200" in pauses(a)[0]
    assert not a.did(fx.FenceLedger) and len(a.did(fx.CreateLedger)) == 1
    asked(bench)


def test_a_close_at_a_limit_ends_and_confirms_nothing_more() -> None:
    """It can never fit again: nobody acks any more. What was confirmed is kept, the rest was never
    promised.
    """
    bench, a = at_the_limit()
    a.step(ev.Close())
    a.go()
    assert a.state is State.CLOSED and a.durable == 1
    assert "closed without the acks that were not confirmed" in [r.event for r in a.reports]
    state = asked(bench)
    assert not state.is_acked(DATA, 6)


def test_a_handle_that_comes_at_a_limit_gets_what_is_durable() -> None:
    """The machine ends for it: read again, as by a new owner, the state holds what was confirmed
    and nothing else.
    """
    bench, a = at_the_limit()
    a.step(ev.Attach(2))
    a.go()
    [ended] = a.did(fx.Ended)
    assert a.state is State.CLOSED and ended.reopen == 2 and a.durable == 1 and a.streamed == 1
    assert not asked(bench).is_acked(DATA, 6)


def test_a_handle_at_a_limit_that_goes_away_is_not_waited_for() -> None:
    _, a = at_the_limit()
    a.step(ev.Attach(2))
    a.step(ev.Detach(2))
    a.go()
    assert all(e.reopen is None for e in a.did(fx.Ended))


def test_a_trimmed_ledger_makes_a_state_fit() -> None:
    """Nothing is acked, and what is written does not even mention the layout: it is tried again all
    the same.
    """
    bench = whole_bench(ranges_max=2)
    a = bench.owner("A").open(layout=(closed(10, 9), closed(14, 9), opened(20)))
    a.send(acks(10, 2), acks(20, 3))
    a.go()
    a.send(acks(14, 4, 6))
    a.go()
    assert a.state is State.NOT_PERSISTABLE and a.durable == 1
    a.seq += 1
    a.step(
        ev.SetLayout(
            1, a.seq, 1, (closed(10, 9), LayoutItem(14, LayoutState.TRIMMED, 0), opened(20))
        )
    )
    a.go()
    assert a.durable == a.seq and a.state is State.READY


def natively_beyond_the_limit() -> tuple[Bench, Owner]:
    """Three ranges in native ledgers, and an owner that may write two."""
    bench = Bench()
    a = bench.opened("A")
    a.ack(2, 4, 6)
    a.go()
    bench.state_writer = writer(ranges_max=2)
    return bench, bench.opened("B")


@pytest.mark.interpreted
@pytest.mark.parametrize("reach_it", [at_the_limit, natively_beyond_the_limit])
def test_at_a_limit_the_size_is_looked_at_once_per_interval(
    reach_it: Callable[[], tuple[Bench, Owner]],
) -> None:
    """It costs as much as the state is large."""
    _, a = reach_it()
    began = a.bench.now
    with calls_of(PulsarStateWriter.take) as looked:
        for entry in range(8, 400, 2):
            a.ack(entry)
            a.step(ev.Tick(64))
            a.bench.now += 0.02
    assert 2 <= len(looked) <= (a.bench.now - began) / 1.0 + 1


def test_a_reset_at_a_limit_is_free_of_it() -> None:
    bench, a = at_the_limit()
    a.reset(Position(DATA, 1))
    a.go()
    bench.new_generation()
    assert a.resets and a.state is State.READY and a.did(fx.Resume)
    a.ack(3)
    a.go()
    assert a.durable == a.seq
    bench.ask(beyond=((DATA, 0), (DATA, 1)))


def test_a_delete_at_a_limit_is_a_delete() -> None:
    bench, a = at_the_limit()
    a.step(ev.Delete())
    a.go()
    assert a.state is State.DELETED and not bench.ledgers


# ---- truncation, if it is allowed


def truncating(**settings: Any) -> tuple[Bench, Owner]:
    """Two ranges may be written; the third and fourth are left out."""
    bench = whole_bench(ranges_max=2, truncate=True, **settings)
    a = bench.opened("A")
    a.ack(2, 4)
    a.go()
    return bench, a


def test_r10_a_truncated_state_confirms_and_says_what_is_left_out() -> None:
    bench, a = truncating()
    assert a.truncated_acks == 0
    a.ack(6, 8)
    a.go()
    assert a.durable == a.seq and a.truncated_acks == 2 and a.state is State.READY and not pauses(a)
    assert bench.footer.truncated is not None
    assert (bench.footer.truncated.acks, bench.footer.truncated.limit) == (
        2,
        "managedLedgerMaxUnackedRangesToPersist=2",
    )
    a.ack(10)
    a.go()
    assert a.truncated_acks == 3
    told = [r for r in a.reports if r.event == "state truncated"]
    assert len(told) == 1, "once per crossing"
    assert a.machine.counters.truncations == 1 and a.machine.counters.truncated_flushes == 2
    b = bench.opened("B")
    assert b.machine.acks.is_acked(DATA, 4) and not b.machine.acks.is_acked(DATA, 6), (
        "the oldest are kept"
    )
    assert [r.event for r in b.reports] == [
        "state recovered that was truncated when it was written"
    ]
    assert b.machine.flow.truncated_acks > 0


def test_a_truncated_state_is_sent_only_when_the_committed_footer_says_so() -> None:
    """Else a crash would leave a part that looks like the whole."""
    bench, a = truncating()
    whole = len(bench.ledgers[bench.chain[0]].entries)
    a.ack(6)
    noting = a.hold(fx.WriteFooter)
    a.go()
    assert len(bench.ledgers[bench.chain[0]].entries) == whole and a.durable == 1
    assert noting.footer.truncated is not None
    a.applied_but_unknown(noting)
    assert len(raw(a, bench.chain[0])) == whole, "unknown is not committed"
    a.go()
    assert a.durable == a.seq and len(bench.ledgers[bench.chain[0]].entries) == whole + 1


def test_the_note_goes_when_the_stored_state_is_whole_again_and_comes_back_first() -> None:
    bench, a = truncating()
    a.ack(6)
    a.go()
    assert bench.footer.truncated is not None
    a.ack(3)
    clearing = a.hold(fx.WriteFooter)
    assert clearing.footer.truncated is None and a.durable == a.seq and a.truncated_acks == 0
    entries = len(bench.ledgers[bench.chain[0]].entries)
    a.ack(8, 10)  # too much again, while that write is on its way
    a.go()
    assert len(bench.ledgers[bench.chain[0]].entries) == entries, (
        "not before the footer says it again"
    )
    a.do(clearing)
    assert bench.footer.truncated is None
    a.go()
    assert bench.footer.truncated is not None and a.durable == a.seq and a.truncated_acks == 2
    assert a.machine.counters.truncations == 2


def test_a_truncated_state_is_not_closed_into_the_footer_as_a_whole_one() -> None:
    bench, a = truncating()
    a.ack(6)
    a.go()
    a.step(ev.Close())
    a.go()
    assert a.state is State.CLOSED and bench.chain and bench.footer.truncated is not None
    b = bench.opened("B")
    b.ack(3, 5)
    b.go()
    assert b.durable == b.seq and bench.footer.truncated is None


def test_the_note_stays_while_a_truncated_state_without_an_answer_may_be_the_newest() -> None:
    """The ledger is left, what was sent to it is taken again; until the next ledger is named, a
    reader may find the part, which leaves out what was confirmed before.
    """
    bench = whole_bench(ranges_max=2, truncate=True)
    a = bench.opened("A")
    a.send(acks(DATA, 4), acks(DATA + 5, 7))
    a.go()
    assert a.durable == a.seq and bench.footer.truncated is None
    a.ack(2)
    a.applied_but_unknown(a.hold(fx.Append))
    a.hold(fx.CreateLedger)
    a.go()
    assert a.durable == 1 and len(bench.chain) == 1
    b = bench.opened("B")  # A is gone
    assert b.machine.acks.is_acked(DATA, 2) and not b.machine.acks.is_acked(DATA + 5, 7)
    assert [r.event for r in b.reports] == [
        "state recovered that was truncated when it was written"
    ]


def test_the_note_of_a_truncated_state_outlives_the_switch_to_native() -> None:
    bench, a = truncating()
    a.ack(6)
    a.go()
    bench.state_writer = None
    b = bench.owner("B").start()
    b.go(lambda: b.streamed == 1)
    assert bench.footer.truncated is not None
    b.go()
    assert bench.footer.truncated is None and bench.footer.format == "native", "two snapshots later"
    b.ack(3)
    b.go()
    assert b.durable == b.seq and b.truncated_acks == b.machine.flow.truncated_acks == 0, (
        "nothing that is stored is a part any more"
    )


@pytest.mark.parametrize("native", [True, False])
def test_r17_without_batch_indexes_a_partial_ack_records_nothing(native: bool) -> None:
    bench = Bench(Limits(batch_index_acks=False), None if native else writer())
    a = bench.opened("A")
    a.ack(1)
    a.go()
    flushes = a.machine.counters.flushes
    a.send(partial(DATA, 7, 4, {1, 2}))
    a.go()
    assert a.durable == a.seq and a.machine.counters.flushes == flushes, (
        "confirmed: there is nothing to keep"
    )
    assert a.machine.counters.partial_acks_ignored == 1
    assert a.machine.acks.partial(DATA, 7) is None
    a.send(acks(DATA, 9), partial(DATA, 7, 4, {3}), mark_delete=Position(DATA, 5))
    a.go()
    state = bench.ask(beyond=tuple((DATA, e) for e in range(6)))
    assert (
        state.partial(DATA, 7) is None and state.is_acked(DATA, 9) and not state.is_acked(DATA, 7)
    )
    assert state.mark_delete == Position(DATA, 5)
    assert a.machine.form.has_records is native

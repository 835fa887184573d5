"""The window, the cut of messages, and which futures an answer completes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from cursorkeeper.bookkeeper import (
    GatewayError,
    GatewayFenced,
    GatewayRefused,
    GatewayRetry,
    GatewayRoll,
    Outcome,
)
from cursorkeeper.bookkeeper.append_queue import AppendQueue
from daemon.tests.fakes.bookkeeper.operation import Operation, connection_lost

Future = asyncio.Future[None]


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    made = asyncio.new_event_loop()
    yield made
    made.close()


class Appends:
    """A queue and the futures that were given out."""

    def __init__(self, loop: asyncio.AbstractEventLoop, **limits: int) -> None:
        chosen = {
            "entries_max": 100,
            "bytes_max": 1000,
            "batch_entries_max": 4,
            "batch_bytes_max": 100,
        } | limits
        self.loop, self.queue, self.futures = (
            loop,
            AppendQueue(**chosen),
            dict[tuple[int, int], Future](),
        )

    @property
    def held(self) -> tuple[int, int]:
        return self.queue.entries, self.queue.bytes

    def add(self, ledger: int, entry: int, size: int = 10, now_s: float = 0.0) -> Future:
        future = self.loop.create_future()
        self.queue.add(ledger, entry, bytes(size), now_s, future)
        self.futures[ledger, entry] = future
        return future

    def batch(self) -> list[tuple[int, int, int]]:
        """(ledger, first entry, entries) of the next message."""
        request = self.queue.take_batch()
        return (
            [(a.ledger_id, a.first_entry_id, len(a.payloads)) for a in request.appends]
            if request
            else []
        )

    def seen(self, ledger: int) -> str:
        """One letter per future: . waiting, d done, n failed NOT_DONE, u failed UNKNOWN."""
        letters = []
        for (of, _), future in self.futures.items():
            if of == ledger:
                error = future.exception() if future.done() else None
                done = "d" if future.done() else "."
                letters.append(
                    ("n" if error.outcome is Outcome.NOT_DONE else "u")
                    if isinstance(error, GatewayError)
                    else done
                )
        return "".join(letters)


@pytest.fixture
def appends(loop: asyncio.AbstractEventLoop) -> Appends:
    return Appends(loop)


def test_messages_are_cut_by_entries_and_by_bytes_or_hold_one_entry(
    loop: asyncio.AbstractEventLoop,
) -> None:
    appends = Appends(loop)
    appends.queue.entry_bytes_max = 500
    for entry in range(5):
        appends.add(1, entry)
    appends.add(2, 0, size=300)
    appends.add(2, 1, size=60)
    appends.add(1, 5, size=60)
    assert appends.batch() == [(1, 0, 4)]
    assert appends.batch() == [(1, 4, 1)]
    assert appends.batch() == [(2, 0, 1)]
    assert appends.batch() == [(2, 1, 1)]
    assert appends.batch() == [(1, 5, 1)]
    assert appends.batch() == [] and not appends.queue.has_unsent


def test_a_message_groups_entries_by_ledger(appends: Appends) -> None:
    for ledger, entry in ((1, 0), (2, 0), (1, 1), (2, 1)):
        appends.add(ledger, entry)
    assert appends.batch() == [(1, 0, 2), (2, 0, 2)]


def test_the_window_counts_queued_and_unanswered(loop: asyncio.AbstractEventLoop) -> None:
    appends = Appends(loop, entries_max=3, bytes_max=50)
    for entry in range(2):
        appends.add(1, entry, size=20)
    assert appends.held == (2, 40)
    with pytest.raises(GatewayRetry, match="WINDOW_FULL"):
        appends.add(1, 2, size=20)
    appends.batch()
    assert appends.held == (2, 40)  # sent is not answered
    appends.queue.acknowledged(1, 0)
    assert appends.held == (1, 20)
    assert appends.seen(1) == "d."
    appends.add(1, 2, size=1)
    appends.add(1, 3, size=1)
    with pytest.raises(GatewayRetry, match="WINDOW_FULL"):
        appends.add(1, 4, size=1)  # bytes would do, entries do not


def test_acknowledgements_are_cumulative_and_never_ahead_of_what_was_sent(appends: Appends) -> None:
    for entry in range(6):
        appends.add(1, entry)
    appends.batch()
    appends.queue.acknowledged(1, 2)
    assert appends.seen(1) == "ddd..."
    appends.queue.acknowledged(1, 1)  # late
    appends.queue.acknowledged(1, 5)  # entries 4 and 5 never left
    assert appends.seen(1) == "dddd.."


def test_a_lone_refusal_leaves_the_ledger_usable(appends: Appends) -> None:
    appends.add(1, 0)
    appends.batch()
    appends.queue.failed(1, 0, GatewayRefused("ENTRY_TOO_LARGE", Outcome.NOT_DONE))
    assert appends.seen(1) == "n"
    appends.add(1, 0)
    assert appends.batch() == [(1, 0, 1)]


def test_a_refusal_with_others_behind_it_ends_the_ledger(appends: Appends) -> None:
    """A second refusal, of entry 1, may be on its way: it could not be told from one about a new
    entry 1.
    """
    for entry in range(3):
        appends.add(1, entry)
    appends.batch()
    appends.queue.failed(1, 0, GatewayRefused("UNEXPECTED_ENTRY_ID", Outcome.NOT_DONE))
    assert appends.seen(1) == "nnn"
    late = appends.add(1, 0)
    assert isinstance(late.exception(), GatewayRoll) and not appends.queue.has_unsent


def test_a_fenced_ledger_fails_from_there_and_unsent_ones_are_certain(appends: Appends) -> None:
    for entry in range(6):
        appends.add(1, entry)
    appends.batch()
    appends.queue.acknowledged(1, 0)
    appends.queue.failed(1, 2, GatewayFenced("FENCED", Outcome.UNKNOWN))
    assert appends.seen(1) == "d.uunn"
    appends.queue.acknowledged(1, 1)
    assert appends.seen(1) == "dduunn"
    assert appends.batch() == [] and appends.held == (0, 0)


def test_a_broken_stream_tells_sent_from_unsent(appends: Appends) -> None:
    for entry in range(6):
        appends.add(1, entry)
    appends.batch()
    appends.add(2, 0)
    appends.queue.fail_all(connection_lost(Operation.APPEND))
    assert (appends.seen(1), appends.seen(2)) == ("uuuunn", "n")
    assert all(isinstance(f.exception(), GatewayRoll) for f in appends.futures.values())
    assert appends.batch() == [] and appends.held == (0, 0) and not appends.queue.has_unanswered


def test_a_handle_that_was_lost_is_told_without_asking_again(appends: Appends) -> None:
    """Whoever appends next learns it at once, and not when there is a gateway again; until the
    ledger is fenced, or gone.
    """
    appends.queue.created(1)
    appends.queue.created(2)
    appends.add(1, 0)
    appends.batch()
    appends.queue.fail_all(connection_lost(Operation.APPEND))
    lost = appends.add(1, 1).exception()
    assert isinstance(lost, GatewayRoll) and lost.outcome is Outcome.NOT_DONE
    assert lost.is_handle_lost and not appends.queue.has_unanswered
    assert not appends.add(2, 0).done(), "it took nothing before: the gateway may have its handle"
    appends.queue.forget(1)
    assert not appends.add(1, 2).done(), "somebody else judges"


def test_no_wait_is_unlimited(appends: Appends) -> None:
    appends.add(1, 0, now_s=0.0)
    appends.add(1, 1, now_s=9.0)
    appends.add(2, 0, now_s=9.0)
    appends.batch()
    appends.queue.expire(9.9, 10.0)
    assert appends.seen(1) == ".."
    appends.queue.expire(10.0, 10.0)
    assert (appends.seen(1), appends.seen(2)) == ("uu", ".")
    appends.queue.acknowledged(1, 1)  # too late, changes nothing
    assert appends.seen(1) == "uu" and appends.held == (1, 10)


def test_a_cancelled_waiter_does_not_disturb_the_others(appends: Appends) -> None:
    appends.add(1, 0).cancel()
    other = appends.add(1, 1)
    appends.batch()
    appends.queue.acknowledged(1, 1)
    assert other.done() and appends.held == (0, 0)


def test_entries_are_numbered_here_too(appends: Appends) -> None:
    appends.queue.created(1)
    wrong = appends.add(1, 5)
    assert isinstance(wrong.exception(), GatewayRefused)
    appends.queue.ended(1, -1)
    assert not appends.add(1, 5).done()  # not known any more: the gateway judges

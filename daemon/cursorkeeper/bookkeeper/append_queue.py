"""The appends of one client between `append` and their answers: the window, the batches, the order.
No I/O.

Owns: what is queued and unanswered per ledger, entry numbering, cutting messages, which futures an
answer completes. Does not own: the stream (`append_stream`), time (`now_s` is an argument).
Invariants: entries and bytes held are within the window; the unanswered entries of a ledger are
consecutive and are answered in order; NOT_DONE is said only of what was never handed to the stream.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from cursorkeeper.bookkeeper._proto import ledgers_pb2 as pb
from cursorkeeper.bookkeeper.errors import (
    GatewayError,
    GatewayFenced,
    GatewayRefused,
    GatewayRetry,
    GatewayRoll,
    Outcome,
    afterwards,
    from_status,
)

Future = asyncio.Future[None]
LOST_MAX = 100_000
"""Ledgers whose handles were lost, and of which that is remembered."""


class _Ledger:
    """The unanswered appends of one ledger: entries `next_entry - len(waiting)` to `next_entry -
    1`.
    """

    __slots__ = ("died_of", "ledger", "next_entry", "unsent_from", "waiting")

    def __init__(self, ledger: int, next_entry: int) -> None:
        self.ledger, self.next_entry, self.unsent_from = ledger, next_entry, next_entry
        self.waiting: deque[tuple[Future, int, float]] = deque()  # future, bytes, since
        self.died_of: GatewayError | None = None

    @property
    def first(self) -> int:
        return self.next_entry - len(self.waiting)


class AppendQueue:
    """See the module. `entry_bytes_max` and `batch_entries_max` are learned from the gateway;
    `entries` and `bytes` are held now.
    """

    def __init__(
        self, *, entries_max: int, bytes_max: int, batch_entries_max: int, batch_bytes_max: int
    ) -> None:
        self._entries_max, self._bytes_max = entries_max, bytes_max
        self.batch_entries_max, self._batch_bytes_max = batch_entries_max, batch_bytes_max
        self.entry_bytes_max = batch_bytes_max
        self.entries = self.bytes = 0
        self.answered_since_s: float | None = None
        """When that was queued which was acknowledged last; whoever asks sets it back to None."""
        self._ledgers: dict[int, _Ledger] = {}
        self._lost: set[int] = set()
        """Ledgers whose handles ended with a stream, and that nobody has fenced or deleted yet."""
        self._unsent: deque[tuple[_Ledger, int, bytes]] = deque()

    @property
    def has_unsent(self) -> bool:
        """Whether `take_batch` may give something."""
        return bool(self._unsent)

    @property
    def has_sent(self) -> bool:
        """Whether an answer is on its way."""
        return self.entries > len(self._unsent)

    @property
    def has_unanswered(self) -> bool:
        return self.entries > 0

    def created(self, ledger: int) -> None:
        """A ledger of ours begins: its entries count from 0."""
        self._ledgers[ledger] = _Ledger(ledger, 0)

    def add(self, ledger: int, entry: int, payload: bytes, now_s: float, future: Future) -> None:
        """Queue one entry. Raises WINDOW_FULL; every other refusal goes into the future."""
        size = len(payload)
        if self.entries >= self._entries_max or (
            self.bytes + size > self._bytes_max and self.entries
        ):
            text = f"{self.entries} entries and {self.bytes} bytes are unanswered"
            raise GatewayRetry("WINDOW_FULL", Outcome.NOT_DONE, ledger=ledger, message=text)
        queue = self._ledgers.get(ledger)
        if queue is None and ledger in self._lost:
            # to hear the same from the gateway it would have to be there again
            text = "its handle ended with the stream before"
            error = GatewayRoll("NO_HANDLE", Outcome.NOT_DONE, ledger=ledger, message=text)
            future.set_exception(error)
            return
        if queue is None:  # not created here: the gateway judges
            queue = self._ledgers[ledger] = _Ledger(ledger, entry)
        if queue.died_of or size > self.entry_bytes_max or entry != queue.next_entry:
            future.set_exception(self._refusal(queue, entry, size))
            return
        queue.waiting.append((future, size, now_s))
        queue.next_entry = entry + 1
        self.entries += 1
        self.bytes += size
        self._unsent.append((queue, entry, payload))

    def take_batch(self) -> pb.AppendRequest | None:
        """The next message, at most the batch limits or one entry; from now on its entries may have
        been done.
        """
        unsent, entries, size = self._unsent, 0, 0
        groups: dict[int, tuple[int, list[bytes]]] = {}
        while unsent and entries < self.batch_entries_max:
            queue, entry, payload = unsent[0]
            if entry < queue.first or queue.died_of:  # failed while it waited
                unsent.popleft()
                continue
            size += len(payload)
            if size > self._batch_bytes_max and entries:
                break
            unsent.popleft()
            group = groups.get(queue.ledger)
            if group is None:
                groups[queue.ledger] = (entry, [payload])
            else:
                group[1].append(payload)
            queue.unsent_from = entry + 1
            entries += 1
        if not entries:
            return None
        request = pb.AppendRequest()
        add = request.appends.add
        for ledger, (first, payloads) in groups.items():
            append = add()  # one made apart would be copied
            append.ledger_id, append.first_entry_id = ledger, first
            append.payloads.extend(payloads)
        return request

    def acknowledged(self, ledger: int, last_entry: int) -> None:
        """The gateway confirmed everything up to `last_entry`. An answer that came too late changes
        nothing.
        """
        queue = self._ledgers.get(ledger)
        if queue is None:
            return
        waiting = queue.waiting
        count = min(last_entry + 1, queue.unsent_from) - queue.first
        for _ in range(count):
            future, size, self.answered_since_s = waiting.popleft()
            self.entries -= 1
            self.bytes -= size
            if not future.done():
                future.set_result(None)

    def failed(self, ledger: int, first_entry: int, error: GatewayError) -> None:
        """The gateway refused `first_entry` and what follows it. Only a lone refused entry leaves
        the ledger usable: with others behind it on the wire, a late second answer could not be told
        from one about a repeated entry.
        """
        queue = self._ledgers.get(ledger)
        if queue is None or first_entry >= queue.next_entry:
            return
        lone = first_entry == queue.next_entry - 1 and not isinstance(
            error, GatewayRoll | GatewayFenced
        )
        if lone and queue.unsent_from == queue.next_entry and first_entry >= queue.first:
            self._fail_from(queue, first_entry, lambda _: error)
        else:
            queue.died_of = queue.died_of or error
            self._fail_from(
                queue, first_entry, lambda sent: error if sent else afterwards(ledger, error)
            )

    def expire(self, now_s: float, timeout_s: float) -> None:
        """Ledgers whose oldest append waits too long fail as a whole."""
        for queue in self._ledgers.values():
            if queue.waiting and now_s - queue.waiting[0][2] >= timeout_s:
                error = from_status(
                    "DEADLINE_EXCEEDED",
                    ledger=queue.ledger,
                    message=f"no answer for {timeout_s:g} s",
                    of_append=True,
                )
                queue.died_of = queue.died_of or error
                self._fail_from(queue, queue.first, _lost(error))

    def forget(self, ledger: int) -> None:
        """The ledger is fenced by us: if nothing of it waits, drop what is known of it. What waits
        will be answered.
        """
        self._lost.discard(ledger)
        queue = self._ledgers.get(ledger)
        if queue and not queue.waiting:
            del self._ledgers[ledger]

    def ended(self, ledger: int, last_entry: int) -> None:
        """The ledger was closed (at `last_entry`) or deleted (-1) by us: nothing more will be
        answered.
        """
        self.acknowledged(ledger, last_entry)
        self._lost.discard(ledger)
        queue = self._ledgers.pop(ledger, None)
        if queue and queue.waiting:
            queue.died_of = from_status(
                "UNAVAILABLE",
                ledger=ledger,
                message="the ledger was ended by this client",
                of_append=True,
            )
            self._fail_from(queue, queue.first, _lost(queue.died_of))

    def fail_all(self, error: GatewayError) -> None:
        """The stream is gone, and with it the write handle of every ledger."""
        ledgers, self._ledgers = self._ledgers, {}
        if len(self._lost) + len(ledgers) > LOST_MAX:
            self._lost.clear()  # the gateway judges
        self._lost.update(one.ledger for one in ledgers.values() if one.next_entry)
        self._unsent.clear()
        for queue in ledgers.values():
            if queue.waiting:
                self._fail_from(queue, queue.first, _lost(error.of(queue.ledger)))

    def _fail_from(self, queue: _Ledger, entry: int, error: Callable[[bool], GatewayError]) -> None:
        """Fail `entry` and all later ones; `error` is asked once for those sent and once for those
        never sent.
        """
        first = max(entry, queue.first)
        kept = [queue.waiting.popleft() for _ in range(first - queue.first)]
        of_sent, of_unsent = error(True), error(False)
        for at, (future, size, _) in enumerate(queue.waiting, first):
            self.entries -= 1
            self.bytes -= size
            if not future.done():
                future.set_exception(of_sent if at < queue.unsent_from else of_unsent)
        queue.waiting = deque(kept)
        queue.next_entry, queue.unsent_from = first, min(queue.unsent_from, first)

    def _refusal(self, queue: _Ledger, entry: int, size: int) -> GatewayError:
        ledger, not_done = queue.ledger, Outcome.NOT_DONE
        if queue.died_of:
            return afterwards(ledger, queue.died_of)
        if size > self.entry_bytes_max:
            text = f"entry {entry} has {size} bytes, the limit is {self.entry_bytes_max}"
            return GatewayRefused("ENTRY_TOO_LARGE", not_done, ledger=ledger, message=text)
        return GatewayRefused(
            "UNEXPECTED_ENTRY_ID",
            not_done,
            ledger=ledger,
            message=f"entry {entry} given, {queue.next_entry} is next",
        )


def _lost(error: GatewayError) -> Callable[[bool], GatewayError]:
    """The given error for what was sent; for what was not, the same but certain."""
    certain = error.of(error.ledger, Outcome.NOT_DONE)
    return lambda sent: error if sent else certain

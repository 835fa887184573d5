"""A broker's dispatcher and its consumers, as far as batch indexes and permits go (Pulsar's rules
of redelivery and flow).

Owns: who holds which entry, permits, the unacked counters, what each client filters. Does not own
the cursor: what is acked is asked of the keeper (`remaining`), and acks are handed to it (`send`).
Invariants checked on every delivery: no index is delivered after its ack was confirmed; the keeper
never claims an index that nobody acked.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field

from daemon.tests.requirements.pulsar_acks import Entry

Message = tuple[Entry, int]
"""An entry and the index inside its batch."""
Remaining = Callable[[list[Entry]], Awaitable[list[set[int] | None]]]
"""Of each entry: the indexes to deliver; None = untouched (all of them); an empty set = acked."""
Send = Callable[[Entry, frozenset[int]], None]
"""One individual ack: the entry and the indexes acked by this command."""


@dataclass
class Client:
    """A consumer: a receiver queue, and what the application holds un-acked."""

    queue: deque[Message] = field(default_factory=deque)
    held: list[Message] = field(default_factory=list)
    credits_whole_batches: bool = False
    """The fault of old clients: permits come back for messages that were filtered out
    (apache/pulsar #22091).
    """
    owed: int = 0
    """Permits to send back with the next flow command."""

    def receive(self, entry: Entry, size: int, ack_set: set[int] | None) -> list[Message]:
        """One CommandMessage; returns what was not filtered out."""
        wanted = [(entry, i) for i in range(size) if ack_set is None or i in ack_set]
        self.queue.extend(wanted)
        if self.credits_whole_batches:
            self.owed += size - len(wanted)
        return wanted

    def take(self, count: int) -> None:
        """The application takes messages; each returns its permit."""
        for _ in range(min(count, len(self.queue))):
            self.held.append(self.queue.popleft())
            self.owed += 1

    def forget(self) -> None:
        """Everything un-acked will come again. The permits of messages that were received go
        back.
        """
        self.owed += len(self.queue)
        self.queue.clear()
        self.held.clear()

    def flow(self) -> int:
        """The permits of one CommandFlow."""
        owed, self.owed = self.owed, 0
        return owed


@dataclass
class Attached:
    """The broker's side of one consumer."""

    permits: int
    unacked: int = 0
    pending: dict[Entry, set[int]] = field(default_factory=dict)
    """Dispatched and not wholly acked: the indexes still open."""


class Dispatcher:
    """A Shared subscription: entries in order, to consumers in turn, one at a time."""

    def __init__(
        self,
        topic: Mapping[Entry, int],
        consumers: int,
        receiver_queue: int,
        remaining: Remaining,
        send: Send,
    ) -> None:
        self.topic, self.receiver_queue = topic, receiver_queue
        self._remaining, self._send = remaining, send
        self.clients = [Client() for _ in range(consumers)]
        self.attached = [Attached(receiver_queue) for _ in range(consumers)]
        self.charges_acked_indexes = False
        """What a broker without PIP-54's rule would do: charge the whole batch."""
        self.delivered: set[Message] = set()
        self.acked: set[Message] = set()
        """Sent to the keeper, confirmed or not."""
        self.confirmed: Callable[[], Iterable[Message]] = list
        self._turn = 0

    async def dispatch(self) -> int:
        """Deliver what permits allow; returns how many entries went out."""
        busy = {entry for one in self.attached for entry in one.pending}
        entries = [entry for entry in self.topic if entry not in busy]
        found = await self._remaining(entries)
        confirmed, sent = set(self.confirmed()), 0
        for entry, ack_set in zip(entries, found, strict=True):
            size = self.topic[entry]
            gone = set() if ack_set is None else set(range(size)) - ack_set
            assert {(entry, i) for i in gone} <= self.acked, f"{entry}: {gone} acked by nobody"
            if ack_set is not None and not ack_set:
                continue
            chosen = self._with_permits()
            if chosen is None:
                break
            self._dispatch_one(chosen, entry, size, ack_set, confirmed)
            sent += 1
        return sent

    def _with_permits(self) -> int | None:
        for step in range(len(self.clients)):
            at = (self._turn + step) % len(self.clients)
            if self.attached[at].permits > 0:
                self._turn = at + 1
                return at
        return None

    def _dispatch_one(
        self, to: int, entry: Entry, size: int, ack_set: set[int] | None, confirmed: set[Message]
    ) -> None:
        open_indexes = set(range(size)) if ack_set is None else set(ack_set)
        one = self.attached[to]
        one.permits -= size if self.charges_acked_indexes else len(open_indexes)
        one.unacked += len(open_indexes)
        one.pending[entry] = open_indexes
        messages = self.clients[to].receive(entry, size, ack_set)
        again = confirmed & set(messages)
        assert not again, f"delivered after its ack was confirmed: {sorted(again)[:3]}"
        self.delivered.update(messages)

    def take(self, at: int, count: int) -> None:
        """The application of one consumer works; its client sends the permits back."""
        self.clients[at].take(count)
        self.attached[at].permits += self.clients[at].flow()

    def ack(self, at: int, chosen: Iterable[Message]) -> None:
        """The application acks some of what it holds: one command per entry."""
        by_entry: dict[Entry, set[int]] = {}
        for entry, index in chosen:
            by_entry.setdefault(entry, set()).add(index)
        held = self.clients[at].held
        for entry, indexes in by_entry.items():
            self.acked |= {(entry, i) for i in indexes}
            self._send(entry, frozenset(indexes))
            one = self.attached[at]
            one.unacked -= len(one.pending[entry] & indexes)  # the bits that really changed
            one.pending[entry] -= indexes
            if not one.pending[entry]:
                del one.pending[entry]
            held[:] = [m for m in held if m[0] != entry or m[1] not in indexes]

    def redeliver(self, at: int) -> None:
        """The consumer asks for its un-acked messages again."""
        one = self.attached[at]
        one.unacked -= sum(map(len, one.pending.values()))
        one.pending.clear()
        self.clients[at].forget()
        one.permits += self.clients[at].flow()

    def broker_restarts(self) -> None:
        """Everything of the broker is gone; consumers connect again with an empty queue."""
        for at, client in enumerate(self.clients):
            client.forget()
            client.flow()
            self.attached[at] = Attached(self.receiver_queue)

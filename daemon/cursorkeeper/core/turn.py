"""Serves every part of a cursor: one turn of its machine, from an event to its effects.

The machine begins each turn; the parts read it, emit effects, and draw the numbers of attempts.
"""

from __future__ import annotations

from dataclasses import field, fields

from cursorkeeper.core import effects as fx
from cursorkeeper.core import events as ev
from cursorkeeper.core.limits import Limits
from cursorkeeper.core.names import CursorName
from cursorkeeper.core.shape import component


def earlier(first: float | None, second: float | None) -> float | None:
    """The one that is set and comes first; None: neither is set."""
    if first is None or (second is not None and second < first):
        return second
    return first


def earliest(*times: float | None) -> float | None:
    """The first of those that are set; None: none is."""
    first = None
    for at in times:
        if at is not None and (first is None or at < first):
            first = at
    return first


@component
class Counters:
    """Counts over this machine's life, for metrics and `Get`."""

    accepted_acks: int = 0
    new_acks: int = 0
    duplicate_acks: int = 0
    dropped_batches: int = 0
    flushes: int = 0
    flushed_bytes: int = 0
    snapshots: int = 0
    snapshots_aborted: int = 0
    rolls: int = 0
    late_events: int = 0
    inline_backstops: int = 0
    restart_states: int = 0
    """Footer writes sent with the whole state and the first new acks after a restart."""
    lost_handle_states: int = 0
    """Footer writes sent with the whole state because the handles of all ledgers were lost."""
    partial_acks_ignored: int = 0
    """Acks of batch indexes while they are not kept."""
    acks_beyond_end: int = 0
    """Acked entries that their ledgers turned out not to have when they were closed."""
    limit_crossings: int = 0
    """How often the state began not to fit a limit."""
    truncations: int = 0
    """How often the stored state began to leave something out."""
    truncated_flushes: int = 0
    lost_entries: int = 0
    """Entries that BookKeeper had acknowledged and that recovery of their ledger did not find."""

    def add(self, other: Counters) -> None:
        for each in fields(self):
            setattr(self, each.name, getattr(self, each.name) + getattr(other, each.name))


@component
class Turn:
    """`writer` is a nonce of this claim attempt; `jitter` in [-0.1, 0.1] spreads snapshots."""

    name: CursorName
    limits: Limits
    writer: str
    jitter: float
    counters: Counters = field(default_factory=Counters)
    now: float = 0.0
    """Seconds of any monotonic clock."""
    room: int = 0
    """How many more entries this turn may append."""
    at_once: bool = False
    """Nothing of the daemon is in flight, as of this tick."""
    heard_s: float | None = None
    """When ZooKeeper last answered anybody, as of this tick."""
    no_room_since_s: float | None = None
    """Since when the daemon's window is full of appends that nobody answers."""
    waiting_for: str = ""
    """What the cursor waits for, for people; empty: nothing."""
    held: set[int] = field(default_factory=set)
    """Tokens of effects that wait in the daemon's own queues."""
    _tokens: int = 0
    _out: list[fx.Effect] = field(default_factory=list)

    def begin(self, event: ev.Event, now: float) -> list[fx.Effect]:
        """A new turn; returns the list that its effects go to, in order."""
        self._out, self.now = [], now
        if isinstance(event, ev.Tick):
            self.at_once, self.room, self.no_room_since_s = (
                event.at_once,
                event.room,
                event.no_room_since_s,
            )
            self.heard_s = now if event.heard_s is None else event.heard_s
        else:
            self.room, self.heard_s, self.at_once = 0, None, False
        return self._out

    def emit(self, effect: fx.Effect) -> None:
        self._out.append(effect)

    def emit_all(self, effects: list[fx.Effect]) -> None:
        self._out.extend(effects)

    def token(self) -> int:
        """A number that no attempt had before."""
        self._tokens += 1
        return self._tokens

    @property
    def has_asked(self) -> bool:
        """Some attempt was made in this machine's life."""
        return self._tokens > 0

    def use_room(self) -> None:
        """One more entry is appended."""
        self.room -= 1

    def wait_for(self, what: str) -> None:
        """Says what is waited for, for people; empty: nothing."""
        self.waiting_for = what

    def hold(self, token: int) -> None:
        """An effect of the last turn waits for its place in the daemon's own queue; `ev.Sent` tells
        when it is sent.
        """
        self.held.add(token)

    def release(self, token: int) -> None:
        """The effect left the daemon's queue."""
        self.held.discard(token)

    def late(self) -> None:
        """An event came that means nothing any more."""
        self.counters.late_events += 1

    def retry_at_s(self, tries: int) -> float:
        """When to try again after so many tries that failed before this one."""
        limits = self.limits
        wait_ms = min(limits.retry_max_ms, limits.retry_min_ms << min(tries, 16))
        return self.now + wait_ms / 1000

"""Serves every part of a cursor: the law. Which states and phases follow which, and where an event
is late, legal or a bug.

Every part that waits for answers has phases of its own beside the cursor's state; each change of
one is in a table, with its reason. `HANDLED` says in which states an event means something. An
event in another state is *late* if it is in `LATE` there (ignored, counted) and raises otherwise.
The diagrams in ARCHITECTURE.md are generated from the tables by `diagrams()`.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Generic, TypeVar

from cursorkeeper.core import events as ev
from cursorkeeper.core.errors import IllegalTransitionError


class State(StrEnum):
    CLOSED = "CLOSED"
    CLAIMING = "CLAIMING"
    FENCING = "FENCING"
    READING = "READING"
    READY = "READY"
    ROLLING = "ROLLING"
    NOT_PERSISTABLE = "NOT_PERSISTABLE"
    CLOSING = "CLOSING"
    DELETING = "DELETING"
    DELETED = "DELETED"
    DEPOSED = "DEPOSED"
    REFUSED = "REFUSED"


class WritePhase(StrEnum):
    """Where the one footer write is that is not decided."""

    SENT = "SENT"
    WAITING = "WAITING"
    """The answer was lost; repeated later."""
    READING = "READING"
    """BadVersion: whose write is there?"""
    READ_WAITING = "READ_WAITING"


class ProofPhase(StrEnum):
    """Where the question is whether the footer is still ours."""

    IDLE = "IDLE"
    CHECKING = "CHECKING"
    READING = "READING"
    """The check failed: who is it now?"""


class WriterPhase(StrEnum):
    """Where the writer is with its ledger."""

    IDLE = "IDLE"
    """No ledger. The next flush creates one."""
    CREATING = "CREATING"
    OPEN = "OPEN"
    """Entries may be appended; confirmed only once the footer names it."""
    DRAINING = "DRAINING"
    """A planned roll: nothing more is appended, what is in flight is waited for."""
    FAILED = "FAILED"
    """An append failed: nothing more is appended; the outstanding footer write is waited for."""
    CHECKING = "CHECKING"
    """The footer is being read: is there a new owner?"""
    ENDING = "ENDING"
    """Close or recovery is on its way."""


class SnapshotPhase(StrEnum):
    """Where the snapshot is that is under way."""

    MOVING = "MOVING"
    """Leaving the old ledger, or waiting for the fresh one to be named."""
    WRITING = "WRITING"
    END_SENT = "END_SENT"
    SWITCHING = "SWITCHING"


P = TypeVar("P", bound=StrEnum)


class Law(Generic[P]):
    """Which phase may follow which, and why. The first one begins."""

    def __init__(self, phases: type[P], moves: Mapping[tuple[P, P], str]) -> None:
        self.phases, self.moves = list(phases), moves

    def check(self, before: P, after: P) -> None:
        """Raises IllegalTransitionError unless the table names this move."""
        if before is not after and (before, after) not in self.moves:
            raise IllegalTransitionError(f"{before} -> {after}")

    def diagram(self) -> str:
        """The phases and their moves as Mermaid text."""
        order = {phase: at for at, phase in enumerate(self.phases)}
        moves = sorted(self.moves.items(), key=lambda m: (order[m[0][0]], order[m[0][1]]))
        ends = [
            phase for phase in self.phases if not any(phase is before for before, _ in self.moves)
        ]
        lines = ["stateDiagram-v2", f"    [*] --> {self.phases[0]}"]
        lines += [f"    {before} --> {after}: {why}" for (before, after), why in moves]
        return "\n".join(lines + [f"    {phase} --> [*]" for phase in ends])


S = State
LIVE = frozenset({S.READY, S.ROLLING, S.NOT_PERSISTABLE})
"""States in which acks are accepted."""
OWNING = LIVE | {S.CLOSING, S.DELETING}
"""We are the owner and may write."""
OPENING = frozenset({S.CLAIMING, S.FENCING, S.READING})
ENDED = frozenset({S.DELETED, S.DEPOSED, S.REFUSED})

MOVES: dict[tuple[State, State], str] = {
    (S.CLOSED, S.CLAIMING): "open",
    (S.CLAIMING, S.FENCING): "claim committed",
    (S.CLAIMING, S.CLOSED): "not found, open elsewhere, or nobody waits any more",
    (S.CLAIMING, S.REFUSED): "footer unreadable",
    (S.FENCING, S.READING): "every ledger without a last entry was recovered",
    (S.FENCING, S.CLAIMING): "a ledger is gone: the footer has moved on",
    (S.FENCING, S.DELETING): "opened to be deleted",
    (S.FENCING, S.REFUSED): "a named ledger is gone",
    (S.READING, S.READY): "state recovered",
    (S.READING, S.CLAIMING): "a ledger is gone: the footer has moved on",
    (S.READING, S.REFUSED): "damaged, nothing to fall back to",
    (S.READY, S.ROLLING): "leave the ledger",
    (S.ROLLING, S.READY): "new ledger named",
    (S.READY, S.NOT_PERSISTABLE): "acks wait too long, or a limit",
    (S.ROLLING, S.NOT_PERSISTABLE): "acks wait too long, or a limit",
    (S.NOT_PERSISTABLE, S.READY): "durable again, or it fits",
    (S.NOT_PERSISTABLE, S.ROLLING): "leave the ledger",
    (S.READY, S.CLOSING): "close",
    (S.ROLLING, S.CLOSING): "close",
    (S.NOT_PERSISTABLE, S.CLOSING): "close",
    (S.CLOSING, S.CLOSED): "closed footer committed",
    (S.READY, S.DELETING): "delete",
    (S.ROLLING, S.DELETING): "delete",
    (S.NOT_PERSISTABLE, S.DELETING): "delete",
    (S.CLOSING, S.DELETING): "delete",
    (S.DELETING, S.DELETED): "tombstone committed",
}
for _state in OPENING | OWNING:
    MOVES[(_state, S.DEPOSED)] = "a higher epoch exists"
for _state in OWNING:
    MOVES[(_state, S.REFUSED)] = "footer or ledger lost"

STATES = Law(State, MOVES)

ANY = frozenset(State)
_AFTER_OPENING = OWNING | ENDED | {S.CLOSED}

_MESSAGES: tuple[type, ...] = (ev.Acks, ev.SetLayout, ev.SetProperties, ev.Reset)
_OF_FOOTER: tuple[type, ...] = (
    ev.FooterRead,
    ev.FooterReadFailed,
    ev.FooterUnreadable,
    ev.FooterWritten,
    ev.FooterBadVersion,
    ev.FooterWriteUnknown,
    ev.FooterGone,
    ev.FooterTooLarge,
    ev.FooterChecked,
    ev.FooterCheckFailed,
    ev.FooterCheckUnknown,
    ev.FooterChanged,
)
_OF_WRITING: tuple[type, ...] = (
    ev.LedgerCreated,
    ev.LedgerCreateFailed,
    ev.Appended,
    ev.AppendFailed,
)
_OF_ENDS: tuple[type, ...] = (ev.LedgerEnded, ev.LedgerEndFailed)
_OF_CHAIN: tuple[type, ...] = (ev.ChainRead, ev.ChainMissing, ev.ChainDamaged)

HANDLED: dict[type, frozenset[State]] = {
    ev.Open: frozenset({S.CLOSED}),
    ev.Attach: OPENING | LIVE,
    ev.Prove: OPENING | OWNING,
    **dict.fromkeys((ev.Detach, ev.Tick, ev.Sent, ev.InlineTurn), ANY),
    **dict.fromkeys((*_MESSAGES, ev.Roll, ev.Snapshot), LIVE),
    **dict.fromkeys((ev.Close, ev.Delete), LIVE | OPENING | {S.CLOSING}),
    **dict.fromkeys(_OF_FOOTER, OPENING | OWNING),
    **dict.fromkeys(_OF_WRITING, OWNING),
    **dict.fromkeys(_OF_ENDS, OWNING | {S.FENCING}),
    **dict.fromkeys(_OF_CHAIN, frozenset({S.READING})),
}

LATE: dict[type, frozenset[State]] = {
    # a source may still be talking when the cursor is on its way out; it was told, or will be
    **dict.fromkeys((ev.Attach, *_MESSAGES), _AFTER_OPENING - LIVE),
    ev.Prove: ENDED | {S.CLOSED},
    ev.Close: ANY - LIVE - OPENING - {S.CLOSING},
    **dict.fromkeys((ev.Roll, ev.Snapshot), ANY - LIVE),
    ev.Delete: ENDED | {S.CLOSED, S.DELETING},
    # answers that outlived the machine's interest
    **dict.fromkeys((*_OF_FOOTER, *_OF_WRITING, *_OF_ENDS, *_OF_CHAIN), ANY),
}


def is_handled(state: State, event: ev.Event) -> bool:
    """Whether the event means something now. Raises IllegalTransitionError where it is neither
    handled nor late.
    """
    kind = type(event)
    if state in HANDLED[kind]:
        return True
    if state in LATE.get(kind, frozenset()):
        return False
    raise IllegalTransitionError(f"{kind.__name__} in state {state}")


W, R = WritePhase, WriterPhase
WRITE_PHASES = Law(
    WritePhase,
    {
        (W.SENT, W.WAITING): "the answer was lost",
        (W.WAITING, W.SENT): "the same bytes again",
        (W.SENT, W.READING): "BadVersion",
        (W.WAITING, W.READING): "BadVersion",
        (W.READING, W.READ_WAITING): "ZooKeeper is away",
        (W.READ_WAITING, W.READING): "again",
    },
)
PROOF_PHASES = Law(
    ProofPhase,
    {
        (ProofPhase.IDLE, ProofPhase.CHECKING): "somebody asked",
        (ProofPhase.CHECKING, ProofPhase.IDLE): "proved, or not answered",
        (ProofPhase.CHECKING, ProofPhase.READING): "another version",
        (ProofPhase.READING, ProofPhase.IDLE): "answered",
    },
)
WRITER_PHASES = Law(
    WriterPhase,
    {
        (R.IDLE, R.CREATING): "something is to be written",
        (R.CREATING, R.OPEN): "created",
        (R.CREATING, R.IDLE): "not created, or the footer holds it all",
        (R.OPEN, R.DRAINING): "a planned roll, a snapshot, or a close",
        (R.OPEN, R.FAILED): "an append failed",
        (R.OPEN, R.IDLE): "the footer holds it all",
        (R.DRAINING, R.FAILED): "an append failed",
        (R.DRAINING, R.ENDING): "all is answered: close it",
        (R.DRAINING, R.IDLE): "the footer holds it all",
        (R.FAILED, R.CHECKING): "is it still ours?",
        (R.FAILED, R.IDLE): "the footer holds it all",
        (R.CHECKING, R.FAILED): "ZooKeeper is away",
        (R.CHECKING, R.ENDING): "ours: recover it",
        (R.CHECKING, R.IDLE): "the footer holds it all",
        (R.ENDING, R.CHECKING): "it is gone: is it still ours?",
        (R.ENDING, R.IDLE): "its last entry is known",
    },
)
SNAPSHOT_PHASES = Law(
    SnapshotPhase,
    {
        (SnapshotPhase.MOVING, SnapshotPhase.WRITING): "in a fresh ledger",
        (SnapshotPhase.WRITING, SnapshotPhase.END_SENT): "every segment is acknowledged",
        (SnapshotPhase.END_SENT, SnapshotPhase.SWITCHING): "the end is acknowledged",
    },
)


def diagrams() -> dict[str, str]:
    """What has phases -> its diagram as Mermaid text."""
    return {
        "cursor": STATES.diagram(),
        "footer write": WRITE_PHASES.diagram(),
        "proof": PROOF_PHASES.diagram(),
        "writer": WRITER_PHASES.diagram(),
        "snapshot": SNAPSHOT_PHASES.diagram(),
    }

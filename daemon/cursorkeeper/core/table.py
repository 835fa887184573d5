"""Serves every part of a cursor: the law. Which states and phases follow which, and where an event
is late, legal or a bug.

Every part that waits for answers has phases of its own beside the cursor's state; each change of
one is in a table, with its reason. `HANDLED` says in which states an event means something. An
event in another state is *late* if it is in `LATE` there (ignored, counted) and raises otherwise.
The diagrams in ARCHITECTURE.md are generated from the tables by `diagrams()`.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Generic, TypeVar

from cursorkeeper.core import events as ev
from cursorkeeper.core.errors import IllegalTransitionError
from cursorkeeper.core.shape import direct


@direct
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


@direct
class WritePhase(StrEnum):
    """Where the one footer write is that is not decided."""

    SENT = "SENT"
    WAITING = "WAITING"
    """The answer was lost; repeated later."""
    READING = "READING"
    """BadVersion: whose write is there?"""
    READ_WAITING = "READ_WAITING"


@direct
class ProofPhase(StrEnum):
    """Where the question is whether the footer is still ours."""

    IDLE = "IDLE"
    CHECKING = "CHECKING"
    READING = "READING"
    """The check failed: who is it now?"""


@direct
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


@direct
class SnapshotPhase(StrEnum):
    """Where the snapshot is that is under way."""

    MOVING = "MOVING"
    """Leaving the old ledger, or waiting for the fresh one to be named."""
    WRITING = "WRITING"
    END_SENT = "END_SENT"
    SWITCHING = "SWITCHING"


P = TypeVar("P", bound=StrEnum)


class Law(Generic[P]):
    """Which phase may follow which, and why: `moves` has a line `A --> B: why` for each, as Mermaid
    draws it. The first phase begins.
    """

    def __init__(self, phases: type[P], moves: str) -> None:
        self._phases, self._lines = list(phases), moves.strip("\n")
        self.moves: dict[tuple[P, P], str] = {}
        for line in self._lines.splitlines():
            before, _, after, why = line.split(maxsplit=3)
            self.moves[phases(before), phases(after.removesuffix(":"))] = why

    def check(self, before: P, after: P) -> None:
        """Raises IllegalTransitionError unless the table names this move."""
        if before is not after and (before, after) not in self.moves:
            raise IllegalTransitionError(f"{before} -> {after}")

    def diagram(self) -> str:
        """The phases and their moves as Mermaid text."""
        begun = {before for before, _ in self.moves}
        ends = [f"    {phase} --> [*]" for phase in self._phases if phase not in begun]
        first = f"stateDiagram-v2\n    [*] --> {self._phases[0]}"
        return "\n".join([first, self._lines, *ends])


S = State
LIVE = frozenset({S.READY, S.ROLLING, S.NOT_PERSISTABLE})
"""States in which acks are accepted."""
OWNING = LIVE | {S.CLOSING, S.DELETING}
"""We are the owner and may write."""
OPENING = frozenset({S.CLAIMING, S.FENCING, S.READING})
ENDED = frozenset({S.DELETED, S.DEPOSED, S.REFUSED})

STATES = Law(
    State,
    """
    CLOSED --> CLAIMING: open
    CLAIMING --> CLOSED: not found, open elsewhere, or nobody waits any more
    CLAIMING --> FENCING: claim committed
    CLAIMING --> DEPOSED: a higher epoch exists
    CLAIMING --> REFUSED: footer unreadable
    FENCING --> CLAIMING: a ledger is gone: the footer has moved on
    FENCING --> READING: every ledger without a last entry was recovered
    FENCING --> DELETING: opened to be deleted
    FENCING --> DEPOSED: a higher epoch exists
    FENCING --> REFUSED: a named ledger is gone
    READING --> CLAIMING: a ledger is gone: the footer has moved on
    READING --> READY: state recovered
    READING --> DEPOSED: a higher epoch exists
    READING --> REFUSED: damaged, nothing to fall back to
    READY --> ROLLING: leave the ledger
    READY --> NOT_PERSISTABLE: acks wait too long, or a limit
    READY --> CLOSING: close
    READY --> DELETING: delete
    READY --> DEPOSED: a higher epoch exists
    READY --> REFUSED: footer or ledger lost
    ROLLING --> READY: new ledger named
    ROLLING --> NOT_PERSISTABLE: acks wait too long, or a limit
    ROLLING --> CLOSING: close
    ROLLING --> DELETING: delete
    ROLLING --> DEPOSED: a higher epoch exists
    ROLLING --> REFUSED: footer or ledger lost
    NOT_PERSISTABLE --> READY: durable again, or it fits
    NOT_PERSISTABLE --> ROLLING: leave the ledger
    NOT_PERSISTABLE --> CLOSING: close
    NOT_PERSISTABLE --> DELETING: delete
    NOT_PERSISTABLE --> DEPOSED: a higher epoch exists
    NOT_PERSISTABLE --> REFUSED: footer or ledger lost
    CLOSING --> CLOSED: closed footer committed
    CLOSING --> DELETING: delete
    CLOSING --> DEPOSED: a higher epoch exists
    CLOSING --> REFUSED: footer or ledger lost
    DELETING --> DELETED: tombstone committed
    DELETING --> DEPOSED: a higher epoch exists
    DELETING --> REFUSED: footer or ledger lost
""",
)

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
    **dict.fromkeys((*_MESSAGES, ev.Roll), LIVE),
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
    ev.Roll: ANY - LIVE,
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


WRITE_PHASES = Law(
    WritePhase,
    """
    SENT --> WAITING: the answer was lost
    SENT --> READING: BadVersion
    WAITING --> SENT: the same bytes again
    WAITING --> READING: BadVersion
    READING --> READ_WAITING: ZooKeeper is away
    READ_WAITING --> READING: again
""",
)
PROOF_PHASES = Law(
    ProofPhase,
    """
    IDLE --> CHECKING: somebody asked
    CHECKING --> IDLE: proved, or not answered
    CHECKING --> READING: another version
    READING --> IDLE: answered
""",
)
WRITER_PHASES = Law(
    WriterPhase,
    """
    IDLE --> CREATING: something is to be written
    CREATING --> IDLE: not created, or the footer holds it all
    CREATING --> OPEN: created
    OPEN --> IDLE: the footer holds it all
    OPEN --> DRAINING: a planned roll, a snapshot, or a close
    OPEN --> FAILED: an append failed
    DRAINING --> IDLE: the footer holds it all
    DRAINING --> FAILED: an append failed
    DRAINING --> ENDING: all is answered: close it
    FAILED --> IDLE: the footer holds it all
    FAILED --> CHECKING: is it still ours?
    CHECKING --> IDLE: the footer holds it all
    CHECKING --> FAILED: ZooKeeper is away
    CHECKING --> ENDING: ours: recover it
    ENDING --> IDLE: its last entry is known
    ENDING --> CHECKING: it is gone: is it still ours?
""",
)
SNAPSHOT_PHASES = Law(
    SnapshotPhase,
    """
    MOVING --> WRITING: in a fresh ledger
    WRITING --> END_SENT: every segment is acknowledged
    END_SENT --> SWITCHING: the end is acknowledged
""",
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

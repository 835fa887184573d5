"""The law: which states follow which, and where an event is late, legal or a bug.

`MOVES` names every change of state with its reason; `HANDLED` says in which states an event means something. An event
in another state is *late* if it is in `LATE` there (ignored, counted) and raises otherwise. The diagram in
ARCHITECTURE.md is generated from `MOVES` by `diagram()`.
"""

from __future__ import annotations

from enum import StrEnum

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

ANY = frozenset(State)
_AFTER_OPENING = OWNING | ENDED | {S.CLOSED}

HANDLED: dict[type, frozenset[State]] = {
    ev.Open: frozenset({S.CLOSED}),
    ev.Attach: OPENING | LIVE,
    ev.Prove: OPENING | OWNING,
    ev.Detach: ANY,
    ev.Acks: LIVE,
    ev.SetLayout: LIVE,
    ev.SetProperties: LIVE,
    ev.Reset: LIVE,
    ev.Close: LIVE | OPENING | {S.CLOSING},
    ev.Delete: LIVE | OPENING | {S.CLOSING},
    ev.Roll: LIVE,
    ev.Snapshot: LIVE,
    ev.Tick: ANY,
    ev.Sent: ANY,
    ev.InlineTurn: ANY,
    ev.FooterRead: OPENING | OWNING,
    ev.FooterReadFailed: OPENING | OWNING,
    ev.FooterUnreadable: OPENING | OWNING,
    ev.FooterWritten: OPENING | OWNING,
    ev.FooterBadVersion: OPENING | OWNING,
    ev.FooterWriteUnknown: OPENING | OWNING,
    ev.FooterGone: OPENING | OWNING,
    ev.FooterTooLarge: OPENING | OWNING,
    ev.FooterChecked: OPENING | OWNING,
    ev.FooterCheckFailed: OPENING | OWNING,
    ev.FooterCheckUnknown: OPENING | OWNING,
    ev.LedgerCreated: OWNING,
    ev.LedgerCreateFailed: OWNING,
    ev.LedgerEnded: OWNING | {S.FENCING},
    ev.LedgerEndFailed: OWNING | {S.FENCING},
    ev.Appended: OWNING,
    ev.AppendFailed: OWNING,
    ev.ChainRead: frozenset({S.READING}),
    ev.ChainMissing: frozenset({S.READING}),
    ev.ChainDamaged: frozenset({S.READING}),
    ev.FooterChanged: OPENING | OWNING,
}

_OUTCOMES: tuple[type, ...] = (
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
    ev.LedgerCreated,
    ev.LedgerCreateFailed,
    ev.LedgerEnded,
    ev.LedgerEndFailed,
    ev.Appended,
    ev.AppendFailed,
    ev.ChainRead,
    ev.ChainMissing,
    ev.ChainDamaged,
    ev.FooterChanged,
)

LATE: dict[type, frozenset[State]] = {
    # a source may still be talking when the cursor is on its way out; it was told, or will be
    ev.Attach: _AFTER_OPENING - LIVE,
    ev.Prove: ENDED | {S.CLOSED},
    ev.Acks: _AFTER_OPENING - LIVE,
    ev.SetLayout: _AFTER_OPENING - LIVE,
    ev.SetProperties: _AFTER_OPENING - LIVE,
    ev.Reset: _AFTER_OPENING - LIVE,
    ev.Close: ANY - LIVE - OPENING - {S.CLOSING},
    ev.Roll: ANY - LIVE,
    ev.Snapshot: ANY - LIVE,
    ev.Delete: ENDED | {S.CLOSED, S.DELETING},
    # answers that outlived the machine's interest
    **dict.fromkeys(_OUTCOMES, ANY),
}


def is_handled(state: State, event: ev.Event) -> bool:
    """Whether the event means something now. Raises IllegalTransitionError where it is neither handled nor late."""
    kind = type(event)
    if state in HANDLED[kind]:
        return True
    if state in LATE.get(kind, frozenset()):
        return False
    raise IllegalTransitionError(f"{kind.__name__} in state {state}")


def check_move(before: State, after: State) -> None:
    """Raises IllegalTransitionError unless the table names this move."""
    if before is not after and (before, after) not in MOVES:
        raise IllegalTransitionError(f"{before} -> {after}")


def diagram() -> str:
    """The state diagram as Mermaid text."""
    lines = ["stateDiagram-v2", "    [*] --> CLOSED"]
    lines += [
        f"    {a} --> {b}: {why}"
        for (a, b), why in sorted(MOVES.items(), key=lambda m: (list(State).index(m[0][0]), list(State).index(m[0][1])))
    ]
    lines += [f"    {s} --> [*]" for s in State if s in ENDED]
    return "\n".join(lines)

"""The law of states and events is complete, and the machine obeys it."""

from __future__ import annotations

from dataclasses import MISSING, fields
from typing import Any, get_args

import pytest

from cursorkeeper.core import effects as fx
from cursorkeeper.core import events as ev
from cursorkeeper.core.batch import AckBatch
from cursorkeeper.core.commit import Purpose
from cursorkeeper.core.errors import IllegalTransitionError
from cursorkeeper.core.limits import Limits
from cursorkeeper.core.machine import HANDLERS, CursorMachine
from cursorkeeper.core.names import CursorName
from cursorkeeper.core.positions import FIRST
from cursorkeeper.core.state import AckState
from cursorkeeper.core.table import (
    ENDED,
    HANDLED,
    LATE,
    LIVE,
    OWNING,
    STATES,
    State,
    is_handled,
)

EVENTS: tuple[type, ...] = get_args(ev.Event)
VALUES: dict[str, Any] = {
    "batch": AckBatch(1, 1),
    "state": AckState(FIRST),
    "target": FIRST,
    "footer": None,
    "reason": "why",
    "run": (),
    "values": {},
    "missing": False,
    "too_new": False,
    "fell_back": False,
    "bars_fallback": False,
    "create": True,
}


def an(event: type) -> ev.Event:
    """Some event of this kind, of no attempt that anybody waits for."""
    given = {
        f.name: VALUES.get(f.name, 987_654)
        for f in fields(event)
        if f.default is MISSING and f.default_factory is MISSING
    }
    made: ev.Event = event(**given)
    return made


def test_every_event_has_a_row_and_a_handler() -> None:
    assert set(HANDLED) == set(EVENTS) == set(HANDLERS)
    assert set(LATE) <= set(EVENTS)


@pytest.mark.parametrize("event", EVENTS)
def test_handled_or_late_or_a_bug(event: type) -> None:
    """In no state both, and an outcome is never a bug: answers outlive the machine's interest."""
    outcome = not issubclass(
        event,
        (
            ev.Open,
            ev.Attach,
            ev.Detach,
            ev.Acks,
            ev.SetLayout,
            ev.SetProperties,
            ev.Reset,
            ev.Close,
        ),
    )
    for state in State:
        handled = state in HANDLED[event]
        late = state in LATE.get(event, frozenset())
        if not (handled or late):
            assert not outcome
            with pytest.raises(IllegalTransitionError, match=event.__name__):
                is_handled(state, an(event))
        else:
            assert is_handled(state, an(event)) is handled


LATE_OR_FOREIGN = [
    (state, event)
    for state in State
    for event in EVENTS
    if event not in (ev.Open, ev.Close, ev.Delete, ev.Roll)
    and (state in HANDLED[event] or state in LATE.get(event, ()))
]


@pytest.mark.parametrize(("state", "event"), LATE_OR_FOREIGN)
def test_an_event_of_no_attempt_does_nothing(state: State, event: type) -> None:
    """A late or foreign answer is recognised by its token, in every state: no write, no append, no
    confirmation, no end.
    """
    machine = CursorMachine(CursorName("t", "s"), Limits(), "w")
    machine.life.state, machine.ownership.epoch, machine.handles.attach = state, 3, 5
    if state in (State.CLOSING, State.DELETING):
        machine.ownership.commit.propose(machine.form.footer(), Purpose.CLOSE)
    out = machine.step(an(event), 0.0)
    assert machine.state is state or {machine.state, state} <= LIVE
    assert not [e for e in out if isinstance(e, fx.WriteFooter | fx.Append | fx.Confirm | fx.Ended)]
    # a ledger that was created too late is ours and in no footer: it goes
    assert bool([e for e in out if isinstance(e, fx.DeleteLedgers)]) == (
        event is ev.LedgerCreated and state in OWNING
    )


def test_every_state_can_be_reached() -> None:
    reached = {State.CLOSED}
    while True:
        more = reached | {after for before, after in STATES.moves if before in reached}
        if more == reached:
            break
        reached = more
    assert reached == set(State)


def test_decision_24_states() -> None:
    # FENCING and READING retry in place; REFUSED is reachable from all three
    for state in (State.CLAIMING, State.FENCING, State.READING):
        STATES.check(state, state)
        assert (state, State.REFUSED) in STATES.moves
    # from NOT_PERSISTABLE one may close, delete or roll
    for state in (State.CLOSING, State.DELETING, State.ROLLING):
        assert (State.NOT_PERSISTABLE, state) in STATES.moves
    # the ends are ends
    assert not [m for m in STATES.moves if m[0] in ENDED]
    for state in OWNING:
        assert (state, State.DEPOSED) in STATES.moves


def test_an_illegal_move_raises() -> None:
    with pytest.raises(IllegalTransitionError, match="CLOSED -> READY"):
        STATES.check(State.CLOSED, State.READY)


def test_the_diagram_shows_every_move() -> None:
    text = STATES.diagram()
    assert text.startswith("stateDiagram-v2\n    [*] --> CLOSED")
    for (before, after), why in STATES.moves.items():
        assert f"    {before} --> {after}: {why}" in text
    for state in ENDED:
        assert f"    {state} --> [*]" in text

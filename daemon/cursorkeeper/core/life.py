"""Serves every part of a cursor: where the cursor is between its claim and its end. Changes by the
law (`table`) only.
"""

from __future__ import annotations

from cursorkeeper.core.shape import component
from cursorkeeper.core.table import STATES, State


@component
class Life:
    state: State = State.CLOSED
    closes_by_ledger: bool = False
    """The closed footer cannot hold the state: what is not durable goes through a ledger
    first.
    """

    def move(self, state: State) -> None:
        STATES.check(self.state, state)
        self.state = state

    def stop(self) -> None:
        """A bug was met, perhaps in the law itself: from any state."""
        self.state = State.REFUSED

    def close_by_ledger(self) -> None:
        self.closes_by_ledger = True

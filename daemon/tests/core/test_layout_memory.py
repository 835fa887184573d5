"""The layout counts in the memory of a state, live and read; its ledgers have a bound of their own
beside it.
"""

from __future__ import annotations

import pytest

from cursorkeeper.core.budget import LAYOUT_BYTES, StateBudget
from cursorkeeper.core.errors import OverBudgetError, RefusedError
from cursorkeeper.core.intake_check import IntakeCheck
from cursorkeeper.core.limits import Limits
from cursorkeeper.core.state import AckState
from cursorkeeper.core.values import Delta, LayoutItem, LayoutState

RUN = tuple(LayoutItem(ledger, LayoutState.CLOSED, 10) for ledger in range(100))


def test_a_layout_is_refused_when_the_state_has_no_room_for_it() -> None:
    state = AckState()
    IntakeCheck("c", Limits(state_bytes_max=100 * LAYOUT_BYTES)).layout(RUN, state)
    with pytest.raises(
        RefusedError,
        match=r"with this layout the state may take 20,000 bytes of memory, 19,999 are allowed",
    ):
        IntakeCheck("c", Limits(state_bytes_max=100 * LAYOUT_BYTES - 1)).layout(RUN, state)
    state.apply_layout(RUN)
    assert state.memory_bytes == 100 * LAYOUT_BYTES
    IntakeCheck("c", Limits(state_bytes_max=1)).layout(RUN, state)  # nothing of it is new


def test_a_recovered_layout_costs_what_a_reader_may_take() -> None:
    AckState(budget=StateBudget(100 * LAYOUT_BYTES, 100)).join_delta(Delta(layout=RUN))
    with pytest.raises(OverBudgetError, match="state_bytes_max"):
        AckState(budget=StateBudget(100 * LAYOUT_BYTES - 1, 100)).join_delta(Delta(layout=RUN))
    with pytest.raises(OverBudgetError, match="layout_ledgers_max"):
        AckState(budget=StateBudget(100 * LAYOUT_BYTES, 99)).join_delta(Delta(layout=RUN))

"""When a system that does not answer for one cursor is that cursor's matter, and when it is the end
of the task.

Owns the line between them: a ledger whose bookies are gone keeps one cursor from being read, so
many cursors one after another are no lost ledgers. Invariant: only an answer of BookKeeper begins
the count anew; what needs none says nothing of it.
"""

from __future__ import annotations

from typing import Final

from cursorkeeper.core.names import CursorName
from cursorkeeper.problems import Kind, ProblemError
from cursorkeeper_pipeline.source.side_by_side import AT_ONCE

AWAY_IN_A_ROW_MAX: Final = 3 * AT_ONCE
"""So many cursors, one after another, for which BookKeeper did not answer are lost ledgers; one
more, and BookKeeper is away.
"""


def named(name: CursorName, error: ProblemError) -> ProblemError:
    """The same, of this cursor."""
    said = str(error)
    return ProblemError(said if str(name) in said else f"{name}: {said}", error.remedy, Kind.AWAY)


class AwayCount:
    """How often systems were away in one task, or in one plan."""

    def __init__(self) -> None:
        self._in_a_row = 0

    def answered(self) -> None:
        """BookKeeper was asked and answered."""
        self._in_a_row = 0

    def missed(self, name: CursorName, error: ProblemError) -> None:
        """It did not, for this cursor. Raises ProblemError if it did not for too many."""
        self._in_a_row += 1
        if self._in_a_row > AWAY_IN_A_ROW_MAX:
            raise ProblemError(
                f"{self._in_a_row} cursors one after another could not be read; the last: "
                f"{named(name, error)}",
                "look at BookKeeper and the ledger gateway and run it again",
                Kind.AWAY,
            ) from error

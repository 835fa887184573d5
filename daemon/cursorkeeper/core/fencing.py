"""Serves brokers that stood still and go on: whoever comes with a lower fencing token than was seen
is refused, so that it cannot take a cursor back from its successor (ARCHITECTURE rules 29 to 38).
The fencing of ledgers is another thing: `claim`.

A token is the source's, grows with its loads of a topic, and stays in the footer for good, in the
tombstone too. 0 is the
lowest: of sources that have none. Invariants: no footer write of ours lowers it; nothing is told to
a handle before the footer has
its token; a raise keeps the epoch, because a higher one would give the ledger that is written now
to garbage collection.
"""

from __future__ import annotations

from cursorkeeper.core.commit import FooterCommit
from cursorkeeper.core.handles import Handles
from cursorkeeper.core.questions import Questions
from cursorkeeper.core.shape import component

REMEDY = (
    "a successor of this source has the cursor: this load of its topic is over, so unload it "
    "here. A source without tokens opens it "
    "again after `cursorkeeper forget-token`, when the cursor is closed for good"
)


def why_fenced(given: int, known: int) -> str:
    return f"fencing token {given}, and {known} was seen"


@component
class Fencing:
    """Compares the tokens of the committed footer, of the write under way, and of those who
    wait.
    """

    _commit: FooterCommit
    _handles: Handles
    _questions: Questions

    @property
    def committed(self) -> int:
        """The token of the footer as it was read, or written."""
        footer = self._commit.committed
        return 0 if footer is None else footer.fencing_token

    @property
    def asked(self) -> int:
        """The highest of those who wait here, for the state or for the end of the cursor."""
        return max(self._handles.delete_token, self._questions.highest_token)

    @property
    def known(self) -> int:
        """The highest: of the footer, of a write that is not decided, of who waits here. An open
        with a lower one is refused.
        """
        outstanding = self._commit.outstanding
        return max(
            self.committed,
            0 if outstanding is None else outstanding.footer.fencing_token,
            self.asked,
        )

    @property
    def wanted(self) -> int | None:
        """The token that the footer must have before the handle that waits is told anything; None:
        it has it.
        """
        question = self._questions.get(self._handles.waiting)
        return (
            question.fencing_token
            if question is not None and question.fencing_token > self.committed
            else None
        )

    @property
    def answerable(self) -> int | None:
        """The handle that waits, if it may be told what the cursor is: that is proved, and the
        footer has its token.
        """
        waiting = self._handles.waiting
        return (
            waiting
            if waiting is not None and self._questions.is_proved(waiting) and self.wanted is None
            else None
        )

"""Fencing tokens: whoever comes with a lower one than was seen is refused, so that a broker which stood still and goes on
cannot take a cursor back from its successor (ARCHITECTURE rules 29 to 38). The fencing of ledgers is another thing: `opening`.

Owns the comparison, and the footer write that raises the token of a cursor which is held. A token is the source's, grows with
its loads of a topic, and stays in the footer for good, in the tombstone too. 0 is the lowest: of sources that have none.
Invariants: no footer write of ours lowers it; nothing is told to a handle before the footer has its token; a raise keeps the
epoch, because a higher one would give the ledger that is written now to garbage collection.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from cursorkeeper.core.commit import Purpose
from cursorkeeper.core.table import LIVE

if TYPE_CHECKING:
    from cursorkeeper.core.machine import CursorMachine

REMEDY = (
    "a successor of this source has the cursor: this load of its topic is over, so unload it here. A source without tokens opens it "
    "again after `cursorkeeper forget-token`, when the cursor is closed for good"
)


def why_fenced(given: int, known: int) -> str:
    return f"fencing token {given}, and {known} was seen"


def committed(m: CursorMachine) -> int:
    """The token of the footer as it was read, or written."""
    footer = m.commit.committed
    return 0 if footer is None else footer.fencing_token


def asked(m: CursorMachine) -> int:
    """The highest of those who wait here, for the state or for the end of the cursor."""
    return max([m.delete_token, *[question.fencing_token for question in m.answers.questions.values()]])


def known(m: CursorMachine) -> int:
    """The highest: of the footer, of a write that is not decided, of who waits here. An open with a lower one is refused."""
    outstanding = m.commit.outstanding
    return max(committed(m), 0 if outstanding is None else outstanding.footer.fencing_token, asked(m))


def wanted(m: CursorMachine) -> int | None:
    """The token that the footer must have before the handle that waits is told anything; None: it has it."""
    question = m.answers.questions.get(m.attach_waiting) if m.attach_waiting is not None else None
    return question.fencing_token if question is not None and question.fencing_token > committed(m) else None


def answerable(m: CursorMachine) -> int | None:
    """The handle that waits, if it may be told what the cursor is: that is proved, and the footer has its token."""
    waiting = m.attach_waiting
    return waiting if waiting is not None and m.answers.is_proved(waiting) and wanted(m) is None else None


def drive(m: CursorMachine) -> bool:
    """Sends the write that raises the token, and changes nothing else; True: it did. Its OK proves, as any write of ours."""
    token, footer = wanted(m), m.commit.committed
    if token is None or footer is None or m.state not in LIVE:
        return False
    m.write += 1
    m.propose(replace(footer, write=m.write, fencing_token=token), Purpose.TOKEN)
    return True

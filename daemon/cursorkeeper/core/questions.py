"""Serves whoever waits to be told what a cursor holds, or that it is deleted: who waits, since
when, and what proves it to whom.

Invariant: what was sent before a question came proves nothing for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field
from enum import Enum

from cursorkeeper.core.commit import Purpose
from cursorkeeper.core.shape import component, direct


@direct
class Wish(Enum):
    STATE = "a handle waits for the state"
    WORD = "somebody wants to tell what is held"
    DELETION = "somebody waits for the cursor to be deleted"


@component
class Question:
    """One that waits: for proof (the number of an open is the attachment's), or for the
    tombstone.
    """

    wish: Wish
    joined: bool
    """It came when the claim had been sent: should another owner come, it has not had a claim of
    its own.
    """
    asked_s: float
    waited_s: float = 0.0
    """How long it waited for ZooKeeper before, here or at the machine that held the cursor."""
    fencing_token: int = 0
    since_s: float | None = None
    """Since when it waits for ZooKeeper now."""
    proved: bool = False
    by_write: bool = False
    """A footer write of ours was first sent after it came, and is not decided."""
    by_check: bool = False
    """The check on its way was sent after it came."""

    def wait_since(self, at_s: float) -> None:
        """It waits for ZooKeeper from then on."""
        self.since_s = at_s

    def rest(self, now: float, *, keeps: bool) -> None:
        """It does not wait for ZooKeeper now; whether what it has waited counts."""
        if keeps and self.since_s is not None:
            self.waited_s += now - self.since_s
        self.since_s = None


@component
class Questions:
    _asked: dict[int, Question] = field(default_factory=dict)
    answered: str = ""
    """The source whose handle got the state last: only that one may resume."""
    is_told: bool = False
    """Some handle got the state."""

    def __bool__(self) -> bool:
        return bool(self._asked)

    def get(self, number: int | None) -> Question | None:
        return None if number is None else self._asked.get(number)

    def items(self) -> list[tuple[int, Question]]:
        return list(self._asked.items())

    def all(self) -> list[Question]:
        return list(self._asked.values())

    def of_proof(self) -> Iterator[Question]:
        """Those that wait for proof, or have it."""
        return (q for q in self._asked.values() if q.wish is not Wish.DELETION)

    @property
    def waiting(self) -> int:
        """How many wait, for metrics."""
        # the metrics' thread asks, too
        return sum(not q.proved for q in list(self._asked.values()))

    @property
    def highest_token(self) -> int:
        """The highest fencing token of those who wait."""
        return max((q.fencing_token for q in self._asked.values()), default=0)

    def is_proved(self, number: int) -> bool:
        """Whether something that was sent after this question came has proved that the footer is
        ours.
        """
        question = self._asked.get(number)
        return question is not None and question.proved

    def waited_s(self, number: int, now: float) -> float:
        """How long this one has waited for ZooKeeper in all."""
        question = self._asked.get(number)
        if question is None:
            return 0.0
        return question.waited_s + (0.0 if question.since_s is None else now - question.since_s)

    # ---- who comes and goes

    def ask(
        self,
        number: int,
        wish: Wish,
        now: float,
        *,
        joined: bool,
        waited_s: float = 0.0,
        fencing_token: int = 0,
    ) -> None:
        """Adds somebody who waits from now on, or wishes something else from now on."""
        self._asked[number] = Question(
            wish, joined, now, waited_s + self.waited_s(number, now), fencing_token
        )

    def drop(self, number: int | None) -> bool:
        """Forgets who waits for this one; False: nobody did."""
        return number is not None and self._asked.pop(number, None) is not None

    def tell(self, number: int, source: str) -> None:
        """This handle of the source gets the state."""
        self.drop(number)
        self.answered, self.is_told = source, True

    # ---- what proves

    def write_sent(self, purpose: Purpose) -> None:
        """A footer write is sent for the first time: applied, it proves for all who wait now."""
        for question in self.of_proof():
            question.by_write = True
            if purpose is Purpose.CLAIM:
                question.joined = False

    def write_decided(self, *, committed: bool) -> None:
        """Our write was applied, or another's was found in its place."""
        for question in self._asked.values():
            question.proved = question.proved or (question.by_write and committed)
            question.by_write = False

    def check_sent(self) -> None:
        for question in self.of_proof():
            question.by_check = True

    def check_decided(self, *, proved: bool) -> None:
        """The check was answered: good for those who came before it was sent. Or it came to
        nothing.
        """
        for question in self._asked.values():
            question.proved = question.proved or (question.by_check and proved)
            question.by_check = False

    # ---- time

    def begin_waiting(self) -> None:
        """What waited for its turn is sent now: from here on it is ZooKeeper that is waited for."""
        for question in self._asked.values():
            question.rest(0.0, keeps=False)

"""How many messages of a handle may wait for their confirmation. Credit bounds the bytes of acks; control messages cost
none, and small batches cost little: while BookKeeper is away their number has to be bounded too."""

from __future__ import annotations

from collections import deque

from cursorkeeper.core.errors import Refusal, RefusedError

MESSAGES_MAX = 100_000
CONTROL_MESSAGES_MAX = 1_000


class Outstanding:
    """Of one handle. Sequence numbers grow, and confirmations are cumulative."""

    __slots__ = ("_control", "_cursor", "_seqs")

    def __init__(self, cursor: str) -> None:
        self._cursor = cursor
        self._seqs: deque[int] = deque()
        self._control: deque[int] = deque()

    def add(self, seq: int, *, control: bool) -> None:
        """A message arrived. Raises RefusedError if it is one too many."""
        if control:
            self._check(len(self._control), CONTROL_MESSAGES_MAX, "control messages")
            self._control.append(seq)
        self._check(len(self._seqs), MESSAGES_MAX, "messages")
        self._seqs.append(seq)

    def _check(self, waiting: int, limit: int, what: str) -> None:
        if waiting >= limit:
            raise RefusedError(
                Refusal.CREDIT_EXCEEDED,
                self._cursor,
                f"{waiting} {what} are not confirmed, {limit} are allowed",
                "wait for Durable before sending more, and put more acks into one batch",
            )

    def confirm(self, seq: int) -> None:
        """Everything up to `seq` is decided."""
        for waiting in (self._seqs, self._control):
            while waiting and waiting[0] <= seq:
                waiting.popleft()

"""How many messages of a handle may wait for their confirmation. Credit bounds the bytes of acks;
control messages cost none, and small batches cost little: while BookKeeper is away their number has
to be bounded too.
"""

from __future__ import annotations

from collections import deque

from cursorkeeper.core.errors import Refusal
from cursorkeeper.core.limits import UNCONFIRMED_PARTS_MAX
from cursorkeeper.stream.codec import refused

MESSAGES_MAX = 100_000
CONTROL_MESSAGES_MAX = 1_000


class Outstanding:
    """What a handle has sent that is not confirmed. Sequence numbers grow, and confirmations are
    cumulative.
    """

    __slots__ = ("_control", "_parts", "_seqs")

    def __init__(self) -> None:
        self._seqs: deque[tuple[int, int]] = deque()
        self._parts = 0
        self._control: deque[int] = deque()

    def add(self, seq: int, *, control: bool, parts: int = 0) -> None:
        """A message arrived. Raises RefusedError if it is one too many."""
        if control:
            self._check(len(self._control), CONTROL_MESSAGES_MAX, "control messages")
            self._control.append(seq)
        self._check(len(self._seqs), MESSAGES_MAX, "messages")
        if parts and self._parts:  # one message alone is bounded by itself
            what = "data ledgers and partly acked batches (unconfirmed_parts_max of Hello)"
            self._check(self._parts + parts - 1, UNCONFIRMED_PARTS_MAX, what)
        self._parts += parts
        self._seqs.append((seq, parts))

    def _check(self, waiting: int, limit: int, what: str) -> None:
        if waiting >= limit:
            raise refused(
                f"{waiting} {what} are not confirmed, {limit} are allowed",
                "wait for Durable before sending more, and put more acks into one batch",
                Refusal.CREDIT_EXCEEDED,
            )

    @property
    def is_clear(self) -> bool:
        """Everything was confirmed."""
        return not self._seqs

    def confirm(self, seq: int) -> None:
        """Everything up to `seq` is decided."""
        while self._seqs and self._seqs[0][0] <= seq:
            self._parts -= self._seqs.popleft()[1]
        while self._control and self._control[0] <= seq:
            self._control.popleft()

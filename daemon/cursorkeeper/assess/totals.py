"""The sum over all cursors, and the worst of them. Memory is bounded: rows pass through, `top` of
them stay.
"""

from __future__ import annotations

import heapq
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import msgspec

from cursorkeeper.assess.judge import Verdict
from cursorkeeper.pulsar_broker.model import Reason

ERRORS_KEPT = 50
SUMMED = ("redelivered", "unload_redelivered", "batches", "beyond_cap")


@dataclass(frozen=True, slots=True)
class Row:
    """One cursor: its verdict, or why there is none. `notes` = what the reader should know
    (freshness, warnings).
    """

    topic: str
    subscription: str
    verdict: Verdict | None = None
    error: str = ""
    remedy: str = ""
    notes: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        told: dict[str, Any] = {"topic": self.topic, "subscription": self.subscription}
        if self.verdict is None:
            return {**told, "error": self.error, "remedy": self.remedy}
        return {**told, **msgspec.to_builtins(self.verdict), "notes": list(self.notes)}

    @property
    def rank(self) -> tuple[int, int, int]:
        """What is worse comes first."""
        v = self.verdict
        if v is None:
            return (0, 0, 0)
        return (
            v.redelivered,
            v.next_flush.forgets + v.beyond_cap,
            v.if_all_acked.redelivered if v.if_all_acked is not None else 0,
        )


@dataclass(slots=True)
class Totals:
    top: int = 20
    cursors: int = 0
    at_risk: int = 0
    exact: int = 0
    redelivered: int = 0
    unload_redelivered: int = 0
    batches: int = 0
    beyond_cap: int = 0
    flush_forgets: int = 0
    if_all_acked: int = 0
    errors_count: int = 0
    by_reason: Counter[Reason] = field(default_factory=Counter)
    errors: list[Row] = field(default_factory=list)
    _worst: list[tuple[tuple[int, int, int], int, Row]] = field(default_factory=list)

    def add(self, row: Row) -> None:
        self.cursors += 1
        v = row.verdict
        if v is None:
            self.errors_count += 1
            if len(self.errors) < ERRORS_KEPT:
                self.errors.append(row)
            return
        self.at_risk += v.is_at_risk
        self.exact += v.is_exact
        for name in SUMMED:
            setattr(self, name, getattr(self, name) + getattr(v, name))
        self.flush_forgets += v.next_flush.forgets
        self.if_all_acked += v.if_all_acked.redelivered if v.if_all_acked is not None else 0
        self.by_reason.update(v.by_reason)
        item = (row.rank, -self.cursors, row)
        if len(self._worst) < self.top:
            heapq.heappush(self._worst, item)
        elif self.top:
            heapq.heappushpop(self._worst, item)

    @property
    def reasons(self) -> list[Reason]:
        """The reasons of the cursors that were judged, in the order in which they are declared."""
        return [reason for reason in Reason if self.by_reason[reason]]

    @property
    def is_exact(self) -> bool:
        """The sum counts every cursor as its broker holds it."""
        return self.exact == self.cursors

    @property
    def lower_bounds(self) -> int:
        """Cursors of which only what is stored is known."""
        return self.cursors - self.exact - self.errors_count

    @property
    def worst(self) -> list[Row]:
        return [row for _, _, row in sorted(self._worst, reverse=True)]

    def as_json(self) -> dict[str, Any]:
        """The last line of the output of `--json`."""
        return {
            "cursors": self.cursors,
            "atRisk": self.at_risk,
            "errors": self.errors_count,
            "redelivered": self.redelivered,
            "exact": self.is_exact,
            "byReason": {r.value: self.by_reason[r] for r in self.reasons},
            "partlyAckedBatches": self.batches,
            "beyondCap": self.beyond_cap,
            "nextFlushForgets": self.flush_forgets,
            "gracefulUnloadRedelivers": self.unload_redelivered,
            "ifAllButTheOldestAcked": self.if_all_acked,
        }

"""A span of time as a user writes it: what `since` and `until` mean. Pure.

Owns which texts are times. Invariant: a text that may be meant otherwise than it would be taken is
refused: a date written as a number is a date, and a number is seconds since 1970 only where that is
a time at which a record can have been written.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, datetime

SECONDS_MIN, SECONDS_MAX = 1_000_000_000, 100_000_000_000
"""September 2001 to the year 5138: smaller ones are years or dates, maybe cut short; larger ones
are milliseconds.
"""


@dataclass(frozen=True, slots=True)
class Window:
    """`since <= time < until`, in microseconds since 1970; None: no bound."""

    since_us: int | None = None
    until_us: int | None = None

    @classmethod
    def of(cls, since: str, until: str) -> Window:
        """Empty text: no bound. Raises ValueError."""
        window = cls(moment_us("since", since), moment_us("until", until))
        if (
            window.since_us is not None
            and window.until_us is not None
            and window.since_us >= window.until_us
        ):
            raise ValueError(
                f"since = {since!r} is not before until = {until!r}: nothing lies between them. "
                f"What to do: exchange them, or leave one out"
            )
        return window

    def may_hold(self, created_us: int, ended_us: int | None) -> bool:
        """Whether a record of a ledger may lie inside. `ended_us` None: it may be being written."""
        is_later = self.until_us is not None and created_us >= self.until_us
        is_earlier = self.since_us is not None and ended_us is not None and ended_us < self.since_us
        return not (is_later or is_earlier)


def moment_us(name: str, text: str) -> int | None:
    """ISO 8601 (UTC if it names no zone) or seconds since 1970. Raises ValueError."""
    if not text:
        return None
    seconds = _of_number(text) or _of_date(text)
    if seconds is None:
        raise ValueError(
            f"{name} = {text!r} is no time. What to do: write ISO 8601 as 2026-11-21T10:00:00Z, or "
            "seconds since 1970 as 1795255200; a record is left out only if its ledger was "
            "certainly written outside of since and until"
        )
    return round(seconds * 1_000_000)


def _of_number(text: str) -> float | None:
    try:
        seconds = float(text)
    except ValueError:
        return None
    return seconds if math.isfinite(seconds) and SECONDS_MIN <= seconds < SECONDS_MAX else None


def _of_date(text: str) -> float | None:
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        return None
    return (at if at.tzinfo is not None else at.replace(tzinfo=UTC)).timestamp()

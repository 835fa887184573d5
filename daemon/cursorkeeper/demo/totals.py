"""Sums metrics over daemons that are killed: each scrape replaces what its process said before, a
kill keeps it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping

BUCKET = re.compile(r'cursorkeeper_append_bytes_bucket\{kind="(\w+)",le="([^"]+)"\}')
SUMS = "cursorkeeper_append_bytes_sum{"


class Totals:
    """Records and bytes written, by kind, over all daemons so far."""

    def __init__(self) -> None:
        self._ended = Counter[str]()
        self._current: Mapping[str, float] = {}

    def scraped(self, metrics: Mapping[str, float]) -> None:
        if metrics:
            self._current = metrics

    def process_ended(self) -> None:
        """Keeps the last word of a daemon that was killed."""
        self._ended.update(self._current)
        self._current = {}

    def _all(self) -> Counter[str]:
        together = self._ended.copy()
        together.update(self._current)
        return together

    def records(self, kind: str) -> int:
        return int(self._all()[f'cursorkeeper_append_bytes_count{{kind="{kind}"}}'])

    def bytes_written(self, kind: str = "") -> int:
        """Bytes of one kind of records, or of every kind."""
        series = f'cursorkeeper_append_bytes_sum{{kind="{kind}"}}' if kind else SUMS
        return int(sum(value for key, value in self._all().items() if key.startswith(series)))

    def flush_bytes(self, share: float) -> int:
        """A quantile of a delta record's stored bytes, interpolated inside its bucket (buckets grow
        by 1.41).
        """
        buckets = sorted(
            (float(m.group(2)), v)
            for k, v in self._all().items()
            if (m := BUCKET.match(k)) and m.group(1) == "delta"
        )
        wanted = share * buckets[-1][1] if buckets else 0.0
        lower = below = 0.0
        for upper, count in buckets:
            if count >= wanted > 0:
                inside = (wanted - below) / max(1.0, count - below)
                return int(lower + (min(upper, 1 << 20) - lower) * inside)
            lower, below = upper, count
        return 0

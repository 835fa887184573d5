"""Sums metrics over daemons that are killed: each scrape replaces what its process said before, a
kill keeps it.
"""

from __future__ import annotations

import re

BUCKET = re.compile(r'cursorkeeper_append_bytes_bucket\{kind="(\w+)",le="([^"]+)"\}')
COUNT = re.compile(r'cursorkeeper_append_bytes_(count|sum)\{kind="(\w+)"\}')


class Totals:
    """Records and bytes written, by kind, over all daemons so far."""

    def __init__(self) -> None:
        self._ended: dict[str, float] = {}
        self._current: dict[str, float] = {}

    def scraped(self, metrics: dict[str, float]) -> None:
        if metrics:
            self._current = metrics

    def process_ended(self) -> None:
        """Keeps the last word of a daemon that was killed."""
        for key, value in self._current.items():
            self._ended[key] = self._ended.get(key, 0.0) + value
        self._current = {}

    def _all(self) -> dict[str, float]:
        keys = self._ended.keys() | self._current.keys()
        return {k: self._ended.get(k, 0.0) + self._current.get(k, 0.0) for k in keys}

    def records(self, kind: str) -> int:
        """How many records of a kind."""
        return int(self._all().get(f'cursorkeeper_append_bytes_count{{kind="{kind}"}}', 0))

    def bytes_written(self, kind: str = "") -> int:
        """Bytes of one kind of records, or of every kind."""
        found = ((m, v) for k, v in self._all().items() if (m := COUNT.match(k)))
        return int(sum(v for m, v in found if m.group(1) == "sum" and kind in ("", m.group(2))))

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

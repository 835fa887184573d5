"""One page of metrics over all workers of a daemon, made of the pages of each.

Owns: how values of the same name become one. Counters and histograms are added up, and so are
gauges, but for those of which a sum says nothing. Invariant: a sum of a counter never falls when a
worker ends: what was last read of it counts on, because to Prometheus a fall is a restart, after
which the whole sum would count again.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from cursorkeeper.telemetry.metrics import PREFIX

Key = tuple[str, str, tuple[tuple[str, str], ...]]
"""A family's name; a sample's name and labels."""
CUMULATIVE = frozenset({"counter", "histogram"})
LARGEST = frozenset(
    PREFIX + name
    for name in (
        "chain_ledgers_longest",
        "flush_interval_seconds",
        "oldest_unconfirmed_seconds",
        "build_info",
    )
)
OF_A_PROCESS = "process_"


@dataclass(frozen=True, slots=True)
class Page:
    """What one worker says. `text` None: it does not answer, or does not run."""

    pid: int
    restarts: int
    text: str | None


@dataclass(slots=True)
class _Known:
    """What was last read of a worker's counters and histograms."""

    pid: int = 0
    values: dict[Key, float] = field(default_factory=dict)


class MergedPages(Collector):
    """`read` gives the page of each worker, by its number, in the thread of who asks."""

    def __init__(self, read: Callable[[], Mapping[int, Page]]) -> None:
        self._read, self._lock = read, threading.Lock()
        self._ended: Counter[Key] = Counter()
        """Of processes that have ended."""
        self._known: dict[int, _Known] = {}
        self._families: dict[str, tuple[str, str]] = {}
        """What each is about, and its type."""

    def collect(self) -> Iterator[Metric]:
        with self._lock:
            pages = self._read()
            yield from self._merged(pages).values()
        up = GaugeMetricFamily(
            f"{PREFIX}worker_up", "Whether a worker of the daemon answers.", labels=["worker"]
        )
        restarts = CounterMetricFamily(
            f"{PREFIX}worker_restarts", "How often a worker was restarted.", labels=["worker"]
        )
        for number, page in sorted(pages.items()):
            up.add_metric([str(number)], page.text is not None)
            restarts.add_metric([str(number)], page.restarts)
        yield up
        yield restarts

    def _merged(self, pages: Mapping[int, Page]) -> dict[str, Metric]:
        gauges: dict[Key, float] = {}
        for number, page in sorted(pages.items()):
            known = self._known.setdefault(number, _Known())
            if page.pid != known.pid:
                self._ended.update(known.values)
                known.pid, known.values = page.pid, {}
            for family in text_string_to_metric_families(page.text or ""):
                self._families.setdefault(family.name, (family.documentation, family.type))
                for sample in family.samples:
                    labels = dict(sample.labels)
                    if family.type in CUMULATIVE:
                        key = (family.name, sample.name, tuple(labels.items()))
                        known.values[key] = sample.value
                        continue
                    if family.name.startswith(OF_A_PROCESS):
                        labels["worker"] = str(number)
                    key = (family.name, sample.name, tuple(labels.items()))
                    gauges[key] = (
                        _together(key, gauges[key], sample.value) if key in gauges else sample.value
                    )
        sums = self._ended.copy()
        for known in self._known.values():
            sums.update(known.values)
        families = {name: Metric(name, *said) for name, said in self._families.items()}
        for (family_name, name, label_items), value in (*sums.items(), *gauges.items()):
            families[family_name].add_sample(name, dict(label_items), value)
        return families


def _together(key: Key, one: float, other: float) -> float:
    """A gauge of two workers."""
    family, _, labels = key
    if family.endswith("_created"):
        return min(one, other)
    if family in LARGEST or ("over", "max") in labels:
        return max(one, other)
    return one + other

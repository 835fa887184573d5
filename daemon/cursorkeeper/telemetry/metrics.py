"""Prometheus metrics of the daemon, and the runner's `Telemetry` on top of them and the log.

Owns names and help texts. Counters of cursors are summed at scrape time: what the machines count,
and what those that ended here had counted, so that they never go down. Nothing is counted twice,
and the hot path touches two metrics per record.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter as Tally
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from itertools import accumulate
from math import inf
from platform import python_version
from typing import TYPE_CHECKING, Any, TypeVar

import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from cursorkeeper.compiled import IS_COMPILED
from cursorkeeper.core.errors import Refusal
from cursorkeeper.core.table import ENDED, State
from cursorkeeper.runtime.runner import KINDS, OpenResult
from cursorkeeper.runtime.telemetry import Telemetry

if TYPE_CHECKING:
    from cursorkeeper.runtime.keeper import Keeper

PREFIX = "cursorkeeper_"
M = TypeVar("M", Counter, Gauge, Histogram)
_SECONDS = (0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.125, 0.25, 0.5, 1, 2, 4, 8, 16)
_RECOVERY_SECONDS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200)
_BYTES = tuple(float(64 * 2 ** (step / 2)) for step in range(29))
"""64 B to 1 MiB in steps of 1.41."""
_WARN = (
    "paused",
    "cursor refused",
    "handle refused",
    "bug",
    "ledger failed",
    "ledger left",
    "acknowledged entries lost",
    "footer to restore",
    "footer in doubt",
    "ledger not deleted",
    "state truncated",
    "state does not fit",
    "state recovered that was truncated",
    "unfinished state",
    "closed without",
    "orphans",
    "orphan not",
    "acks beyond the end",
)
SUMMED = (
    "accepted_acks",
    "new_acks",
    "duplicate_acks",
    "flushes",
    "snapshots",
    "rolls",
    "inline_backstops",
    "restart_states",
    "lost_handle_states",
    "partial_acks_ignored",
    "acks_beyond_end",
    "limit_crossings",
    "truncations",
    "truncated_flushes",
    "lost_entries",
)
log = structlog.get_logger("cursorkeeper")


class _Observed:
    """Observations of one histogram, for a place that makes thousands of them a second."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds, self._counts, self._sum = bounds, [0] * (len(bounds) + 1), 0.0

    def observe(self, value: float) -> None:
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    def add_to(self, family: HistogramMetricFamily, *labels: str) -> None:
        counts = accumulate(self._counts)
        buckets = [
            (floatToGoString(bound), count)  # type: ignore[no-untyped-call]
            for bound, count in zip((*self._bounds, inf), counts, strict=True)
        ]
        family.add_metric(labels, buckets, self._sum)


class _FlushCollector(Collector):
    def __init__(self, seconds: _Observed, bytes_of: Mapping[str, _Observed]) -> None:
        self._seconds, self._bytes_of = seconds, bytes_of

    def describe(self) -> Iterator[Metric]:
        """Its names are known, so that a page can be asked for them alone."""
        return self.collect()

    def collect(self) -> Iterator[Metric]:
        seconds = HistogramMetricFamily(
            f"{PREFIX}append_seconds", "From sending a record to its ack by the quorum."
        )
        self._seconds.add_to(seconds)
        yield seconds
        stored = HistogramMetricFamily(
            f"{PREFIX}append_bytes", "Stored bytes of acknowledged records.", labels=["kind"]
        )
        for kind, observed in self._bytes_of.items():
            observed.add_to(stored, kind)
        yield stored


class DaemonTelemetry(Telemetry):
    """What runners report, as metrics."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._append_seconds = _Observed(_SECONDS)
        self._bytes_of = {kind: _Observed(_BYTES) for kind in KINDS.values()}
        self.registry.register(_FlushCollector(self._append_seconds, self._bytes_of))
        self._events = self._made(Counter, "events", "What the log told, by event.", "event")
        ended = self._made(
            Counter,
            "cursors_ended",
            "Cursors that ended here, by the state they ended in.",
            "state",
        )
        # there from the start: an alert sees the first one only as a step up from 0
        self._ended = {
            str(state): ended.labels(str(state)) for state in (State.CLOSED, *sorted(ENDED))
        }
        opens = self._made(
            Counter, "opens", "Opens of sources, by how they were answered.", "result"
        )
        self._opens = {str(result): opens.labels(str(result)) for result in (*OpenResult, *Refusal)}
        refusals = self._made(
            Counter, "refusals", "What sources were told Refused, by code.", "code"
        )
        self._refusals = {str(code): refusals.labels(str(code)) for code in Refusal}
        self._recovery_seconds = self._made(
            Histogram,
            "recovery_seconds",
            "From asking for a cursor that was not held here to its state.",
            buckets=_RECOVERY_SECONDS,
        )
        self._orphans = self._made(
            Gauge,
            "orphans",
            "Cursors that Pulsar has no more, as of the last search; 0 where pulsar_metadata is "
            "not set.",
        )
        self.audit_line_dropped = self._made(
            Counter,
            "audit_lines_dropped",
            "Lines of the audit log that found no room: its disk is too slow.",
        ).inc
        build = self._made(
            Gauge, "build_info", "1; what runs, as labels.", "version", "python", "core"
        )
        core = "compiled" if IS_COMPILED else "interpreted"
        build.labels(version("cursorkeeper"), python_version(), core).set(1)
        ProcessCollector(registry=self.registry)

    def _made(self, kind: type[M], name: str, help: str, *labels: str, **more: Any) -> M:
        return kind(f"{PREFIX}{name}", help, labels, registry=self.registry, **more)

    def flushed(self, kind: str, stored_bytes: int, seconds: float) -> None:
        self._append_seconds.observe(seconds)
        self._bytes_of[kind].observe(stored_bytes)

    def opened(self, result: str) -> None:
        """A source has its answer."""
        self._opens[result].inc()

    def recovered(self, seconds: float) -> None:
        self._recovery_seconds.observe(seconds)

    def refused(self, code: str) -> None:
        """A source was told so."""
        self._refusals[code].inc()

    def found_orphans(self, count: int) -> None:
        """A search was believed."""
        self._orphans.set(count)

    def log(self, event: str, **fields: Any) -> None:
        """Logs an effect, and counts it by its level."""
        self._events.labels(event.partition(":")[0]).inc()
        if event == "cursor ended":
            self._ended[fields["state"]].inc()
        if event.startswith(_WARN):
            log.warning(event, **fields)
        else:
            log.info(event, **fields)

    def watch(self, keeper: Keeper) -> None:
        """Scrape this keeper's cursors too."""
        self.registry.register(_CursorCollector(keeper))


class _CursorCollector(Collector):
    def __init__(self, keeper: Keeper) -> None:
        self._keeper = keeper

    def collect(self) -> Iterator[Metric]:
        keeper = self._keeper
        sums, runners = keeper.counted()
        machines = [runner.machine for runner in runners]
        for machine in machines:
            sums.add(machine.counters)
        yield _by(
            "cursors",
            "Cursors held, by state.",
            "state",
            dict(sorted(Tally(str(machine.state) for machine in machines).items())),
        )
        told = [machine.statistics for machine in machines]
        sizes = [each.metadata_bytes for each in told]
        yield _by(
            "cursor_metadata_size_in_memory_bytes",
            "Encoded state of the cursors held, each as of its last flush: the sum, and the "
            "largest.",
            "over",
            {"sum": sum(sizes), "max": max(sizes, default=0)},
        )
        waiting = sum(each.answers_waiting for each in told)
        for name, value, help in (
            (
                "cursors_paused",
                sum(bool(each.paused_for) for each in told),
                "Cursors whose acks wait too long.",
            ),
            (
                "answers_waiting",
                keeper.ends_waited_for + waiting,
                "Opens and questions that wait for ZooKeeper to say that the cursor is held here, "
                "and deletes that wait for their end.",
            ),
            (
                "chain_ledgers_longest",
                max((len(machine.chain) for machine in machines), default=0),
                "Ledgers in the longest chain.",
            ),
            (
                "appends_in_flight",
                keeper.appends_in_flight,
                "Records sent and not answered.",
            ),
            (
                "flush_interval_seconds",
                keeper.flush_interval_ms / 1000,
                "The longest wait of an ack before it is sent: with the append, what a crash can "
                "cost of acks not confirmed yet.",
            ),
            (
                "oldest_unconfirmed_seconds",
                keeper.oldest_unconfirmed_s,
                "How long the oldest accepted message of all cursors has waited to be durable.",
            ),
            (
                "truncated_acks",
                sum(each.truncated_acks for each in told),
                "Acks that the stored states leave out, by the operator's leave.",
            ),
        ):
            yield GaugeMetricFamily(PREFIX + name, help, value=value)
        for name in SUMMED:
            yield CounterMetricFamily(
                PREFIX + name,
                f"{name.replace('_', ' ')} of all cursors since the start.",
                value=getattr(sums, name),
            )


def _by(name: str, help: str, label: str, values: Mapping[str, float]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(PREFIX + name, help, labels=[label])
    for key, value in values.items():
        family.add_metric([key], value)
    return family

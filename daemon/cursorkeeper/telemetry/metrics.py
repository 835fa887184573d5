"""Prometheus metrics of the daemon, and the runner's `Telemetry` on top of them and the log.

Owns names and help texts. Counters of cursors are summed at scrape time: what the machines count,
and what those that ended here had counted, so that they never go down. Nothing is counted twice,
and the hot path touches two metrics per record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib.metadata import version
from platform import python_version
from typing import TYPE_CHECKING, Any

import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from cursorkeeper.core.errors import Refusal
from cursorkeeper.core.table import ENDED, State
from cursorkeeper.runtime.runner import KINDS, OpenResult
from cursorkeeper.telemetry import pages

if TYPE_CHECKING:
    from cursorkeeper.runtime.keeper import Keeper

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
    "partial_acks_ignored",
    "acks_beyond_end",
    "limit_crossings",
    "truncations",
    "truncated_flushes",
    "lost_entries",
)
log = structlog.get_logger("cursorkeeper")


class DaemonTelemetry:
    """Implements the runner's `Telemetry`."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._append_seconds = Histogram(
            "cursorkeeper_append_seconds",
            "From sending a record to its ack by the quorum.",
            buckets=_SECONDS,
            registry=self.registry,
        )
        self._append_bytes = Histogram(
            "cursorkeeper_append_bytes",
            "Stored bytes of acknowledged records.",
            ["kind"],
            buckets=_BYTES,
            registry=self.registry,
        )
        self._bytes_of = {kind: self._append_bytes.labels(kind) for kind in KINDS.values()}
        self._events = Counter(
            "cursorkeeper_events", "What the log told, by event.", ["event"], registry=self.registry
        )
        ended = Counter(
            "cursorkeeper_cursors_ended",
            "Cursors that ended here, by the state they ended in.",
            ["state"],
            registry=self.registry,
        )
        # there from the start: an alert sees the first one only as a step up from 0
        self._ended = {
            str(state): ended.labels(str(state)) for state in (State.CLOSED, *sorted(ENDED))
        }
        opens = Counter(
            "cursorkeeper_opens",
            "Opens of sources, by how they were answered.",
            ["result"],
            registry=self.registry,
        )
        self._opens = {str(result): opens.labels(str(result)) for result in (*OpenResult, *Refusal)}
        refusals = Counter(
            "cursorkeeper_refusals",
            "What sources were told Refused, by code.",
            ["code"],
            registry=self.registry,
        )
        self._refusals = {str(code): refusals.labels(str(code)) for code in Refusal}
        self._recovery_seconds = Histogram(
            "cursorkeeper_recovery_seconds",
            "From asking for a cursor that was not held here to its state.",
            buckets=_RECOVERY_SECONDS,
            registry=self.registry,
        )
        self._orphans = Gauge(
            "cursorkeeper_orphans",
            "Cursors that Pulsar has no more, as of the last search; 0 where pulsar_metadata is "
            "not set.",
            registry=self.registry,
        )
        build = Gauge(
            "cursorkeeper_build_info",
            "1; what runs, as labels.",
            ["version", "python"],
            registry=self.registry,
        )
        build.labels(version("cursorkeeper"), python_version()).set(1)
        ProcessCollector(registry=self.registry)

    def flushed(self, kind: str, stored_bytes: int, seconds: float) -> None:
        self._append_seconds.observe(seconds)
        self._bytes_of[kind].observe(stored_bytes)

    def moved(self) -> None:
        """No number."""

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

    def serve(self, host: str, port: int) -> tuple[int, Callable[[], None]]:
        """Serves /metrics in a thread; returns the port and how to stop."""
        return pages.serve(self.registry, host, port)


class _CursorCollector(Collector):
    def __init__(self, keeper: Keeper) -> None:
        self._keeper = keeper

    def collect(self) -> Iterator[Metric]:
        states: dict[str, int] = {}
        ended, runners = self._keeper.counted()
        sums = {name: getattr(ended, name) for name in SUMMED}
        chain_max = paused = size_sum = size_max = truncated = 0
        waiting = self._keeper.ends_waited_for
        for runner in runners:
            machine = runner.machine
            states[str(machine.state)] = states.get(str(machine.state), 0) + 1
            chain_max = max(chain_max, len(machine.chain))
            paused += bool(machine.pause.paused_for)
            waiting += machine.questions.waiting
            size_sum += machine.form.metadata_bytes
            size_max = max(size_max, machine.form.metadata_bytes)
            truncated += machine.flow.truncated_acks
            for name in sums:
                sums[name] += getattr(machine.counters, name)
        cursors = GaugeMetricFamily(
            "cursorkeeper_cursors", "Cursors held, by state.", labels=["state"]
        )
        for state, count in sorted(states.items()):
            cursors.add_metric([state], count)
        yield cursors
        yield GaugeMetricFamily(
            "cursorkeeper_cursors_paused", "Cursors whose acks wait too long.", value=paused
        )
        yield GaugeMetricFamily(
            "cursorkeeper_answers_waiting",
            "Opens and questions that wait for ZooKeeper to say that the cursor is held here, "
            "and deletes that wait for their end.",
            value=waiting,
        )
        yield GaugeMetricFamily(
            "cursorkeeper_chain_ledgers_longest", "Ledgers in the longest chain.", value=chain_max
        )
        yield GaugeMetricFamily(
            "cursorkeeper_appends_in_flight",
            "Records sent and not answered.",
            value=self._keeper.appends_in_flight,
        )
        yield GaugeMetricFamily(
            "cursorkeeper_flush_interval_seconds",
            "The longest wait of an ack before it is sent: with the append, what a crash can "
            "cost of acks not confirmed yet.",
            value=self._keeper.flush_interval_ms / 1000,
        )
        yield GaugeMetricFamily(
            "cursorkeeper_oldest_unconfirmed_seconds",
            "How long the oldest accepted message of all cursors has waited to be durable.",
            value=self._keeper.oldest_unconfirmed_s,
        )
        size = GaugeMetricFamily(
            "cursorkeeper_cursor_metadata_size_in_memory_bytes",
            "Encoded state of the cursors held, each as of its last flush: the sum, and the "
            "largest.",
            labels=["over"],
        )
        size.add_metric(["sum"], size_sum)
        size.add_metric(["max"], size_max)
        yield size
        yield GaugeMetricFamily(
            "cursorkeeper_truncated_acks",
            "Acks that the stored states leave out, by the operator's leave.",
            value=truncated,
        )
        for name, value in sums.items():
            yield CounterMetricFamily(
                f"cursorkeeper_{name}",
                f"{name.replace('_', ' ')} of all cursors since the start.",
                value=value,
            )

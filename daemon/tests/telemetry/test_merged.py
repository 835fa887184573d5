"""One page of metrics over the pages of several workers."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from cursorkeeper.telemetry.merged import MergedPages, Page
from cursorkeeper.telemetry.metrics import DaemonTelemetry
from daemon.tests.support.world import World


class Workers:
    """Pages of made-up workers, and what the daemon's page says then."""

    def __init__(self, *registries: CollectorRegistry) -> None:
        self.pages = {
            number: Page(100 + number, 0, generate_latest(registry).decode())
            for number, registry in enumerate(registries)
        }
        self.registry = CollectorRegistry()
        self.registry.register(MergedPages(lambda: self.pages))

    def value(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(name, labels)


def registry(
    acks: int, longest: int, seconds: tuple[float, ...] = (), memory: int = 0
) -> CollectorRegistry:
    made = CollectorRegistry()
    Counter("cursorkeeper_new_acks", "Acks.", registry=made).inc(acks)
    Gauge("cursorkeeper_chain_ledgers_longest", "Longest.", registry=made).set(longest)
    Gauge("cursorkeeper_cursors_paused", "Paused.", registry=made).set(longest)
    size = Gauge("cursorkeeper_cursor_metadata_size", "Size.", ["over"], registry=made)
    size.labels("max").set(longest)
    size.labels("sum").set(longest)
    Gauge("process_resident_memory_bytes", "Memory.", registry=made).set(memory)
    histogram = Histogram("cursorkeeper_append_seconds", "S.", buckets=(1, 2), registry=made)
    for each in seconds:
        histogram.observe(each)
    return made


def test_values_of_the_same_name_become_one() -> None:
    workers = Workers(registry(5, 3, (0.5, 1.5), 10), registry(7, 2, (1.5,), 20))
    assert workers.value("cursorkeeper_new_acks_total") == 12
    assert workers.value("cursorkeeper_chain_ledgers_longest") == 3
    assert workers.value("cursorkeeper_cursors_paused") == 5
    assert workers.value("cursorkeeper_cursor_metadata_size", over="max") == 3
    assert workers.value("cursorkeeper_cursor_metadata_size", over="sum") == 5
    assert workers.value("cursorkeeper_append_seconds_bucket", le="1.0") == 1
    assert workers.value("cursorkeeper_append_seconds_bucket", le="2.0") == 3
    assert workers.value("cursorkeeper_append_seconds_count") == 3
    assert workers.value("cursorkeeper_append_seconds_sum") == 3.5
    assert workers.value("process_resident_memory_bytes", worker="0") == 10
    assert workers.value("process_resident_memory_bytes", worker="1") == 20
    assert workers.value("cursorkeeper_worker_up", worker="1") == 1
    assert b"# TYPE cursorkeeper_append_seconds histogram" in generate_latest(workers.registry)


def test_a_counter_does_not_fall_when_a_worker_ends_or_is_silent() -> None:
    workers = Workers(registry(5, 3), registry(7, 2))
    assert workers.value("cursorkeeper_new_acks_total") == 12
    workers.pages[1] = Page(101, 0, None)
    assert workers.value("cursorkeeper_new_acks_total") == 12
    assert workers.value("cursorkeeper_cursors_paused") == 3
    assert workers.value("cursorkeeper_worker_up", worker="1") == 0
    workers.pages[1] = Page(201, 1, None)
    assert workers.value("cursorkeeper_new_acks_total") == 12
    workers.pages[1] = Page(201, 1, generate_latest(registry(1, 2)).decode())
    for _ in range(2):
        assert workers.value("cursorkeeper_new_acks_total") == 13
    assert workers.value("cursorkeeper_append_seconds_count") == 0
    assert workers.value("cursorkeeper_worker_restarts_total", worker="1") == 1


async def test_the_page_of_one_worker_is_the_daemons() -> None:
    """Names, types and values of everything that a daemon of one process says, but for the
    processes' own.
    """
    world, telemetry = World(), DaemonTelemetry()
    telemetry.flushed("delta", 100, 0.01)
    telemetry.log("paused: away", cursor="t|s")
    telemetry.watch(await world.keeper())
    alone = generate_latest(telemetry.registry).decode()
    merged = CollectorRegistry()
    merged.register(MergedPages(lambda: {0: Page(1, 0, alone)}))

    def lines(page: str) -> set[str]:
        return {
            line
            for line in page.splitlines()
            if "process_" not in line and "cursorkeeper_worker_" not in line
        }

    assert lines(generate_latest(merged).decode()) == lines(alone)

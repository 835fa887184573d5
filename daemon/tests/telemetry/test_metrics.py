"""Metrics that alerts stand on: what ended, and as what, is there from the start and counted; the process is seen, too."""

from __future__ import annotations

from cursorkeeper.telemetry.metrics import DaemonTelemetry


def test_cursors_that_end_are_counted_by_state_from_zero_on() -> None:
    telemetry = DaemonTelemetry()

    def ended(state: str) -> float | None:
        return telemetry.registry.get_sample_value("cursorkeeper_cursors_ended_total", {"state": state})

    assert [ended(state) for state in ("CLOSED", "DELETED", "DEPOSED", "REFUSED")] == [0, 0, 0, 0]
    telemetry.log("cursor ended", cursor="t|s", state="DEPOSED", epoch=3)
    assert (ended("DEPOSED"), ended("CLOSED")) == (1, 0)
    assert telemetry.registry.get_sample_value("cursorkeeper_events_total", {"event": "cursor ended"}) == 1


def test_the_process_is_on_the_page() -> None:
    telemetry = DaemonTelemetry()
    assert (telemetry.registry.get_sample_value("process_resident_memory_bytes") or 0) > 1 << 20
    assert (telemetry.registry.get_sample_value("process_start_time_seconds") or 0) > 0

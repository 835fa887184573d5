"""Log lines: JSON on the standard error of the moment, and never an error of their own."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator

import pytest
import structlog

from cursorkeeper.telemetry import logs


@pytest.fixture(autouse=True)
def other_tests_log_as_before() -> Iterator[None]:
    before = structlog.get_config()
    yield
    structlog.configure(**before)


def test_lines_go_to_the_standard_error_of_now(monkeypatch: pytest.MonkeyPatch) -> None:
    logs.configure("info")
    log = structlog.get_logger("cursorkeeper.test")
    log.info("first")
    for word in ("second", "third"):
        now = io.StringIO()
        monkeypatch.setattr(sys, "stderr", now)
        log.warning(word, cursor="t|s", cause=ValueError("x"))
        line = json.loads(now.getvalue())
        assert (line["event"], line["cursor"], line["level"]) == (word, "t|s", "warning")


def test_a_closed_standard_error_stops_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    logs.configure("info")
    closed = io.StringIO()
    closed.close()
    monkeypatch.setattr(sys, "stderr", closed)
    structlog.get_logger("cursorkeeper.test").error("nobody reads this")

"""For every test: what is green on one machine is green on every other.

Properties are checked with the same examples everywhere, whatever else was imported; `pytest
--hypothesis-profile new-examples` looks for more (`PYTEST_ADDOPTS` for make). How long an example
or its making takes says how busy a machine is, not whether a property holds.

Tracebacks in logs are plain: with the values of local variables one takes as long as those are
large, and the event loop waits.

The order is: first the files that start processes or are slow, then all others. Beside each other,
workers then end together: the last files are short.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

from cursorkeeper.compiled import IS_COMPILED, VARIABLE

settings.register_profile(
    "new-examples", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile(
    "same-examples", settings.get_profile("new-examples"), derandomize=True, database=None
)
settings.load_profile("same-examples")
_LONG = ("jvm", "slow")

structlog.configure(
    processors=[
        structlog.processors.add_log_level,
        structlog.dev.ConsoleRenderer(
            colors=False, exception_formatter=structlog.dev.plain_traceback
        ),
    ]
)

# Hypothesis mixes numbers and texts into the examples that it finds in modules of ours, whichever
# are imported by then.
providers._get_local_constants = lambda: providers._local_constants
_left_over: list[BaseException | None] = [None]


@pytest.fixture(autouse=True)
def no_exception_is_left_over() -> Iterator[None]:
    """Machine code that leaves the thread in the middle of handling one keeps it for ever, and with
    it whatever is caught afterwards.
    """
    yield
    now = sys.exception()
    before, _left_over[0] = _left_over[0], now
    assert now is None or now is before, f"still being handled: {now!r}"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests of a file stay together. Those that need the source run where it is not compiled."""
    if IS_COMPILED:
        why = pytest.mark.skip(f"the daemon is compiled; {VARIABLE}=no runs it")
        for item in items:
            if item.get_closest_marker("interpreted"):
                item.add_marker(why)
    long: set[Path] = {
        item.path for item in items if any(item.get_closest_marker(mark) for mark in _LONG)
    }
    items.sort(key=lambda item: item.path not in long)

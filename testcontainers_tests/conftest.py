"""Fixtures of the containerised suite: Docker, images, stacks, verdicts; logs of every container
when a test fails; the sweep.

Owns: what happens before the first and after the last test, and what workers (`pytest -n`) tell the
process that leads them. Invariant: whatever happens, nothing that carries this run's label is left
on the host when it ends; what a killed run left is removed when the next one begins.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from testcontainers_tests.cluster import host, images, workers
from testcontainers_tests.cluster.images import Images
from testcontainers_tests.cluster.stack import ContainerStack, open_stack
from testcontainers_tests.cluster.truth import Verdict

_open: list[ContainerStack] = []
Opener = Callable[..., ContainerStack]
TEST_MAX_S = 1_200
ACKS = "acks"
"""The property of a test's report that holds its verdicts: (words, present, lost, phantom) of
each.
"""


def pytest_sessionstart(session: pytest.Session) -> None:
    """Docker answers, and is clean of runs that are gone. A worker finds that done."""
    if workers.WORKER:
        workers.end_with(os.getppid())
        return
    if session.config.option.collectonly:
        return
    for name in host.sweep(host.connect()):
        print(f"removed {name}, left by an earlier run")


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Nothing stays. Last, because the workers are gone by then."""
    if not session.config.option.collectonly and not workers.WORKER:
        host.sweep(host.connect())


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest first. The first one waits for the images, and a story has many waits: their own
    limits say more than this one.
    """
    items.sort(key=lambda item: workers.order_of(item.nodeid))
    for item in items:
        if workers.FOLDER in item.nodeid:
            item.add_marker(pytest.mark.timeout(TEST_MAX_S))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Whole units to each worker, whatever --dist says."""
    return workers.scheduler(config, log)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """A failed test shows the end of every container's log."""
    outcome: Any = yield
    report = outcome.get_result()
    if report.failed and _open:
        report.sections.append(("containers", "\n".join(stack.log_tails() for stack in _open)))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """What became of every ack, test by test."""
    reports = [
        r
        for found in terminalreporter.stats.values()
        for r in found
        if getattr(r, "when", "") == "call"
    ]
    reports.sort(key=lambda report: workers.order_of(report.nodeid))
    verdicts = [
        (r.nodeid.rpartition("::")[2], v)
        for r in reports
        for name, v in r.user_properties
        if name == ACKS
    ]
    if not verdicts:
        return
    terminalreporter.section("acks")
    wide = max(len(name) for name, _ in verdicts)
    for name, (words, *_) in verdicts:
        terminalreporter.write_line(f"{name:{wide}}  {words}")
    present, lost, phantom = (sum(verdict[at] for _, verdict in verdicts) for at in (1, 2, 3))
    terminalreporter.write_line(
        f"{'all':{wide}}  {present:,} confirmed and present, {lost} lost, {phantom} phantom"
    )


@pytest.fixture(scope="session")
def built() -> Images:
    """Every image, of this checkout."""
    return images.build_all()


@contextmanager
def opening(built: Images) -> Iterator[Opener]:
    """Starts stacks; they are removed at the end. While they are there, a failed test shows their
    logs.
    """
    mine: list[ContainerStack] = []

    def start(**arguments: Any) -> ContainerStack:
        stack = asyncio.run(open_stack(built, **arguments))
        mine.append(stack)
        _open.append(stack)
        return stack

    try:
        yield start
    finally:
        for stack in mine:
            _open.remove(stack)
            stack.close()


@pytest.fixture(scope="module")
def opener(built: Images) -> Iterator[Opener]:
    """Starts stacks; they are removed at the end of the module."""
    with opening(built) as start:
        yield start


@pytest.fixture(scope="module")
def shared_stack(opener: Opener) -> ContainerStack:
    """One ZooKeeper, three bookies, a gateway, two daemons, for all tests of a module; each test
    leaves it whole.
    """
    return opener()


@pytest.fixture
def stack(shared_stack: ContainerStack) -> Iterator[ContainerStack]:
    """The module's stack; the sources of a test go with it."""
    yield shared_stack
    shared_stack.forget_sources()


@pytest.fixture
def accept(request: pytest.FixtureRequest) -> Callable[[Verdict], None]:
    """Takes a verdict: counted in the summary, and it must be good."""

    def take(verdict: Verdict) -> None:
        counts = (int(verdict.confirmed_present), int(verdict.confirmed_lost), int(verdict.phantom))
        request.node.user_properties.append((ACKS, (str(verdict), *counts)))
        print(verdict)
        assert verdict.is_good, f"{verdict}\n" + "\n".join(verdict.examples)

    return take

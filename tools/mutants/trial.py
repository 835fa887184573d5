"""One collected test session, forked for each mutant: the narrow tests that run the function, then simulated histories.

Owns processes and their limits. A mutated function keeps its identity (only its code is replaced), so that tables and
imported names lead to it. The parent never runs a test: every child begins from the same collected session.
"""

from __future__ import annotations

import importlib
import os
import pickle
import resource
import select
import signal
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Any

import hypothesis
import pytest
from _pytest.runner import runtestprotocol

from tools.mutants.operators import Mutant, code_of

BASELINE_MAX_S = 900.0
SLOWER_MAX = 8.0
"""A mutant may take so many times what its tests take without it."""
SPARE_S = 20.0
MEMORY_MAX_BYTES = 4 << 30
FIRST_SEEDS = 10
"""Seeds that are tried between the quick tests and the slow ones."""

CodeKey = tuple[str, int, str]


@dataclass(slots=True)
class Baseline:
    """What each test does without a mutant."""

    seconds: dict[str, float] = field(default_factory=dict)
    runs: dict[CodeKey, set[str]] = field(default_factory=dict)
    """Function -> the tests that run it."""
    failed: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Verdict:
    """`killer`: the test or seed that noticed; empty: the mutant survived."""

    mutant: Mutant
    killer: str
    seconds: float
    is_run: bool = True
    """Some test or seed runs the function at all."""


def _key(code: CodeType) -> CodeKey:
    return code.co_filename, code.co_firstlineno, code.co_name


class Session:
    """See the module. `seeds`: (number, formats) of each simulated history."""

    def __init__(self, tests: list[pytest.Item], seeds: list[tuple[int, str]]) -> None:
        self.tests = {t.nodeid: t for t in tests}
        self.seeds = {f"seed {n} {formats}": (n, formats) for n, formats in seeds}
        self.baseline = Baseline()
        self.noticed: dict[str, dict[str, None]] = {}
        """Function or module -> what has killed mutants of it: the first to be asked about the next one."""

    def measure(self) -> None:
        """Runs everything once, in a child. Raises RuntimeError if something fails without any mutant."""
        answer = _in_child(self._measure, BASELINE_MAX_S)
        if not isinstance(answer, Baseline):
            raise RuntimeError(f"the tests do not pass without a mutant: {answer}")
        if answer.failed:
            raise RuntimeError(f"tests that fail without a mutant: {', '.join(answer.failed[:5])}")
        self.baseline = answer

    def _measure(self) -> Baseline:
        found = Baseline()
        for name in (*self.tests, *self.seeds):
            called: set[CodeKey] = set()

            def note(frame: FrameType, event: str, _arg: Any, called: set[CodeKey] = called) -> None:
                if event == "call":
                    called.add(_key(frame.f_code))

            started = time.monotonic()
            sys.setprofile(note)
            try:
                problem = self._run(name)
            finally:
                sys.setprofile(None)
            found.seconds[name] = time.monotonic() - started
            if problem:
                found.failed.append(name)
            for code in called:
                if "/cursorkeeper/" in code[0]:
                    found.runs.setdefault(code, set()).add(name)
        return found

    def _run(self, name: str) -> bool:
        """Whether the test noticed the mutant."""
        if name in self.seeds:
            from daemon.tests.simulator import simulator

            number, formats = self.seeds[name]
            return bool(simulator.run(number, formats=formats).violations)
        item = self.tests[name]
        if hasattr(item, "_initrequest"):
            item._initrequest()
        return any(r.failed for r in runtestprotocol(item, nextitem=None, log=False))

    def judge(self, mutant: Mutant) -> Callable[[], Verdict]:
        """Begins the trial of a mutant; the returned function waits for its end."""
        function = _function(mutant)
        names = self._order(mutant, self.baseline.runs.get(_key(function.__code__), set()))
        limit = SPARE_S + SLOWER_MAX * sum(self.baseline.seconds[n] for n in names)
        started = time.monotonic()
        wait = _child(lambda: self._try(mutant, names), limit)

        def end() -> Verdict:
            answer = wait()
            killer = answer if isinstance(answer, str) else f"{answer}"
            if killer in self.tests or killer in self.seeds:
                for where in (f"{mutant.module}:{mutant.function}", mutant.module):
                    self.noticed.setdefault(where, {})[killer] = None
            return Verdict(mutant, killer, time.monotonic() - started, bool(names))

        return end

    def _order(self, mutant: Mutant, names: Iterable[str]) -> list[str]:
        """What noticed mutants of the same function, and of the same module; then quick tests, a few seeds, the other tests, the other
        seeds."""
        chosen = set(names)
        known = [*self.noticed.get(f"{mutant.module}:{mutant.function}", ()), *self.noticed.get(mutant.module, ())]
        first = list(dict.fromkeys(n for n in known if n in chosen))
        chosen -= set(first)
        tests = sorted((n for n in chosen if n in self.tests), key=lambda n: self.baseline.seconds[n])
        seeds = [n for n in self.seeds if n in chosen]
        quick = [n for n in tests if self.baseline.seconds[n] < 0.05]
        return [*first, *quick, *seeds[:FIRST_SEEDS], *tests[len(quick) :], *seeds[FIRST_SEEDS:]]

    def _try(self, mutant: Mutant, names: list[str]) -> str:
        function = _function(mutant)
        source = Path(function.__code__.co_filename).read_text()
        function.__code__ = code_of(mutant, source, function.__code__.co_filename)
        return next((n for n in names if self._run(n)), "")


def _function(mutant: Mutant) -> FunctionType:
    target: Any = importlib.import_module(mutant.module)
    for name in mutant.function.split("."):
        target = vars(target)[name] if isinstance(target, type) else getattr(target, name)
    target = getattr(target, "fget", target)
    target = getattr(target, "__func__", target)
    while hasattr(target, "__wrapped__"):
        target = target.__wrapped__
    assert isinstance(target, FunctionType), mutant
    return target


def _in_child(work: Callable[[], Any], limit_s: float) -> Any:
    return _child(work, limit_s)()


def _child(work: Callable[[], Any], limit_s: float) -> Callable[[], Any]:
    """Forks; what the child answers, or how it ended without an answer. Ended by force after `limit_s`."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        _live(work, write, read)
    os.close(write)
    ends_at = time.monotonic() + limit_s

    def wait() -> Any:
        data, is_over = b"", False
        with os.fdopen(read, "rb", buffering=0) as pipe:
            while not is_over:
                left = ends_at - time.monotonic()
                if left <= 0 or not select.select([pipe], [], [], left)[0]:
                    break
                part = pipe.read(1 << 20)
                is_over, data = not part, data + part
        if not is_over:
            os.kill(pid, signal.SIGKILL)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        if not is_over:
            return "ran out of time"
        return pickle.loads(data) if data else f"ended with {status}"

    return wait


def _live(work: Callable[[], Any], write: int, read: int) -> None:
    os.close(read)
    code = 1
    try:
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_MAX_BYTES, MEMORY_MAX_BYTES))
        nowhere = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1, 2):
            os.dup2(nowhere, number)
        hypothesis.settings.register_profile("mutants", derandomize=True, database=None, deadline=None, max_examples=40)
        hypothesis.settings.load_profile("mutants")
        with os.fdopen(write, "wb") as pipe:
            pipe.write(pickle.dumps(work()))
        code = 0
    except BaseException as e:
        with open(write, "wb", closefd=False) as pipe:
            pipe.write(pickle.dumps(f"{type(e).__name__}: {e}"[:200]))
    finally:
        os._exit(code)

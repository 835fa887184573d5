"""One collected test session, forked for each mutant: the narrow tests that run the function, then
simulated histories.

Owns processes and their limits. A mutated function keeps its identity (only its code is replaced),
so that tables and imported names lead to it. The parent never runs a test: every child begins from
the same collected session.
"""

from __future__ import annotations

import functools
import hashlib
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

import pytest
from _pytest.runner import runtestprotocol

from tools.mutants.operators import Mutant, code_of

BASELINE_MAX_S, MEASURED_AT_ONCE = 300.0, 100
SLOWER_MAX = 8.0
"""A mutant may take so many times what its tests take without it, and so may each test; by its
process's own time it is spared less.
"""
SPARE_S, TEST_SPARE_S = 20.0, 5.0
MEMORY_MAX_BYTES = 4 << 30
FIRST_SEEDS = 10
"""Seeds that are tried between the quick tests and the slow ones."""

CodeKey = tuple[str, int, str]


@dataclass(frozen=True, slots=True)
class Measured:
    """What a test or seed does without a mutant. `version`: of its own file, empty for a seed."""

    version: str
    seconds: float
    runs: frozenset[CodeKey]
    """The functions of the daemon that it runs."""


@dataclass(slots=True)
class Baseline:
    """What all of them do. `version`: of all code but tests."""

    version: str = ""
    measured: dict[str, Measured] = field(default_factory=dict)


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


def _version(files: Iterable[Path]) -> str:
    return hashlib.sha256(
        b"".join(hashlib.sha256(f.read_bytes()).digest() for f in sorted(files))
    ).hexdigest()


class Session:
    """See the module. `seeds`: (number, formats) of each simulated history. `kept`: the file in
    which the baseline is kept from one run to the next; only tests whose file has changed are
    measured again, all of them if something else has.
    """

    def __init__(
        self, tests: list[pytest.Item], seeds: list[tuple[int, str]], root: Path, kept: Path
    ) -> None:
        self.tests = {t.nodeid: t for t in tests}
        self.seeds = {f"seed {n} {formats}": (n, formats) for n, formats in seeds}
        self.kept = kept
        self.versions = {path: _version([path]) for path in {t.path for t in tests}}
        others = [
            f
            for room in ("daemon", "clients")
            for f in (root / room).rglob("*.py")
            if not f.name.startswith("test_")
        ]
        self.baseline = Baseline(_version([*others, root / "pyproject.toml"]))
        self.seconds: dict[str, float] = {}
        self.runs: dict[CodeKey, set[str]] = {}
        """Function -> what runs it."""
        self.noticed: dict[str, dict[str, None]] = {}
        """Function or module -> what has killed mutants of it: the first to be asked about the next
        one.
        """

    def _version_of(self, name: str) -> str:
        return self.versions[self.tests[name].path] if name in self.tests else ""

    def remember(self) -> int:
        """Takes what was measured earlier and is still true; returns how many are left to
        measure.
        """
        if self.kept.exists():
            kept: Baseline = pickle.loads(self.kept.read_bytes())
            names = [*self.tests, *self.seeds] if kept.version == self.baseline.version else []
            known = {n: kept.measured[n] for n in names if n in kept.measured}
            self.baseline.measured = {
                n: m for n, m in known.items() if m.version == self._version_of(n)
            }
        return len(self.tests) + len(self.seeds) - len(self.baseline.measured)

    def measure(self) -> None:
        """Runs what is left once, some at a time in a child. Raises RuntimeError if something fails
        without any mutant.
        """
        left = [n for n in (*self.tests, *self.seeds) if n not in self.baseline.measured]
        for start in range(0, len(left), MEASURED_AT_ONCE):
            part = left[start : start + MEASURED_AT_ONCE]
            answer = _in_child(functools.partial(self._measure, part), BASELINE_MAX_S)
            if not isinstance(answer, dict):
                raise RuntimeError(f"the tests do not pass without a mutant: {answer}")
            self.baseline.measured |= answer
            failed = [n for n in part if n not in answer]
            if failed:
                raise RuntimeError(f"tests that fail without a mutant: {', '.join(failed[:5])}")
            self.kept.parent.mkdir(exist_ok=True)
            self.kept.write_bytes(pickle.dumps(self.baseline))
        for name, measured in self.baseline.measured.items():
            self.seconds[name] = measured.seconds
            for code in measured.runs:
                self.runs.setdefault(code, set()).add(name)

    def _measure(self, names: list[str]) -> dict[str, Measured]:
        """Of those that do not fail."""
        found: dict[str, Measured] = {}
        for name in names:
            called: dict[int, CodeType] = {}

            def note(
                frame: FrameType, _event: str, _arg: Any, called: dict[int, CodeType] = called
            ) -> None:
                called[id(frame.f_code)] = frame.f_code

            started = time.monotonic()
            sys.settrace(note)  # it hears of calls alone, and of those of Python functions
            try:
                problem = self._run(name)
            finally:
                sys.settrace(None)
            if not problem:
                runs = frozenset(
                    _key(code) for code in called.values() if "/cursorkeeper/" in code.co_filename
                )
                found[name] = Measured(self._version_of(name), time.monotonic() - started, runs)
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
        names = self._order(mutant, self.runs.get(_key(function.__code__), set()))
        limit = SPARE_S + SLOWER_MAX * sum(self.seconds[n] for n in names)
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
        """What noticed mutants of the same function, and of the same module; then quick tests, a
        few seeds, the other tests, the other seeds.
        """
        chosen = set(names)
        known = [
            *self.noticed.get(f"{mutant.module}:{mutant.function}", ()),
            *self.noticed.get(mutant.module, ()),
        ]
        first = list(dict.fromkeys(n for n in known if n in chosen))
        chosen -= set(first)
        tests = sorted((n for n in chosen if n in self.tests), key=lambda n: self.seconds[n])
        seeds = [n for n in self.seeds if n in chosen]
        quick = [n for n in tests if self.seconds[n] < 0.05]
        return [*first, *quick, *seeds[:FIRST_SEEDS], *tests[len(quick) :], *seeds[FIRST_SEEDS:]]

    def _try(self, mutant: Mutant, names: list[str]) -> str:
        function = _function(mutant)
        source = Path(function.__code__.co_filename).read_text()
        function.__code__ = code_of(mutant, source, function.__code__.co_filename)
        for name in names:
            limit_s = SLOWER_MAX * self.seconds[name]
            # a loop without an end ends here
            signal.setitimer(signal.ITIMER_PROF, TEST_SPARE_S + limit_s)
            # and here a test that waits without one
            signal.setitimer(signal.ITIMER_REAL, SPARE_S + limit_s)
            if self._run(name):
                return name
        return ""


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
    """Forks; what the child answers, or how it ended without an answer. Ended by force after
    `limit_s`.
    """
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
        with os.fdopen(write, "wb") as pipe:
            pipe.write(pickle.dumps(work()))
        code = 0
    except BaseException as e:
        with open(write, "wb", closefd=False) as pipe:
            pipe.write(pickle.dumps(f"{type(e).__name__}: {e}"[:200]))
    finally:
        os._exit(code)

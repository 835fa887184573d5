"""Which mutants of core and runtime no test notices: `make mutants`, or `python -m tools.mutants --only rolling --each 20`.

For whoever changes the commit protocol. Exit code: 0 nobody survives but those of `equivalent.toml`; 1 survivors, or entries of
`equivalent.toml` that name nothing any more; 2 nothing was tried: the tests fail without a mutant, or no mutant has such a name.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import textwrap
import tomllib
from collections import Counter, deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from tools.mutants.operators import Mutant, mutants_of
from tools.mutants.trial import Session, Verdict

ROOT = Path(__file__).parents[2]
PACKAGES = ("core", "runtime")
TESTS = tuple(f"daemon/tests/{room}" for room in ("core", "scenarios", "runtime", "format", "stream"))
NATIVE_SEEDS, OTHER_SEEDS = 44, 8
EQUIVALENT = Path(__file__).with_name("equivalent.toml")
COLUMNS = 80


def all_mutants() -> list[Mutant]:
    found: list[Mutant] = []
    for package in PACKAGES:
        for file in sorted((ROOT / "daemon/cursorkeeper" / package).glob("*.py")):
            found += mutants_of(f"cursorkeeper.{package}.{file.stem}", file.read_text())
    return found


def chosen(mutants: list[Mutant], only: list[str], sample: int, each: int, seed: int) -> list[Mutant]:
    """Those whose names hold one of the words (all, if there is none); of these so many by chance, or so many of each module."""
    rng = random.Random(seed)
    found = [m for m in mutants if not only or any(word in m.key for word in only)]
    if each:
        by_module: dict[str, list[Mutant]] = {}
        for mutant in found:
            by_module.setdefault(mutant.module, []).append(mutant)
        found = [m for of in by_module.values() for m in rng.sample(of, min(each, len(of)))]
    return rng.sample(found, min(sample, len(found))) if sample else found


def equivalent() -> dict[str, str]:
    """Mutant -> why no test can notice it."""
    return {x["mutant"]: x["why"] for x in tomllib.loads(EQUIVALENT.read_text())["equivalent"]}


class Trials:
    """The plugin that takes the collected session over."""

    def __init__(self, mutants: list[Mutant], workers: int) -> None:
        self.mutants, self.workers = mutants, workers
        self.verdicts: list[Verdict] = []
        self.problem = "the tests cannot be collected"

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Instead of running the tests."""
        if session.testsfailed:
            return True
        self.problem = ""
        console = Console(stderr=True)
        seeds = [(n, "native") for n in range(1, NATIVE_SEEDS + 1)]
        seeds += [(n, formats) for formats in ("pulsar", "mixed") for n in range(1, OTHER_SEEDS + 1)]
        trials = Session(session.items, seeds)
        console.print(f"{len(session.items)} tests and {len(seeds)} simulated seeds without a mutant ...", highlight=False)
        try:
            trials.measure()
        except RuntimeError as e:
            self.problem = str(e)
            return True
        words = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
        with Progress(*words, console=console) as progress:
            bar = progress.add_task("mutants", total=len(self.mutants))
            waiting: deque[Callable[[], Verdict]] = deque()
            for mutant in self.mutants:
                waiting.append(trials.judge(mutant))
                if len(waiting) >= self.workers:
                    self._end(waiting.popleft(), progress, bar)
            while waiting:
                self._end(waiting.popleft(), progress, bar)
        return True

    def _end(self, end: Callable[[], Verdict], progress: Progress, bar: Any) -> None:
        verdict = end()
        self.verdicts.append(verdict)
        progress.advance(bar)
        if not verdict.killer:
            progress.console.print(said(verdict), highlight=False, markup=False, soft_wrap=True)


def main(arguments: list[str] | None = None) -> int:
    words = argparse.ArgumentParser(prog="python -m tools.mutants", description=__doc__)
    words.add_argument("--only", action="append", default=[], help="mutants whose name holds this word; may be repeated")
    words.add_argument("--sample", type=int, default=0, help="so many of them, by chance")
    words.add_argument("--each", type=int, default=0, help="so many of each module, by chance")
    words.add_argument("--seed", type=int, default=1, help="of that chance")
    words.add_argument("--workers", type=int, default=2, help="mutants at a time")
    words.add_argument("--list", action="store_true", help="name the mutants and try none")
    words.add_argument("--json", action="store_true", help="verdicts as JSON on standard output")
    args = words.parse_args(arguments)
    known, every = equivalent(), all_mutants()
    stale = sorted(known.keys() - {m.key for m in every})
    mutants = chosen([m for m in every if m.key not in known], args.only, args.sample, args.each, args.seed)
    if args.list:
        print("\n".join(m.key for m in mutants))
        return 0
    if not mutants:
        print(f"no mutant's name holds {' or '.join(args.only)}: --list shows them", file=sys.stderr)
        return 2
    trials = Trials(mutants, args.workers)
    options = [
        "-o",
        "addopts=--import-mode=importlib",
        "-p",
        "no:terminal",
        "-p",
        "no:xdist",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:timeout",
        "-m",
        "not jvm and not slow",
    ]
    pytest.main([*options, *TESTS], plugins=[trials])
    if trials.problem:
        print(trials.problem, file=sys.stderr)
        return 2
    return report(trials.verdicts, stale, as_json=args.json)


def said(verdict: Verdict) -> str:
    """Where it is, and below that its name, in lines that fit."""
    mutant = verdict.mutant
    place = f"daemon/{mutant.module.replace('.', '/')}.py:{mutant.line}{'' if verdict.is_run else ' (no test runs it)'}"
    return f"{place}\n{_wrapped(mutant.key)}"


def _wrapped(key: str) -> str:
    return textwrap.fill(key, COLUMNS, initial_indent="    ", subsequent_indent="      ", break_on_hyphens=False)


def report(verdicts: list[Verdict], stale: list[str], *, as_json: bool) -> int:
    """Survivors last: they are what somebody has to look at. `stale`: entries of `equivalent.toml` that name nothing."""
    survivors = [v for v in verdicts if not v.killer]
    if as_json:
        rows = [{"mutant": v.mutant.key, "line": v.mutant.line, "killer": v.killer, "seconds": round(v.seconds, 2)} for v in verdicts]
        print(json.dumps(rows, indent=1))
    else:
        by_operator = Counter(v.mutant.operator for v in verdicts)
        left = Counter(v.mutant.operator for v in survivors)
        for operator, count in sorted(by_operator.items()):
            print(f"{operator:20} {count:5} tried {left[operator]:4} survive")
        for v in sorted(survivors, key=lambda v: (v.mutant.module, v.mutant.line)):
            print(said(v))
        print(f"{len(verdicts)} tried, {len(survivors)} survive")
    for key in stale:
        print(f"{EQUIVALENT.name} names what is not in the source any more:\n{_wrapped(key)}", file=sys.stderr)
    return 1 if survivors or stale else 0


if __name__ == "__main__":
    sys.exit(main())

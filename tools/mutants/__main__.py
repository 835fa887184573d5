"""Which mutants of core and runtime no test notices: `make mutants`, or `python -m tools.mutants
--only ledgers --each 20`.

For whoever changes the commit protocol. What the tests run without a mutant is kept in `.build`.
Exit code: 0 nobody survives but those of `equivalent.toml`; 1 survivors, or entries of
`equivalent.toml` that name nothing any more; 2 nothing was tried: the tests fail without a mutant,
no mutant has such a name, or none is left.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import textwrap
import time
import tomllib
from collections import Counter, deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from tools.mutants.operators import Mutant, mutants_of
from tools.mutants.trial import Session, Verdict

ROOT = Path(__file__).parents[2]
PACKAGES = ("core", "runtime")
TESTS = tuple(
    f"daemon/tests/{room}"
    for room in ("core", "scenarios", "runtime", "format", "stream", "cli/test_gc.py")
)
NATIVE_SEEDS, OTHER_SEEDS = 44, 8
EQUIVALENT = Path(__file__).with_name("equivalent.toml")
BASELINE = ROOT / ".build/mutants.pickle"
PHASES = (hypothesis.Phase.explicit, hypothesis.Phase.generate)
"""That an example fails is enough: nobody looks for the smallest one."""
COLUMNS = 80


def all_mutants() -> list[Mutant]:
    found: list[Mutant] = []
    for package in PACKAGES:
        for file in sorted((ROOT / "daemon/cursorkeeper" / package).glob("*.py")):
            found += mutants_of(f"cursorkeeper.{package}.{file.stem}", file.read_text())
    return found


def chosen(
    mutants: list[Mutant], only: list[str], sample: int, each: int, seed: int
) -> list[Mutant]:
    """Those whose names hold one of the words (all, if there is none); of these so many by chance,
    or so many of each module.
    """
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


class Journal:
    """Verdicts of several runs, a line of JSON for each as it falls."""

    def __init__(self, file: Path | None) -> None:
        self._file = file
        lines = file.read_text().splitlines() if file is not None and file.exists() else []
        self.killers: dict[str, str] = {
            row["mutant"]: row["killer"] for row in map(json.loads, lines)
        }
        """Mutant -> what killed it at last, empty for a survivor."""

    def left(self, mutants: list[Mutant]) -> list[Mutant]:
        """Those that were not killed yet, first those that were not tried."""
        return sorted(
            (m for m in mutants if not self.killers.get(m.key)), key=lambda m: m.key in self.killers
        )

    def add(self, verdict: Verdict) -> None:
        if self._file is not None:
            row = {
                "mutant": verdict.mutant.key,
                "line": verdict.mutant.line,
                "killer": verdict.killer,
                "seconds": round(verdict.seconds, 2),
            }
            with self._file.open("a") as file:
                file.write(json.dumps(row) + "\n")


class Trials:
    """The plugin that takes the collected session over. No trial begins after `limit_s`; 0: no
    limit.
    """

    def __init__(
        self, mutants: list[Mutant], workers: int, journal: Journal, limit_s: float = 0.0
    ) -> None:
        self.mutants, self.workers, self.journal = mutants, workers, journal
        self.ends_at_s = time.monotonic() + limit_s if limit_s else float("inf")
        self.verdicts: list[Verdict] = []
        self.problem = "the tests cannot be collected"

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Instead of running the tests."""
        if session.testsfailed:
            return True
        self.problem = ""
        console = Console(stderr=True)
        seeds = [(n, "native") for n in range(1, NATIVE_SEEDS + 1)]
        seeds += [
            (n, formats) for formats in ("pulsar", "mixed") for n in range(1, OTHER_SEEDS + 1)
        ]
        trials = Session(session.items, seeds, ROOT, BASELINE)
        left = trials.remember()
        every = f"{len(session.items)} tests and {len(seeds)} simulated seeds"
        console.print(f"{every}, {left} to measure without a mutant ...", highlight=False)
        try:
            trials.measure()
        except RuntimeError as e:
            self.problem = str(e)
            return True
        words = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
        )
        with Progress(*words, console=console) as progress:
            bar = progress.add_task("mutants", total=len(self.mutants))
            waiting: deque[Callable[[], Verdict]] = deque()
            for mutant in self.mutants:
                if time.monotonic() > self.ends_at_s:
                    break
                waiting.append(trials.judge(mutant))
                if len(waiting) >= self.workers:
                    self._end(waiting.popleft(), progress, bar)
            while waiting:
                self._end(waiting.popleft(), progress, bar)
        return True

    def _end(self, end: Callable[[], Verdict], progress: Progress, bar: Any) -> None:
        verdict = end()
        self.verdicts.append(verdict)
        self.journal.add(verdict)
        progress.advance(bar)
        if not verdict.killer:
            progress.console.print(said(verdict), highlight=False, markup=False, soft_wrap=True)


def main(arguments: list[str] | None = None) -> int:
    os.environ["CURSORKEEPER_COMPILED"] = "no"  # a rule is taken out of the source
    words = argparse.ArgumentParser(prog="python -m tools.mutants", description=__doc__)
    words.add_argument(
        "--only",
        action="append",
        default=[],
        help="mutants whose name holds this word; may be repeated",
    )
    words.add_argument("--sample", type=int, default=0, help="so many of them, by chance")
    words.add_argument("--each", type=int, default=0, help="so many of each module, by chance")
    words.add_argument("--seed", type=int, default=1, help="of that chance")
    words.add_argument("--workers", type=int, default=2, help="mutants at a time")
    words.add_argument("--list", action="store_true", help="name the mutants and try none")
    words.add_argument("--minutes", type=float, default=0, help="begin no trial after so long")
    words.add_argument(
        "--journal",
        type=Path,
        help="file that keeps the verdicts; what was killed in it is not tried again",
    )
    args = words.parse_args(arguments)
    known, every = equivalent(), all_mutants()
    stale = sorted(known.keys() - {m.key for m in every})
    journal = Journal(args.journal)
    mutants = journal.left(
        chosen(
            [m for m in every if m.key not in known], args.only, args.sample, args.each, args.seed
        )
    )
    if args.list:
        print("\n".join(m.key for m in mutants))
        return 0
    if not mutants:
        print(
            f"nothing is left to try{' of ' if args.only else ''}{' or '.join(args.only)}: "
            f"--list shows names",
            file=sys.stderr,
        )
        return 2
    hypothesis.settings.register_profile(
        "mutants",
        derandomize=True,
        database=None,
        deadline=None,
        max_examples=40,
        phases=PHASES,
        report_multiple_bugs=False,
    )
    hypothesis.settings.load_profile("mutants")
    trials = Trials(mutants, args.workers, journal, 60 * args.minutes)
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
    return report(trials.verdicts, stale)


def said(verdict: Verdict) -> str:
    """Where it is, and below that its name, in lines that fit."""
    mutant = verdict.mutant
    note = "" if verdict.is_run else " (no test runs it)"
    place = f"daemon/{mutant.module.replace('.', '/')}.py:{mutant.line}{note}"
    return f"{place}\n{_wrapped(mutant.key)}"


def _wrapped(key: str) -> str:
    return textwrap.fill(
        key, COLUMNS, initial_indent="    ", subsequent_indent="      ", break_on_hyphens=False
    )


def report(verdicts: list[Verdict], stale: list[str]) -> int:
    """Survivors last: they are what somebody has to look at. `stale`: entries of `equivalent.toml`
    that name nothing.
    """
    survivors = [v for v in verdicts if not v.killer]
    by_operator = Counter(v.mutant.operator for v in verdicts)
    left = Counter(v.mutant.operator for v in survivors)
    for operator, count in sorted(by_operator.items()):
        print(f"{operator:20} {count:5} tried {left[operator]:4} survive")
    for v in sorted(survivors, key=lambda v: (v.mutant.module, v.mutant.line)):
        print(said(v))
    print(f"{len(verdicts)} tried, {len(survivors)} survive")
    for key in stale:
        print(
            f"{EQUIVALENT.name} names what is not in the source any more:\n{_wrapped(key)}",
            file=sys.stderr,
        )
    return 1 if survivors or stale else 0


if __name__ == "__main__":
    sys.exit(main())

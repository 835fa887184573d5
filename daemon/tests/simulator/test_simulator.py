"""Seeds of the simulator. A failing one is named with the command that shows its trace."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from cursorkeeper.compiled import IS_COMPILED, VARIABLE
from cursorkeeper.core.machine import CursorMachine
from daemon.tests.simulator.simulator import BROKERS, CHAINS, DUELS, LOADS, MOVES, run

pytestmark = pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")

ROOT = Path(__file__).parents[3]
ALL = 350
OF_OTHER_FORMATS = 175
BLOCK = 50
FAST = 25
COVERED = (
    "snapshots",
    "snapshots_aborted",
    "rolls",
    "inline_backstops",
    "restart_states",
    "lost_handle_states",
    "collected",
    "crashes",
    "dropped_batches",
    "damage segment",
    "damage end",
    "damage before",
    "late_events",
    "pauses",
)


COVERED_BY_WHOLE_STATES = (
    "rolls",
    "inline_backstops",
    "collected",
    "crashes",
    "dropped_batches",
    "late_events",
    "pauses",
    "limit_crossings",
    "told unfinished state",
    "told closed without the acks that were not confirmed",
)


def run_all(seeds: range, formats: str = "native") -> Counter[str]:
    """Every one must be well; returns what they covered."""
    total: Counter[str] = Counter()
    for seed in seeds:
        outcome = run(seed, formats=formats)
        if seed % 10 == 0:
            gc.collect()
        total += outcome.stats
        if outcome.violations:
            listed = "\n  ".join(outcome.violations[:5])
            pytest.fail(
                f"seed {seed}:\n  {listed}\nto see it: python -m daemon.tests.simulator {seed} "
                f"{formats} -v",
                pytrace=False,
            )
    return total


def test_some_seeds() -> None:
    run_all(range(1, FAST + 1))


@pytest.mark.parametrize("formats", ["pulsar", "mixed"])
def test_some_seeds_of_other_formats(formats: str) -> None:
    """Daemons that write whole states in Pulsar's form, and daemons of both kinds: every change of
    owner may switch it.
    """
    run_all(range(1, FAST // 2 + 1), formats)


def test_some_seeds_of_moves() -> None:
    """A source goes to and fro between two daemons that do not always know what they hold: what it
    was told stays true.
    """
    total = run_all(range(1, FAST + 1), MOVES)
    assert total["resumed"] and total["trouble zk_old_leader"] and total["trouble zk_stall"]


def test_some_seeds_of_duels() -> None:
    """Opens wait at two daemons, and one of them is slow: an open takes the cursor from its owner
    once.
    """
    assert run_all(range(1, FAST + 1), DUELS)["trouble slow_recoveries"]


def test_some_seeds_of_brokers() -> None:
    """Brokers with fencing tokens replace one another, and go on as if nothing had happened: who
    was replaced changes nothing.
    """
    total = run_all(range(1, FAST + 1), BROKERS)
    assert total["fenced"] and total["raises"]


def test_some_seeds_of_chains() -> None:
    """Ledgers are rolled faster than snapshots may be taken: a chain at its limit does not grow,
    and everything becomes durable.
    """
    assert run_all(range(1, FAST + 1), CHAINS)["snapshots"]


def test_some_seeds_of_loads() -> None:
    """A topic is trimmed while nobody tells its cursor: a source is told what the keeper knows, and
    says what is gone.
    """
    run_all(range(1, FAST + 1), LOADS)


@pytest.mark.interpreted
@pytest.mark.parametrize("formats", ["native", "mixed", MOVES, BROKERS, CHAINS])
def test_parts_that_are_not_asked_had_nothing_to_do(
    formats: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A steady cursor asks few of its parts: asking all of them makes the same run."""
    seeds = range(1, 7)
    few = [run(seed, formats=formats).digest for seed in seeds]
    monkeypatch.setattr(CursorMachine, "_is_steady", False)
    assert [run(seed, formats=formats).digest for seed in seeds] == few


@pytest.mark.slow
def test_many_seeds_of_moves() -> None:
    run_all(range(FAST + 1, OF_OTHER_FORMATS + 1), MOVES)
    run_all(range(FAST + 1, OF_OTHER_FORMATS + 1), DUELS)


@pytest.mark.slow
def test_many_seeds_of_brokers() -> None:
    run_all(range(FAST + 1, ALL + 1), BROKERS)


@pytest.mark.slow
@pytest.mark.parametrize("formats", ["pulsar", "mixed"])
def test_many_seeds_of_other_formats(formats: str) -> None:
    total: Counter[str] = Counter()
    for start in range(FAST // 2 + 1, OF_OTHER_FORMATS + 1, BLOCK):
        total += run_all(range(start, min(start + BLOCK, OF_OTHER_FORMATS + 1)), formats)
    assert not [name for name in COVERED_BY_WHOLE_STATES if not total[name]], (
        f"never happened in {OF_OTHER_FORMATS} seeds: {total}"
    )


@pytest.mark.slow
def test_many_seeds() -> None:
    """All of them together, so that what they cover can be counted."""
    total: Counter[str] = Counter()
    for start in range(FAST + 1, ALL + 1, BLOCK):
        total += run_all(range(start, min(start + BLOCK, ALL + 1)))
    assert not [name for name in COVERED if not total[name]], (
        f"never happened in {ALL} seeds: {total}"
    )


@pytest.mark.parametrize("seed", [3, 11, 26])
def test_a_seed_is_a_run(seed: int) -> None:
    for formats in ("native", "mixed"):
        assert run(seed, formats=formats).digest == run(seed, formats=formats).digest


@pytest.mark.slow
def test_neither_hash_seeds_nor_a_compiler_matter() -> None:
    """Sets of strings have another order in every process; machine code makes the same runs as its
    source.
    """
    code = (
        "from cursorkeeper.compiled import IS_COMPILED;"
        "from daemon.tests.simulator.simulator import run; print(IS_COMPILED);"
        "print([run(s, formats=f).digest for s in (5, 16) for f in ('native', 'mixed', 'moves')])"
    )
    found = set()
    for hash_seed, wanted in (("1", ""), ("2", "no")):
        environment = {
            **os.environ,
            "PYTHONHASHSEED": hash_seed,
            VARIABLE: wanted,
            "PYTHONPATH": f"{ROOT}:{ROOT}/clients:{ROOT}/daemon",
        }
        done = subprocess.run(
            [sys.executable, "-c", code],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        ran, _, digests = done.stdout.partition("\n")
        assert ran == str(IS_COMPILED and wanted != "no")
        found.add(digests)
    assert len(found) == 1

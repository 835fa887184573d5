"""`python -m daemon.tests.simulator SEED [-v] [FORMATS]`: one run; `FIRST-LAST`: many, with what
they covered.

FORMATS: native (if it is not said), pulsar, mixed, moves, duels or chains.
"""

from __future__ import annotations

import sys
import time
from collections import Counter

from daemon.tests.simulator.simulator import run


def main(arguments: list[str]) -> int:
    """Exit code 1 if a promise was broken."""
    verbose = "-v" in arguments
    formats = next(
        (
            a
            for a in arguments
            if a in ("native", "pulsar", "mixed", "moves", "duels", "chains", "brokers")
        ),
        "native",
    )
    text = next(a for a in arguments if a not in ("-v", formats))
    first, _, last = text.partition("-")
    failed = []
    total: Counter[str] = Counter()
    started = time.monotonic()
    for seed in range(int(first), int(last or first) + 1):
        outcome = run(seed, verbose=verbose, formats=formats)
        total += outcome.stats
        if outcome.violations:
            failed.append(seed)
            print(f"seed {seed}: {outcome.violations[0][:300]}", flush=True)
        elif not last:
            print(f"seed {seed}: well. {outcome.digest[:16]}, {outcome.turns} turns")
    if last:
        print(", ".join(f"{k} {v}" for k, v in sorted(total.items())))
        print(f"{len(failed)} failed, {time.monotonic() - started:.1f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

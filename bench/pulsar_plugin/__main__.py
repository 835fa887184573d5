"""`python -m bench.pulsar_plugin [--json] [--version V] [--pairs N] [PART ...]`: some parts or
cases only; `PARTS` and `cost.CASES` have their names, e.g. `"individual, receipts"`.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import AsyncIterator, Sequence

from bench.pulsar_plugin import cost, loads
from bench.rows import Row, show
from tools.brokers.cluster import DEFAULT_VERSION, VERSIONS

PARTS = ("cost", "full", "loads", "memory")


async def run(
    wanted: Sequence[str] = PARTS, version: str = DEFAULT_VERSION, pairs: int = cost.PAIRS
) -> AsyncIterator[list[Row]]:
    """Rows, as soon as they are there."""
    cases = tuple(each for each in cost.CASES if "cost" in wanted or each.name in wanted)
    if cases:
        async for rows in cost.run(version, cases, pairs):
            yield rows
    for name, part in (("full", loads.full), ("loads", loads.again), ("memory", loads.memory)):
        if name in wanted:
            yield await part()


async def shown(
    as_json: bool,
    wanted: Sequence[str] = PARTS,
    version: str = DEFAULT_VERSION,
    pairs: int = cost.PAIRS,
) -> None:
    async for rows in run(wanted, version, pairs):
        show(rows, as_json)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("parts", nargs="*", metavar="PART")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--version", choices=VERSIONS, default=DEFAULT_VERSION)
    parser.add_argument("--pairs", type=int, default=cost.PAIRS)
    asked = parser.parse_args()
    if unknown := set(asked.parts) - {*PARTS, *(each.name for each in cost.CASES)}:
        parser.error(f"no part or case is called {', '.join(sorted(unknown))}")
    asyncio.run(shown(asked.json, asked.parts or PARTS, asked.version, asked.pairs))


if __name__ == "__main__":
    main()

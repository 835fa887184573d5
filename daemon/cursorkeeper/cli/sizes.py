"""`cursorkeeper sizes`: the size table of Pulsar issue #25985, computed here and now. Needs no
cluster.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, TypeVar

from cursorkeeper.problems import Kind, ProblemError
from cursorkeeper.sizes.encodings import ENCODINGS
from cursorkeeper.sizes.holes import ENTRIES_PER_LEDGER, Workload
from cursorkeeper.sizes.measure import BACKLOGS, COLUMNS, DENSITIES, STEPS_PER_ROW, measure
from cursorkeeper.terminal import options
from cursorkeeper.terminal.output import Bar, Table, say

T = TypeVar("T")
_UNITS = {"k": 1_000, "m": 1_000_000, "g": 1_000_000_000, "b": 1_000_000_000}


def numbers(text: str, what: str) -> list[int]:
    """ "1M,10M" as [1000000, 10000000]. Raises ProblemError."""
    return _several(text, _number, f"{what}: {{}} is not a number", "1M,10M,100M")


def densities(text: str) -> list[float]:
    """ "0.1%,0.01" as fractions. Raises ProblemError."""
    return _several(text, _share, "--holes: {} is not a share", "0.1%,1%,10%")


def _several(text: str, one: Callable[[str], T], wrong: str, right: str) -> list[T]:
    found = []
    for part in text.split(","):
        try:
            found.append(one(part.strip().lower()))
        except (ValueError, OverflowError):
            raise ProblemError(
                wrong.format(repr(part)), f"write for example {right}", Kind.USAGE
            ) from None
    return found


def _number(text: str) -> int:
    unit = _UNITS.get(text[-1:])
    return round(float(text[:-1]) * unit if unit else float(text))


def _share(text: str) -> float:
    return float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)


def _workloads(
    backlogs: list[int], shares: list[float], seed: int, ledger_entries: int
) -> list[Workload]:
    try:
        return [Workload(b, s, seed, ledger_entries) for b in backlogs for s in shares]
    except ValueError as error:
        raise ProblemError(
            str(error), "correct --backlogs, --holes or --ledger-entries", Kind.USAGE
        ) from None


@options.command
def sizes(
    backlogs: Annotated[
        str, "Entries in the backlog, any number of sizes; k, M and G are known."
    ] = "",
    holes: Annotated[str, "Shares of the backlog that are un-acked."] = "",
    seed: Annotated[int, "Of the random gaps between holes.", {"min": 0}] = 25985,
    ledger_entries: Annotated[
        int, "Entries per data ledger; 0: all in one.", {"min": 0}
    ] = ENTRIES_PER_LEDGER,
    as_json: options.Json = False,
) -> None:
    """How many bytes one acknowledgement state takes in each encoding: the table of Pulsar issue
    #25985.

    Holes are spread over the backlog with gaps that vary by 50 %. Nothing is read from a cluster:
    every column is made by the real codec and measured. Defaults: 1M, 10M and 100M entries; 0.1 %,
    1 % and 10 % un-acked. 1 MiB = 1,048,576 bytes.
    """
    wanted = _workloads(
        numbers(backlogs, "--backlogs") if backlogs else list(BACKLOGS),
        densities(holes) if holes else list(DENSITIES),
        seed,
        ledger_entries,
    )
    table = Table(COLUMNS, right=COLUMNS, as_json=as_json)
    with Bar("measuring", len(wanted) * STEPS_PER_ROW) as bar:
        for workload in wanted:
            table.add(measure(workload, bar.advance))
    if as_json:
        return
    say("Bytes of one acknowledgement state")
    table.show()
    for encoding in ENCODINGS:
        say(f"  {encoding.title}: {encoding.what}")

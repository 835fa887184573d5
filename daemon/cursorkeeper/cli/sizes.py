"""`cursorkeeper sizes`: the size table of Pulsar issue #25985, computed here and now. Needs no
cluster.
"""

from __future__ import annotations

from typing import Annotated

from cursorkeeper.core.limits import MIB
from cursorkeeper.problems import Kind, ProblemError
from cursorkeeper.sizes.encodings import ENCODINGS
from cursorkeeper.sizes.holes import ENTRIES_PER_LEDGER, Workload
from cursorkeeper.sizes.measure import BACKLOGS, DENSITIES, STEPS_PER_ROW, Row, measure
from cursorkeeper.terminal import options
from cursorkeeper.terminal.output import Bar, Table, json_line, say

_UNITS = {"k": 1_000, "m": 1_000_000, "g": 1_000_000_000, "b": 1_000_000_000}


def numbers(text: str, what: str) -> list[int]:
    """ "1M,10M" as [1000000, 10000000]. Raises ProblemError."""
    found = []
    for part in text.split(","):
        digits, unit = part.strip().lower(), 1
        if digits and digits[-1] in _UNITS:
            digits, unit = digits[:-1], _UNITS[digits[-1]]
        try:
            found.append(round(float(digits) * unit))
        except (ValueError, OverflowError):
            raise ProblemError(
                f"{what}: {part!r} is not a number", "write for example 1M,10M,100M", Kind.USAGE
            ) from None
    return found


def densities(text: str) -> list[float]:
    """ "0.1%,0.01" as fractions. Raises ProblemError."""
    found = []
    for part in text.split(","):
        digits = part.strip()
        try:
            found.append(float(digits.removesuffix("%")) / (100 if digits.endswith("%") else 1))
        except ValueError:
            raise ProblemError(
                f"--holes: {part!r} is not a share", "write for example 0.1%,1%,10%", Kind.USAGE
            ) from None
    return found


def _workloads(
    backlogs: list[int], shares: list[float], seed: int, ledger_entries: int
) -> list[Workload]:
    try:
        return [Workload(b, s, seed, ledger_entries) for b in backlogs for s in shares]
    except ValueError as error:
        raise ProblemError(
            str(error), "correct --backlogs, --holes or --ledger-entries", Kind.USAGE
        ) from None


def size(count: int) -> str:
    """Bytes for people: MiB, as in the issue, or KiB below a tenth of one."""
    return f"{count / MIB:,.2f} MiB" if count >= MIB // 10 else f"{count / 1024:,.1f} KiB"


def show(rows: list[Row]) -> None:
    """The table, and what its columns are."""
    heads = ["backlog", "un-acked", *(e.title for e in ENCODINGS)]
    view = Table(heads, right=heads)
    for row in rows:
        view.add_row(
            f"{row.backlog:,}",
            f"{row.density:g}",
            *(size(row.bytes_by_key[e.key]) for e in ENCODINGS),
        )
    say("Bytes of one acknowledgement state")
    view.show()
    for encoding in ENCODINGS:
        say(f"  {encoding.title}: {encoding.what}")


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
    found: list[Row] = []
    with Bar("measuring", len(wanted) * STEPS_PER_ROW) as bar:
        for workload in wanted:
            found.append(measure(workload, bar.advance))
            if as_json:
                json_line(found[-1].as_json())
    if not as_json:
        show(found)

"""What a benchmark gives: rows of figures, printed as a table or as JSON lines."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass


@dataclass(frozen=True, slots=True)
class Row:
    """One figure. `ratio` is the figure over its baseline, or over its aim; `aim` what it should
    be.
    """

    bench: str
    case: str
    figure: str
    value: float
    unit: str
    ratio: float | None = None
    against: str = ""
    aim: str = ""


def show(rows: list[Row], as_json: bool) -> None:
    for row in rows:
        if as_json:
            print(json.dumps(asdict(row)), flush=True)
            continue
        ratio = f"{row.ratio:8.3g}x of {row.against}" if row.ratio is not None else ""
        aim = f"   (aim: {row.aim})" if row.aim else ""
        print(
            f"{row.case:<44} {row.figure:<26} {row.value:>14,.3f} {row.unit:<10} {ratio}{aim}",
            flush=True,
        )


def quantile(values: list[float], share: float) -> float:
    """The nearest rank; the values need not be sorted."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]

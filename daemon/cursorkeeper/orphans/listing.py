"""What a search for orphans found and what became of them, as operators and programs see it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from cursorkeeper.orphans.fleet import Fleet, Orphan
from cursorkeeper.orphans.removal import Removed

COLUMNS = ("gone", "idle", "ledgers", "bytes", "verdict", "cursor")
"""The name comes last: a terminal of any width folds it and nothing else."""
NUMBERS = ("idle", "ledgers", "bytes")
UNITS_S = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
MAY_GO = "may go"


def listed(fleet: Fleet, now_ms: int, age_s: float) -> list[Listed]:
    """Every orphan in the order of their names; younger than `age_s` is young."""
    return [
        Listed(orphan, orphan.idle_s(now_ms), orphan.stays(now_ms, age_s) or MAY_GO)
        for orphan in sorted(fleet.orphans, key=lambda orphan: orphan.name.canonical)
    ]


def rough(duration_s: float) -> str:
    """As long as a cell is wide: 3d, 5h, 12m, 40s."""
    unit = next((unit for unit in "dhm" if duration_s >= UNITS_S[unit]), "s")
    return f"{duration_s / UNITS_S[unit]:,.0f}{unit}"


@dataclass(frozen=True, slots=True)
class Listed:
    """An orphan, and whether it may be deleted."""

    orphan: Orphan
    idle_s: float
    verdict: str

    def as_json(self) -> dict[str, Any]:
        return {**self.orphan.as_json(), "idleS": round(self.idle_s), "verdict": self.verdict}

    def as_row(self) -> list[str]:
        o = self.orphan
        numbers = (rough(self.idle_s), str(o.ledgers), f"{o.stored_bytes:,}")
        return [str(o.why), *numbers, self.verdict, o.name.display]


def ended_json(orphan: Orphan, removed: Removed) -> dict[str, Any]:
    """One that was to be deleted."""
    told = {"ending": removed.ending, "said": removed.said, "ledgersLeft": removed.ledgers_left}
    return {**orphan.as_json(), **told}


def summary_json(
    fleet: Fleet, rows: list[Listed], removed: Sequence[Removed], doubt: str
) -> dict[str, Any]:
    """The last line. `doubt`: why the search is not believed."""
    return {
        "summary": "orphans",
        **fleet.as_json(),
        "listed": len(rows),
        "verdicts": Counter(row.verdict for row in rows),
        "endings": Counter(one.ending for one in removed),
        "ledgersLeft": sum(one.ledgers_left for one in removed),
        "doubt": doubt,
    }

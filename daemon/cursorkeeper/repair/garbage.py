"""Serves who deletes ledgers that no footer names: one pass, and what it found. The judgement is in
`runtime.gc`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cursorkeeper.connections import Ports
from cursorkeeper.core.names import CursorName
from cursorkeeper.inspection.progress import Progress
from cursorkeeper.runtime.gc import GcReport, collect


@dataclass(frozen=True, slots=True)
class Garbage:
    """A ledger that no footer names, and whose it is."""

    ledger: int
    cursor: CursorName


@dataclass(frozen=True, slots=True)
class Doubt:
    """A cursor of which nothing goes: its footer is not the newest that it had, or none of ours."""

    cursor: CursorName
    why: str


@dataclass(frozen=True, slots=True)
class Swept:
    """A pass's report, and the garbage that is left to be deleted."""

    report: GcReport
    garbage: list[Garbage]
    doubts: list[Doubt]
    older: list[Garbage]
    """Kept: older than the znode of their footer, which was made anew, or put back after it was
    lost.
    """
    dry_run: bool

    def as_json(self) -> dict[str, Any]:
        return {
            **self.report.as_fields(),
            "dryRun": self.dry_run,
            "ledgers": [{"ledger": g.ledger, "cursor": g.cursor.display} for g in self.garbage],
            "doubts": [{"cursor": d.cursor.display, "problem": d.why} for d in self.doubts],
            "olderThanFooter": [
                {"ledger": g.ledger, "cursor": g.cursor.display} for g in self.older
            ],
        }


async def sweep(ports: Ports, progress: Progress, *, dry_run: bool) -> Swept:
    """One pass. Raises GatewayError, ZooKeeperError."""
    found, older, doubts = list[Garbage](), list[Garbage](), list[Doubt]()

    def garbage(ledger: int, cursor: CursorName) -> None:
        found.append(Garbage(ledger, cursor))
        progress.advance()

    report = await collect(
        ports.ledgers,
        ports.footers,
        dry_run=dry_run,
        on_garbage=garbage,
        on_doubt=lambda cursor, why: doubts.append(Doubt(cursor, why)),
        on_older=lambda ledger, cursor: older.append(Garbage(ledger, cursor)),
    )
    return Swept(report, found, doubts, older, dry_run)

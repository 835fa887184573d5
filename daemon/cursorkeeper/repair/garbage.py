"""Serves who deletes ledgers that no footer names: one pass, and what it found. The judgement is in
`runtime.gc`.
"""

from __future__ import annotations

from dataclasses import dataclass

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


async def sweep(ports: Ports, progress: Progress, *, dry_run: bool) -> Swept:
    """One pass. Raises GatewayError, ZooKeeperError."""
    found: list[Garbage] = []
    doubts: list[Doubt] = []
    older: list[Garbage] = []

    def garbage(ledger: int, cursor: CursorName) -> None:
        found.append(Garbage(ledger, cursor))
        progress.advance()

    def doubt(cursor: CursorName, why: str) -> None:
        doubts.append(Doubt(cursor, why))

    def kept(ledger: int, cursor: CursorName) -> None:
        older.append(Garbage(ledger, cursor))

    report = await collect(
        ports.ledgers,
        ports.footers,
        dry_run=dry_run,
        on_garbage=garbage,
        on_doubt=doubt,
        on_older=kept,
    )
    return Swept(report, found, doubts, older)

"""Garbage collection of cursor ledgers that no footer names (COMMIT rule 21).

A ledger is deleted only if a footer exists, does not name it, and could never name it again: the footer's epoch is
greater than the ledger's, or equal while the footer is closed or deleted. Age proves nothing: a paused process may
still commit. No footer, an unreadable one, metadata that does not say whose it is, or a ledger of another deployment
(another root or chroot on the same BookKeeper has footers that are not seen here): touch nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum

from cursorkeeper.core.errors import DamageError
from cursorkeeper.core.footer import Footer, FooterState
from cursorkeeper.core.names import CursorName
from cursorkeeper.runtime.footers import FooterStore
from cursorkeeper.runtime.ledgers import APPLICATION
from cursorkeeper_clients.bookkeeper import errors as bk
from cursorkeeper_clients.bookkeeper.port import LedgerStore

BATCH_LEDGERS = 500


class Verdict(StrEnum):
    """What is to be done with one ledger."""

    NAMED = "named"
    MAY_BE_NAMED = "may_be_named"
    UNKNOWN = "unknown"
    GARBAGE = "garbage"


@dataclass(slots=True)
class GcReport:
    """Counts of one pass."""

    named: int = 0
    may_be_named: int = 0
    unknown: int = 0
    garbage: int = 0
    deleted: int = 0
    failed: int = 0

    def as_fields(self) -> dict[str, int]:
        """For the log."""
        return asdict(self)


def judge(ledger: int, epoch: int, footer: Footer | None) -> Verdict:
    """Pure: a ledger of `epoch` against the footer of its cursor as it was read (it may be stale: that is safe)."""
    if footer is None:
        return Verdict.UNKNOWN
    if ledger in footer.named_ledgers():
        return Verdict.NAMED
    if epoch < footer.epoch or (epoch == footer.epoch and footer.state is not FooterState.OPEN):
        return Verdict.GARBAGE
    return Verdict.MAY_BE_NAMED


def owner_of(metadata: Mapping[str, bytes], deployment: str | None) -> tuple[CursorName, int] | None:
    """(cursor, epoch) that a ledger's custom metadata names; None: not a cursor's ledger, or none of this deployment."""
    if deployment is None or metadata.get("deployment") != deployment.encode() or "purpose" in metadata:
        return None
    try:
        name = CursorName.from_znode(metadata["cursor"].decode())
        return name, int(metadata["epoch"])
    except (KeyError, ValueError):
        return None


async def collect(
    ledgers: LedgerStore,
    footers: FooterStore,
    *,
    dry_run: bool = False,
    on_garbage: Callable[[int, CursorName], None] = lambda _ledger, _name: None,
) -> GcReport:
    """One pass over every ledger of this application. `on_garbage` is told each ledger that may go.

    Raises GatewayError, ZooKeeperError when the listing fails.
    """
    report = GcReport()
    deployment = await footers.known_deployment()
    if deployment is not None:
        ledgers.act_for(deployment)
    batch: list[tuple[int, CursorName, int]] = []
    async for info in ledgers.list({"application": APPLICATION}):
        owner = owner_of(info.custom_metadata, deployment)
        if owner is None:
            report.unknown += 1
            continue
        batch.append((info.ledger, *owner))
        if len(batch) >= BATCH_LEDGERS:
            await _judge_all(batch, ledgers, footers, report, on_garbage, dry_run=dry_run)
            batch = []
    await _judge_all(batch, ledgers, footers, report, on_garbage, dry_run=dry_run)
    return report


async def _judge_all(
    batch: list[tuple[int, CursorName, int]],
    ledgers: LedgerStore,
    footers: FooterStore,
    report: GcReport,
    on_garbage: Callable[[int, CursorName], None],
    *,
    dry_run: bool,
) -> None:
    names = sorted({name for _, name, _ in batch}, key=lambda n: n.canonical)
    found = dict(zip(names, await footers.read_many(names), strict=True)) if names else {}
    for ledger, name, epoch in batch:
        footer = found[name]
        verdict = judge(ledger, epoch, None if isinstance(footer, DamageError) else footer)
        setattr(report, verdict.value, getattr(report, verdict.value) + 1)
        if verdict is not Verdict.GARBAGE:
            continue
        on_garbage(ledger, name)
        if dry_run:
            continue
        try:
            await ledgers.delete(ledger)
            report.deleted += 1
        except bk.GatewayError:
            report.failed += 1

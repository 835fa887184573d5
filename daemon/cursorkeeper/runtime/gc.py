"""Garbage collection of cursor ledgers that no footer names (ARCHITECTURE rule 21).

A ledger is deleted only if a footer exists, does not name it, and could never name it again: the
footer's epoch is greater than the ledger's, or equal while the footer is closed or deleted. Age
proves nothing: a paused process may still commit. No footer, an unreadable one, metadata that does
not say whose it is, or a ledger of another deployment (another root or chroot on the same
BookKeeper has footers that are not seen here): touch nothing.

A footer may be older than the truth: an older copy that was put back, or one that was deleted and
made anew. Its ledgers show it: one of an epoch above the footer's, or of the footer's epoch by
another writer (`doubt`). Nothing of such a cursor is deleted, so all ledgers are looked at before
the first one goes. A ledger that is older than the footer's znode itself was never this footer's,
whatever epoch that has reached by now; it is kept, too. One time is of the gateway's clock, the
other of ZooKeeper's: where the gateway's is behind, a cursor's first ledger may seem older, and is
kept as well. Whoever only tells (the pipeline's table of ledgers) looks with the same `Judge`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import asdict, dataclass, replace
from enum import StrEnum

from cursorkeeper.bookkeeper import errors as bk
from cursorkeeper.bookkeeper.port import LedgerInfo, LedgerStore
from cursorkeeper.core.errors import DamageError
from cursorkeeper.core.footer import Footer, FooterState
from cursorkeeper.core.names import CursorName
from cursorkeeper.core.shape import frozen
from cursorkeeper.runtime.footers import FooterStore, Stored, batched
from cursorkeeper.runtime.ledgers import APPLICATION

BATCH_LEDGERS = 500


class Verdict(StrEnum):
    """What is to be done with one ledger."""

    NAMED = "named"
    MAY_BE_NAMED = "may_be_named"
    UNKNOWN = "unknown"
    GARBAGE = "garbage"
    KEPT = "kept"
    """Named by no footer, and it stays: that footer is in doubt, or its znode is younger than the
    ledger. Of a `Judge` alone.
    """


@dataclass(slots=True)
class GcReport:
    """Counts of one pass, of ledgers but for `doubtful`."""

    named: int = 0
    may_be_named: int = 0
    unknown: int = 0
    garbage: int = 0
    kept: int = 0
    """Named by no footer, and kept because that footer is in doubt, or because they are older than
    its znode.
    """
    deleted: int = 0
    failed: int = 0
    doubtful: int = 0
    """Cursors whose footer is not the newest of what their ledgers show, or was not written by a
    CursorKeeper.
    """

    def as_fields(self) -> dict[str, int]:
        return asdict(self)


@frozen
class Owned:
    """A ledger that says whose it is. `writer` is empty where it does not say who made it."""

    ledger: int
    name: CursorName
    epoch: int
    writer: str
    created_ms: int


def judge(ledger: int, epoch: int, footer: Footer | None) -> Verdict:
    """Pure: a ledger of `epoch` against the footer of its cursor as it was read (it may be stale:
    that is safe).
    """
    if footer is None:
        return Verdict.UNKNOWN
    if ledger in footer.named_ledgers():
        return Verdict.NAMED
    if epoch < footer.epoch or (epoch == footer.epoch and footer.state is not FooterState.OPEN):
        return Verdict.GARBAGE
    return Verdict.MAY_BE_NAMED


def doubt(owned: Owned, footer: Footer) -> str:
    """Pure: why this ledger shows that the footer is not the newest one that its cursor had; empty:
    it does not.
    """
    if owned.epoch > footer.epoch:
        by = f" by {owned.writer}" if owned.writer else ""
        return (
            f"ledger {owned.ledger} is of epoch {owned.epoch}{by}, and the footer only of "
            f"epoch {footer.epoch}"
        )
    if owned.epoch == footer.epoch and owned.writer not in ("", footer.writer):
        return (
            f"ledger {owned.ledger} is of epoch {owned.epoch} by {owned.writer}, and the "
            f"footer of that epoch by {footer.writer}"
        )
    return ""


def owner_of(
    metadata: Mapping[str, bytes], deployment: str | None
) -> tuple[CursorName, int] | None:
    """(cursor, epoch) that a ledger's custom metadata names; None: not a cursor's ledger, or none
    of this deployment.
    """
    if (
        deployment is None
        or metadata.get("deployment") != deployment.encode()
        or "purpose" in metadata
    ):
        return None
    try:
        name = CursorName.from_znode(metadata["cursor"].decode())
        return name, int(metadata["epoch"])
    except (KeyError, ValueError):
        return None


def owned_of(info: LedgerInfo, deployment: str | None) -> Owned | None:
    """What `owner_of` says, with what else the ledger says of its making."""
    owner = owner_of(info.custom_metadata, deployment)
    if owner is None:
        return None
    return Owned(
        info.ledger,
        *owner,
        info.custom_metadata.get("writer", b"").decode(errors="replace"),
        info.created_ms,
    )


async def collect(
    ledgers: LedgerStore,
    footers: FooterStore,
    *,
    dry_run: bool = False,
    on_garbage: Callable[[int, CursorName], None] = lambda _ledger, _name: None,
    on_doubt: Callable[[CursorName, str], None] = lambda _name, _why: None,
    on_older: Callable[[int, CursorName], None] = lambda _ledger, _name: None,
) -> GcReport:
    """One pass over every ledger of this application. `on_garbage` is told each ledger that may go,
    `on_doubt` each cursor of which nothing goes although a footer is there, `on_older` each ledger
    that is kept because its footer's znode is younger.

    Raises GatewayError, ZooKeeperError when the listing fails.
    """
    judged, tally, garbage = Judge(footers), Counter[Verdict](), list[Owned]()
    deployment = await footers.known_deployment()
    if deployment is not None:
        ledgers.act_for(deployment)

    async def listed() -> AsyncIterator[Owned]:
        async for info in ledgers.list({"application": APPLICATION}):
            owned = owned_of(info, deployment)
            if owned is None:
                tally[Verdict.UNKNOWN] += 1
            else:
                yield owned

    # first everything is looked at: any ledger of a cursor may put its footer in doubt
    async for batch in batched(listed(), BATCH_LEDGERS):
        for one in await judged.look(batch):
            if one.verdict is Verdict.GARBAGE:
                garbage.append(one.owned)
                continue
            tally[one.verdict] += 1
            if one.verdict is Verdict.KEPT:
                on_older(one.owned.ledger, one.owned.name)
    for name, why in sorted(judged.doubts.items(), key=lambda item: item[0].canonical):
        on_doubt(name, why)
    report = GcReport(doubtful=len(judged.doubts))
    for start in range(0, len(garbage), BATCH_LEDGERS):
        batch = garbage[start : start + BATCH_LEDGERS]
        # once more: it is a while since they were read
        seen = await judged.read(batch)
        for owned in batch:
            verdict = judge(owned.ledger, owned.epoch, seen[owned.name].readable)
            if owned.name in judged.doubts or verdict is not Verdict.GARBAGE:
                tally[Verdict.KEPT] += 1
                continue
            tally[Verdict.GARBAGE] += 1
            on_garbage(owned.ledger, owned.name)
            if not dry_run:
                try:
                    await ledgers.delete(owned.ledger)
                    report.deleted += 1
                except bk.GatewayError:
                    report.failed += 1
    return replace(report, **{verdict.value: tally[verdict] for verdict in Verdict})


@frozen
class Judged:
    """`why`: this ledger, or the footer itself, puts the footer in doubt; empty: neither does.
    `has_footer`: one that can be read.
    """

    owned: Owned
    verdict: Verdict
    why: str
    has_footer: bool


class Judge:
    """Looks at ledgers, some at a time, and changes nothing. `doubts`: the cursors of those that
    were looked at whose footers are in doubt, each with the first reason. One more ledger may put a
    cursor there whose others were called garbage before: `last_word`.
    """

    def __init__(self, footers: FooterStore) -> None:
        self._footers = footers
        self.doubts: dict[CursorName, str] = {}

    async def look(self, batch: list[Owned]) -> list[Judged]:
        """In the same order. A server that lags shows older footers: a doubt counts only behind a
        sync. Raises ZooKeeperError.
        """
        seen = await self.read(batch)
        suspects = [owned for owned in batch if _doubt(owned, seen[owned.name])]
        if suspects:
            await self._footers.sync()
            seen |= await self.read(suspects)
        found = []
        for owned in batch:
            now = seen[owned.name]
            why = _doubt(owned, now)
            if why:
                self.doubts.setdefault(owned.name, why)
            verdict = judge(owned.ledger, owned.epoch, now.readable)
            if verdict is Verdict.GARBAGE and owned.created_ms < now.created_ms:
                verdict = Verdict.KEPT
            found.append(Judged(owned, verdict, why, now.readable is not None))
        return found

    def last_word(self, judged: Judged) -> Judged:
        """What is to be said of a ledger when all have been looked at."""
        is_kept = judged.verdict is Verdict.GARBAGE and judged.owned.name in self.doubts
        return replace(judged, verdict=Verdict.KEPT) if is_kept else judged

    async def read(self, batch: list[Owned]) -> dict[CursorName, Stored]:
        """The footers of these ledgers' cursors."""
        names = sorted({owned.name for owned in batch}, key=lambda name: name.canonical)
        return {stored.name: stored for stored in await self._footers.read_stored(names)}


def _doubt(owned: Owned, stored: Stored) -> str:
    if isinstance(stored.footer, DamageError):
        return str(stored.footer)
    return "" if stored.footer is None else doubt(owned, stored.footer)

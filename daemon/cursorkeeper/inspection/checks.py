"""Serves `verify` and the fleet's audit: everything that can be checked of one cursor, without
changing anything.

Three passes: every entry of every named ledger by itself (checksum, cursor, epoch, order); what a
recovery would find; and the same from every older snapshot that is still kept, which must be the
same state. The strict first pass finds more than a recovery minds: what a finding means for the
cursor is said by the second.
"""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Any

import msgspec

from cursorkeeper.bookkeeper.port import LedgerStore
from cursorkeeper.core import events as ev
from cursorkeeper.core.errors import DamageError
from cursorkeeper.core.footer import Footer, SnapshotBase
from cursorkeeper.core.names import CursorName
from cursorkeeper.inspection import reader, state_view
from cursorkeeper.inspection.entry_view import EntryView
from cursorkeeper.inspection.progress import SILENT, Progress
from cursorkeeper.inspection.reader import End
from cursorkeeper.runtime import pulsar_ledger
from cursorkeeper.runtime.chain import from_previous
from cursorkeeper.runtime.footers import FooterStore

FINDINGS_MAX = 100
"""How many findings of one cursor are kept; the rest is counted."""
KEEP = "keep the ledgers; find the bookie whose copy is bad and restore it"
USABLE = (
    "the state is complete all the same; only the older snapshot cannot stand in until the "
    "next one replaces it"
)
FALLS_BACK = (
    "a recovery uses the previous snapshot and loses nothing: open the cursor once, and "
    "its owner writes a new one"
)
REFUSES = (
    f"a cursor opened now is refused rather than started from less: {KEEP}, or `import "
    f"--replace` an export of it"
)


class Finding(msgspec.Struct, frozen=True):
    """Something wrong. `ledger` None: not in a ledger."""

    ledger: int | None
    entry: int | None
    message: str

    @property
    def place(self) -> str:
        """ "ledger L entry E", "ledger L" or ""."""
        if self.ledger is None:
            return ""
        return (
            f"ledger {self.ledger}"
            if self.entry is None
            else f"ledger {self.ledger} entry {self.entry}"
        )


class Report(msgspec.Struct, rename="camel"):
    """What `check` found of one cursor, as one line of `verify --json`."""

    cursor: str
    state: str = ""
    at_least: bool = False
    ledgers: int = 0
    records: int = 0
    stored_bytes: int = 0
    previous: str = "none"
    """The older snapshot: none, same, differs, unreadable or not compared."""
    mark_delete: tuple[int, int] | None = None
    totals: state_view.Totals | None = None
    findings: list[Finding] = msgspec.field(default_factory=list, name="damage")
    findings_count: int = msgspec.field(default=0, name="damageCount")
    remedy: str = ""
    unfinished: int = 0
    """Entries of a flush that was cut off: never confirmed."""
    truncated: dict[str, Any] | None = None
    """What the footer says the stored state leaves out."""

    @property
    def is_good(self) -> bool:
        return self.findings_count == 0

    def found(self, message: str, ledger: int | None = None, entry: int | None = None) -> None:
        """Adds a finding; beyond FINDINGS_MAX it is only counted."""
        self.findings_count += 1
        if len(self.findings) < FINDINGS_MAX:
            self.findings.append(Finding(ledger, entry, message))

    def as_json(self) -> dict[str, Any]:
        return {"cursor": self.cursor, "ok": self.is_good, **msgspec.to_builtins(self)}


async def check(
    footers: FooterStore,
    ledgers: LedgerStore,
    name: CursorName,
    progress: Progress = SILENT,
    wait_s: float = reader.WAIT_S,
) -> Report:
    """Raises ProblemError when something outside is away, DamageError for the footer itself."""

    async def once(footer: Footer, _version: int) -> Report:
        ends = await reader.ends_of(ledgers, footer)
        report = Report(
            name.display, str(footer.state), reader.is_at_least(footer, ends), ledgers=len(ends)
        )
        report.truncated = footer.truncated.as_fields() if footer.truncated is not None else None
        await _Check(ledgers, name, footer, ends, report, progress, wait_s).run()
        return report

    return await reader.steadily(footers, name, once)


@dataclass(frozen=True, slots=True)
class _Check:
    """Of one cursor, with one footer."""

    ledgers: LedgerStore
    name: CursorName
    footer: Footer
    ends: dict[int, End]
    report: Report
    progress: Progress
    wait_s: float

    async def run(self) -> None:
        report = self.report
        self.progress.grow(sum(end.last_entry + 1 for end in self.ends.values()))
        for ledger, end in self.ends.items():
            self.progress.say(f"reading {self.name}")
            last = await self._entries(ledger, end)
            if last is not None and last != end.last_entry:
                report.found(
                    f"ends at entry {last}, {end.last_entry} was confirmed as its last", ledger
                )
        readable, is_newest = reader.visible(self.footer, self.ends)
        self.progress.say(f"replaying {self.name}")
        answer = await self._replay(readable)
        if isinstance(answer, ev.ChainDamaged):
            report.remedy = REFUSES
            self._once(f"the state cannot be read: {answer.reason}")
            return
        report.mark_delete, report.totals = (
            answer.state.mark_delete,
            state_view.totals(answer.state),
        )
        if answer.fell_back:
            report.previous = "not compared"
            report.remedy = report.remedy or FALLS_BACK
            self._once("the snapshot cannot be trusted")
            return
        if is_newest:
            await self._previous(readable, answer)
        else:
            # the newest snapshot's end is not shown to readers yet: this is the older one
            report.previous = "not compared"
        if not report.is_good:
            report.remedy = report.remedy or USABLE

    def _once(self, message: str) -> None:
        """Damage that the strict pass did not name already."""
        if self.report.is_good:
            self.report.found(message)

    def _replay(self, footer: Footer) -> Awaitable[ev.ChainRead | ev.ChainDamaged]:
        return reader.replay(self.ledgers, self.name, footer, wait_s=self.wait_s)

    # ---- every entry by itself; each pass answers with the last one that is there

    async def _entries(self, ledger: int, end: End) -> int | None:
        """None: it is not even the cursor's. Of a ledger of whole states every one must be
        readable, though only the newest counts.
        """
        try:
            written = reader.written_in(self.footer, self.name, ledger, end)
            if written is not None:
                pulsar_ledger.check_owner(written, self.footer)
        except DamageError as e:
            self.report.found(e.message, ledger)
            return None
        last, sequence = -1, -1
        ends = {base.last_entry: base for base in self._bases_in(ledger)}
        async for shown in reader.views(
            self.ledgers, self.name, ledger, end, written, self.progress.say, self.wait_s
        ):
            last = shown.entry
            self.report.records += 1
            self.report.stored_bytes += shown.head.get("storedBytes", 0)
            self.report.unfinished += shown.head.get("kind") == "unfinished"
            self.progress.advance(1)
            if not shown.is_good:
                self._found(shown, shown.problem)
            elif written is None:
                sequence = self._check_header(shown, sequence)
                if last in ends:
                    self._check_end(shown, ends[last])
        return last

    def _found(self, shown: EntryView, message: str) -> None:
        self.report.found(message, shown.ledger, shown.entry)

    def _check_header(self, shown: EntryView, before: int) -> int:
        """Epoch, order and owner; returns the sequence to compare the next one with."""
        head, cursor = shown.head, shown.content.get("cursor")
        is_open = head["kind"] == "open"
        if head["epoch"] > self.footer.epoch:
            self._found(shown, f"is of epoch {head['epoch']}, the footer of {self.footer.epoch}")
        if head["sequence"] <= before:
            self._found(shown, f"has sequence {head['sequence']} after {before}")
        if is_open != (shown.entry == 0):
            said = "the open record is not the first one" if is_open else "is no open record"
            self._found(shown, said)
        elif is_open and cursor != self.name.canonical:
            self._found(shown, f"is the open record of {cursor}")
        return int(head["sequence"])

    def _bases_in(self, ledger: int) -> list[SnapshotBase]:
        previous = self.footer.previous
        bases = [self.footer.base] + ([previous.base] if previous is not None else [])
        return [b for b in bases if isinstance(b, SnapshotBase) and b.ledger == ledger]

    def _check_end(self, shown: EntryView, base: SnapshotBase) -> None:
        """The snapshot's end record against what the footer says of it. Its segments are checked by
        the replay.
        """
        if shown.head["kind"] != "snapshot_end":
            self._found(shown, "is not the snapshot's end record that the footer names")
            return
        said = (shown.content["segments"], shown.content["length"], shown.head["crc32c"])
        named = (base.num_parts, base.length, f"{base.crc32c:08x}")
        if said != named:
            words = "{} segments, {} bytes, crc32c {}; the footer says {}, {}, {}"
            self._found(shown, "the end record has " + words.format(*said, *named))

    # ---- older snapshots

    async def _previous(self, pinned: Footer, now: ev.ChainRead) -> None:
        older, report = from_previous(pinned), self.report
        if older is None:
            return
        self.progress.say(f"replaying {self.name} from its previous snapshot")
        answer = await self._replay(older)
        if isinstance(answer, ev.ChainDamaged):
            report.previous = "unreadable"
            self._once(f"the previous snapshot cannot stand in: {answer.reason}")
            return
        odd = state_view.differences(now.state, answer.state, ("the snapshot", "the previous one"))
        report.previous = "differs" if odd else "same"
        for line in odd:
            report.found(line)
        if odd:
            report.remedy = (
                "do not open the cursor; keep its ledgers, `cursorkeeper export` it, and "
                "report this with what `inspect` shows"
            )

"""Everything that can be checked of one cursor, without changing anything.

Three passes: every entry of every named ledger by itself (checksum, cursor, epoch, order); what a
recovery would find; and the same from every older snapshot that is still kept, which must be the
same state. The strict first pass finds more than a recovery minds: what a finding means for the
cursor is said by the second.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from cursorkeeper.bookkeeper.port import LedgerStore
from cursorkeeper.core import events as ev
from cursorkeeper.core.errors import DamageError
from cursorkeeper.core.footer import Footer, SnapshotBase
from cursorkeeper.core.names import CursorName
from cursorkeeper.format.record import Kind
from cursorkeeper.inspection import reader, state_entries, state_view
from cursorkeeper.inspection.reader import End
from cursorkeeper.inspection.record_view import RecordView, view
from cursorkeeper.runtime import pulsar_ledger
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


@dataclass(frozen=True, slots=True)
class Finding:
    """Something wrong. `ledger` None: not in a ledger."""

    message: str
    ledger: int | None = None
    entry: int | None = None

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

    def __str__(self) -> str:
        return f"{self.place}: {self.message}" if self.place else self.message


@dataclass(slots=True)
class Report:
    """What `check` found of one cursor."""

    cursor: str
    state: str = ""
    at_least: bool = False
    records: int = 0
    stored_bytes: int = 0
    ledgers: int = 0
    mark_delete: tuple[int, int] | None = None
    totals: state_view.Totals | None = None
    unfinished: int = 0
    """Entries of a flush that was cut off: never confirmed."""
    truncated: dict[str, Any] | None = None
    """What the footer says the stored state leaves out."""
    previous: str = "none"
    """The older snapshot: none, same, differs, unreadable or not compared."""
    findings: list[Finding] = field(default_factory=list)
    findings_count: int = 0
    remedy: str = ""

    @property
    def is_good(self) -> bool:
        return self.findings_count == 0

    @property
    def mark_delete_text(self) -> str:
        """As ledger:entry; empty where it is not known."""
        return "" if self.mark_delete is None else "{}:{}".format(*self.mark_delete)

    def found(self, message: str, ledger: int | None = None, entry: int | None = None) -> None:
        """Adds a finding; beyond FINDINGS_MAX it is only counted."""
        self.findings_count += 1
        if len(self.findings) < FINDINGS_MAX:
            self.findings.append(Finding(message, ledger, entry))

    def as_json(self) -> dict[str, Any]:
        """One line of `verify --json`."""
        return {
            "cursor": self.cursor,
            "ok": self.is_good,
            "state": self.state,
            "atLeast": self.at_least,
            "ledgers": self.ledgers,
            "records": self.records,
            "storedBytes": self.stored_bytes,
            "previous": self.previous,
            "markDelete": None if self.mark_delete is None else list(self.mark_delete),
            "totals": None if self.totals is None else self.totals.as_json(),
            "damage": [
                {"ledger": f.ledger, "entry": f.entry, "message": f.message} for f in self.findings
            ],
            "damageCount": self.findings_count,
            "remedy": self.remedy,
            "unfinished": self.unfinished,
            "truncated": self.truncated,
        }


class Progress:
    """Is told how many entries there are, how many are done, and what is being done."""

    def __init__(
        self,
        grow: Callable[[int], None],
        advance: Callable[[int], None],
        say: Callable[[str], None],
    ) -> None:
        self.grow, self.advance, self.say = grow, advance, say


SILENT = Progress(lambda _n: None, lambda _n: None, lambda _s: None)


async def check(
    footers: FooterStore,
    ledgers: LedgerStore,
    name: CursorName,
    progress: Progress = SILENT,
    wait_s: float = reader.WAIT_S,
) -> Report:
    """Raises ProblemError when something outside is away, DamageError for the footer itself."""

    async def once(footer: Footer, _version: int) -> Report:
        return await _check(ledgers, name, footer, progress, wait_s)

    return await reader.steadily(footers, name, once)


async def _check(
    ledgers: LedgerStore, name: CursorName, footer: Footer, progress: Progress, wait_s: float
) -> Report:
    ends = await reader.ends_of(ledgers, footer)
    report = Report(
        name.display, str(footer.state), reader.is_at_least(footer, ends), ledgers=len(ends)
    )
    report.truncated = footer.truncated.as_fields() if footer.truncated is not None else None
    progress.grow(sum(end.last_entry + 1 for end in ends.values()))
    whole = reader.whole_state_ledgers(footer)
    for ledger, end in ends.items():
        check_one = _check_states if ledger in whole else _check_ledger
        await check_one(ledgers, name, footer, ledger, end, report, progress, wait_s)
    readable, is_newest = reader.visible(footer, ends)
    progress.say(f"replaying {name}")
    answer = await reader.replay(ledgers, name, readable, wait_s=wait_s)
    if isinstance(answer, ev.ChainDamaged):
        report.remedy = REFUSES
        _once(report, f"the state cannot be read: {answer.reason}")
        return report
    report.mark_delete, report.totals = answer.state.mark_delete, state_view.totals(answer.state)
    if answer.fell_back:
        report.previous = "not compared"
        report.remedy = report.remedy or FALLS_BACK
        _once(report, "the snapshot cannot be trusted")
    else:
        if is_newest:
            await _check_previous(ledgers, name, readable, answer, report, progress, wait_s)
        else:
            # the newest snapshot's end is not shown to readers yet: this is the older one
            report.previous = "not compared"
        if not report.is_good:
            report.remedy = report.remedy or USABLE
    return report


def _once(report: Report, message: str) -> None:
    """Damage that the strict pass did not name already."""
    if report.is_good:
        report.found(message)


# ---- every entry by itself


async def _check_ledger(
    ledgers: LedgerStore,
    name: CursorName,
    footer: Footer,
    ledger: int,
    end: End,
    report: Report,
    progress: Progress,
    wait_s: float,
) -> None:
    progress.say(f"reading {name}")
    at, sequence, base = 0, -1, _base_in(footer, ledger)
    async for entry, payload in reader.entries(
        ledgers, ledger, end.last_entry, say=progress.say, wait_s=wait_s
    ):
        at = entry + 1
        shown = view(ledger, entry, payload, name.record_hash)
        report.records += 1
        progress.advance(1)
        if shown.header is not None:
            report.stored_bytes += shown.header.stored_bytes
        if not shown.is_good:
            report.found(shown.problem, ledger, entry)
            continue
        sequence = _check_header(shown, footer, name, sequence, report)
        if any(entry == b.last_entry for b in base):
            _check_end(shown, next(b for b in base if entry == b.last_entry), report)
    if at != end.last_entry + 1:
        report.found(f"ends at entry {at - 1}, {end.last_entry} was confirmed as its last", ledger)


async def _check_states(
    ledgers: LedgerStore,
    name: CursorName,
    footer: Footer,
    ledger: int,
    end: End,
    report: Report,
    progress: Progress,
    wait_s: float,
) -> None:
    """A ledger of whole states: every one of them must be readable, though only the newest
    counts.
    """
    progress.say(f"reading {name}")
    assert end.info is not None
    try:
        written = pulsar_ledger.written_by(end.info.custom_metadata, name)
        pulsar_ledger.check_owner(written, footer)
    except DamageError as e:
        report.found(e.message, ledger)
        return
    at = 0
    entries = reader.entries(
        ledgers,
        ledger,
        end.last_entry,
        say=progress.say,
        wait_s=wait_s,
        unconfirmed=not end.is_final,
    )
    async for shown in state_entries.StateEntries(ledger, written).views(entries):
        at = shown.entry + 1
        report.records += 1
        report.stored_bytes += shown.stored_bytes
        report.unfinished += shown.kind == "unfinished"
        progress.advance(1)
        if not shown.is_good:
            report.found(shown.problem, ledger, shown.entry)
    if at != end.last_entry + 1:
        report.found(f"ends at entry {at - 1}, {end.last_entry} was confirmed as its last", ledger)


def _check_header(
    shown: RecordView, footer: Footer, name: CursorName, before: int, report: Report
) -> int:
    """Epoch, order and owner; returns the sequence to compare the next one with."""
    header = shown.header
    assert header is not None
    if header.epoch > footer.epoch:
        report.found(
            f"is of epoch {header.epoch}, the footer of {footer.epoch}", shown.ledger, shown.entry
        )
    if header.sequence <= before:
        report.found(f"has sequence {header.sequence} after {before}", shown.ledger, shown.entry)
    if (header.kind is Kind.OPEN) != (shown.entry == 0):
        report.found(
            "the open record is not the first one"
            if header.kind is Kind.OPEN
            else "is no open record",
            shown.ledger,
            shown.entry,
        )
    elif header.kind is Kind.OPEN and (shown.body or {}).get("cursor") != name.canonical:
        report.found(
            f"is the open record of {(shown.body or {}).get('cursor')}", shown.ledger, shown.entry
        )
    return header.sequence


def _base_in(footer: Footer, ledger: int) -> list[SnapshotBase]:
    bases = [footer.base] + ([footer.previous.base] if footer.previous is not None else [])
    return [b for b in bases if isinstance(b, SnapshotBase) and b.ledger == ledger]


def _check_end(shown: RecordView, base: SnapshotBase, report: Report) -> None:
    """The snapshot's end record against what the footer says of it. Its segments are checked by the
    replay.
    """
    body, header = shown.body or {}, shown.header
    assert header is not None
    if header.kind is not Kind.SNAPSHOT_END:
        report.found(
            "is not the snapshot's end record that the footer names", shown.ledger, shown.entry
        )
        return
    said = (body["segments"], body["length"], header.crc32c)
    if said != (base.num_parts, base.length, base.crc32c):
        report.found(
            f"the end record has {body['segments']} segments, {body['length']} bytes, crc32c "
            f"{header.crc32c:08x}; "
            f"the footer says {base.num_parts}, {base.length}, {base.crc32c:08x}",
            shown.ledger,
            shown.entry,
        )


# ---- older snapshots


async def _check_previous(
    ledgers: LedgerStore,
    name: CursorName,
    pinned: Footer,
    now: ev.ChainRead,
    report: Report,
    progress: Progress,
    wait_s: float,
) -> None:
    older = reader.from_previous(pinned)
    if older is None:
        return
    progress.say(f"replaying {name} from its previous snapshot")
    answer = await reader.replay(ledgers, name, older, wait_s=wait_s)
    if isinstance(answer, ev.ChainDamaged):
        report.previous = "unreadable"
        _once(report, f"the previous snapshot cannot stand in: {answer.reason}")
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

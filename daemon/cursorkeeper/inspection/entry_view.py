"""Serves `inspect` and `verify`: one entry of a cursor's ledger as people and programs read it. A
record: its header, whether its checksum is right, and what it holds in numbers; of a ledger of
whole states (Pulsar's form): states, parts, footers, unfinished tails.

What an entry of whole states is follows from the sizes and from the footer behind it, never from
its own bytes (see `format.pulsar.chunks`). One state at a time is held in memory.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from typing import Any

from cursorkeeper.bookkeeper.errors import GatewayError
from cursorkeeper.core.bitmaps import count_runs
from cursorkeeper.core.entries import as_set
from cursorkeeper.core.errors import DamageError
from cursorkeeper.core.values import Delta, OpenRecord, Record, Segment, SnapshotEnd
from cursorkeeper.format import record
from cursorkeeper.format.pulsar import chunks, ranges
from cursorkeeper.format.pulsar.chunks import Found
from cursorkeeper.runtime.pulsar_ledger import Written

COLUMNS = {
    "record": {
        "ledger": "ledger",
        "entry": "entry",
        "kind": "kind",
        "epoch": "epoch",
        "gen": "generation",
        "seq": "sequence",
        "stored": "storedBytes",
        "body": "bodyBytes",
        "codec": "codec",
        "crc": "ok",
        "content": "content",
    },
    "state_entry": {
        "ledger": "ledger",
        "entry": "entry",
        "kind": "kind",
        "stored": "storedBytes",
        "check": "ok",
        "content": "content",
    },
}
"""Of each type of entry: heading -> which fact."""
NUMBERS = ("ledger", "entry", "epoch", "gen", "seq", "stored", "body")
_COUNTS = (
    ("partials", "partial batches"),
    ("layout", "layout items"),
    ("markDeleteProperties", "mark-delete properties"),
    ("cursorProperties", "cursor properties"),
)

Entries = AsyncIterator[tuple[int, bytes | GatewayError]]


@dataclass(frozen=True, slots=True)
class EntryView:
    """One entry, or what is wrong with it. `head`: what is known of it whatever it holds, which is
    nothing where not even a record's header can be read. `kind` of whole states: state, part,
    footer, unfinished, or ? where that cannot be said.
    """

    type: str
    ledger: int
    entry: int
    head: dict[str, Any]
    content: dict[str, Any] = field(default_factory=dict)
    problem: str = ""

    @property
    def is_good(self) -> bool:
        """Nothing is wrong with it. An unfinished tail is not wrong: it was never confirmed."""
        return not self.problem

    def as_json(self) -> dict[str, Any]:
        """One line of `inspect --json`."""
        return {
            "type": self.type,
            "ledger": self.ledger,
            "entry": self.entry,
            **self.head,
            "ok": self.is_good,
            **({"problem": self.problem} if self.problem else {}),
            **self.content,
        }

    def as_row(self) -> list[str]:
        """One line of the table."""
        facts = {"kind": "?", **self.as_json()} | {
            "ok": "ok" if self.is_good else "BAD",
            "content": self.problem or self._words(),
        }
        return [
            f"{facts[key]:,}" if key.endswith("Bytes") and key in facts else str(facts.get(key, ""))
            for key in COLUMNS[self.type].values()
        ]

    def _words(self) -> str:
        kind, told = self.head.get("kind"), self.content
        words = []
        match kind:
            case "open":
                return f"opened by {told['writer']}"
            case "snapshot_end":
                segments, length = told["segments"], told["length"]
                return f"snapshot {told['snapshotId']}: {segments} segments, {length:,} bytes"
            case "unfinished":
                return "of a flush that was cut off: never confirmed, walked over"
            case "part":
                return f"part {told['part']} of {told['parts']}"
            case "state" | "footer":
                several = f"{told['entries']} entries, " if kind == "footer" else ""
                codec = "" if told["compression"] == "NONE" else f", {told['compression']}"
                words.append(f"whole state of {several}{told['stateBytes']:,} bytes{codec}")
        form = "{acks:,} acks in {ranges:,} ranges of {ledgers} ledgers"
        if kind == "segment":
            form = "{slices} slices over {span:,} entries, {acks:,} acked"
        acks = [form.format(**told)] if told["acks"] or kind == "segment" else []
        at = ["mark-delete {}:{}".format(*told["markDelete"])] if told["markDelete"] else []
        if "form" in told:
            words += at + [f"{each} as {told['form']}" for each in acks]
        else:
            words += acks + at
        words += [f"{told[key]:,} {text}" for key, text in _COUNTS if told.get(key)]
        return "; ".join(words) or "nothing"


async def views(
    ledger: int, entries: Entries, cursor_hash: int, written: Written | None
) -> AsyncIterator[EntryView]:
    """Of a ledger's entries, in their order. `written`: what is known of a ledger of whole states;
    None: one of records.
    """
    states = None if written is None else _States(ledger, written)
    async for entry, payload in entries:
        if states is None:
            yield _record(ledger, entry, payload, cursor_hash)
        else:
            for view in states.take(entry, payload):
                yield view
    for view in () if states is None else states.unfinished():
        yield view


def _not_given(error: GatewayError) -> str:
    return f"BookKeeper does not give it: {error.reason} {error.message}".rstrip()


# ---- records


def _record(ledger: int, entry: int, payload: bytes | GatewayError, cursor_hash: int) -> EntryView:
    """Checks everything: magic, version, cursor, checksum, codec, every field of the body."""
    head: dict[str, Any] = {}
    if isinstance(payload, GatewayError):
        return EntryView("record", ledger, entry, head, problem=_not_given(payload))
    try:
        h = record.peek(payload)
        head = {
            "kind": h.kind.name.lower(),
            "epoch": h.epoch,
            "generation": h.generation,
            "sequence": h.sequence,
            "storedBytes": h.stored_bytes,
            "bodyBytes": h.body_bytes,
            "codec": h.codec.name.lower(),
            "crc32c": f"{h.crc32c:08x}",
        }
        content = _content_of_record(record.decode(payload, cursor_hash))
        return EntryView("record", ledger, entry, head, content)
    except DamageError as e:
        return EntryView("record", ledger, entry, head, problem=e.message)


def _content_of_record(value: Record) -> dict[str, Any]:
    """What a record holds, in numbers."""
    match value.body:
        case Delta() as d:
            return _common(d) | {
                "acks": sum(map(len, d.acks.values())),
                "ranges": sum(count_runs(as_set(entries)) for entries in d.acks.values()),
                "ledgers": len(d.acks),
            }
        case Segment() as s:
            return _common(s) | {
                "slices": len(s.slices),
                "ledgers": len({x.ledger for x in s.slices}),
                "span": sum(x.last - x.first + 1 for x in s.slices),
                "acks": sum(
                    x.last - x.first + 1 - len(x.bitmap) if x.holes else len(x.bitmap)
                    for x in s.slices
                ),
            }
        case SnapshotEnd() as e:
            return {
                "snapshotId": e.snapshot_id,
                "segments": len(e.segment_entries),
                "length": e.length,
                "segmentsCrc32c": f"{e.segments_crc32c:08x}",
                "markDelete": list(e.mark_delete),
            }
        case OpenRecord() as o:
            return {"cursor": o.cursor, "writer": o.writer}


def _common(part: Delta | Segment) -> dict[str, Any]:
    found: dict[str, Any] = {
        "markDelete": None if part.mark_delete is None else list(part.mark_delete),
        "partials": len(part.partials),
    }
    if part.layout:
        found["layout"] = len(part.layout)
    if part.mark_delete_properties is not None:
        found["markDeleteProperties"] = len(part.mark_delete_properties.values)
    if part.cursor_properties is not None:
        found["cursorProperties"] = len(part.cursor_properties.values)
    return found


# ---- whole states


class _States:
    """Tells the entries of one ledger apart, in their order."""

    def __init__(self, ledger: int, written: Written) -> None:
        self._ledger, self._written = ledger, written
        self._parts: list[tuple[int, bytes]] = []

    def take(self, entry: int, payload: bytes | GatewayError) -> Iterator[EntryView]:
        """What can be said now, and not before: of this entry, or of those before it too."""
        if isinstance(payload, GatewayError):
            yield from self._broken("an entry behind it cannot be read")
            yield self._view(entry, "?", b"", problem=_not_given(payload))
            return
        most = self._written.max_entry_bytes
        if len(payload) == most or (self._parts and len(self._parts[-1][1]) == most):
            self._parts.append((entry, payload))
            return
        if chunks.parse_footer(payload) is None:
            yield from self._broken("no footer follows")
            yield self._state(entry, "state", [payload])
            return
        closing = self._state(entry, "footer", [*(part for _, part in self._parts), payload])
        count = len(self._parts)
        for number, (at, part) in enumerate(self._parts, start=1):
            yield self._view(at, "part", part, {"part": number, "parts": count})
        self._parts.clear()
        yield closing

    def unfinished(self) -> Iterator[EntryView]:
        """What is left at the end."""
        for entry, payload in self._parts:
            yield self._view(entry, "unfinished", payload)

    def _broken(self, why: str) -> Iterator[EntryView]:
        for entry, payload in self._parts:
            yield self._view(entry, "part", payload, problem=f"a part of no state: {why}")
        self._parts.clear()

    def _view(
        self,
        entry: int,
        kind: str,
        payload: bytes,
        content: dict[str, Any] | None = None,
        problem: str = "",
    ) -> EntryView:
        head = {"kind": kind, "storedBytes": len(payload)}
        return EntryView("state_entry", self._ledger, entry, head, content or {}, problem)

    def _state(self, entry: int, kind: str, entries: list[bytes]) -> EntryView:
        """A state of these entries, the last of which is `entry`."""
        asking = self._written.newest_state(len(entries) - 1)
        try:
            wanted = next(asking)
            while True:
                wanted = asking.send(entries[wanted.first : wanted.last + 1])
        except StopIteration as done:
            content = _content_of_state(done.value, self._written)
            return self._view(entry, kind, entries[-1], content)
        except DamageError as e:
            return self._view(entry, kind, entries[-1], problem=e.message)


def _content_of_state(found: Found, written: Written) -> dict[str, Any]:
    info = found.info
    return {
        "form": "none" if info.form is None else info.form.value,
        "compression": "NONE" if written.compression is None else written.compression.name,
        "entries": found.last_entry - found.first_entry + 1,
        "stateBytes": found.stored_bytes,
        "markDelete": list(info.mark_delete),
        "acks": sum(map(len, info.acked.values())),
        "ranges": ranges.count(info.acked),
        "ledgers": len(info.acked),
        "partials": len(info.batches),
        "markDeleteProperties": len(info.properties),
    }

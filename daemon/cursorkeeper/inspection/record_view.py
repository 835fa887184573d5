"""One record as people and programs read it: the header, whether its checksum is right, and a short
summary.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cursorkeeper.bookkeeper.errors import GatewayError
from cursorkeeper.core.bitmaps import count_runs
from cursorkeeper.core.errors import DamageError
from cursorkeeper.core.values import Delta, OpenRecord, Record, Segment, SnapshotEnd
from cursorkeeper.format import record
from cursorkeeper.format.record import RecordHeader


@dataclass(frozen=True, slots=True)
class RecordView:
    """A record, or what is wrong with it. `header` None: not even that can be read."""

    ledger: int
    entry: int
    header: RecordHeader | None
    body: dict[str, Any] | None
    problem: str = ""

    @property
    def is_good(self) -> bool:
        return not self.problem

    def as_json(self) -> dict[str, Any]:
        """One line of `inspect --json`."""
        h = self.header
        head: dict[str, Any] = {"type": "record", "ledger": self.ledger, "entry": self.entry}
        if h is not None:
            head |= {
                "kind": h.kind.name.lower(),
                "epoch": h.epoch,
                "generation": h.generation,
                "sequence": h.sequence,
                "storedBytes": h.stored_bytes,
                "bodyBytes": h.body_bytes,
                "codec": h.codec.name.lower(),
                "crc32c": f"{h.crc32c:08x}",
            }
        head["ok"] = self.is_good
        if self.problem:
            head["problem"] = self.problem
        return head | (self.body or {})

    def as_row(self) -> list[str]:
        """One line of the table."""
        h = self.header
        if h is None:
            return [
                str(self.ledger),
                str(self.entry),
                "?",
                "",
                "",
                "",
                "",
                "",
                "",
                "BAD",
                self.problem,
            ]
        return [
            str(self.ledger),
            str(self.entry),
            h.kind.name.lower(),
            str(h.epoch),
            str(h.generation),
            str(h.sequence),
            f"{h.stored_bytes:,}",
            f"{h.body_bytes:,}",
            h.codec.name.lower(),
            "ok" if self.is_good else "BAD",
            self.problem or summary(self.body or {}),
        ]


COLUMNS = (
    "ledger",
    "entry",
    "kind",
    "epoch",
    "gen",
    "seq",
    "stored",
    "body",
    "codec",
    "crc",
    "content",
)
NUMBERS = ("ledger", "entry", "epoch", "gen", "seq", "stored", "body")


def view(ledger: int, entry: int, payload: bytes | GatewayError, cursor_hash: int) -> RecordView:
    """Checks everything: magic, version, cursor, checksum, codec, every field of the body."""
    if isinstance(payload, GatewayError):
        return RecordView(
            ledger,
            entry,
            None,
            None,
            f"BookKeeper does not give it: {payload.reason} {payload.message}".rstrip(),
        )
    header = None
    try:
        header = record.peek(payload)
        return RecordView(ledger, entry, header, body_json(record.decode(payload, cursor_hash)))
    except DamageError as e:
        return RecordView(ledger, entry, header, None, e.message)


def body_json(value: Record) -> dict[str, Any]:
    """What a record holds, in numbers."""
    match value.body:
        case Delta() as d:
            return _common(d) | {
                "acks": sum(map(len, d.acks.values())),
                "ranges": sum(map(count_runs, d.acks.values())),
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


def summary(body: dict[str, Any]) -> str:
    """`body_json` in a few words."""
    words = []
    if "writer" in body:
        return f"opened by {body['writer']}"
    if "segments" in body:
        return (
            f"snapshot {body['snapshotId']}: {body['segments']} segments, {body['length']:,} bytes"
        )
    if "slices" in body:
        words.append(
            f"{body['slices']} slices over {body['span']:,} entries, {body['acks']:,} acked"
        )
    elif body.get("acks"):
        words.append(
            f"{body['acks']:,} acks in {body['ranges']:,} ranges of {body['ledgers']} ledgers"
        )
    if body.get("markDelete"):
        words.append("mark-delete {}:{}".format(*body["markDelete"]))
    for key, text in (
        ("partials", "partial batches"),
        ("layout", "layout items"),
        ("markDeleteProperties", "mark-delete properties"),
        ("cursorProperties", "cursor properties"),
    ):
        if body.get(key):
            words.append(f"{body[key]:,} {text}")
    return "; ".join(words) or "nothing"

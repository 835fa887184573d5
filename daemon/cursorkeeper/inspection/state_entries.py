"""Entries of a ledger of whole states (Pulsar's form) as people and programs read them: states,
parts, footers, unfinished tails.

What an entry is follows from the sizes and from the footer behind it, never from its own bytes (see
`format.pulsar.chunks`). One state at a time is held in memory.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from typing import Any

from cursorkeeper.bookkeeper.errors import GatewayError
from cursorkeeper.core.errors import DamageError
from cursorkeeper.format.pulsar import chunks, ranges
from cursorkeeper.format.pulsar.chunks import Found
from cursorkeeper.format.whole_state import STATE_BYTES_MAX
from cursorkeeper.runtime.pulsar_ledger import Written

COLUMNS = ("ledger", "entry", "kind", "stored", "check", "content")
NUMBERS = ("ledger", "entry", "stored")


@dataclass(frozen=True, slots=True)
class StateEntry:
    """One entry. `kind`: state, part, footer, unfinished, or ? where that cannot be said."""

    ledger: int
    entry: int
    kind: str
    stored_bytes: int
    content: dict[str, Any] = field(default_factory=dict)
    problem: str = ""

    @property
    def is_good(self) -> bool:
        """Nothing is wrong with it. An unfinished tail is not wrong: it was never confirmed."""
        return not self.problem

    def as_json(self) -> dict[str, Any]:
        """One line of `inspect --json`."""
        head: dict[str, Any] = {
            "type": "state_entry",
            "ledger": self.ledger,
            "entry": self.entry,
            "kind": self.kind,
            "storedBytes": self.stored_bytes,
            "ok": self.is_good,
        }
        return head | ({"problem": self.problem} if self.problem else {}) | self.content

    def as_row(self) -> list[str]:
        """One line of the table."""
        check = "ok" if self.is_good else "BAD"
        return [
            str(self.ledger),
            str(self.entry),
            self.kind,
            f"{self.stored_bytes:,}",
            check,
            self.problem or _words(self.kind, self.content),
        ]


class StateEntries:
    """Tells the entries of one ledger apart, in their order."""

    def __init__(self, ledger: int, written: Written) -> None:
        self._ledger, self._written = ledger, written
        self._parts: list[tuple[int, bytes]] = []

    async def views(
        self, entries: AsyncIterator[tuple[int, bytes | GatewayError]]
    ) -> AsyncIterator[StateEntry]:
        async for entry, payload in entries:
            for view in self._next(entry, payload):
                yield view
        for entry, payload in self._parts:
            yield StateEntry(self._ledger, entry, "unfinished", len(payload))

    def _next(self, entry: int, payload: bytes | GatewayError) -> Iterator[StateEntry]:
        if isinstance(payload, GatewayError):
            yield from self._broken("an entry behind it cannot be read")
            problem = f"BookKeeper does not give it: {payload.reason} {payload.message}".rstrip()
            yield StateEntry(self._ledger, entry, "?", 0, problem=problem)
            return
        most = self._written.max_entry_bytes
        if len(payload) == most or (self._parts and len(self._parts[-1][1]) == most):
            self._parts.append((entry, payload))
            return
        footer = chunks.parse_footer(payload)
        if footer is None:
            yield from self._broken("no footer follows")
            yield self._state(entry, "state", [payload])
            return
        closing = self._state(entry, "footer", [*(part for _, part in self._parts), payload])
        count = len(self._parts)
        for number, (at, part) in enumerate(self._parts, start=1):
            yield StateEntry(self._ledger, at, "part", len(part), {"part": number, "parts": count})
        self._parts.clear()
        yield closing

    def _broken(self, why: str) -> Iterator[StateEntry]:
        for entry, payload in self._parts:
            yield StateEntry(
                self._ledger, entry, "part", len(payload), problem=f"a part of no state: {why}"
            )
        self._parts.clear()

    def _state(self, entry: int, kind: str, entries: list[bytes]) -> StateEntry:
        """A state of these entries, the last of which is `entry`."""
        written = self._written
        asking = chunks.newest_state(
            len(entries) - 1,
            compression=written.compression,
            max_entry_bytes=written.max_entry_bytes,
            limit_bytes=STATE_BYTES_MAX,
        )
        size = len(entries[-1])
        try:
            wanted = next(asking)
            while True:
                wanted = asking.send(entries[wanted.first : wanted.last + 1])
        except StopIteration as done:
            return StateEntry(self._ledger, entry, kind, size, _content(done.value, written))
        except DamageError as e:
            return StateEntry(self._ledger, entry, kind, size, problem=e.message)


def _content(found: Found, written: Written) -> dict[str, Any]:
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


def _words(kind: str, content: dict[str, Any]) -> str:
    if kind == "unfinished":
        return "of a flush that was cut off: never confirmed, walked over"
    if kind == "part":
        return f"part {content['part']} of {content['parts']}"
    codec = "" if content["compression"] == "NONE" else f", {content['compression']}"
    whole = (
        f"{content['entries']} entries, {content['stateBytes']:,} bytes{codec}"
        if kind == "footer"
        else f"{content['stateBytes']:,} bytes{codec}"
    )
    words = [f"whole state of {whole}", "mark-delete {}:{}".format(*content["markDelete"])]
    if content["acks"]:
        words.append(
            f"{content['acks']:,} acks in {content['ranges']:,} ranges of {content['ledgers']} "
            f"ledgers as {content['form']}"
        )
    if content["partials"]:
        words.append(f"{content['partials']:,} partial batches")
    if content["markDeleteProperties"]:
        words.append(f"{content['markDeleteProperties']:,} mark-delete properties")
    return "; ".join(words)

"""Serves who inspects a cursor: its ledgers, the rows of each, and bytes that are no footer."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, ClassVar

from cursorkeeper.connections import Ports
from cursorkeeper.core.footer import Footer
from cursorkeeper.core.names import CursorName
from cursorkeeper.inspection import reader, record_view
from cursorkeeper.inspection.footer_view import ledger_json, roles
from cursorkeeper.inspection.progress import Progress
from cursorkeeper.inspection.reader import End
from cursorkeeper.inspection.record_view import RecordView
from cursorkeeper.inspection.state_entries import StateEntries, StateEntry
from cursorkeeper.runtime import pulsar_ledger
from cursorkeeper.zookeeper.values import Node

RAW_BYTES_MAX = 2_000


@dataclass(frozen=True, slots=True)
class LedgerView:
    """What a ledger is to the footer, and where it ends."""

    COLUMNS: ClassVar = ("ledger", "named as", "last entry", "state", "bytes", "quorums")
    NUMBERS: ClassVar = ("ledger", "last entry", "bytes")
    ledger: int
    roles: list[str]
    end: End

    @classmethod
    def of(cls, footer: Footer, ledger: int, end: End) -> LedgerView:
        return cls(ledger, roles(footer, ledger), end)

    def as_json(self) -> dict[str, Any]:
        end = self.end
        told = ledger_json(end.info, end.last_entry, is_final=end.is_final)
        return {"type": "ledger", "ledger": self.ledger, "roles": self.roles, **told}

    def as_row(self) -> list[str]:
        info, named = self.end.info, [str(self.ledger), ", ".join(self.roles)]
        if info is None:
            return [*named, "", "MISSING", "", ""]
        quorums = f"{info.ensemble}/{info.write_quorum}/{info.ack_quorum} {info.digest.name}"
        last = f"{self.end.last_entry}{'' if self.end.is_final else ' or more'}"
        return [*named, last, info.state.name, f"{info.length:,}", quorums]


def raw_json(path: str, node: Node) -> dict[str, Any]:
    """The bytes of a footer that cannot be read."""
    text = node.data[:RAW_BYTES_MAX].decode(errors="backslashreplace")
    size = {"version": node.version, "bytes": len(node.data)}
    return {"type": "raw", "path": path, **size, "text": text}


def rows(
    ports: Ports, name: CursorName, ledger: int, end: End, progress: Progress, *, is_whole: bool
) -> AsyncIterator[RecordView | StateEntry]:
    """What each entry of a ledger is; of one that holds whole states, by its size and the footer
    behind it. Raises DamageError: it is not the cursor's.
    """
    assert end.info is not None
    entries = reader.entries(
        ports.ledgers,
        ledger,
        end.last_entry,
        say=progress.say,
        unconfirmed=is_whole and not end.is_final,
    )
    if is_whole:
        written = pulsar_ledger.written_by(end.info.custom_metadata, name)
        return StateEntries(ledger, written).views(entries)

    async def records() -> AsyncIterator[RecordView | StateEntry]:
        async for entry, payload in entries:
            yield record_view.view(ledger, entry, payload, name.record_hash)

    return records()

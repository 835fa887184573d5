"""Serves who inspects a cursor: its ledgers, and bytes that are no footer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from cursorkeeper.core.footer import Footer
from cursorkeeper.inspection.footer_view import ledger_json, roles
from cursorkeeper.inspection.reader import End
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

"""Serves who lists cursors: each with what its footer says, from ZooKeeper alone."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from cursorkeeper.core.errors import DamageError
from cursorkeeper.core.footer import Footer
from cursorkeeper.core.names import CursorName
from cursorkeeper.inspection.footer_view import base_kind
from cursorkeeper.inspection.progress import Progress
from cursorkeeper.runtime.footers import FooterStore

COLUMNS = (
    "cursor",
    "state",
    "epoch",
    "token",
    "gen",
    "mark-delete",
    "base",
    "chain",
    "holes",
    "partials",
    "format",
)
NUMBERS = ("epoch", "token", "gen", "chain", "holes", "partials")


@dataclass(frozen=True, slots=True)
class Listed:
    """One cursor. `footer` None: `problem` says why it cannot be read."""

    name: CursorName
    footer: Footer | None
    problem: str = ""

    def as_json(self) -> dict[str, Any]:
        head = {
            "cursor": self.name.display,
            "topic": self.name.topic,
            "subscription": self.name.subscription,
        }
        f = self.footer
        if f is None:
            return {**head, "state": "damaged", "problem": self.problem}
        return {
            **head,
            "state": str(f.state),
            "epoch": f.epoch,
            "fencingToken": f.fencing_token,
            "generation": f.generation,
            "writer": f.writer,
            "markDelete": list(f.mark_delete),
            "base": base_kind(f.base),
            "chain": len(f.chain),
            "previous": f.previous is not None,
            "holes": f.stats.holes,
            "span": f.stats.span,
            "partialBatches": f.stats.partial_batches,
            "deltaBytes": f.stats.delta_bytes,
            "format": f.format,
            "truncated": f.truncated is not None,
        }

    def as_row(self) -> list[str]:
        """One line of the table."""
        f = self.footer
        if f is None:
            return [self.name.display, "DAMAGED", *[""] * (len(COLUMNS) - 2)]
        return [
            self.name.display,
            str(f.state),
            str(f.epoch),
            str(f.fencing_token or "-"),
            str(f.generation),
            str(f.mark_delete),
            base_kind(f.base),
            str(len(f.chain)),
            f"{f.stats.holes:,}",
            f"{f.stats.partial_batches:,}",
            f"{f.format}, TRUNCATED" if f.truncated is not None else f.format,
        ]


async def list_cursors(footers: FooterStore, bar: Progress) -> AsyncIterator[Listed]:
    """Every cursor, bucket by bucket. Raises ZooKeeperError."""
    async for names in footers.batches():
        bar.grow(len(names))
        for name, footer, _ in await footers.read_stored(names):
            if isinstance(footer, DamageError):
                yield Listed(name, None, str(footer))
            elif footer is not None:
                yield Listed(name, footer)
        bar.advance(len(names))

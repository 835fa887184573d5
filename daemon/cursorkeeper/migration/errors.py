"""Serves who migrates cursors: what keeps one of them, and no other, from being migrated."""

from __future__ import annotations

from cursorkeeper.problems import Kind, ProblemError


class MigrationError(ProblemError):
    """`place` is a znode or "ledger L entry E"; `cursor` is shown by its display name."""

    def __init__(self, kind: Kind, cursor: object, place: str, message: str, remedy: str) -> None:
        super().__init__(message, remedy, kind, where=place, cursor=str(cursor))

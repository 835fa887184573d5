"""What can keep one cursor from being migrated: one error, with cursor, place and remedy, and a kind for the reaction."""

from __future__ import annotations

from enum import StrEnum


class Kind(StrEnum):
    """Why. Only AWAY may be well later without anybody doing something."""

    NOT_FOUND = "not found"
    MISSING = "missing"  # something that the cursor needs is gone: its ledger, the topic's znode
    DAMAGED = "damaged"
    TOO_NEW = "too new"
    AWAY = "away"
    REFUSED = "refused"  # it could be done, but must not


class MigrationError(Exception):
    """One cursor, and no other, is not migrated. `place` is a znode or "ledger L entry E"; `cursor` is its display name."""

    def __init__(self, kind: Kind, cursor: str, place: str, message: str, remedy: str) -> None:
        super().__init__(f"{cursor}: {place}: {message}" if place else f"{cursor}: {message}")
        self.kind, self.cursor, self.place, self.message, self.remedy = kind, cursor, place, message, remedy

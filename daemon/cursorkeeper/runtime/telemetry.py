"""Serves operators: what runners report, to whoever counts or logs it."""

from __future__ import annotations

from typing import Any


class Telemetry:
    """Numbers that a runner reports. What is not counted is nothing to whoever counts."""

    def flushed(self, kind: str, stored_bytes: int, seconds: float) -> None:
        """One record ("delta", "segment", ...) is acknowledged, `seconds` after it was sent."""

    def log(self, event: str, **fields: Any) -> None:
        """Something an operator may want to know."""

    def moved(self) -> None:
        """Entries were read, or a ledger was created, recovered or closed."""

    def opened(self, result: str) -> None:
        """A source's Open was answered: an `OpenResult`, or the code of its refusal."""

    def recovered(self, seconds: float) -> None:
        """A cursor that was not held here can be worked with, so long after it was asked for."""

    def refused(self, code: str) -> None:
        """A source was told Refused."""

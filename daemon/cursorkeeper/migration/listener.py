"""What an import hears of its cursor, and a telemetry that keeps quiet."""

from __future__ import annotations

import asyncio
from typing import Any

from cursorkeeper.core import effects as fx
from cursorkeeper.core.machine import CursorMachine
from cursorkeeper.problems import ProblemError


class ImportListener:
    """A listener whose `changed` is set at every word."""

    def __init__(self) -> None:
        self.machine: CursorMachine | None = None
        self.durable = 0
        self.paused = ""
        self.ended = ""
        """closed, deleted, deposed or refused; empty while it lives."""
        self._refusal = ("", "")
        self.changed = asyncio.Event()

    def error(self, cursor: str, again: str) -> ProblemError:
        """Why it ended before its time."""
        if self.ended == "refused":
            return ProblemError(f"{cursor}: {self._refusal[0]}", self._refusal[1])
        if self.ended == "deposed":
            return ProblemError(f"{cursor} was taken over while it was imported", f"stop its source, then {again}")
        return ProblemError(f"{cursor} was {self.ended} while it was imported", again)

    def _end(self, how: str) -> None:
        self.ended = how
        self.changed.set()

    def on_state(self, machine: CursorMachine, *, created: bool) -> None:
        self.machine = machine
        self.changed.set()

    def on_continued(self, machine: CursorMachine) -> None:
        """Never told: an import opens without a state of its own to go on with."""

    def on_confirm(self, confirm: fx.Confirm) -> None:
        """Durable up to a seq."""
        self.durable = confirm.seq
        self.changed.set()

    def on_reset_done(self, done: fx.ResetDone) -> None:
        """Never told: an import sends no reset."""

    def on_pause(self, reason: str) -> None:
        self.paused = reason
        self.changed.set()

    def on_resume(self) -> None:
        self.paused = ""
        self.changed.set()

    def on_refused(self, code: str, message: str, remedy: str, seq: int = 0) -> None:
        self._refusal = (f"{message} ({code})", remedy)
        self._end("refused")

    def on_deposed(self, epoch: int) -> None:
        self._end("deposed")

    def on_closed(self) -> None:
        self._end("closed")

    def on_deleted(self) -> None:
        self._end("deleted")


class QuietTelemetry:
    """The runner's `Telemetry`, for commands that have no metrics."""

    def flushed(self, kind: str, stored_bytes: int, seconds: float) -> None: ...

    def log(self, event: str, **fields: Any) -> None:
        """Nothing: what matters reaches the listener."""

    def opened(self, result: str) -> None: ...

    def recovered(self, seconds: float) -> None: ...

    def refused(self, code: str) -> None: ...

"""The audit log: who did what to which cursor, and who was refused. Serves auditors.

One JSON line an event, in a file of its own or on standard error; no secrets. A slow disk holds
nobody up: lines wait in a bounded queue, written by a thread, and what finds no room is counted.
A file that was moved away is made anew, so that it can be rotated. Who is refused again and again
is written a few times a second, with how many were left out.
"""

from __future__ import annotations

import contextlib
import logging
import logging.handlers
import os
import queue
import stat
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import msgspec
import structlog

from cursorkeeper.access.callers import Shown
from cursorkeeper.access.identity import Identity
from cursorkeeper.core.setting import SettingsError

log = structlog.get_logger("cursorkeeper")

WAITING_MAX = 20_000
CLOSE_MAX_S = 2.0
REFUSALS_PER_S, REFUSED_KNOWN_MAX = 5, 1_024
_STDERR = "-"


@dataclass(slots=True)
class _Refusals:
    """Of one who is refused: in this second, and how many of them were left out."""

    second: int = 0
    written: int = 0
    left_out: int = 0


class Audit:
    """Off without a file; `-` is standard error. `dropped` is told of every line that found no
    room. Raises SettingsError for a file that cannot be written.
    """

    def __init__(
        self,
        file: str = "",
        dropped: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.time,
        waiting_max: int = WAITING_MAX,
    ) -> None:
        self._clock, self._dropped = clock, dropped
        self._refused: OrderedDict[tuple[str, str], _Refusals] = OrderedDict()
        self._queue: queue.Queue[logging.LogRecord | None] = queue.Queue(waiting_max)
        self._handler = _handler(file, self._lost) if file else None
        self._is_failing, self._losses = False, 0
        self._writing = threading.Thread(target=self._write_all, name="audit log", daemon=True)
        if file:
            self._writing.start()

    def did(
        self, action: str, identity: Identity, shown: Shown, result: str = "done", **what: Any
    ) -> None:
        """Somebody did something that changes a cursor, or opened it. `result`: asked, of what goes
        on when they have left.
        """
        self._write(action, result, identity.name, shown.peer, what)

    def refused(
        self, action: str, identity: Identity | None, shown: Shown, problem: str, **what: Any
    ) -> None:
        """Somebody was not let do something; without an identity, because nobody knows who."""
        if self._handler is None:
            return
        who = identity.name if identity is not None else ""
        place = shown.peer.rpartition(":")[0]  # another port is not another peer
        seen = self._refused.pop((who, place), None) or _Refusals()
        self._refused[who, place] = seen
        if len(self._refused) > REFUSED_KNOWN_MAX:
            self._refused.popitem(last=False)
        second = int(self._clock())
        if second != seen.second:
            seen.second, seen.written = second, 0
        if seen.written >= REFUSALS_PER_S:
            seen.left_out += 1
            return
        seen.written += 1
        more = {"left_out": seen.left_out} if seen.left_out else {}
        seen.left_out = 0
        kind = "refused" if identity is not None else "unauthenticated"
        self._write(action, kind, who, shown.peer, {**what, "problem": problem, **more})

    def close(self) -> None:
        """Writes what waits, unless the disk stands still."""
        if self._handler is None:
            return
        with contextlib.suppress(queue.Full):
            self._queue.put(None, timeout=CLOSE_MAX_S)
        self._writing.join(CLOSE_MAX_S)
        self._handler = None

    def _write_all(self) -> None:
        handler = self._handler
        assert handler is not None
        while (record := self._queue.get()) is not None:
            try:
                lost_before = self._losses
                handler.handle(record)
                if self._losses == lost_before:
                    self._is_failing = False
            except OSError as e:  # a file that cannot be made anew is tried again with every line
                self._lost(e)
        handler.close()

    def _lost(self, error: BaseException | None) -> None:
        """A line that could not be written is counted; the first of a series is told."""
        self._dropped()
        self._losses += 1
        if not self._is_failing:
            self._is_failing = True
            log.warning("audit log not written", problem=str(error))

    def _write(self, action: str, result: str, who: str, peer: str, what: dict[str, Any]) -> None:
        if self._handler is None:
            return
        at = datetime.fromtimestamp(self._clock(), UTC).isoformat(timespec="milliseconds")
        line = {"time": at, "action": action, "result": result, "who": who, "from": peer, **what}
        text = msgspec.json.encode(line, enc_hook=str).decode()
        record = logging.LogRecord("audit", logging.INFO, "", 0, text, None, None)
        try:
            self._queue.put_nowait(record)
        except queue.Full:
            self._dropped()


def _handler(file: str, lost: Callable[[BaseException | None], None]) -> logging.Handler:
    if file == _STDERR:
        return logging.StreamHandler(sys.stderr)
    try:
        made = _Rotated(file, lost)
    except OSError as e:
        raise SettingsError(
            f"audit_log_file = {file!r}: {e.strerror or e}",
            "make its folder writable for this user, or use - for standard error",
        ) from e
    return made


class _Rotated(logging.handlers.WatchedFileHandler):
    """A file that this user alone reads and writes."""

    def __init__(self, file: str, lost: Callable[[BaseException | None], None]) -> None:
        self._lost = lost
        super().__init__(file, encoding="utf-8")

    def _open(self) -> Any:
        made = os.open(
            self.baseFilename,
            os.O_APPEND | os.O_CREAT | os.O_WRONLY | os.O_NOFOLLOW,
            stat.S_IRUSR | stat.S_IWUSR,
        )
        with contextlib.suppress(OSError):  # one that was there; of another user, say
            if stat.S_ISREG(os.fstat(made).st_mode):
                os.fchmod(made, stat.S_IRUSR | stat.S_IWUSR)
        return os.fdopen(made, "a", encoding=self.encoding)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802
        """A full disk must not fill the log, too."""
        self._lost(sys.exc_info()[1])

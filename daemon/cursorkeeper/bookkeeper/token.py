"""The token that a client shows to the gateway, for daemons whose token is renewed while they run:
its file is read again when it has changed.

Invariants: what cannot be read, or holds nothing, leaves the token before in use; the file is
looked at once a second at most, by whoever makes a call.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

LOOK_EVERY_S = 1.0
TOKEN_BYTES_MAX = 64 << 10


class Token:
    """`given` until the file says another; without a file for good."""

    def __init__(
        self, given: str, file: str = "", clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._now, self._file, self._clock = given, Path(file) if file else None, clock
        self._stamp = self._stamped()
        self._looked_s = clock()

    def current(self) -> str:
        """The token of now."""
        if self._file is not None and self._clock() - self._looked_s >= LOOK_EVERY_S:
            self._looked_s = self._clock()
            stamp = self._stamped()
            if stamp not in (None, self._stamp):
                self._read(stamp)
        return self._now

    def _stamped(self) -> tuple[int, int, int] | None:
        """It differs when the file was changed or replaced; None if there is no file."""
        try:
            found = self._file.stat() if self._file is not None else None
        except OSError:
            return None
        return (found.st_ino, found.st_mtime_ns, found.st_size) if found else None

    def _read(self, stamp: tuple[int, int, int] | None) -> None:
        assert self._file is not None
        try:
            with self._file.open("rb") as file:
                read = file.read(TOKEN_BYTES_MAX).strip().decode("ascii")
        except (OSError, UnicodeDecodeError):
            return
        if read:
            self._now, self._stamp = read, stamp

"""One worker of a daemon that is several processes: what the supervisor starts.

Owns: the talk with the supervisor, as JSON lines. Standard input says first what this worker is,
then again and again whether all workers are ready, and each of these is answered on standard
output, behind the line that says that this one is. Does not own: what a daemon does (`app`).
Invariant: when the supervisor is gone, standard input ends, and the worker with it, at once. Its
successor opens all cursors again, and to close them all meanwhile would cost both of them twice the
time.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import threading
from dataclasses import dataclass
from functools import partial
from io import FileIO

import msgspec
import structlog

from cursorkeeper import app
from cursorkeeper.app import Daemon, Place
from cursorkeeper.readiness import StartError
from cursorkeeper.settings import Settings, SettingsError

log = structlog.get_logger("cursorkeeper")

ENDED_WITHOUT_SUPERVISOR, ENDED_AT_SETTINGS, ENDED_AT_START = 1, 2, 3
"""Exit codes, as those of `cursorkeeper run`."""
SAID_MAX_S = 1.0
"""So long the last line of the log may take: perhaps nobody reads it."""


@dataclass(frozen=True, slots=True)
class Work:
    """What a worker is told first."""

    settings: Settings
    place: Place


@dataclass(frozen=True, slots=True)
class Told:
    """What a worker is told later: whether all are ready."""

    serving: bool


@dataclass(frozen=True, slots=True)
class Failed:
    """What a worker says that cannot start."""

    failed: str
    remedy: str


def main() -> int:
    """The whole life; returns the exit code."""
    supervisor = FileIO(0, closefd=False)  # without a buffer: what follows the line stays unread
    first = supervisor.readline()
    if not first:
        return 0
    work = msgspec.json.decode(first, type=Work)
    try:
        return app.serve_watched(work.settings, partial(_hear, supervisor), work.place)
    except (SettingsError, StartError) as e:
        _say(msgspec.json.encode(Failed(e.message, e.remedy)))
        return ENDED_AT_SETTINGS if isinstance(e, SettingsError) else ENDED_AT_START


async def _hear(supervisor: FileIO, daemon: Daemon, _stopping: asyncio.Event) -> None:
    loop, lines = asyncio.get_running_loop(), asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), supervisor)
    with contextlib.suppress(OSError, msgspec.DecodeError):  # its last line was cut off
        while line := await lines.readline():
            await daemon.say_health(serving=msgspec.json.decode(line, type=Told).serving)
            _say(line.strip())
    end = threading.Timer(SAID_MAX_S, os._exit, (ENDED_WITHOUT_SUPERVISOR,))
    end.daemon = True
    end.start()
    remedy = "start it again: nothing that was confirmed is lost"
    log.error("the supervisor is gone", remedy=remedy)
    os._exit(ENDED_WITHOUT_SUPERVISOR)


def _say(line: bytes) -> None:
    with contextlib.suppress(OSError):  # the supervisor is gone, which standard input says, too
        os.write(1, line + b"\n")


if __name__ == "__main__":
    sys.exit(main())

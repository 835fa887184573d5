"""Log lines: JSON on standard error, one per event."""

from __future__ import annotations

import contextlib
import logging
import sys
from typing import Any

import msgspec
import structlog


class _Stderr:
    """Writes to whatever standard error is now. A log that nobody can read any more must not stop
    what is logged.
    """

    def __init__(self, *_: Any) -> None:
        """structlog passes what `get_logger` was given."""

    def msg(self, message: str) -> None:
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.write(message + "\n")
            sys.stderr.flush()

    log = debug = info = warn = warning = error = err = exception = critical = fatal = failure = msg


def configure(level: str, **fields: Any) -> None:
    """Once, at the program's start. `fields` are in every line."""

    def with_fields(_logger: Any, _method: str, line: Any) -> Any:
        return {**line, **fields}

    structlog.configure(
        processors=[
            *([with_fields] if fields else []),
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(serializer=_dumps),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(
            logging.getLevelNamesMapping().get(level.upper(), logging.INFO)
        ),
        logger_factory=_Stderr,
        cache_logger_on_first_use=True,
    )


def _dumps(value: Any, **_: Any) -> str:
    return msgspec.json.encode(value, enc_hook=str).decode()

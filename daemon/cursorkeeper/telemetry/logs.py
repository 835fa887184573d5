"""Log lines: JSON on standard error, one per event."""

from __future__ import annotations

import logging
import sys
from typing import Any

import msgspec
import structlog


def configure(level: str) -> None:
    """Once, at the program's start."""
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(serializer=_dumps),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping().get(level.upper(), logging.INFO)),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )


def _dumps(value: Any, **_: Any) -> str:
    return msgspec.json.encode(value, enc_hook=str).decode()

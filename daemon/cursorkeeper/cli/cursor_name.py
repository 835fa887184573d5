"""Cursor names as they are typed: `TOPIC|SUBSCRIPTION` in one argument, or the two as two."""

from __future__ import annotations

from cursorkeeper.cli.problems import USAGE, CommandError
from cursorkeeper.core.names import CursorName

_REMEDY = "write 'TOPIC|SUBSCRIPTION' in quotes, or TOPIC SUBSCRIPTION as two arguments; `cursorkeeper ls` lists the cursors"


def parse(cursor: str, subscription: str | None = None) -> CursorName:
    """The name. Raises CommandError or RefusedError."""
    if subscription is not None:
        return CursorName.checked(cursor, subscription)
    topic, bar, sub = cursor.partition("|")
    if not (topic and bar and sub):
        raise CommandError(f"{cursor!r} is not a cursor's name", _REMEDY, USAGE)
    return CursorName.checked(topic, sub)

"""Cursor names as they are typed: `TOPIC|SUBSCRIPTION` in one argument, or the two as two.

In one argument a `|` that belongs to a name is written `\\|`, and a `\\` in front of a `|` or of
another `\\` is written `\\\\`.
"""

from __future__ import annotations

import re
import shlex
from typing import Annotated

import typer

from cursorkeeper.core.names import CursorName
from cursorkeeper.problems import Kind, ProblemError

_REMEDY = (
    "write 'TOPIC|SUBSCRIPTION' in quotes, or TOPIC SUBSCRIPTION as two arguments; "
    "`cursorkeeper ls` lists the cursors"
)
_PIECES = re.compile(r"\\[\\|]|[^|]|\|", re.DOTALL)
READINGS_SHOWN_MAX = 3
FORM = "'TOPIC|SUBSCRIPTION', where a | of a name itself is written \\|"
"""For the help of commands."""


Cursor = Annotated[str, typer.Argument(help=f"{FORM}.", metavar="CURSOR")]
CursorOrTopic = Annotated[
    str, typer.Argument(help=f"{FORM}; or the topic alone.", metavar="CURSOR")
]
Subscription = Annotated[
    str | None, typer.Argument(help="The subscription, if CURSOR is the topic alone.")
]


def parse(cursor: str, subscription: str | None = None) -> CursorName:
    """The name. Raises ProblemError or RefusedError."""
    if subscription is not None:
        return CursorName.checked(cursor, subscription)
    parts = split(cursor)
    if len(parts) < 2 or not all(parts):
        raise ProblemError(f"{cursor!r} is not a cursor's name", _REMEDY, Kind.USAGE)
    return CursorName.checked(*parts)


def split(argument: str) -> list[str]:
    """Topic and, if it is there, subscription; either may be empty. Raises ProblemError."""
    parts = [""]
    for piece in _PIECES.findall(argument):
        if piece == "|":
            parts.append("")
        else:
            parts[-1] += piece[1:] if len(piece) > 1 else piece
    if len(parts) > 2:
        raise _ambiguous(argument, parts)
    return parts


def typed(name: CursorName) -> str:
    """The name as one argument, before a shell's quotes."""
    return "|".join(
        part.replace("\\", "\\\\").replace("|", "\\|") for part in (name.topic, name.subscription)
    )


def _ambiguous(cursor: str, parts: list[str]) -> ProblemError:
    names = [
        CursorName("|".join(parts[:at]), "|".join(parts[at:]))
        for at in range(len(parts) - 1, 0, -1)
    ]
    readings = [shlex.quote(typed(name)) for name in names if name.topic and name.subscription]
    more = " or another one" if len(readings) > READINGS_SHOWN_MAX else ""
    remedy = (
        f"write \\| for one that belongs to a name: "
        f"{' or '.join(readings[:READINGS_SHOWN_MAX])}{more}"
        if readings
        else _REMEDY
    )
    return ProblemError(
        f"{cursor!r} has more than one |, so where its topic ends is not said", remedy, Kind.USAGE
    )

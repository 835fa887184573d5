"""How names are spelled for users: in camel case, as Spark's options and our reports have them, and
the nearest of those that are known where one is not. For whoever parses or prints them. Pure.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word[:1].upper() + word[1:] for word in rest)


def guess(name: str, known: Iterable[str]) -> str:
    """A sentence about the name that may have been meant, in any case; empty: none is near."""
    lower = {one.lower(): one for one in known}
    near = difflib.get_close_matches(name.lower(), lower, 1)
    return f"did you mean {lower[near[0]]}? " if near else ""

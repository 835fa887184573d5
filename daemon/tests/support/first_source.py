"""The page "Your first source" as a test reads it."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = Path(__file__).parents[3] / "docs/start/first-source.md"


def blocks(kind: str) -> list[str]:
    """The fenced blocks of one kind, in order."""
    return re.findall(rf"^```{kind}\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)


def program() -> str:
    """What a reader puts into first_source.py."""
    (found,) = blocks("python")
    return found


def outputs() -> list[str]:
    """What it says the first time, and after the kill."""
    return blocks("text")

"""Serves every engine that takes long: how it tells whoever waits for it how far it is."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """Is told how much there is to do, how much is done, and what is being done."""

    def grow(self, count: int, /) -> None: ...

    def advance(self, count: int = 1, /) -> None: ...

    def say(self, what: str, /) -> None: ...


class Silence:
    """Progress that nobody looks at."""

    def grow(self, count: int, /) -> None: ...

    def advance(self, count: int = 1, /) -> None: ...

    def say(self, what: str, /) -> None: ...


SILENT: Progress = Silence()

"""Serves who is asked something at a terminal, or is waited for there."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import typer


@contextmanager
def ended_at_once() -> Iterator[None]:
    """Ctrl-C ends what waits here for a person, or for standard input: the handler of asyncio only
    cancels at the next await, and there is none.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def confirmed(question: str, *, yes: bool, as_json: bool) -> bool:
    """A person may think for longer than a session of ZooKeeper lives: ask between two."""
    with ended_at_once():
        return yes or (not as_json and sys.stdin.isatty() and typer.confirm(question))

"""The one error of this package."""

from __future__ import annotations


class StackError(Exception):
    """A process did not start or did not stop, or cannot: the message holds the reason, the end of
    its log, or what to do.
    """

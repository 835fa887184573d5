"""Errors of the pure core. One kind per reaction; each says what to do.

`RefusedError`: this request cannot be kept (the handle is refused, the cursor lives on).
`DamageError`: bytes cannot be trusted (recovery decides). `IllegalTransitionError`: a bug.
"""

from __future__ import annotations

from enum import StrEnum


class Refusal(StrEnum):
    """Why something was refused. The names are those of `RefusedCode` in `proto/acks.proto`."""

    BAD_MESSAGE = "BAD_MESSAGE"
    UNKNOWN_HANDLE = "UNKNOWN_HANDLE"
    POSITION_OUT_OF_RANGE = "POSITION_OUT_OF_RANGE"
    BATCH_CONTRADICTS = "BATCH_CONTRADICTS"
    LAYOUT_CONTRADICTS = "LAYOUT_CONTRADICTS"
    WRONG_GENERATION = "WRONG_GENERATION"
    CREDIT_EXCEEDED = "CREDIT_EXCEEDED"
    TOO_LARGE = "TOO_LARGE"
    ALREADY_OPEN = "ALREADY_OPEN"
    OPEN_ELSEWHERE = "OPEN_ELSEWHERE"
    NOT_FOUND = "NOT_FOUND"
    DAMAGED = "DAMAGED"
    FOOTER_LOST = "FOOTER_LOST"
    FOOTER_REPLACED = "FOOTER_REPLACED"
    TOO_MANY_CURSORS = "TOO_MANY_CURSORS"
    NAME_TOO_LONG = "NAME_TOO_LONG"
    FORMAT_TOO_NEW = "FORMAT_TOO_NEW"
    SHUTTING_DOWN = "SHUTTING_DOWN"
    UNAVAILABLE = "UNAVAILABLE"
    SEQ_NOT_GROWING = "SEQ_NOT_GROWING"
    FENCED = "FENCED"
    NOT_ALLOWED = "NOT_ALLOWED"


class CursorKeeperError(Exception):
    """Base of everything this package raises on purpose."""


class ExplainedError(CursorKeeperError):
    """`message` says what is wrong; `remedy` what to do, or is empty where the message says that,
    too.
    """

    def __init__(self, message: str, remedy: str = "") -> None:
        super().__init__(f"{message}. What to do: {remedy}" if remedy else message)
        self.message, self.remedy = message, remedy


class RefusedError(ExplainedError):
    """A request that cannot be kept, and the cursor that it was for."""

    def __init__(self, code: Refusal, cursor: str, message: str, remedy: str) -> None:
        super().__init__(f"{cursor}: {message}", remedy)
        self.code, self.cursor, self.message = code, cursor, message


class DamageError(CursorKeeperError):
    """Bytes that cannot be trusted: a wrong checksum, a wrong cursor, an impossible length.

    `place` is "ledger L entry E" or "footer".
    """

    def __init__(self, message: str, place: str = "") -> None:
        super().__init__(f"{place}: {message}" if place else message)
        self.message, self.place = message, place

    def at(self, place: str) -> DamageError:
        """The same damage with its place."""
        return type(self)(self.message, place)


class OverBudgetError(DamageError):
    """What the bytes say would take more memory than a state may. Not damage: never repaired, never
    skipped, nothing older is taken instead; the message names the setting.
    """


class TooNewError(DamageError):
    """Written by a newer version. Not damage: never repaired, never skipped; upgrade first."""


class ForeignRecordError(DamageError):
    """A record that is whole and does not belong where it is: of another cursor, or of a later
    owner than the footer's.
    """


class ReplacedError(DamageError):
    """A footer that is whole, in a place where no CursorKeeper put it: an older copy, say. Nothing
    is concluded from it.
    """


class IllegalTransitionError(CursorKeeperError):
    """An event that the transition table does not allow in this state: a bug."""

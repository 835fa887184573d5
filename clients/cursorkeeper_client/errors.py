"""What can go wrong for a source, one exception per reaction, and the table of the keeper's
refusals.

`CursorRefused` and below: this handle is gone, the stream and other cursors live on.
`CursorDeposed`: somebody else opened the cursor. `SessionLost`: the stream is gone; open again and
send what was not confirmed.
"""

from __future__ import annotations


class AckStreamError(Exception):
    """Base of everything this package raises on purpose."""


class SessionLost(AckStreamError):
    """The stream ended. What was not confirmed may or may not be durable: open again, send it
    again.
    """


class SessionRefused(AckStreamError):
    """The keeper does not want this stream at all (credentials, protocol version, a violation):
    repeating cannot help.
    """


class KeeperTimeout(AckStreamError):
    """The keeper did not answer within the limit; it may still."""


class HandleClosed(AckStreamError):
    """The handle is closed, or was not opened; a defect of the caller."""


class AcksTooLarge(AckStreamError):
    """A batch that no message, or no credit, can hold. Nothing was sent; split it."""


class SendWindowFull(AckStreamError):
    """Too many callers wait for credit already. Nothing was sent; wait for `durable` first."""


class CursorDeposed(AckStreamError):
    """Another handle or another daemon took the cursor over. `epoch` is the new owner's, 0 if not
    known.
    """

    def __init__(self, cursor: str, epoch: int) -> None:
        super().__init__(
            f"{cursor} was taken over by another owner (epoch {epoch or 'not known'}). What to "
            f"do: stop, or open with takeover"
        )
        self.cursor, self.epoch = cursor, epoch


class CursorRefused(AckStreamError):
    """`code` is the name of a `RefusedCode`; `remedy` says what to do. `retry` is whether a pause
    may help.
    """

    retry = False

    def __init__(self, code: str, cursor: str, message: str, remedy: str) -> None:
        super().__init__(f"{cursor}: {code}: {message}. What to do: {remedy}")
        self.code, self.cursor, self.message, self.remedy = code, cursor, message, remedy


class WrongMessage(CursorRefused):
    """The source sent what it should not have: a defect of the source, or two sources on one
    cursor.
    """


class Contradiction(CursorRefused):
    """What was sent contradicts what is known of the topic: positions, batch sizes, layout."""


class TooLarge(CursorRefused):
    """It does not fit: a property map, a partial batch, a name."""


class HeldElsewhere(CursorRefused):
    """Somebody has the cursor open; `takeover` takes it."""

    retry = True


class Fenced(CursorRefused):
    """A successor of this source has opened the cursor, with a higher fencing token: this source
    must not go on, for good.
    """


class NoSuchCursor(CursorRefused):
    """It does not exist and was not to be created."""


class CursorDamaged(CursorRefused):
    """Its stored state cannot be trusted, or not be read by this version. An operator must
    decide.
    """


class KeeperBusy(CursorRefused):
    """Not now: the keeper stops, is full, or its stores are away."""

    retry = True


BY_CODE: dict[str, type[CursorRefused]] = {
    "REFUSED_CODE_UNSPECIFIED": CursorRefused,
    "BAD_MESSAGE": WrongMessage,
    "UNKNOWN_HANDLE": WrongMessage,
    "POSITION_OUT_OF_RANGE": Contradiction,
    "BATCH_CONTRADICTS": Contradiction,
    "LAYOUT_CONTRADICTS": Contradiction,
    "WRONG_GENERATION": WrongMessage,
    "CREDIT_EXCEEDED": WrongMessage,
    "TOO_LARGE": TooLarge,
    "ALREADY_OPEN": HeldElsewhere,
    "OPEN_ELSEWHERE": HeldElsewhere,
    "NOT_FOUND": NoSuchCursor,
    "DAMAGED": CursorDamaged,
    "FOOTER_LOST": CursorDamaged,
    "FOOTER_REPLACED": CursorDamaged,
    "TOO_MANY_CURSORS": KeeperBusy,
    "NAME_TOO_LONG": TooLarge,
    "FORMAT_TOO_NEW": CursorDamaged,
    "SHUTTING_DOWN": KeeperBusy,
    "UNAVAILABLE": KeeperBusy,
    "SEQ_NOT_GROWING": WrongMessage,
    "FENCED": Fenced,
}


def refused(code: str, cursor: str, message: str, remedy: str) -> CursorRefused:
    """The exception of a refusal; a code this version does not know is not retried."""
    return BY_CODE.get(code, CursorRefused)(code, cursor, message, remedy)


# How a stream ended -> whether opening again may help. Every other status is read as a broken
# connection.
REFUSING_STATUS = frozenset(
    {
        "INVALID_ARGUMENT",
        "PERMISSION_DENIED",
        "UNAUTHENTICATED",
        "UNIMPLEMENTED",
        "FAILED_PRECONDITION",
    }
)


def stream_ended(status: str, details: str) -> AckStreamError:
    """What a stream's end means."""
    kind = SessionRefused if status in REFUSING_STATUS else SessionLost
    return kind(f"the ack stream ended: {status}{': ' + details if details else ''}")

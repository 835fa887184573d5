"""What can go wrong for a program that acks, one exception per reaction, and the table of the
daemon's refusals.

Every one says what happened and what to do. Those of a connection are `ConnectionError`s, those of
a wait `TimeoutError`s. Wrong arguments are `TypeError` and `ValueError`.
"""

from __future__ import annotations

from cursorkeeper_client.tls_causes import cause_of


class CursorKeeperError(Exception):
    """Base of everything that this package raises on purpose. `message` says what happened, and
    `remedy` what to do.
    """

    remedy = ""

    def __init__(self, message: str, remedy: str = "") -> None:
        self.message, self.remedy = message, remedy or self.remedy
        super().__init__(f"{message}. What to do: {self.remedy}")


class ConnectionLost(CursorKeeperError, ConnectionError):
    """The stream ended, or there is none. What was not confirmed may or may not be durable; a
    client connects again by itself, and sends it again.
    """

    remedy = "look whether a daemon runs at that address and serves the ack stream"


class ConnectionRefused(CursorKeeperError, ConnectionError):
    """The daemon does not want this client at all: repeating cannot help."""

    remedy = "correct what is refused (credentials, version), and make a new client"


class AnswerTimeout(CursorKeeperError, TimeoutError):
    """The daemon did not answer within the limit; it may still."""

    remedy = "look at the daemon, and try again or wait longer (timeout_s, or the settings)"


class CursorClosed(CursorKeeperError):
    """The cursor was closed or deleted by this program."""

    remedy = "open the cursor again"


class AcksTooLarge(CursorKeeperError):
    """A batch of acks that no message can hold. Nothing was sent."""

    remedy = "split the batch"


class CursorDeposed(CursorKeeperError):
    """Somebody else opened the cursor, here or at another daemon. `epoch` is the new owner's, 0 if
    not known.
    """

    remedy = "stop, or open with takeover"

    def __init__(self, cursor: str, epoch: int) -> None:
        super().__init__(f"{cursor} was taken over by another owner (epoch {epoch or 'not known'})")
        self.cursor, self.epoch = cursor, epoch


class CursorRefused(CursorKeeperError):
    """The daemon refused the cursor, or what was sent for it; other cursors live on. `code` is the
    name of a `RefusedCode` of the protocol; `retry` is whether a pause may help.
    """

    retry = False

    def __init__(self, code: str, cursor: str, message: str, remedy: str) -> None:
        super().__init__(f"{cursor}: {code}: {message}", remedy)
        self.code, self.cursor = code, cursor


class WrongMessage(CursorRefused):
    """The daemon was sent what it should not have been: a defect of this package, or two programs
    on one cursor.
    """


class Contradiction(CursorRefused):
    """What was sent contradicts what is known of the topic: positions, batch sizes, layout."""


class TooLarge(CursorRefused):
    """It does not fit: a property map, a partly acked batch, a name."""


class HeldElsewhere(CursorRefused):
    """Somebody has the cursor open; `takeover` takes it."""

    retry = True


class Fenced(CursorRefused):
    """A successor of this program has opened the cursor, with a higher fencing token: this one
    must not go on, for good.
    """


class NotAllowed(CursorRefused):
    """This program's identity has no right to the topic; the daemon's operator gives it."""


class NoSuchCursor(CursorRefused):
    """It does not exist and was not to be created."""


class CursorDamaged(CursorRefused):
    """Its stored state cannot be trusted, or not be read by this version. An operator must
    decide.
    """


class KeeperBusy(CursorRefused):
    """Not now: the daemon stops, is full, or its stores are away."""

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
    "NOT_ALLOWED": NotAllowed,
}


def defect(raised: Exception, remedy: str, where: str = "") -> CursorKeeperError:
    """Of what should never be raised: else nobody who waits would hear of it."""
    made = CursorKeeperError(f"{where}{type(raised).__name__}: {raised}", remedy)
    made.__cause__ = raised
    return made


def refused(code: str, cursor: str, message: str, remedy: str) -> CursorRefused:
    """The exception of a refusal; a code this version does not know is not retried."""
    return BY_CODE.get(code, CursorRefused)(code, cursor, message, remedy)


# How a call ended -> whether another one may help. Every other status is read as a broken
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


def call_ended(
    status: str, details: str, what: str = "the ack stream", *, is_tls: bool = False
) -> ConnectionLost | ConnectionRefused:
    """What the end of a stream, or of a question, means."""
    kind = ConnectionRefused if status in REFUSING_STATUS else ConnectionLost
    cause, remedy = cause_of(details, is_tls=is_tls)
    said = f"{cause}: {details}" if cause else details
    return kind(f"{what} ended: {status}{': ' + said if said else ''}", remedy)

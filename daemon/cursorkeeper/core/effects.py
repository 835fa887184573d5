"""What a cursor wants done. Values; the runtime does them in order and reports back as events.

Each docstring says why doing it twice is safe.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from cursorkeeper.core.errors import Refusal
from cursorkeeper.core.footer import FORMAT_NATIVE, Footer
from cursorkeeper.core.positions import Position
from cursorkeeper.core.shape import frozen
from cursorkeeper.core.values import RawEntry, Record


@frozen
class ReadFooter:
    """Read footer and version together, after a sync if `sync`. A read changes nothing."""

    token: int
    sync: bool


@frozen
class WriteFooter:
    """Compare-and-set. The same bytes at the same version can be applied once only: the version
    moves with it. `expected_version` -1: create.
    """

    token: int
    footer: Footer
    expected_version: int


@frozen
class CheckFooter:
    """Ask the quorum whether the footer has this version now; -1: whether there is none. A check
    changes nothing. It is no
    read: a leader that was deposed without knowing it answers reads, also behind a sync, but gets
    no check through.
    """

    token: int
    version: int


@frozen
class CreateLedger:
    """A second ledger would be an orphan that no footer names; garbage collection takes it."""

    token: int
    epoch: int
    generation: int
    format: str = FORMAT_NATIVE
    metadata: Mapping[str, bytes] = field(default_factory=dict)
    """Custom metadata beside the cursor's name and epoch."""


@frozen
class FenceLedger:
    """Recovery open. BookKeeper's recovery is idempotent."""

    token: int
    ledger: int


@frozen
class CloseLedger:
    """End our own ledger; if the gateway cannot, recovery does. Both give the same last entry or a
    later one.
    """

    token: int
    ledger: int


@frozen
class ReadChain:
    """Read what the footer names and join it. Reads change nothing."""

    token: int
    footer: Footer


@frozen
class Append:
    """Never repeated: the entry id makes a repetition visible, and a failed one means leaving the
    ledger.
    """

    ledger: int
    entry: int
    record: Record | RawEntry


@frozen
class DeleteLedgers:
    """No committed footer names them any more. "No such ledger" is done."""

    ledgers: tuple[int, ...]


@frozen
class AskInlineTurn:
    """Whole states are written into footers at a pace that the daemon's cursors share. Asking
    changes nothing; a turn that is not needed any more is let go.
    """

    token: int


# ---- to the source


@frozen
class StreamState:
    """The footer is proved to be ours and everything accepted is durable: send Opened, the state,
    and the first credit. Joins are idempotent. `created`: our claim made the cursor, and this is
    the first state that is told of it.
    """

    attach: int
    created: bool = False


@frozen
class ContinueHandle:
    """The handle goes on where the one before it broke off: send Opened without a state, and
    credit.
    """

    attach: int


@frozen
class Proved:
    """The footer was ours at an instant after this question came: what the state says may be
    told.
    """

    question: int


@frozen
class Unproved:
    """Nothing may be told: ZooKeeper did not answer for too long."""

    question: int
    reason: str


@frozen
class Confirm:
    """Everything of this handle up to `seq` is durable or decided; `released_bytes` go back to its
    credit. A `seq` that was confirmed before only returns credit. `truncated_acks`: so many acks
    the stored state leaves out, by the operator's leave: of the confirmed ones, these are decided
    and not durable.
    """

    attach: int
    seq: int
    released_bytes: int
    truncated_acks: int = 0


@frozen
class ResetDone:
    """The new generation is committed."""

    attach: int
    generation: int
    mark_delete: Position


@frozen
class Refuse:
    """The cursor could not be opened, or not any further."""

    code: Refusal
    message: str
    remedy: str


@frozen
class RefuseHandle:
    """One message could not be kept: its handle ends, the cursor lives on and keeps what was
    accepted. `seq`: the message's, or 0.
    """

    attach: int
    code: Refusal
    message: str
    remedy: str
    seq: int = 0


@frozen
class KeepFooter:
    """The footer that this owner had committed is not there any more: its bytes go to the log, so
    that they can be put back. Changes nothing.
    """

    footer: Footer


@frozen
class Report:
    """Something that an operator may want to know; changes nothing."""

    event: str
    fields: Mapping[str, str | int]


@frozen
class Pause:
    """Acks cannot be persisted at the moment: stop delivering."""

    reason: str


@frozen
class Resume:
    """Acks are durable again."""


@frozen
class Ended:
    """The machine is done: CLOSED, DELETED, DEPOSED or REFUSED. `epoch` is the new owner's, if
    known; `reopen` is a handle that still wants the cursor, and has waited so long for ZooKeeper:
    it is opened again for it.
    """

    epoch: int = 0
    reopen: int | None = None
    waited_s: float = 0.0


Effect = (
    ReadFooter
    | WriteFooter
    | CheckFooter
    | CreateLedger
    | FenceLedger
    | CloseLedger
    | ReadChain
    | Append
    | DeleteLedgers
    | AskInlineTurn
    | StreamState
    | ContinueHandle
    | Proved
    | Unproved
    | Confirm
    | ResetDone
    | Refuse
    | RefuseHandle
    | KeepFooter
    | Report
    | Pause
    | Resume
    | Ended
)

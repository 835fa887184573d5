"""What can happen to a cursor. Outcomes of effects carry the token of the attempt they belong to: a
late answer is recognised, not believed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from cursorkeeper.core.batch import AckBatch
from cursorkeeper.core.footer import EntryAddress, Footer, Mark
from cursorkeeper.core.positions import Position
from cursorkeeper.core.shape import frozen
from cursorkeeper.core.state import AckState
from cursorkeeper.core.values import LayoutItem


class Resume(NamedTuple):
    """The newest Opened or ResetDone that a source got, named when it comes back after a broken
    stream.
    """

    epoch: int
    generation: int


@frozen
class Open:
    """Claim the cursor. `create`: it may be absent. `takeover`: a footer that says open may be
    deposed. `only`: claim nothing but this footer, whatever the other two allow: who has looked,
    and decided, must not act on what came since. `own`: how the writers of this keeper begin
    (empty: not known). A footer that one of them left open needs no takeover: a keeper has one
    machine for a cursor, so that one has stopped, and whatever it had sent is decided by the
    claim's version. `resume` and `source` (which process it is) mean something only where the
    cursor is held, `waited_s` for the handle: see `Attach`. `fencing_token`: see `core.fencing`;
    with one, a cursor that another one holds is claimed without `takeover`, too. `for_delete`: its
    only purpose is the cursor's end; a `Delete` that says who waits for it may follow.
    """

    create: bool = True
    takeover: bool = False
    start: Position | None = None
    layout: tuple[LayoutItem, ...] = ()
    cursor_properties: Mapping[str, str] | None = None
    for_delete: bool = False
    only: Mark | None = None
    own: str = ""
    resume: Resume | None = None
    source: str = ""
    waited_s: float = 0.0
    fencing_token: int = 0


@frozen
class Attach:
    """A source's handle wants the state: answered by `StreamState` once it is proved that the
    footer is still ours and everything accepted is durable; or, where it may resume, by
    `ContinueHandle` at once.

    `layout`: what its OpenCursor told. `waited_s`: how long it has waited for ZooKeeper at the
    machine that held the cursor before.
    """

    attach: int
    layout: tuple[LayoutItem, ...] = ()
    resume: Resume | None = None
    source: str = ""
    waited_s: float = 0.0
    fencing_token: int = 0


@frozen
class Prove:
    """Somebody wants to say what this cursor holds: answered by `Proved` or `Unproved`. `Detach`
    takes it back. Its number is drawn from the same series as those of attachments. `waited_s`: as
    of `Attach`.
    """

    question: int
    waited_s: float = 0.0


@frozen
class Detach:
    """The handle is gone; the cursor stays."""

    attach: int


@frozen
class Acks:
    """A batch that arrived on a handle."""

    attach: int
    batch: AckBatch


@frozen
class SetLayout:
    """A layout run that arrived on a handle."""

    attach: int
    seq: int
    generation: int
    run: tuple[LayoutItem, ...]


@frozen
class SetProperties:
    """The whole map of cursor properties."""

    attach: int
    seq: int
    generation: int
    values: Mapping[str, str]


@frozen
class Reset:
    """Seek: a new generation that begins at `target`."""

    attach: int
    seq: int
    generation: int
    target: Position


@frozen
class Close:
    """Make everything durable, commit the closed footer, end. `attach`: the handle that asks, which
    means nothing once another one holds the cursor; None: the keeper itself.
    """

    attach: int | None = None


@frozen
class Delete:
    """Commit the tombstone, delete the ledgers, end. `attach` as in `Close`; a close never replaces
    it. `fencing_token`: of who has no handle, and was compared. `asker`: the number of who has no
    handle, of the same series; who asks is told by `RefuseHandle` when the end does not come in
    time. `waited_s`: how long it has waited for the end of a machine before.
    """

    attach: int | None = None
    fencing_token: int = 0
    asker: int | None = None
    waited_s: float = 0.0


@frozen
class Roll:
    """Continue in a new ledger when it suits: the current one has fewer bookies than it should."""


@frozen
class Tick:
    """Time has passed, or the daemon has room for `room` more appends. `no_room_since_s`: it has
    none, and the oldest of those that take the room was sent then. `heard_s`: when ZooKeeper last
    answered one of the daemon's cursors; None: just now. `at_once`: nothing of the daemon is in
    flight, so that an ack need not wait for others.
    """

    room: int
    no_room_since_s: float | None = None
    heard_s: float | None = None
    at_once: bool = False


@frozen
class InlineTurn:
    """The daemon may write one more state into its footer: it is this cursor's turn."""

    token: int


# ---- outcomes


@frozen
class Sent:
    """An effect that waited for its turn in the daemon's own queue is sent now. One that did not
    wait was sent in its step.
    """

    token: int


@frozen
class FooterRead:
    """The footer and its version, read together; `footer` None and version -1: there is none."""

    token: int
    footer: Footer | None
    version: int


@frozen
class FooterReadFailed:
    """ZooKeeper could not be asked."""

    token: int
    reason: str


@frozen
class FooterUnreadable:
    """The footer's bytes cannot be trusted, or are newer than this version. `replaced`: they are
    whole, and something else than a CursorKeeper put them there.
    """

    token: int
    reason: str
    too_new: bool
    replaced: bool = False


@frozen
class FooterWritten:
    """The compare-and-set was applied."""

    token: int
    version: int


@frozen
class FooterBadVersion:
    """Somebody's write came before: perhaps an earlier try of our own."""

    token: int


@frozen
class FooterWriteUnknown:
    """The answer was lost. `reason` is for people."""

    token: int
    reason: str


@frozen
class FooterGone:
    """A footer that was seen before does not exist."""

    token: int


@frozen
class FooterTooLarge:
    """The footer does not fit a znode; nothing was sent."""

    token: int
    reason: str


@frozen
class FooterChecked:
    """The footer had the version that was asked about, at an instant after the question was
    sent.
    """

    token: int


@frozen
class FooterCheckFailed:
    """It had another version, or was not there, or was there although none was expected."""

    token: int


@frozen
class FooterCheckUnknown:
    """The question was not answered. `reason` is for people."""

    token: int
    reason: str


@frozen
class LedgerCreated:
    """A new ledger, ours to write."""

    token: int
    ledger: int


@frozen
class LedgerCreateFailed:
    """No ledger; trying again is all that can be done."""

    token: int
    reason: str


@frozen
class LedgerEnded:
    """A ledger was recovery-opened or closed: its last entry is final. -1: empty."""

    token: int
    ledger: int
    last_entry: int


@frozen
class LedgerEndFailed:
    """Recovery or close did not succeed. `missing`: there is no such ledger."""

    token: int
    ledger: int
    missing: bool
    reason: str


@frozen
class Appended:
    """An entry is acknowledged by its ack quorum."""

    ledger: int
    entry: int
    stored_bytes: int
    crc32c: int


@frozen
class AppendFailed:
    """An entry was refused, fenced, or its answer was lost: the ledger is to be left.
    `is_handle_lost`: not because of this ledger, but because the gateway or its stream ended, and
    with it the handles of all ledgers of the daemon.
    """

    ledger: int
    entry: int
    reason: str
    is_handle_lost: bool = False


@frozen
class ChainRead:
    """The state that the footer describes, every record checked. `damaged`: parts of a dead
    snapshot that were skipped.
    """

    token: int
    state: AckState
    fell_back: bool
    bars_fallback: bool
    delta_bytes: int
    delta_records: int
    delta_acks: int
    damaged: tuple[EntryAddress, ...] = ()
    unfinished: tuple[EntryAddress, ...] = ()
    """Entries behind the newest whole state of a ledger in Pulsar's form: of a state that was never
    complete, so never confirmed.
    """


@frozen
class ChainMissing:
    """A ledger that the footer names does not exist: perhaps the footer has moved on."""

    token: int
    ledger: int


@frozen
class ChainDamaged:
    """Nothing trustworthy is left; `reason` names ledger and entry. `too_new`: not damaged, but
    written by a newer version; `too_large`: nor this, but it would take more memory than a state
    may.
    """

    token: int
    reason: str
    too_new: bool = False
    too_large: bool = False


@frozen
class FooterChanged:
    """The watch fired, or it is time to look."""


Event = (
    Open
    | Attach
    | Prove
    | Detach
    | Acks
    | SetLayout
    | SetProperties
    | Reset
    | Close
    | Delete
    | Roll
    | Tick
    | InlineTurn
    | Sent
    | FooterRead
    | FooterReadFailed
    | FooterUnreadable
    | FooterWritten
    | FooterBadVersion
    | FooterWriteUnknown
    | FooterGone
    | FooterTooLarge
    | FooterChecked
    | FooterCheckFailed
    | FooterCheckUnknown
    | LedgerCreated
    | LedgerCreateFailed
    | LedgerEnded
    | LedgerEndFailed
    | Appended
    | AppendFailed
    | ChainRead
    | ChainMissing
    | ChainDamaged
    | FooterChanged
)

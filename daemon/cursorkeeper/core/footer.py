"""The footer: the one commit pointer of a cursor, as a value.

Says which ledgers to read, from where, and who owns the cursor. Frozen; written only by
compare-and-set on the version its content was derived from (ARCHITECTURE rules 1 to 3). Bytes are
in `format.footer`; values that are in them as they are here say their members' ranges themselves.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from enum import StrEnum
from typing import Annotated, Any, Final, Literal, NamedTuple

from msgspec import Meta, Struct, structs

from cursorkeeper.core.positions import (
    BEFORE_FIRST,
    ENTRY_ID_MAX,
    LEDGER_ID_MAX,
    NUMBER_MAX,
    Position,
)
from cursorkeeper.core.shape import frozen
from cursorkeeper.core.values import CursorProperties, Segment

FOOTER_VERSION = 2
"""The newest that is read. A footer is of version 1 unless it has a fencing token: whoever does not
compare them must not take it.
"""
FORMAT_NATIVE: Final = "native"
FORMAT_PULSAR: Final = "pulsar"
"""Something in the footer is in Pulsar's form: what each part is in, the part says."""

Number = Annotated[int, Meta(ge=0, le=LEDGER_ID_MAX)]
Small = Annotated[int, Meta(ge=0, le=NUMBER_MAX)]
Entry = Annotated[int, Meta(ge=BEFORE_FIRST, le=ENTRY_ID_MAX)]
Text = Annotated[str, Meta(pattern=r"^[^\ud800-\udfff]*$")]
"""Of whole characters: JSON can write half of one, and nothing that carries text further can."""


class FooterState(StrEnum):
    """`deleted` is the tombstone: versions and epochs of a cursor never restart."""

    OPEN = "open"
    CLOSED = "closed"
    DELETED = "deleted"


@frozen
class EmptyBase:
    """Nothing but a mark-delete."""

    mark_delete: Position


@frozen
class InlineBase:
    """The whole state inside the footer. `epoch` and `generation` are those of the encoded
    record.
    """

    state: Segment
    epoch: int
    generation: int
    sequence: int


@frozen
class PulsarBase:
    """The whole state inside the footer as the bytes of Pulsar's ManagedCursorInfo (what would be
    the cursor's znode there). `epoch` is the writer's: it orders the properties, which carry no
    stamp in Pulsar's form.
    """

    info: bytes
    epoch: int


@frozen
class SnapshotBase:
    """A snapshot in a ledger of the chain. `first_entry` = its first segment, `last_entry` = its
    end record.
    """

    ledger: int
    first_entry: int
    last_entry: int
    num_parts: int
    length: int
    crc32c: int


Base = EmptyBase | InlineBase | PulsarBase | SnapshotBase


class ChainLedger(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """A cursor ledger to read. `last_entry` is what recovery or a successful close answered (-1:
    empty), never the writer's own count; None: nobody asked yet, so a claimer must recovery-open
    it. `format` says how its entries are read. The bytes leave out what is the default.
    """

    ledger: Number
    last_entry: Entry | None = None
    format: Literal["native", "pulsar"] = FORMAT_NATIVE


class EntryAddress(NamedTuple):
    """One entry of a cursor ledger."""

    ledger: int
    entry: int


@frozen
class Previous:
    """What to fall back to when the base is damaged: the base and chain before it."""

    base: Base
    chain: tuple[ChainLedger, ...]


class Truncation(Struct, frozen=True):
    """What a stored state leaves out because the operator allowed it: acked entries, entries with
    batch indexes, mark-delete properties. `limit` names the setting and its value, for people.
    """

    acks: Number
    batches: Number
    properties: Number
    limit: Text

    def as_fields(self) -> dict[str, str | int]:
        return structs.asdict(self)


class Stats(Struct, frozen=True, rename="camel"):
    """Of the moment the footer was written; for reports, never for a decision."""

    ledgers: Number
    span: Number
    holes: Number
    runs: Number
    partial_batches: Number
    delta_bytes: Number


NO_STATS = Stats(0, 0, 0, 0, 0, 0)


class Written(Struct, frozen=True):
    """Which version of the znode a footer write makes. It counts only where `epoch` and `write` are
    the footer's own: a release that does not know this member copies it into its own writes.
    """

    version: Number
    epoch: Small
    write: Number


class Mark(NamedTuple):
    """Which write a footer is of: two footers of a cursor with the same mark are the same one. See
    `mark_of`.
    """

    epoch: int
    writer: str
    write: int


@frozen
class Footer:
    """See the module. `extra` holds keys that this version does not know; they are written back.

    `damaged`: entries in ledgers named here that cannot be read and are known to be parts of a
    snapshot that is no base any more. After a fall-back the base that told segments from deltas is
    gone, so the footer has to say it.

    `cursor_properties`: only where the chain cannot hold them (Pulsar's form has no place for them
    in a ledger). `truncated`: the newest state in the chain may be a part of the whole; the numbers
    are of the moment the footer was written. `written`: the znode's version that this write made,
    so that bytes which something else put there are recognised. `fencing_token`: the highest that
    the cursor was opened with; 0: none. It never falls: who comes with a lower one is refused.
    """

    topic: str
    subscription: str
    state: FooterState
    epoch: int
    writer: str
    write: int
    generation: int
    mark_delete: Position
    base: Base
    chain: tuple[ChainLedger, ...] = ()
    previous: Previous | None = None
    damaged: tuple[EntryAddress, ...] = ()
    stats: Stats = NO_STATS
    cursor_properties: CursorProperties | None = None
    truncated: Truncation | None = None
    written: Written | None = None
    fencing_token: int = 0
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def version(self) -> int:
        """The form of its bytes: releases that know no fencing token read 1 alone."""
        return 2 if self.fencing_token else 1

    @property
    def format(self) -> str:
        """Who may read it: `pulsar` as soon as a reader that knows native records alone would miss
        something.
        """
        if self.cursor_properties is not None or self.truncated is not None:
            return FORMAT_PULSAR
        return FORMAT_PULSAR if any(map(is_pulsar, self.parts)) else FORMAT_NATIVE

    def is_same_write(self, other: Footer) -> bool:
        """ "Mine": epoch, writer and write number are all equal."""
        return (self.epoch, self.writer, self.write) == (other.epoch, other.writer, other.write)

    def written_at(self, version: int) -> Footer:
        """The same footer as the write that makes this version of the znode."""
        return replace(self, written=Written(version, self.epoch, self.write))

    @property
    def written_as(self) -> int | None:
        """The znode's version that this write made; None: an earlier release wrote it, which does
        not say.
        """
        known = self.written
        if known is None or (known.epoch, known.write) != (self.epoch, self.write):
            return None
        return known.version

    def named_ledgers(self) -> frozenset[int]:
        """Every ledger that must not be deleted while this footer is the committed one."""
        return frozenset(
            part.ledger for part in self.parts if isinstance(part, SnapshotBase | ChainLedger)
        )

    @property
    def parts(self) -> list[Base | ChainLedger]:
        """The base and the chain, and both of before a snapshot while it keeps them."""
        return parts_of(self.base, self.chain, self.previous)

    def with_last_entry(self, ledger: int, last_entry: int) -> Footer:
        """The same footer with the recovered end of one ledger, wherever it is named."""
        chain, previous = ended(self.chain, self.previous, ledger, last_entry)
        return replace(self, chain=chain, previous=previous)


def parts_of(
    base: Base, chain: tuple[ChainLedger, ...], previous: Previous | None
) -> list[Base | ChainLedger]:
    before = [] if previous is None else [previous.base, *previous.chain]
    return [base, *chain, *before]


def ended(
    chain: tuple[ChainLedger, ...], previous: Previous | None, ledger: int, last_entry: int
) -> tuple[tuple[ChainLedger, ...], Previous | None]:
    """The same with the end of one ledger, wherever it is named without one."""

    def mend(chain: tuple[ChainLedger, ...]) -> tuple[ChainLedger, ...]:
        return tuple(
            structs.replace(c, last_entry=last_entry)
            if c.ledger == ledger and c.last_entry is None
            else c
            for c in chain
        )

    return mend(chain), previous and replace(previous, chain=mend(previous.chain))


def mark_of(footer: Footer | None) -> Mark:
    """Of no footer at all: epoch 0, which no footer has."""
    return Mark(0, "", 0) if footer is None else Mark(footer.epoch, footer.writer, footer.write)


def tombstone_of(closed: Footer, writer: str) -> Footer:
    """What deletes a closed cursor in one footer write: claim and tombstone at once, by a writer
    that nobody else is. Nobody appends to the ledgers of a closed cursor, so that none has to be
    fenced between the two; and no crash leaves it open. What no later owner may lose is kept as it
    is. Raises ValueError for a cursor that is not closed.
    """
    if closed.state is not FooterState.CLOSED:
        raise ValueError(f"{closed.topic}|{closed.subscription} is {closed.state}")
    return replace(
        closed,
        state=FooterState.DELETED,
        epoch=closed.epoch + 1,
        writer=writer,
        write=1,
        generation=closed.generation + 1,
        base=EmptyBase(closed.mark_delete),
        chain=(),
        previous=None,
        damaged=(),
        stats=NO_STATS,
        cursor_properties=None,
        truncated=None,
    )


def is_pulsar(part: Base | ChainLedger) -> bool:
    """Whether a part of a footer is in Pulsar's form."""
    return isinstance(part, PulsarBase) or (
        isinstance(part, ChainLedger) and part.format == FORMAT_PULSAR
    )


def is_native(part: Base | ChainLedger) -> bool:
    """Whether a part of a footer is in the native form. An empty base is in none: it is nothing but
    a position.
    """
    return isinstance(part, InlineBase | SnapshotBase) or (
        isinstance(part, ChainLedger) and part.format == FORMAT_NATIVE
    )


def is_hollow(item: ChainLedger, base: Base) -> bool:
    """Only the open record, or nothing: it need not be read again. A ledger of whole states was
    named for what is in it.
    """
    return (
        item.format != FORMAT_PULSAR
        and item.last_entry is not None
        and item.last_entry <= 0
        and not (isinstance(base, SnapshotBase) and base.ledger == item.ledger)
    )

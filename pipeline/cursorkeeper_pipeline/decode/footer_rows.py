"""Footers as rows of `cursors` and `segments`: exact schemas, no Spark, no I/O.

Owns what each column is. Invariants: a row says what its footer says, nothing is guessed; a footer
that cannot be read is one row, with `status`, `error` and the znode's facts, and null for all that
it would say; no text can make a batch fail.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from cursorkeeper.core.errors import DamageError, TooNewError
from cursorkeeper.core.footer import Base, ChainLedger, Footer, SnapshotBase
from cursorkeeper.core.names import CursorName
from cursorkeeper.format.pulsar import names
from cursorkeeper.inspection.footer_view import base_kind
from cursorkeeper.zookeeper.values import Stat
from cursorkeeper_pipeline.decode.columns import Row
from cursorkeeper_pipeline.keys import cursor_key
from cursorkeeper_pipeline.schemas import DAMAGED, OK, TOO_NEW

_INT32_MAX: Final = (1 << 31) - 1
_UNREAD: Final = (None,) * 5
_UNREAD_STATE: Final = (None,) * 14


class Found(NamedTuple):
    """A footer as it was read, or why it cannot be read. `stat` is its znode's; `read_at_us`: when
    it was read, in microseconds since 1970.
    """

    name: CursorName
    footer: Footer | DamageError
    stat: Stat
    read_at_us: int


def cursors(read: Iterable[Found]) -> Iterator[Row]:
    """A row of `cursors` for each."""
    return (_cursor_row(*one) for one in read)


def segments(read: Iterable[Found]) -> Iterator[Row]:
    """What each footer says must be read, in order; one row of role "" for a footer that cannot be
    read.
    """
    return (row for one in read for row in _segment_rows(one))


def place_of(topic: str) -> tuple[str, str]:
    """Tenant, and tenant/namespace (tenant/cluster/namespace in the first naming scheme); empty
    where Pulsar could not have the topic.
    """
    try:
        managed = names.managed_ledger_name(topic)
    except ValueError:
        return "", ""
    namespace = managed.rpartition(f"/{names.DOMAIN}/")[0]
    return namespace.partition("/")[0], namespace


def named(name: CursorName) -> Row:
    """The first columns of every table that names cursors, in the order of the schemas."""
    return cursor_key(name), name.display, *place_of(name.topic), name.topic, name.subscription


def status_of(error: DamageError) -> str:
    """TOO_NEW is not damage: an upgrade reads it."""
    return TOO_NEW if isinstance(error, TooNewError) else DAMAGED


# --- rows, in the order of the schemas ------------------------------------------------------------


def _cursor_row(name: CursorName, footer: Footer | DamageError, stat: Stat, read_at_us: int) -> Row:
    head = named(name)
    znode = (stat.version, 1000 * stat.ctime_ms, 1000 * stat.mtime_ms, stat.data_bytes, read_at_us)
    if isinstance(footer, DamageError):
        return (*head, *_UNREAD, *znode, *_UNREAD_STATE, status_of(footer), str(footer))
    base, stats = footer.base, footer.stats
    length, parts = (
        (base.length, min(base.num_parts, _INT32_MAX)) if isinstance(base, SnapshotBase) else (0, 0)
    )
    return (
        *head,
        footer.state.value,
        footer.epoch,
        footer.generation,
        footer.writer,
        footer.format,
        *znode,
        *footer.mark_delete,
        base_kind(base),
        length,
        parts,
        len(footer.chain),
        footer.previous is not None,
        stats.delta_bytes,
        stats.ledgers,
        stats.span,
        stats.holes,
        stats.runs,
        stats.partial_batches,
        footer.truncated is not None,
        OK,
        None,
    )


def _segment_rows(read: Found) -> Iterator[Row]:
    key, version, footer = cursor_key(read.name), read.stat.version, read.footer
    if isinstance(footer, DamageError):
        yield key, *(None,) * 6, version, status_of(footer), str(footer)
        return
    parts = [*_parts(footer.base, footer.chain, "")]
    if footer.previous is not None:
        parts += _parts(footer.previous.base, footer.previous.chain, "previous_")
    for number, part in enumerate(parts):
        yield key, number, *part, version, OK, None


def _parts(
    base: Base, chain: tuple[ChainLedger, ...], prefix: str
) -> Iterator[tuple[str, int, int, int | None, int | None]]:
    if isinstance(base, SnapshotBase):
        yield f"{prefix}snapshot", base.ledger, base.first_entry, base.last_entry, base.length
    for item in chain:
        yield f"{prefix}chain", item.ledger, 0, item.last_entry, None

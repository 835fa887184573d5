"""The table `pulsar_cursors`: Pulsar's own cursors as they are stored, without disturbing a broker.

Owns how a cluster's topics are spread over tasks, and the rows. Read is with
`pulsar_reader.read_cursor`: nothing is recovered, fenced or written, and message ledgers are not
touched. The option `password` is that of Pulsar's ledgers (its `managedLedgerPassword`).

**Plan.** The driver counts the topics of the selection without a look at cursors. A part is some
spans, a span the topics of one namespace whose names have certain hashes, and one part has every
namespace that the plan does not know: a topic that comes after the plan is in exactly one part.
Held on the driver: a number for each namespace.

**Rows.** A cursor that cannot be read is a row with status and error and zeros, or ends the job if
`mode` is failfast; one that is deleted meanwhile is no row. `AWAY`: it could not be read within
`waitS`, or changes faster than that; so many of them one after another that BookKeeper itself must
be away end the job. `AT_LEAST`: its ledger is being written, or newer entries could not be read
(`error` says so). `stored_bytes`: what was read for it, so its znode, the entries of its newest
state, and the topic's znode. `backlog_entries` counts acked ones too.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from cursorkeeper.bookkeeper.port import LedgerState
from cursorkeeper.core.bitmaps import count_runs
from cursorkeeper.core.positions import Position
from cursorkeeper.core.values import LayoutItem, LayoutState
from cursorkeeper.format.pulsar import names
from cursorkeeper.format.pulsar.values import Form
from cursorkeeper.migration.cluster import (
    PulsarCursorRef,
    PulsarPorts,
    Selection,
    iter_cursors,
    iter_topic_paths,
)
from cursorkeeper.migration.errors import MigrationError
from cursorkeeper.migration.pulsar_cursor import PulsarCursor
from cursorkeeper.migration.pulsar_reader import read_cursor
from cursorkeeper.problems import Kind
from cursorkeeper.zookeeper.port import ZooKeeper
from cursorkeeper_pipeline import schemas
from cursorkeeper_pipeline.decode.columns import Row, batches
from cursorkeeper_pipeline.decode.footer_rows import named
from cursorkeeper_pipeline.source.away import AwayCount
from cursorkeeper_pipeline.source.options import TASKS_MAX, Options
from cursorkeeper_pipeline.source.shards import now_us
from cursorkeeper_pipeline.source.side_by_side import side_by_side
from cursorkeeper_pipeline.source.systems import Systems
from cursorkeeper_pipeline.source.table import Part, Table

HASHES = 1 << 32
TOPICS_PER_TASK = 256
BATCH_ROWS = 1024
TRIES_MAX = 3
"""Of one cursor that changes faster than it can be read; each is patient by itself."""
_STATUS = {
    Kind.DAMAGED: schemas.DAMAGED,
    Kind.REFUSED: schemas.DAMAGED,
    Kind.MISSING: schemas.MISSING,
    Kind.TOO_NEW: schemas.TOO_NEW,
    Kind.AWAY: schemas.AWAY,
}
_FORMS = {Form.RANGES: "ranges", Form.LONG_ARRAY: "long_array"}


@dataclass(frozen=True, slots=True)
class Span:
    """Topics of one namespace: those whose names' hashes are from `first` on and below `end`.
    `domain`: the namespace's znode of such topics.
    """

    domain: str
    first: int = 0
    end: int = HASHES

    def holds(self, path: str) -> bool:
        """Whether a topic's znode is one of them."""
        domain, _, name = path.rpartition("/")
        return domain == self.domain and self.first <= zlib.crc32(name.encode()) < self.end


@dataclass(frozen=True, slots=True)
class SpansPart(Part):
    spans: tuple[Span, ...]
    besides: frozenset[str] | None = None
    """Of one part of a plan: the namespaces' znodes that the spans of all parts are of; it reads
    all others, too.
    """


class PulsarCursors(Table):
    schema = schemas.PULSAR_CURSORS

    def place_of(self, options: Options) -> Options:
        return replace(options, zookeeper=options.pulsar_zookeeper or options.zookeeper)

    async def parts(self, systems: Systems, options: Options) -> Sequence[Part]:
        return await plan_spans(await systems.zookeeper(), options)

    def batches(self, systems: Systems, options: Options, part: Part) -> Iterator[pa.RecordBatch]:
        assert isinstance(part, SpansPart)
        return batches(systems.iterate(_rows(systems, options, part)), self.schema, BATCH_ROWS)


# ---- the plan


async def plan_spans(zookeeper: ZooKeeper, options: Options) -> list[SpansPart]:
    """Of the selection; a single named cursor is one part. Raises MigrationError."""
    selection, patience = options.selection, options.patience
    if selection.subscription:
        return [SpansPart((), frozenset())]
    counts: Counter[str] = Counter()
    async for path in iter_topic_paths(zookeeper, selection, patience=patience):
        counts[path.rpartition("/")[0]] += 1
    return packed(counts, options.tasks)


def packed(counts: Mapping[str, int], tasks: int) -> list[SpansPart]:
    """Namespaces of so many topics as parts of about equal numbers of topics. `tasks` 0: as many as
    the topics deserve. Pure.
    """
    total = sum(counts.values())
    if not total:
        return [SpansPart((), frozenset())]
    wanted = min(tasks or -(-total // TOPICS_PER_TASK), TASKS_MAX, total)
    parts: list[list[Span]] = [[] for _ in range(wanted)]
    # on a line each topic is `wanted` long and each part `total`, so that all borders are whole
    begin = 0
    for domain, count in counts.items():
        end = begin + count * wanted
        for number in range(begin // total, -(-end // total)):
            first, last = (
                (min(max(edge * total, begin), end) - begin) * HASHES // (count * wanted)
                for edge in (number, number + 1)
            )
            parts[number].append(Span(domain, first, last))
        begin = end
    first_part, *others = map(tuple, parts)
    return [SpansPart(first_part, frozenset(counts)), *map(SpansPart, others)]


# ---- the reads


async def _rows(systems: Systems, options: Options, part: SpansPart) -> AsyncIterator[Row]:
    ports = PulsarPorts(await systems.zookeeper(), await systems.ledgers())
    away = AwayCount()

    async def work(ref: PulsarCursorRef) -> AsyncIterator[Row]:
        row = await row_of(ports, ref, options, away)
        if row is not None:
            yield row

    async for row in side_by_side(_refs(ports.zookeeper, options, part), work):
        yield row


async def _refs(
    zookeeper: ZooKeeper, options: Options, part: SpansPart
) -> AsyncIterator[PulsarCursorRef]:
    """A single named cursor is all that is asked for, if it is there; else it may be the name of a
    partitioned topic, whose partitions have the cursors.
    """
    chosen, patience = options.selection, options.patience
    if chosen.subscription:
        ref = PulsarCursorRef(chosen.topic, chosen.subscription)
        if await patience.repeat(str(ref), lambda: zookeeper.exists(ref.path)) is not None:
            if options.wanted.accepts(ref.name):
                yield ref
            return
    walks: list[tuple[Selection, Callable[[str], bool]]] = [
        (chosen if chosen.topic else _of_namespace(span.domain), span.holds) for span in part.spans
    ]
    if (known := part.besides) is not None:
        walks.append((chosen, lambda path: path.rpartition("/")[0] not in known))
    wanted = options.wanted
    for selection, holds in walks:

        def is_asked_for(path: str, holds: Callable[[str], bool] = holds) -> bool:
            return holds(path) and (
                wanted.is_everything or wanted.accepts_topic(names.topic_of_path(path))
            )

        async for ref in iter_cursors(zookeeper, selection, patience=patience, only=is_asked_for):
            if wanted.accepts(ref.name):
                yield ref


def _of_namespace(domain: str) -> Selection:
    namespace = domain.removeprefix(f"{names.ROOT}/").removesuffix(f"/{names.DOMAIN}")
    return Selection.of_namespace(namespace)


async def row_of(
    ports: PulsarPorts, ref: PulsarCursorRef, options: Options, away: AwayCount
) -> Row | None:
    """None: it was deleted meanwhile. Raises ProblemError (too many are away); MigrationError, if
    `mode` is failfast.
    """
    for again in range(TRIES_MAX, 0, -1):
        try:
            cursor = await read_cursor(ports, ref, patience=options.patience)
        except MigrationError as error:
            if error.kind is Kind.NOT_FOUND:
                return None
            if error.kind is Kind.AWAY and again > 1 and error.where == ref.path:
                continue  # it is busy
            if options.is_strict:
                raise
            if error.kind is Kind.AWAY:
                away.missed(ref.name, error)
            said = f"{error.where}: {error.message}" if error.where else error.message
            return *named(ref.name), *(None,) * 12, now_us(), _STATUS[error.kind], said
        if cursor.freshness.ledger >= 0:
            away.answered()
        return _good(cursor)
    return None


def _good(cursor: PulsarCursor) -> Row:
    """In the order of `schemas.PULSAR_CURSORS`. Pure, but for the time."""
    state, fresh = cursor.state, cursor.freshness
    is_short = bool(fresh.skipped or fresh.stopped_by)
    is_live = fresh.ledger >= 0 and fresh.ledger_state is not LedgerState.CLOSED
    form = "znode" if fresh.ledger < 0 else _FORMS[cursor.original.form or Form.RANGES]
    return (
        *named(cursor.ref.name),
        cursor.znode.cursors_ledger,
        state.mark_delete.ledger,
        state.mark_delete.entry,
        form,
        sum(map(count_runs, state.acked.values())),
        sum(map(len, state.acked.values())),
        len(state.batches),
        cursor.bytes_read,
        len(cursor.layout),
        backlog(cursor.layout, state.mark_delete),
        cursor.znode_version,
        1000 * fresh.znode_mtime_ms,
        now_us(),
        schemas.AT_LEAST if is_live or is_short else schemas.OK,
        fresh.sentence if is_short else None,
    )


def backlog(layout: Sequence[LayoutItem], mark_delete: Position) -> int:
    """Entries of closed data ledgers above mark-delete."""
    closed = [
        item
        for item in layout
        if item.state is LayoutState.CLOSED and item.ledger >= mark_delete.ledger
    ]
    return sum(
        item.entries - (mark_delete.entry + 1 if item.ledger == mark_delete.ledger else 0)
        for item in closed
    )

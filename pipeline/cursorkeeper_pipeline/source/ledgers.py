"""The table `ledgers`: every ledger of this application, with what garbage collection would say of it.

Owns the rows. The verdict is `runtime.gc`'s: `judge` of the footer that is read after the ledger was listed, so that a ledger which is
about to be named is never called garbage. The gateway's list cannot be cut, so one task reads it; nor resumed, so a list that breaks
off fails the task, which Spark runs again. Held in memory: `gc.BATCH_LEDGERS` ledgers and the footers of their cursors.

A ledger of another deployment (of another root on the same BookKeeper) has no `cursor_key`: it would join with a cursor of this one
that has the same name.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
from cursorkeeper.core.errors import DamageError
from cursorkeeper.core.footer import Footer
from cursorkeeper.core.names import CursorName
from cursorkeeper.migration.cluster import Selection
from cursorkeeper.migration.patience import Patience
from cursorkeeper.runtime.footers import FooterStore
from cursorkeeper.runtime.gc import BATCH_LEDGERS, Verdict, judge, owner_of
from cursorkeeper.runtime.ledgers import APPLICATION
from cursorkeeper_clients.bookkeeper.port import LedgerInfo

from cursorkeeper_pipeline import schemas
from cursorkeeper_pipeline.source.fleet import chooses, cursor_key
from cursorkeeper_pipeline.source.options import Mode, Options
from cursorkeeper_pipeline.source.shards import Reader
from cursorkeeper_pipeline.source.side_by_side import telling
from cursorkeeper_pipeline.source.systems import Systems
from cursorkeeper_pipeline.source.table import Part


class Owner(NamedTuple):
    """Whose a ledger says it is. `ours`: of this deployment, so that its footer is the one that counts."""

    name: CursorName
    epoch: int
    ours: bool


class Ledgers:
    schema = schemas.LEDGERS

    def plan(self, options: Options) -> Sequence[Part]:
        return [Part()]

    def read(self, options: Options, part: Part) -> Iterator[pa.RecordBatch]:
        with telling(), Systems(options) as systems:
            yield from systems.iterate(_batches(systems, options))


async def _batches(systems: Systems, options: Options) -> AsyncIterator[pa.RecordBatch]:
    """Raises GatewayError, ZooKeeperError, MigrationError; DamageError for an unreadable footer where `mode` is failfast."""
    ledgers, footers = await systems.ledgers(), await systems.footers()
    patience, selection = Patience(options.wait_s), options.selection
    deployment = await patience.repeat("", footers.known_deployment)
    batch: list[tuple[LedgerInfo, Owner | None]] = []
    alone = await Reader(await systems.zookeeper(), options).alone()

    def is_chosen(owner: Owner | None) -> bool:
        if owner is None:
            return selection == Selection.everything() and options.wanted.is_everything
        if not options.wanted.accepts(owner.name):
            return False
        return chooses(selection, owner.name) if alone is None else owner.name == alone.name

    async def judged() -> pa.RecordBatch:
        names = sorted({owner.name for _, owner in batch if owner is not None and owner.ours}, key=lambda n: n.canonical)
        read = await patience.repeat("", lambda: _footers(footers, names, options.mode))
        return batch_of([row(info, owner, read) for info, owner in batch])

    async for info in ledgers.list({"application": APPLICATION}):
        owner = whose(info, deployment)
        if not is_chosen(owner):
            continue
        batch.append((info, owner))
        if len(batch) >= BATCH_LEDGERS:
            yield await judged()
            batch.clear()
    if batch:
        yield await judged()


def whose(info: LedgerInfo, deployment: str | None) -> Owner | None:
    """None: it names no cursor, or no deployment."""
    own = info.custom_metadata.get("deployment", b"").decode(errors="replace")
    said = owner_of(info.custom_metadata, own)
    return None if said is None else Owner(*said, ours=owner_of(info.custom_metadata, deployment) is not None)


async def _footers(footers: FooterStore, names: Sequence[CursorName], mode: Mode) -> dict[CursorName, Footer | None]:
    """An unreadable footer counts as none: nothing is known of its ledgers. Raises DamageError where `mode` is failfast."""
    found: dict[CursorName, Footer | None] = {}
    for name, footer in zip(names, await footers.read_many(names), strict=True):
        if isinstance(footer, DamageError) and mode is Mode.FAILFAST:
            raise DamageError(f"{name}: {footer}")
        found[name] = None if isinstance(footer, DamageError) else footer
    return found


def row(info: LedgerInfo, owner: Owner | None, footers: Mapping[CursorName, Footer | None]) -> tuple[Any, ...]:
    """In the order of `schemas.LEDGERS`. Pure."""
    verdict, key = Verdict.UNKNOWN, None
    if owner is not None and owner.ours:
        verdict, key = judge(info.ledger, owner.epoch, footers[owner.name]), cursor_key(owner.name)
    name, epoch = (owner.name.display, owner.epoch) if owner is not None else (None, None)
    created_us, state = 1000 * info.created_ms, info.state.name.lower()
    return info.ledger, key, name, epoch, state, info.last_entry, info.length, created_us, verdict.value, owner is not None and owner.ours


def batch_of(rows: Sequence[tuple[Any, ...]]) -> pa.RecordBatch:
    """Raises nothing for rows of `row`."""
    columns = zip(*rows, strict=True) if rows else [()] * len(schemas.LEDGERS)
    arrays = [pa.array(list(column), field.type) for column, field in zip(columns, schemas.LEDGERS, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schemas.LEDGERS)

"""The table `ledgers`: every ledger of this application, with what garbage collection would say of
it.

Owns the rows. The verdict is `runtime.gc`'s: its `Judge` looks at footers that are read after the
ledger was listed, so that a ledger which is about to be named is never called garbage. Any ledger
of a cursor may put its footer in doubt, so what seems garbage is told last, when all have been
looked at. The gateway's list cannot be cut, so one task reads it; nor resumed, so a list that
breaks off fails the task, which Spark runs again. Held in memory: `gc.BATCH_LEDGERS` ledgers with
the footers of their cursors, and the rows of garbage.

A root that is not there, or is nobody's, is an error and no table of strangers' ledgers (`roots`).

A ledger of another deployment (of another root on the same BookKeeper) has no `cursor_key`: it
would join with a cursor of this one that has the same name.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from itertools import chain
from typing import NamedTuple

import pyarrow as pa

from cursorkeeper.bookkeeper.port import LedgerInfo
from cursorkeeper.core.errors import DamageError
from cursorkeeper.runtime.gc import BATCH_LEDGERS, Judge, Judged, Owned, Verdict, owned_of
from cursorkeeper.runtime.ledgers import APPLICATION
from cursorkeeper_pipeline import schemas
from cursorkeeper_pipeline.decode.columns import Row, batches
from cursorkeeper_pipeline.keys import cursor_key
from cursorkeeper_pipeline.source.options import Options
from cursorkeeper_pipeline.source.roots import check_root
from cursorkeeper_pipeline.source.shards import Reader, chooses
from cursorkeeper_pipeline.source.systems import Systems
from cursorkeeper_pipeline.source.table import Part, Table


class Listed(NamedTuple):
    """A ledger, and whose it says it is. `ours`: of this deployment, so that its footer is the one
    that counts.
    """

    info: LedgerInfo
    owned: Owned | None
    ours: bool


class Ledgers(Table):
    schema = schemas.LEDGERS

    async def parts(self, systems: Systems, options: Options) -> Sequence[Part]:
        await check_root(await systems.zookeeper(), systems.ledgers, options)
        return [Part()]

    def batches(self, systems: Systems, options: Options, part: Part) -> Iterator[pa.RecordBatch]:
        rows = systems.iterate(_rows(systems, options))
        return batches(chain.from_iterable(rows), self.schema, BATCH_LEDGERS)


async def _rows(systems: Systems, options: Options) -> AsyncIterator[list[Row]]:
    """Raises GatewayError, ZooKeeperError, MigrationError, ProblemError; DamageError for an
    unreadable footer where `mode` is failfast.
    """
    ledgers, footers = await systems.ledgers(), await systems.footers()
    patience, selection, judge = options.patience, options.selection, Judge(footers)
    # a view may be older than the loss of its root
    await check_root(await systems.zookeeper(), systems.ledgers, options)
    deployment = await patience.repeat("", footers.known_deployment)
    garbage: list[tuple[Listed, Judged]] = []
    alone = await Reader(await systems.zookeeper(), options).alone()

    def is_chosen(owned: Owned | None) -> bool:
        if owned is None:
            return options.is_of_all
        if not options.wanted.accepts(owned.name):
            return False
        return chooses(selection, owned.name) if alone is None else owned.name == alone.name

    async def judged(batch: list[Listed]) -> list[Row]:
        """The rows that can be told by now."""
        mine = [one.owned for one in batch if one.owned is not None and one.ours]
        said = {
            found.owned.ledger: found
            for found in await patience.repeat("", lambda: judge.look(mine))
        }
        rows = []
        for one in batch:
            found = said.get(one.info.ledger)
            if found is not None and found.verdict is Verdict.GARBAGE:
                garbage.append((one, found))
                continue
            if options.is_strict and found is not None and found.why and not found.has_footer:
                raise DamageError(f"{found.owned.name}: {found.why}")
            rows.append(row(one, found))
        return rows

    batch: list[Listed] = []
    async for info in ledgers.list({"application": APPLICATION}):
        one = listed(info, deployment)
        if is_chosen(one.owned):
            batch.append(one)
        if len(batch) == BATCH_LEDGERS:
            yield await judged(batch)
            batch = []
    yield await judged(batch)
    yield [row(one, judge.last_word(found)) for one, found in garbage]


def listed(info: LedgerInfo, deployment: str | None) -> Listed:
    """`owned` None: it names no cursor, or no deployment."""
    own = info.custom_metadata.get("deployment", b"").decode(errors="replace")
    return Listed(info, owned_of(info, own), ours=owned_of(info, deployment) is not None)


def row(one: Listed, found: Judged | None) -> Row:
    """In the order of `schemas.LEDGERS`. `found` None: it is not of this deployment, and was not
    judged. Pure.
    """
    info, owned = one.info, one.owned
    verdict, doubt, key = Verdict.UNKNOWN, None, None
    if found is not None:
        verdict, doubt, key = found.verdict, found.why or None, cursor_key(found.owned.name)
    name, epoch = (owned.name.display, owned.epoch) if owned is not None else (None, None)
    created_us, state = 1000 * info.created_ms, info.state.name.lower()
    return (
        info.ledger,
        key,
        name,
        epoch,
        state,
        info.last_entry,
        info.length,
        created_us,
        verdict.value,
        one.ours,
        doubt,
    )

"""The table `deltas`: the ack history that cursors still keep, a row for each range of acks in each
delta record.

Owns which records are read and what a time selects. Read are the ledgers that a footer names
(chain, previous chain, base), each once and in the order of their ids; the same ack may come twice,
as a recovery allows it to (it is joined, and a record whose fate was unknown is written again).
Ledgers of whole states in Pulsar's form hold no history and give no rows. Nothing is claimed or
fenced: of an open cursor the newest records may be missing.

**Times.** A record carries none, so `at` is null. What is known is that a record was appended at or
after its ledger was created (`ledger_created`), and at or before the cursor's next ledger was
created (an owner closes or recovers a ledger before it makes another one) or, if the footer says
where the ledger ends, before that footer was written. `since` and `until` leave out only what
certainly lies outside of `since <= time < until` by these bounds: whole ledgers, never one record
of a ledger. Clocks are those of the gateways.

**Damage.** A record that cannot be read is a row of kind `damaged` (`too_new`: written by a newer
release), and so is the first entry that is not there of a ledger which is shorter than it should
be; a ledger that the footer names and that is gone is one of kind `missing` with entry -1, an
unreadable footer one of kind `damaged` or `too_new` with ledger and entry -1. A ledger that could
not be read for `waitS` is one of kind `away` with the entry at which its reading ended, a cursor
that could not (or that changes too fast) one with ledger and entry -1; so many cursors one after
another that a system must be away end the job. With `mode` failfast each of all these ends the job.
A ledger that is gone because the footer moved on is none of them: the new footer says where to go
on (a ledger that was being written is continued where its reading ended), and `footer_version` says
which footer led to a row.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator

import pyarrow as pa

from cursorkeeper.bookkeeper.errors import GatewayError
from cursorkeeper.bookkeeper.port import LedgerStore
from cursorkeeper.core.errors import DamageError
from cursorkeeper.core.footer import Footer
from cursorkeeper.inspection import reader
from cursorkeeper.inspection.reader import End, Moved
from cursorkeeper.migration.errors import MigrationError
from cursorkeeper.problems import Kind, ProblemError
from cursorkeeper_pipeline import schemas
from cursorkeeper_pipeline.decode import deltas
from cursorkeeper_pipeline.decode.columns import Batches
from cursorkeeper_pipeline.decode.deltas import NOWHERE, Piece, Where
from cursorkeeper_pipeline.decode.footer_rows import Found
from cursorkeeper_pipeline.keys import cursor_key
from cursorkeeper_pipeline.source.away import AwayCount
from cursorkeeper_pipeline.source.cuts import Unit
from cursorkeeper_pipeline.source.options import Options
from cursorkeeper_pipeline.source.plan import CursorsTable
from cursorkeeper_pipeline.source.shards import Reader, is_tombstone
from cursorkeeper_pipeline.source.side_by_side import side_by_side
from cursorkeeper_pipeline.source.systems import Systems
from cursorkeeper_pipeline.source.table import Part
from cursorkeeper_pipeline.source.units import found_in

LIST_BYTES = 4 << 20
"""Of the pieces that become columns together: 256 Ki ranges, fewer if they are alone in their
pieces.
"""
KEEP = "look closer with `cursorkeeper verify`; mode permissive makes it a row"


class Deltas(CursorsTable):
    schema = schemas.DELTAS
    cursors_per_task = 256

    def batches(self, systems: Systems, options: Options, part: Part) -> Iterator[pa.RecordBatch]:
        batches = Batches(self.schema)
        for found in systems.iterate(_pieces(systems, options, part)):
            yield from batches.add(deltas.columns(found))
        yield from batches.rest()


async def _pieces(systems: Systems, options: Options, part: Part) -> AsyncIterator[list[Piece]]:
    ledgers = await systems.ledgers()
    reader, away = Reader(await systems.zookeeper(), options), AwayCount()

    async def work(asked: tuple[Found, Unit]) -> AsyncIterator[list[Piece]]:
        found, _ = asked
        history = History(ledgers, reader, options, found)
        async for some in lists(history.pieces()):
            yield some
        if history.away is not None:
            away.missed(found.name, history.away)
        elif history.asked:
            away.answered()

    async for some in side_by_side(found_in(reader, part), work):
        yield some


async def lists(pieces: AsyncIterator[Piece]) -> AsyncIterator[list[Piece]]:
    """In lists of about `LIST_BYTES`."""
    held: list[Piece] = []
    size = 0
    async for piece in pieces:
        held.append(piece)
        size += piece.size_bytes
        if size >= LIST_BYTES:
            yield held
            held, size = [], 0
    if held:
        yield held


class History:
    """Of one cursor. `away`: why something of it could not be read for now, if so. `asked`: whether
    BookKeeper was asked for anything.
    """

    def __init__(
        self, ledgers: LedgerStore, reader: Reader, options: Options, found: Found
    ) -> None:
        self._ledgers, self._reader, self._found = ledgers, reader, found
        self._strict, self._patience, self._window = (
            options.is_strict,
            options.patience,
            options.window,
        )
        self._next: dict[int, int] = {}
        """The entry to go on with, of each ledger that was read from."""
        self._done: set[int] = set()
        """Ledgers of which nothing more comes, whatever a later footer says."""
        self.away: ProblemError | None = None
        self.asked = False

    async def pieces(self) -> AsyncIterator[Piece]:
        """Ledger by ledger, each made when it is asked for. Raises ProblemError (ZooKeeper is away;
        anything at all, if `mode` is failfast) and MigrationError (a system is away, if `mode` is
        failfast).
        """
        for _ in range(reader.MOVED_MAX):
            footer = self._found.footer
            if isinstance(footer, DamageError):
                yield self._gap(NOWHERE, NOWHERE, deltas.damage(footer), str(footer))
                return
            gone: list[int] = []
            async for piece in self._of_footer(footer, gone):
                yield piece
            if not gone:
                return
            await self._reader.sync()
            now = await self._reader.one(self._found.name)
            if now is None or is_tombstone(now):
                return
            if isinstance(now.footer, Footer) and now.footer.is_same_write(footer):
                for ledger in gone:
                    said = f"ledger {ledger} does not exist, and the footer names it"
                    yield self._gap(ledger, NOWHERE, deltas.MISSING, said)
                return
            self._found = now
        name = self._found.name
        busy = ProblemError(
            f"{name}: its footer changes faster than it can be read",
            "run it again when it is quieter",
            Kind.AWAY,
        )
        yield self._out_of_reach(NOWHERE, NOWHERE, busy)

    async def _of_footer(self, footer: Footer, gone: list[int]) -> AsyncIterator[Piece]:
        """What is not read yet of every ledger; those that do not exist are put into `gone`."""
        try:
            ends = await self._patience.repeat(
                self._found.name.display,
                lambda: reader.ends_of(self._ledgers, footer, missing_ok=True),
            )
        except MigrationError as e:
            yield self._out_of_reach(NOWHERE, NOWHERE, e)
            return
        self.asked |= bool(ends)
        whole = reader.whole_state_ledgers(footer)
        for ledger, end in ends.items():
            if ledger in self._done or ledger in whole:
                continue
            if end.info is None:
                gone.append(ledger)
                continue
            created_us = 1000 * end.info.created_ms
            if not self._window.may_hold(
                created_us, ended_us(footer, ledger, ends, 1000 * self._found.stat.mtime_ms)
            ):
                self._done.add(ledger)
                continue
            try:
                async for piece in self._of_ledger(ledger, end, created_us):
                    yield piece
            except Moved:
                gone.append(ledger)
                continue
            if end.is_final:
                self._done.add(ledger)

    async def _of_ledger(self, ledger: int, end: End, created_us: int) -> AsyncIterator[Piece]:
        """Of the entries that were not read yet. Raises Moved."""
        first = self._next.setdefault(ledger, 0)
        try:
            async for entry, payload in reader.entries(
                self._ledgers, ledger, end.last_entry, first=first, wait_s=self._patience.wait_s
            ):
                for piece in self._of_record(ledger, entry, payload, created_us):
                    yield piece
                self._next[ledger] = entry + 1
        except ProblemError as e:
            if self._strict or e.kind is not Kind.AWAY:
                raise
            yield self._out_of_reach(ledger, self._next[ledger], e, created_us)
            self._done.add(ledger)
            return
        entry = self._next[ledger]
        if end.is_final and entry <= end.last_entry:
            said = f"ends before entry {entry}, and its last entry should be {end.last_entry}"
            yield self._gap(ledger, entry, deltas.DAMAGED, f"ledger {ledger} {said}", created_us)

    def _of_record(
        self, ledger: int, entry: int, payload: bytes | GatewayError, created_us: int
    ) -> Iterable[Piece]:
        where = self._where(ledger, created_us)
        try:
            return deltas.read(where, entry, payload, self._found.name.record_hash)
        except (DamageError, GatewayError) as e:
            said = f"ledger {ledger} entry {entry}: {e}"
            return [self._gap(ledger, entry, deltas.damage(e), said, created_us)]

    # ---- what cannot be read

    def _where(self, ledger: int, created_us: int) -> Where:
        return Where(cursor_key(self._found.name), ledger, created_us, self._found.stat.version)

    def _gap(self, ledger: int, entry: int, kind: int, said: str, created_us: int = 0) -> Piece:
        if self._strict:
            raise ProblemError(f"{self._found.name}: {said}", KEEP)
        return deltas.gap(self._where(ledger, created_us), entry, kind)

    def _out_of_reach(
        self, ledger: int, entry: int, error: ProblemError, created_us: int = 0
    ) -> Piece:
        if self._strict:
            raise error
        self.away = error
        return deltas.gap(self._where(ledger, created_us), entry, deltas.AWAY)


def ended_us(
    footer: Footer, ledger: int, ends: dict[int, End], footer_modified_us: int
) -> int | None:
    """When the last record of a ledger was appended at the latest, in microseconds since 1970;
    None: it may be being written.
    """
    later = [
        1000 * end.info.created_ms
        for other, end in ends.items()
        if other > ledger and end.info is not None
    ]
    chains = footer.chain + (footer.previous.chain if footer.previous is not None else ())
    if any(c.ledger == ledger and c.last_entry is not None for c in chains):
        later.append(footer_modified_us)
    return min(later, default=None)

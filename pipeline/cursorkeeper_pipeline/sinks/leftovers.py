"""Ledgers in Pulsar's store that attempts which died have left, and when they may go.

A new ledger carries the token of its run's record, and says of which cursor and version it is
(`swap`). Without that very token nothing is touched: another cluster on the same BookKeeper may
have a run of the same id over topics of the same names, and to a sweep of this one its live ledgers
look like leftovers. One that has the token goes when the cursor's znode, read synced, does not name
it and is *past* that version: versions only grow, and its maker's swap is for that version alone,
so however late it wakes it cannot name the ledger any more. Nothing else is needed for that,
neither a claim nor a record; the claim is taken so that an attempt which is at it keeps its ledger
until it has seen by itself that it was too late. A ledger whose znode is still at that version, or
is not there, stays: its maker could name it yet, and a copy too much is no loss. The next run of
the same id looks again, and so does --abort.

An old ledger, which a swapped znode has named, goes when it is closed, certainly the cursor's, and
not named: nobody names one again.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from cursorkeeper.bookkeeper.errors import NoSuchLedger
from cursorkeeper.bookkeeper.port import LedgerInfo, LedgerState
from cursorkeeper.migration.cluster import PulsarCursorRef, PulsarPorts
from cursorkeeper.migration.errors import MigrationError
from cursorkeeper.migration.patience import Patience
from cursorkeeper.migration.pulsar_writer import carries, custom_metadata, named_by
from cursorkeeper.problems import ProblemError
from cursorkeeper.zookeeper.synced import read_synced
from cursorkeeper.zookeeper.values import Node
from cursorkeeper_pipeline.sinks.claims import Claims
from cursorkeeper_pipeline.sinks.record import Record
from cursorkeeper_pipeline.sinks.swap import (
    SUBSCRIPTION_KEY,
    TOKEN_KEY,
    TOPIC_KEY,
    VERSION_KEY,
)

READ_BATCH: Final = 500
NOTES_MAX: Final = 20
"""Ledgers that the notes name; all of them are counted."""
SWEEP_WAIT_S: Final = 10.0
"""How long a sweep waits for a claim: its holder, if it lives, deletes its own."""


class Leftover(NamedTuple):
    """A ledger of an attempt, and the version of the znode that it was to replace (ABSENT: of
    none).
    """

    ledger: int
    ref: PulsarCursorRef
    replaces: int


@dataclass(frozen=True, slots=True)
class Leftovers:
    pulsar: PulsarPorts
    patience: Patience = field(default_factory=Patience)

    async def sweep(self, run: Record, claims: Claims) -> list[str]:
        """Deletes what attempts of the run have made and nobody can name; notes. Raises what the
        clients raise.
        """
        gone, left = list[Leftover](), list[Leftover]()
        async for one, node in self._unnamed(run.token):
            is_over = _is_over(node, one) and await self._delete(one, claims)
            (gone if is_over else left).append(one)
        notes = _told(gone, "deleted ledger {} of an attempt that died: {}")
        if left:
            what = (
                "one that is late could name them yet. Run this again, or with --abort once "
                "the run is decided"
            )
            notes += [
                f"{len(left):,} ledger(s) of attempts stay: {what}",
                *_told(left, "left ledger {} of an attempt: {}"),
            ]
        return notes

    async def _unnamed(self, token: str) -> AsyncIterator[tuple[Leftover, Node | None]]:
        batch: list[Leftover] = []
        async for info in self.pulsar.ledgers.list({TOKEN_KEY: token.encode()}):
            one = _leftover(info)
            if one is not None:
                batch.append(one)
            if len(batch) >= READ_BATCH:
                for found in await self._read(batch):
                    yield found
                batch = []
        for found in await self._read(batch):
            yield found

    async def _read(self, batch: list[Leftover]) -> list[tuple[Leftover, Node | None]]:
        nodes = await self.pulsar.zookeeper.multi_read([one.ref.path for one in batch])
        return [
            (one, node)
            for one, node in zip(batch, nodes, strict=True)
            if node is None or not may_name(node.data, one.ledger)
        ]

    async def _delete(self, one: Leftover, claims: Claims) -> bool:
        """Looked at again under the claim: what was listed is old by now."""
        try:
            async with claims.held(one.ref.name):
                if not _is_over(
                    await self.patience.repeat(str(one.ref), lambda: self._synced(one.ref)), one
                ):
                    return False
                await self.patience.repeat(
                    str(one.ref), lambda: self.pulsar.ledgers.delete(one.ledger)
                )
                return True
        except MigrationError:
            raise
        except ProblemError:  # another attempt has the claim
            return False

    async def drop_old(self, ledger: int, ref: PulsarCursorRef) -> list[str]:
        """An old cursor ledger, unless the znode still names it, or it is not certainly a closed
        one of this cursor. Notes. Raises what the clients raise.
        """
        node = await self._synced(ref)
        return [] if node is None or may_name(node.data, ledger) else await self._drop(ledger, ref)

    async def _drop(self, ledger: int, ref: PulsarCursorRef) -> list[str]:
        try:
            info = await self.pulsar.ledgers.metadata(ledger)
        except NoSuchLedger:
            return []
        if info.state is not LedgerState.CLOSED or not carries(info, custom_metadata(ref)):
            return [
                f"the old cursor ledger {ledger} of {ref} is left: it is not closed, or not "
                f"certainly its"
            ]
        await self.pulsar.ledgers.delete(ledger)
        return [f"deleted the old cursor ledger {ledger} of {ref}"]

    async def _synced(self, ref: PulsarCursorRef) -> Node | None:
        return await read_synced(self.pulsar.zookeeper, ref.path)


def may_name(znode: bytes, ledger: int) -> bool:
    """Whether a cursor's znode names the ledger, or cannot be read."""
    return named_by(znode) in (ledger, None)


def _is_over(node: Node | None, one: Leftover) -> bool:
    """Whether nobody can name it any more."""
    return node is not None and node.version > one.replaces and not may_name(node.data, one.ledger)


def _leftover(info: LedgerInfo) -> Leftover | None:
    """None: its metadata is not as attempts write it."""
    said = info.custom_metadata
    try:
        ref = PulsarCursorRef(said[TOPIC_KEY].decode(), said[SUBSCRIPTION_KEY].decode())
        return Leftover(info.ledger, ref, int(said[VERSION_KEY]))
    except (KeyError, ValueError):
        return None


def _told(some: list[Leftover], text: str) -> list[str]:
    told = [text.format(one.ledger, one.ref) for one in some[:NOTES_MAX]]
    return [*told, f"and {len(some) - NOTES_MAX:,} more"] if len(some) > NOTES_MAX else told

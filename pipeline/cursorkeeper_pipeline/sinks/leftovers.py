"""Ledgers in Pulsar's store that attempts which died have left, and when they may go.

A new ledger carries the token of its run's record, and says of which cursor and version it is
(`marks_of`). Without that very token nothing is touched: another cluster on the same BookKeeper may
have a run of the same id over topics of the same names, and to a sweep of this one its live ledgers
look like leftovers. One that has the token goes when the cursor's znode, read synced, does not name
it and is *past* that version: versions only grow, and its maker's swap is for that version alone,
so however late it wakes it cannot name the ledger any more: it looks again. Nothing else is needed
for that. A ledger whose znode is still at that version, or is not there, stays: its maker could
name it yet, and a copy too much is no loss. The next run of the same id looks again, and so does
--abort.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from cursorkeeper.bookkeeper.port import LedgerInfo
from cursorkeeper.migration.cluster import PulsarCursorRef, PulsarPorts
from cursorkeeper.migration.destination import Destination
from cursorkeeper.migration.patience import Patience
from cursorkeeper.migration.pulsar_writer import named_by
from cursorkeeper.zookeeper.synced import read_synced
from cursorkeeper.zookeeper.values import Node
from cursorkeeper_pipeline.sinks.record import Record

RUN_KEY, TOPIC_KEY, SUBSCRIPTION_KEY = (
    "cursorkeeper-export",
    "cursorkeeper-topic",
    "cursorkeeper-subscription",
)
"""The first is for people: a run's id is a name, and names come twice."""
VERSION_KEY: Final = "cursorkeeper-replaces"
TOKEN_KEY: Final = "cursorkeeper-run-token"
READ_BATCH: Final = 500
NOTES_MAX: Final = 20
"""Ledgers that the notes name; all of them are counted."""


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

    async def sweep(self, run: Record) -> list[str]:
        """Deletes what attempts of the run have made and nobody can name; notes. Raises what the
        clients raise.
        """
        gone, left = list[Leftover](), list[Leftover]()
        async for one, node in self._unnamed(run.token):
            is_over = _is_over(node, one) and await self._delete(one)
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

    async def _delete(self, one: Leftover) -> bool:
        """Looked at again: what was listed is old by now."""
        node = await self.patience.repeat(
            one.ref, lambda: read_synced(self.pulsar.zookeeper, one.ref.path)
        )
        if not _is_over(node, one):
            return False
        await self.patience.repeat(one.ref, lambda: self.pulsar.ledgers.delete(one.ledger))
        return True


def marks_of(run: Record, there: Destination) -> dict[str, bytes]:
    """Of a new ledger, beside what Pulsar looks at: by whom, for what, and what the swap
    replaces.
    """
    said = {
        RUN_KEY: run.id,
        TOPIC_KEY: there.ref.topic,
        SUBSCRIPTION_KEY: there.ref.subscription,
        TOKEN_KEY: run.token,
        VERSION_KEY: str(there.version),
    }
    return {key: value.encode() for key, value in said.items()}


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

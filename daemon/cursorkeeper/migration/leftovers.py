"""Serves who goes back to Pulsar: ledgers in Pulsar's store that exports which died have left, and
when they may go.

A new ledger carries the random token of its run (of the journal, or of the Spark job's record), and
says of which cursor and version it is. Without that very token nothing is touched: another cluster
on the same BookKeeper may have a run of the same name over topics of the same names, and to a sweep
of this one its live ledgers look like leftovers. One that has the token goes when the cursor's
znode, read synced, does not name it and is *past* that version: versions only grow, and its
maker's compare-and-set is for that version alone, so however late it wakes it cannot name the
ledger any more: it looks again. Nothing else is needed for that. A ledger whose znode is still at
that version, or is not there, stays: its maker could name it yet, and a copy too much is no loss.
The next sweep looks again.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final, NamedTuple

from cursorkeeper.bookkeeper.port import LedgerInfo
from cursorkeeper.migration.cluster import PulsarCursorRef, PulsarPorts
from cursorkeeper.migration.destination import Destination
from cursorkeeper.migration.patience import Patience
from cursorkeeper.migration.pulsar_writer import named_by
from cursorkeeper.zookeeper.synced import read_synced
from cursorkeeper.zookeeper.values import Node

RUN_KEY, TOPIC_KEY, SUBSCRIPTION_KEY = (
    "cursorkeeper-export",
    "cursorkeeper-topic",
    "cursorkeeper-subscription",
)
"""The first is for people: a run's id is a name, and names come twice."""
VERSION_KEY: Final = "cursorkeeper-replaces"
TOKEN_KEY: Final = "cursorkeeper-run-token"
READ_BATCH: Final = 500


class RunMark(NamedTuple):
    """A run, on the ledgers that it makes: what it is called, and the token that no other run
    has.
    """

    name: str
    token: str

    def of(self, there: Destination) -> dict[str, bytes]:
        """Of a new ledger, beside what Pulsar looks at: by whom, for what, and what its maker
        replaces.
        """
        said = {
            RUN_KEY: self.name,
            TOPIC_KEY: there.ref.topic,
            SUBSCRIPTION_KEY: there.ref.subscription,
            TOKEN_KEY: self.token,
            VERSION_KEY: str(there.version),
        }
        return {key: value.encode() for key, value in said.items()}


class Leftover(NamedTuple):
    """A ledger of an attempt, and the version of the znode that it was to replace (ABSENT: of
    none).
    """

    ledger: int
    ref: PulsarCursorRef
    replaces: int


async def sweep(
    pulsar: PulsarPorts, token: str, patience: Patience
) -> AsyncIterator[tuple[Leftover, bool]]:
    """Deletes what exports of the run have made and nobody can name. Each ledger of theirs that is
    not named, and whether it went. Raises what the clients raise.
    """

    async def is_gone(one: Leftover) -> bool:
        """Looked at again: what was listed is old by now."""
        node = await patience.repeat(one.ref, lambda: read_synced(pulsar.zookeeper, one.ref.path))
        if not _is_over(node, one):
            return False
        await patience.repeat(one.ref, lambda: pulsar.ledgers.delete(one.ledger))
        return True

    async for one, node in _listed(pulsar, token):
        if node is None or not _may_name(node, one):
            yield one, _is_over(node, one) and await is_gone(one)


async def _listed(pulsar: PulsarPorts, token: str) -> AsyncIterator[tuple[Leftover, Node | None]]:
    """The run's ledgers, with the nodes that could name them."""
    batch: list[Leftover] = []

    async def read() -> list[tuple[Leftover, Node | None]]:
        nodes = await pulsar.zookeeper.multi_read([one.ref.path for one in batch])
        return list(zip(batch, nodes, strict=True))

    async for info in pulsar.ledgers.list({TOKEN_KEY: token.encode()}):
        one = _leftover(info)
        if one is not None:
            batch.append(one)
        if len(batch) >= READ_BATCH:
            for found in await read():
                yield found
            batch.clear()
    for found in await read():
        yield found


def _may_name(node: Node, one: Leftover) -> bool:
    """Whether a cursor's znode names the ledger, or cannot be read."""
    return named_by(node.data) in (one.ledger, None)


def _is_over(node: Node | None, one: Leftover) -> bool:
    """Whether nobody can name it any more."""
    return node is not None and node.version > one.replaces and not _may_name(node, one)


def _leftover(info: LedgerInfo) -> Leftover | None:
    """None: its metadata is not as attempts write it."""
    said = info.custom_metadata
    try:
        ref = PulsarCursorRef(said[TOPIC_KEY].decode(), said[SUBSCRIPTION_KEY].decode())
        return Leftover(info.ledger, ref, int(said[VERSION_KEY]))
    except (KeyError, ValueError):
        return None

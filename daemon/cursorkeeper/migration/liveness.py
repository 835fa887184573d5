"""Whether a broker may have a topic: then what we write to its cursor would be overwritten, or
overwrite it.

Owns the signs that ZooKeeper and BookKeeper give. Each is a sentence; none at all means that the
topic was unloaded in order, or never loaded. A broker that died leaves the same signs as one that
lives: only a person can tell them apart.
"""

from __future__ import annotations

import zlib

from cursorkeeper.bookkeeper.errors import NoSuchLedger
from cursorkeeper.format.pulsar import names
from cursorkeeper.migration.cluster import PulsarCursorRef, PulsarPorts
from cursorkeeper.zookeeper import errors as zk

BUNDLES = "/namespace"
"""Ephemeral nodes of brokers: the bundles that they own."""


async def signs_of_a_broker(
    ports: PulsarPorts, ref: PulsarCursorRef, last_data_ledger: int | None, cursor_ledger: int
) -> list[str]:
    """`cursor_ledger` -1: the znode holds the state. Raises what the clients raise."""
    signs = []
    owner = await bundle_owner(ports, ref)
    if owner:
        signs.append(f"a broker owns the topic's bundle ({owner})")
    for what, ledger in (
        ("cursor", cursor_ledger),
        ("newest message", -1 if last_data_ledger is None else last_data_ledger),
    ):
        if ledger >= 0 and await _is_open(ports, ledger):
            signs.append(
                f"its {what} ledger {ledger} is not closed: a broker writes to it, or died"
            )
    return signs


async def bundle_owner(ports: PulsarPorts, ref: PulsarCursorRef) -> str:
    """The bundle's node, if a broker owns it; empty otherwise, or where brokers keep ownership
    elsewhere (the extensible load manager does). Raises ZooKeeperError.
    """
    namespace = names.managed_ledger_name(ref.topic).rpartition(f"/{names.DOMAIN}/")[0]
    path = f"{BUNDLES}/{namespace}"
    try:
        bundles = await ports.zookeeper.children(path)
    except zk.NoNode:
        return ""
    for bundle in bundles:
        if not _holds(bundle, ref.topic):
            continue
        stat = await ports.zookeeper.exists(f"{path}/{bundle}")
        if stat is not None and stat.ephemeral_owner:
            return f"{path}/{bundle}"
    return ""


def _holds(bundle: str, topic: str) -> bool:
    """Whether `0xLOW_0xHIGH` covers the CRC-32 of the topic's name, as Pulsar's bundles do. What is
    not a bundle holds nothing.
    """
    low, _, high = bundle.partition("_")
    try:
        first, last = int(low, 16), int(high, 16)
    except ValueError:
        return False
    place = zlib.crc32(topic.encode())
    return first <= place < last or (place == last == 0xFFFFFFFF)


async def _is_open(ports: PulsarPorts, ledger: int) -> bool:
    try:
        return not (await ports.ledgers.end_of(ledger)).closed
    except NoSuchLedger:
        return False

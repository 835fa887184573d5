"""Faults, as context managers that undo themselves: whatever a test does in between, the next one
finds the stack whole.

Owns: what is done to a node and how it is undone. Does not own: what must hold meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

from testcontainers_tests.cluster.images import Images
from testcontainers_tests.cluster.node import Node
from testcontainers_tests.cluster.nodes import NetworkToolbox


@asynccontextmanager
async def killed(*nodes: Node) -> AsyncIterator[None]:
    """SIGKILL to all of them together; started again, and ready, at the end."""
    await asyncio.gather(*(asyncio.to_thread(node.kill) for node in nodes))
    try:
        yield
    finally:
        await asyncio.gather(
            *(asyncio.to_thread(node.start_again) for node in nodes if node.status == "exited")
        )
        await asyncio.gather(*(node.ready() for node in nodes))


@contextmanager
def paused(*nodes: Node) -> Iterator[None]:
    """Frozen: they keep their connections and answer nothing."""
    try:
        for node in nodes:
            node.pause()
        yield
    finally:
        for node in nodes:
            node.unpause()


@contextmanager
def disconnected(*nodes: Node) -> Iterator[None]:
    """Off the network, running."""
    try:
        for node in nodes:
            node.disconnect()
        yield
    finally:
        for node in nodes:
            node.reconnect()


@contextmanager
def dropped(images: Images, node: Node, *peers: Node) -> Iterator[None]:
    """iptables in the node's network drops every packet to and from these peers."""
    rules = [
        rule
        for peer in peers
        for rule in (
            ("INPUT", "-s", peer.ip, "-j", "DROP"),
            ("OUTPUT", "-d", peer.ip, "-j", "DROP"),
        )
    ]
    with _rules(images, node, rules):
        yield


@contextmanager
def lossy(images: Images, node: Node, share: float) -> Iterator[None]:
    """This share of all packets that come to the node is lost, at random."""
    chance = ("-m", "statistic", "--mode", "random", "--probability", f"{share:.3f}")
    with _rules(images, node, [("INPUT", *chance, "-j", "DROP")]):
        yield


@contextmanager
def _rules(images: Images, node: Node, rules: list[tuple[str, ...]]) -> Iterator[None]:
    tools = NetworkToolbox(images, node)
    done: list[tuple[str, ...]] = []
    try:
        tools.start()
        for rule in rules:
            tools.iptables("-A", *rule)
            done.append(rule)
        yield
    finally:
        try:
            for rule in done:
                tools.iptables("-D", *rule)
        finally:
            tools.remove()

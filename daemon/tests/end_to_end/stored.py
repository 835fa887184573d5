"""What is stored of cursors, seen past every daemon: their footers in ZooKeeper, their ledgers in
BookKeeper. Changes nothing.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from cursorkeeper import connections
from cursorkeeper.connections import Ports
from cursorkeeper.core.errors import DamageError
from cursorkeeper.core.footer import Footer
from cursorkeeper.core.names import CursorName
from cursorkeeper.runtime.ledgers import APPLICATION
from cursorkeeper.settings import Settings


@dataclass(frozen=True)
class Stored:
    """Of one cursor. `ledgers`: those that BookKeeper has and whose metadata says that they are
    this cursor's.
    """

    footer: Footer
    ledgers: frozenset[int]

    @property
    def leaked(self) -> frozenset[int]:
        """There, and in no footer."""
        return self.ledgers - self.footer.named_ledgers()

    @property
    def is_exact(self) -> bool:
        """Every ledger is named, and every named one is there."""
        return self.ledgers == self.footer.named_ledgers()


@asynccontextmanager
async def reading(gateway: str, zookeeper: str) -> AsyncIterator[Ports]:
    """A reader's view of the systems at these addresses."""
    async with connections.ports(Settings.of(gateway=gateway, zookeeper=zookeeper)) as ports:
        yield ports


async def stored(ports: Ports, topic: str, subscription: str) -> Stored:
    """AssertionError if there is no footer, or one that cannot be read."""
    name = CursorName(topic, subscription)
    [(_, footer, _)] = await ports.footers.read_stored([name])
    assert footer is not None and not isinstance(footer, DamageError), f"{name}: {footer}"
    mine = {"application": APPLICATION, "cursor": name.canonical.encode()}
    return Stored(footer, frozenset({info.ledger async for info in ports.ledgers.list(mine)}))

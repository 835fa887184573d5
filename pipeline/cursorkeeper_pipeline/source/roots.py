"""Whether the root that a job was told is one: a reader that looks in the wrong place finds nothing wrong there.

Owns when "there is no cursor" cannot be believed. A daemon makes the root and its deployment id before it does anything else, so a root
that is not there is a mistyped one or a lost one; so is a root without an id while BookKeeper holds ledgers of this application.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import cast

from cursorkeeper.cli import connect
from cursorkeeper.cli.problems import NO, CommandError
from cursorkeeper.migration.patience import Patience
from cursorkeeper.runtime.ledgers import APPLICATION
from cursorkeeper_clients.bookkeeper.port import LedgerInfo, LedgerStore
from cursorkeeper_clients.zookeeper.port import ZooKeeper

from cursorkeeper_pipeline.source.options import Options

LOST = (
    "correct the root, or the chroot behind the ZooKeeper addresses. If both are right somebody removed it: restore the root, with its "
    "data, from ZooKeeper's backup, and start no daemon and delete no ledger before"
)


async def check_root(zookeeper: ZooKeeper, ledgers: Callable[[], Awaitable[LedgerStore]], options: Options) -> None:
    """Raises CommandError where what is below the root says nothing; MigrationError, ZooKeeperError, GatewayError. `ledgers` is called
    only where the root has no id."""
    patience, root = Patience(options.wait_s), options.settings.root
    where = f"{root} in ZooKeeper at {options.zookeeper}"
    known = await patience.repeat("", connect.footer_store(zookeeper, options.settings).known_deployment)
    if known is not None:
        return
    if await patience.repeat("", lambda: zookeeper.exists(root)) is None:
        raise CommandError(f"{where} does not exist: no cursor can be read there", LOST, NO)
    if await _has_any(await ledgers()):
        raise CommandError(
            f"{where} has no deployment id, and BookKeeper holds ledgers of this application: nobody can say whose they are",
            f"{LOST}. If no daemon has ever run on it, start one: it gives the root its id", NO,
        )  # fmt: skip


async def _has_any(ledgers: LedgerStore) -> bool:
    listed = cast("AsyncGenerator[LedgerInfo]", ledgers.list({"application": APPLICATION}))
    async with aclosing(listed) as some:  # the list may be long, and the first one is enough
        return await anext(some, None) is not None

"""Whether the root that a job was told is one: a reader that looks in the wrong place finds nothing
wrong there.

Owns what a job asks of its root (`inspection.roots` looks). A root that is not there is refused; so
is one that has no deployment id while there is something that could be its own: ledgers, for a job
that reads ledgers, else anything at all.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import cast

from cursorkeeper.bookkeeper.port import LedgerInfo, LedgerStore
from cursorkeeper.inspection import roots
from cursorkeeper.problems import ProblemError
from cursorkeeper.runtime.ledgers import APPLICATION
from cursorkeeper.zookeeper.port import ZooKeeper
from cursorkeeper_pipeline.source.options import Options
from cursorkeeper_pipeline.source.systems import Systems


def check_footers(options: Options) -> None:
    """For a job that reads footers alone: it reads nothing of BookKeeper. Raises as
    `check_root`.
    """
    with Systems(options) as systems:

        async def work() -> None:
            zookeeper = await systems.zookeeper()
            await options.patience.repeat(
                "", lambda: roots.check_root(zookeeper, options.settings.systems)
            )

        systems.run(work())


async def check_root(
    zookeeper: ZooKeeper, ledgers: Callable[[], Awaitable[LedgerStore]], options: Options
) -> None:
    """Raises ProblemError where what is below the root says nothing; MigrationError,
    ZooKeeperError, GatewayError. `ledgers` is called only where the root has no id.
    """
    patience, systems = options.patience, options.settings.systems
    root = await patience.repeat("", lambda: roots.look_at(zookeeper, systems.root))
    if root.has_id:
        return
    if not root.exists:
        await patience.repeat("", lambda: roots.check_root(zookeeper, systems))
    if await _has_any(await ledgers()):
        raise ProblemError(
            f"{systems.where} has no deployment id, and BookKeeper holds ledgers of this "
            f"application: nobody can say whose they are",
            f"{roots.LOST}. {roots.NEW}",
        )


async def _has_any(ledgers: LedgerStore) -> bool:
    listed = cast("AsyncGenerator[LedgerInfo]", ledgers.list({"application": APPLICATION}))
    async with aclosing(listed) as some:  # the list may be long, and the first one is enough
        return await anext(some, None) is not None

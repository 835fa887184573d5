"""ZooKeeper and the gateway from a task: connected once, used by synchronous code, closed with the
task.

A Spark worker is plain synchronous Python; the clients are asyncio. `Systems` runs one event loop
for as long as a task reads, and hands async iterators out as ordinary ones. Invariants: the gateway
is spoken to as a reader, which cannot fence, write or delete; the loop's time stands still while
the loop does: Spark may look at a batch for minutes, and a request that is under way meanwhile is
not late.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from cursorkeeper import connections
from cursorkeeper.bookkeeper.port import LedgerStore
from cursorkeeper.runtime.footers import FooterStore
from cursorkeeper.zookeeper.port import ZooKeeper
from cursorkeeper_pipeline.source.files import here
from cursorkeeper_pipeline.source.options import Options
from cursorkeeper_pipeline.source.pace import paced
from cursorkeeper_pipeline.task_loop import PausedLoop, TaskLoop

READER = "reader"


class Systems(TaskLoop):
    """Connects to each system when it is first asked for."""

    def __init__(self, options: Options, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(lambda: PausedLoop(clock))
        self._options = options
        self._start_timeout_s = min(connections.START_TIMEOUT_S, options.wait_s)
        self._zookeeper: ZooKeeper | None = None
        self._ledgers: LedgerStore | None = None

    async def zookeeper(self) -> ZooKeeper:
        """Raises ProblemError if it does not answer, OptionError for files."""
        if self._zookeeper is None:
            systems = self._options.settings.systems
            with here(systems):
                opening = connections.zookeeper(systems, self._start_timeout_s)
                self._zookeeper = await self.opened.enter_async_context(opening)
        return self._zookeeper

    async def ledgers(self) -> LedgerStore:
        """At the pace that a task may have. Raises ProblemError if the gateway does not answer,
        OptionError for files.
        """
        if self._ledgers is None:
            settings = self._options.settings
            with here(settings.systems):
                opening = connections.gateway(settings, READER, self._start_timeout_s)
                ledgers = await self.opened.enter_async_context(opening)
            self._ledgers = paced(ledgers, self._options.read_rate_mib_s)
        return self._ledgers

    async def footers(self) -> FooterStore:
        """The footers of the deployment. Raises ProblemError if ZooKeeper cannot be reached."""
        return connections.footer_store(await self.zookeeper(), self._options.settings)

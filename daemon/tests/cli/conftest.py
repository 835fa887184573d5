"""The command line on fakes: cursors made by a real keeper, read by the commands' own functions."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

import pytest
import typer

from cursorkeeper.cli import run
from cursorkeeper.connections import Ports, footer_store
from cursorkeeper.core import events as ev
from cursorkeeper.core.footer import Footer
from cursorkeeper.core.limits import Limits
from cursorkeeper.core.names import CursorName
from cursorkeeper.settings import Settings
from cursorkeeper.terminal.output import Bar
from daemon.tests.support.world import NAME, Source, World, acks, ranges, small

NO_INLINE = small(Limits(), inline_state_max_bytes=0)
EAGER = small(NO_INLINE, snapshot_bytes_min=1, snapshot_cost_ratio=0.0, snapshot_interval_min_s=0.0)
"""A snapshot after every delta."""


class CliWorld(World):
    """A world whose cursors are then looked at by commands."""

    settings = Settings.of()
    bar = Bar("test")

    async def ports(self, role: str = "reader") -> Ports:
        """As `connect.ports` makes them."""
        ledgers, session = self.bookkeeper.gateway(role=role), self.zookeeper.session()
        await ledgers.start()
        await session.start()
        return Ports(session, ledgers, footer_store(session, self.settings))

    async def source(self, name: CursorName = NAME, **request: Any) -> Source:
        """An open cursor of a keeper of its own."""
        source = Source(await self.keeper(), name)
        await source.open(**request)
        return source

    async def closed(self, name: CursorName = NAME, **acked: tuple[tuple[int, int], ...]) -> Footer:
        """A closed cursor with these ranges: `l7=((0, 3), (5, 9))`."""
        source = await self.source(name)
        for ledger, pairs in acked.items():
            source.ack(ranges(int(ledger[1:]), *pairs))
        await source.durable()
        await self.close(source)
        return await self.footer(name)

    async def close(self, source: Source) -> None:
        """As a daemon that stops."""
        assert await source.keeper.close() == []

    async def footer(self, name: CursorName = NAME) -> Footer:
        """The committed one."""
        answer = await (await self.ports()).footers.read(name, 0, sync=True)
        assert isinstance(answer, ev.FooterRead) and answer.footer is not None
        return answer.footer

    async def with_two_snapshots(self, name: CursorName = NAME) -> Footer:
        """Closed, with a base, deltas behind it, and a previous base."""
        self.limits = EAGER
        source = await self.source(name)
        for at in range(0, 400, 20):
            source.ack(acks(7, *range(at + 1, at + 19, 2)))
            await source.durable()
            async with asyncio.timeout(60):
                while source.machine.snapshots.run is not None:  # noqa: ASYNC110 - a machine tells its listener nothing of snapshots
                    await asyncio.sleep(0.01)
        await self.close(source)
        footer = await self.footer(name)
        assert footer.previous is not None, "the world did not make two snapshots"
        return footer

    async def overwrite(self, name: CursorName, data: bytes) -> None:
        """Somebody's careless hand in ZooKeeper."""
        session = (await self.ports()).zookeeper
        node = await session.get(name.path())
        await session.set(name.path(), data, node.version)


def given_to(serve: Callable[..., int]) -> typer.Typer:
    """`cursorkeeper run`, which gives what it was told to `serve`."""
    program = typer.Typer()
    program.command("run")(run.command(serve))
    return program


@pytest.fixture
def world() -> CliWorld:
    """Without inline states, so that there are ledgers to look at."""
    return CliWorld(seed=1, limits=NO_INLINE)


@pytest.fixture
def rng() -> random.Random:
    """Chance, from a seed."""
    return random.Random(5)

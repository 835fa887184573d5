"""Cursors on the real stack, made by keepers of this process as a daemon makes them, and the damage
that tests do to them.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace

from msgspec import structs

from cursorkeeper import connections
from cursorkeeper.bookkeeper.errors import NoSuchLedger
from cursorkeeper.bookkeeper.port import LedgerSpec
from cursorkeeper.connections import Ports
from cursorkeeper.core import events as ev
from cursorkeeper.core.footer import Footer
from cursorkeeper.core.limits import Limits
from cursorkeeper.core.names import CursorName
from cursorkeeper.core.whole_form import StateWriter
from cursorkeeper.demo.stack import Standalone
from cursorkeeper.format import footer as codec
from cursorkeeper.format.record import EncodeSettings
from cursorkeeper.runtime.keeper import Keeper
from cursorkeeper.runtime.ledgers import APPLICATION, LedgerPolicy
from cursorkeeper.runtime.limits import KeeperLimits
from cursorkeeper.settings import Settings
from cursorkeeper_pipeline.source.options import Options
from daemon.tests.support import whole
from daemon.tests.support.world import SilentTelemetry, Source, acks

LEDGERS = replace(Limits(), inline_state_max_bytes=0)
"""Nothing fits the footer: there are ledgers to look at."""
EAGER = replace(LEDGERS, snapshot_bytes_min=1, snapshot_cost_ratio=0.0, snapshot_interval_min_s=0.0)
"""A snapshot after every delta."""
WAIT_S = 120.0


def options_of(stack: Standalone, root: str, table: str = "cursors", **more: str) -> Options:
    """For tables read without Spark."""
    return Options.parse(
        {
            "zookeeper": stack.zookeeper,
            "gateway": stack.gateway,
            "root": root,
            "table": table,
            "waitS": "20",
            **more,
        }
    )


@dataclass
class Fleet:
    """Writers on one root. Everything is gone with `fleet`."""

    ports: Ports
    root: str
    keepers: list[Keeper]
    settings: Settings

    async def keeper(
        self, limits: Limits = LEDGERS, state_writer: StateWriter | None = None
    ) -> Keeper:
        """One more daemon; `state_writer`: of whole states in Pulsar's form."""
        made = Keeper(
            self.ports.ledgers,
            self.ports.zookeeper,
            SilentTelemetry(),
            limits=limits,
            keeper_limits=KeeperLimits(),
            policy=LedgerPolicy(),
            encode=EncodeSettings(limits.max_entry_bytes),
            identity=f"k{len(self.keepers)}",
            rng=random.Random(len(self.keepers)),
            root=self.root,
            state_writer=state_writer,
        )
        await made.start()
        self.keepers.append(made)
        return made

    async def source(self, name: CursorName, limits: Limits = LEDGERS) -> Source:
        """An open cursor of a keeper of its own."""
        source = Source(await self.keeper(limits), name)
        await source.open()
        return source

    async def closed_in_pulsar_s_form(self, name: CursorName) -> Footer:
        """A closed cursor whose ledger holds whole states, each in several entries."""
        source = Source(await self.keeper(LEDGERS, whole.writer()), name)
        await source.open()
        await self.acked(source, 3)
        assert await source.keeper.close() == []
        return await self.footer(name)

    async def closed(
        self, name: CursorName, *, rounds: int = 3, limits: Limits = LEDGERS
    ) -> Footer:
        """A closed cursor with `rounds` deltas of 20 single acks in ledger 7."""
        source = await self.source(name, limits)
        await self.acked(source, rounds)
        assert await source.keeper.close() == []
        return await self.footer(name)

    @staticmethod
    async def acked(source: Source, rounds: int, start: int = 0) -> None:
        """Every other entry, each round in a delta of its own (and a snapshot, if it wants one)."""
        for at in range(start, start + rounds):
            source.ack(acks(7, *range(1 + 40 * at, 41 + 40 * at, 2)))
            await source.durable()
            await until(lambda: source.machine.snapshots.run is None, "the snapshot is written")

    async def footer(self, name: CursorName) -> Footer:
        """The committed one."""
        answer = await self.ports.footers.read(name, 0, sync=True)
        assert isinstance(answer, ev.FooterRead) and answer.footer is not None
        return answer.footer

    # ---- damage

    async def overwrite(self, name: CursorName, footer: Footer | bytes) -> None:
        """Somebody's careless hand in ZooKeeper; a footer is put there as a write of this
        version.
        """
        path = name.path(self.root)
        node = await self.ports.zookeeper.get(path)
        data = (
            footer
            if isinstance(footer, bytes)
            else codec.encode(footer.written_at(node.version + 1))
        )
        await self.ports.zookeeper.set(path, data, node.version)

    async def entries(self, ledger: int) -> list[bytes]:
        """What a ledger holds."""
        return [
            payload
            async for chunk in self.ports.ledgers.read(ledger, 0)
            for payload in chunk.payloads
        ]

    async def exist(self, ledgers: Iterable[int]) -> bool:
        """Whether any of them does."""
        for ledger in ledgers:
            with suppress(NoSuchLedger):
                await self.ports.ledgers.metadata(ledger)
                return True
        return False

    async def ledger(
        self, payloads: Sequence[bytes], metadata: dict[str, bytes] | None = None
    ) -> int:
        """A closed ledger with these entries, made by the deployment that its metadata says."""
        custom = metadata or {"application": APPLICATION}
        async with connections.gateway(self.settings, "writer") as ledgers:
            ledgers.act_for(custom.get("deployment", b"").decode())
            made = await ledgers.create(LedgerSpec(3, 3, 2), custom)
            for entry, payload in enumerate(payloads):
                await ledgers.append(made, entry, payload)
            await ledgers.close_ledger(made)
            return made

    async def flip(self, name: CursorName, entry: int) -> int:
        """The cursor's last chain ledger with one bit of one record changed: a copy takes its
        place. The copy's id.
        """
        footer = await self.footer(name)
        old = footer.chain[-1]
        payloads = await self.entries(old.ledger)
        broken = bytearray(payloads[entry])
        broken[-1] ^= 1
        payloads[entry] = bytes(broken)
        copy = await self.ledger(
            payloads, dict((await self.ports.ledgers.metadata(old.ledger)).custom_metadata)
        )
        await self.overwrite(
            name, replace(footer, chain=(*footer.chain[:-1], structs.replace(old, ledger=copy)))
        )
        await self.ports.ledgers.delete(old.ledger)
        return copy


@asynccontextmanager
async def fleet(stack: Standalone, root: str) -> AsyncIterator[Fleet]:
    """Writers, abandoned at the end: what they hold open stays as a crash leaves it."""
    async with fleet_of(options_of(stack, root).settings) as made:
        yield made


@asynccontextmanager
async def fleet_of(settings: Settings) -> AsyncIterator[Fleet]:
    """The same where the settings say."""
    async with connections.ports(settings, "writer") as ports:
        made = Fleet(ports, settings.systems.root, [], settings)
        try:
            yield made
        finally:
            for keeper in made.keepers:
                keeper.abandon()


async def until(condition: Callable[[], bool], what: str, limit_s: float = WAIT_S) -> None:
    """Raises TimeoutError with what was waited for."""
    try:
        async with asyncio.timeout(limit_s):
            while not condition():  # noqa: ASYNC110 - a machine tells nobody of its snapshots
                await asyncio.sleep(0.01)
    except TimeoutError:
        raise TimeoutError(f"not within {limit_s:.0f} s: {what}") from None

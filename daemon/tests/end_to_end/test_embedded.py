"""Stories on the embedded stack: a real ZooKeeper, real bookies, real kills."""

from __future__ import annotations

import pytest

from cursorkeeper.demo.processes import DaemonProcess
from cursorkeeper.demo.stack import Standalone
from cursorkeeper_client import Acks, Client, LedgerAcks, Position, SourceServer
from cursorkeeper_client.ack_stream.connection import SourceConnection
from daemon.tests.end_to_end.conftest import Daemons
from daemon.tests.end_to_end.stories import LIVES, live
from daemon.tests.end_to_end.workload import LAYOUT, Driver, check, driving, recovered

pytestmark = pytest.mark.jvm


async def test_acks_survive_kills_of_the_daemon_and_of_the_whole_stack(
    stack: Standalone, daemons: Daemons
) -> None:
    daemon = await daemons.start(
        stack.gateway,
        stack.zookeeper,
        "--snapshot-bytes-min",
        "4000",
        "--snapshot-interval-min-s",
        "0.2",
    )
    source, driver = await driving(daemon.address, "persistent://e2e/ns/kills", 1)
    for _ in range(2):
        await driver.send_some(60)
        await driver.cursor.durable(driver.cursor.last_seq - 20)
        await daemon.kill()
        await daemon.start()
    await driver.send_some(60)
    stack.restart()
    await driver.send_some(60)
    await driver.cursor.durable()
    assert driver.cursor.opens >= 3
    await source.close()
    await daemon.kill()
    other = await daemons.start(stack.gateway, stack.zookeeper)
    state = await recovered(other.address, "persistent://e2e/ns/kills")
    check(state, driver.truth)
    assert driver.truth.confirmed == driver.truth.sent


async def test_what_was_not_confirmed_at_a_kill_is_never_half_there(
    stack: Standalone, daemons: Daemons
) -> None:
    """The source is killed with the daemon: nobody sends again."""
    daemon = await daemons.start(stack.gateway, stack.zookeeper)
    source, driver = await driving(daemon.address, "persistent://e2e/ns/cut", 2)
    await driver.send_some(100)
    await daemon.kill()
    await source.close()
    other = await daemons.start(stack.gateway, stack.zookeeper)
    state = await recovered(other.address, "persistent://e2e/ns/cut")
    check(state, driver.truth)


async def test_sigterm_closes_every_cursor_and_exits_with_zero(
    stack: Standalone, daemons: Daemons
) -> None:
    daemon = await daemons.start(stack.gateway, stack.zookeeper)
    source, driver = await driving(daemon.address, "persistent://e2e/ns/term", 3)
    await driver.send_some(20)
    await driver.cursor.durable()
    await source.close()
    await daemon.stop()
    assert daemon._process is not None
    assert daemon._process.returncode == 0, daemon.tail()
    other = await daemons.start(stack.gateway, stack.zookeeper)
    async with SourceConnection(other.address) as session:  # closed: no takeover is needed
        state = await session.open("persistent://e2e/ns/term", "sub", create=False).opened()
    check(state, driver.truth)


async def test_a_second_daemon_takes_over_and_the_first_is_deposed(
    stack: Standalone, daemons: Daemons
) -> None:
    first = await daemons.start(stack.gateway, stack.zookeeper)
    second = await daemons.start(stack.gateway, stack.zookeeper)
    topic = "persistent://e2e/ns/duel"
    async with SourceConnection(first.address) as one, SourceConnection(second.address) as two:
        mine = one.open(topic, "sub", layout=LAYOUT)
        await mine.opened()
        await mine.durable(await mine.send(Acks([LedgerAcks(11, [1, 2, 3])])))
        theirs = two.open(topic, "sub", takeover=True)
        state = await theirs.opened()
        assert set(state.acked[11]) == {1, 2, 3}
        await theirs.durable(await theirs.send(Acks([LedgerAcks(11, [4])])))
        with pytest.raises(Exception, match="taken over"):
            while True:
                await mine.durable(await mine.send(Acks([LedgerAcks(11, [5])])), 120)


async def test_the_daemon_dials_a_source_that_serves(stack: Standalone, daemons: Daemons) -> None:
    """The other direction of the stream: `Subscribe`."""
    async with SourceServer() as server:
        daemon = await daemons.start(stack.gateway, stack.zookeeper, "--sources", server.address)
        async with Client(server) as source:
            driver = Driver(
                source.cursor(
                    "persistent://e2e/ns/dialled", "sub", layout=LAYOUT, start=Position(11, -1)
                ),
                4,
            )
            await driver.cursor.opened()
            await driver.send_some(30)
            await daemon.kill()
            await daemon.start()
            await driver.send_some(30)
            await driver.cursor.durable()
        other = await daemons.start(stack.gateway, stack.zookeeper)
        check(await recovered(other.address, "persistent://e2e/ns/dialled"), driver.truth)


class Successors:
    """Each owner is killed before the next one is started, as another process at another
    address.
    """

    def __init__(self, stack: Standalone, daemons: Daemons, first: DaemonProcess) -> None:
        self._daemons, self._owner = daemons, first
        self.gateway, self.zookeeper = stack.gateway, stack.zookeeper

    @property
    def address(self) -> str:
        return self._owner.address

    async def next(self) -> None:
        await self._owner.kill()
        self._owner = await self._daemons.start(self.gateway, self.zookeeper)


async def test_lives_of_cursors_over_their_owners_deaths(
    stack: Standalone, daemons: Daemons
) -> None:
    await live(
        Successors(stack, daemons, await daemons.start(stack.gateway, stack.zookeeper)), LIVES
    )

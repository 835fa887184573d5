"""What stories of a daemon that is away share: limits that are met soon, the plugin's series, and a
newer load of a topic.

Does not own: the processes (`field`), the clients and their ledger (`clients`).
"""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import AsyncIterator, Callable, Mapping

import pytest
from grpc import aio, method_handlers_generic_handler, stream_stream_rpc_method_handler

from cursorkeeper.demo.processes import DaemonProcess
from cursorkeeper_client._proto import acks_pb2 as pb
from cursorkeeper_client._proto import acks_pb2_grpc as rpc
from daemon.tests.pulsar_plugin.field import NAMESPACE, Field, admin, until
from tools.brokers.cluster import PulsarBroker

QUEUE = 20
"""Messages that a consumer may have on their way to it."""
WAITING_MAX = 40
"""Calls; a call of a client acks at most as many messages as its queue takes."""
CONF = {
    "dispatcherPauseOnAckStatePersistentEnabled": "true",
    "cursorKeeperWaitingAcksMax": str(WAITING_MAX),
    "cursorKeeperWaitingAcksBrokerMax": str(WAITING_MAX),
    "cursorKeeperCursorMetricsMax": "3",
    "cursorKeeperOpenTimeoutMs": "15000",
    "cursorKeeperCloseTimeoutMs": "2000",
    "cursorKeeperOnFailedLoad": "stock",
    "cursorKeeperOnStale": "keeper",
}
OF = {"topic": f"persistent://{NAMESPACE}/busy", "sub": "sub"}
LATE = {"topic": f"persistent://{NAMESPACE}/late", "sub": "sub"}
LARGE = {"topic": f"persistent://{NAMESPACE}/large", "sub": "sub"}
STATE_MAX, STATE_MAX_BYTES = "CURSORKEEPER_STATE_BYTES_MAX", 64 << 10
"""The least that a daemon may be told to allow a cursor."""
PARTS, MORE_PARTS = 150, 10
"""Partly acked batches: so many take more than that."""
OF_PROTOCOL_7 = (
    "import cursorkeeper.stream.session as s; s.PROTOCOL_VERSIONS = (7,); from "
    "cursorkeeper.cli.main import main; main()"
)
"""This daemon, but for the versions that it speaks."""
QUIET_LOOKS = 3
"""A second apart: what was on its way when dispatch paused has come, unless the machine is busy."""
LABELS = (
    "state",
    "le",
    "namespace",
    "ledger_name",
    "cursor_name",
    "pulsar_managed_ledger_cursor_name",
    "pulsar_cursorkeeper_cursor_state",
)


class Page:
    """The plugin's series on a metrics page, by name and the labels that tell them apart."""

    def __init__(self, read: Callable[[], str]) -> None:
        self._read = read

    def now(self) -> dict[str, float]:
        found: dict[str, float] = {}
        for line in self._read().splitlines():
            if line.startswith(("pulsar_cursorkeeper_", "pulsar_broker_cursorkeeper_")):
                pairs = [
                    f'{name}="{value}"'
                    for name, value in re.findall(r'(\w+)="([^"]*)"', line)
                    if name in LABELS
                ]
                found[re.split("[{ ]", line)[0] + (f"{{{','.join(pairs)}}}" if pairs else "")] = (
                    float(line.rpartition(" ")[2])
                )
        return found

    def of(self, name: str) -> float:
        return self.now().get(f"pulsar_cursorkeeper_{name}", -1.0)

    async def becomes(self, name: str, right: Callable[[float], bool]) -> None:
        await until(f"{name} is {right}: {self.now()}", lambda: right(self.of(name)))


def page_of(broker: PulsarBroker) -> Page:
    return Page(lambda: broker.get("/metrics/").decode())


async def is_paused(at: Field, page: Page) -> int:
    """Waits until dispatch of the busy topic stands still. Returns its deliveries."""
    await page.becomes("waiting_acks", lambda count: count == WAITING_MAX)
    before, quiet = -1, 0
    while quiet < QUIET_LOOKS:
        now = (await at.clients.do("report", **OF))["deliveries"]
        before, quiet = now, quiet + 1 if now == before else 0
        await asyncio.sleep(1)
    return before


async def goes_on(at: Field, page: Page, *subscriptions: Mapping[str, str]) -> None:
    """By itself: everything is delivered and answered, nothing that was confirmed again."""
    for each in subscriptions:
        said = await at.clients.do("through", **each)
        assert said["again"] == 0, said
    await page.becomes("waiting_acks", lambda count: count == 0)
    await page.becomes('cursors{state="paused"}', lambda count: count == 0)
    assert page.of("waiting_oldest_seconds") == 0


async def displace(daemon: DaemonProcess, topic: str, sub: str = "sub") -> None:
    """Opens a cursor with the next token, as a broker does that has the topic now, and waits for
    its state.
    """
    hello = pb.SourceMessage(hello=pb.Hello(name="newer", incarnation="1", protocol_versions=[1]))

    async def messages(token: int) -> AsyncIterator[pb.SourceMessage]:
        yield hello
        yield pb.SourceMessage(
            open_cursor=pb.OpenCursor(handle=1, topic=topic, subscription=sub, fencing_token=token)
        )
        await asyncio.sleep(3_600)

    async with aio.insecure_channel(daemon.address) as channel, asyncio.timeout(60):
        ref = pb.CursorRef(topic=topic, subscription=sub)
        known: pb.CursorInfo = await rpc.CursorStoreStub(channel).Get(pb.GetRequest(cursor=ref))
        async for said in rpc.AckSinkStub(channel).Publish(messages(known.fencing_token + 1)):
            assert said.WhichOneof("message") != "refused", said
            if said.WhichOneof("message") == "state_end":
                return


async def a_cursor_grows_too_large(
    at: Field, broker: PulsarBroker, page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its daemon refuses more of it: those acks fail, the cursor goes on, and no other topic is
    touched. With a higher limit all is kept.

    The daemon runs with STATE_MAX. The busy topic has a consumer.
    """
    do = at.clients.do

    def ends() -> list[str]:
        return [
            line
            for line in broker.log.read_text().splitlines()
            if "This load of the topic is over" in line
        ]

    before = ends()
    await do("subscribe", name=LARGE["topic"], client="main", **LARGE, keep=2, queue=QUEUE)
    await do("send", client="main", topic=LARGE["topic"], count=10 * PARTS, batch=10)
    said = await do("through", **LARGE)
    assert said["again"] == 0 and said["refused"] > 0 and said["confirmed"] > 0, said
    refused = [
        line
        for line in broker.log.read_text().splitlines()
        if "The keeper refused a change" in line
    ]
    assert len(refused) == page.of("changes_refused_total") > 0, (refused, page.now())
    assert all(
        "persistent/large][sub]" in line
        and "TOO_LARGE: " in line
        and "raise state_bytes_max" in line
        for line in refused
    ), refused
    await do("send", client="main", topic=OF["topic"], count=200)
    assert (await do("through", **OF))["again"] == 0
    await at.daemons[0].stop()
    monkeypatch.delenv(STATE_MAX)
    await at.daemons[0].start()
    await page.becomes("link_up", lambda up: up == 1)
    await do("send", client="main", topic=LARGE["topic"], count=10 * MORE_PARTS, batch=10)
    later = await do("through", **LARGE)
    assert (
        later["again"] == 0
        and later["refused"] == said["refused"]
        and later["confirmed"] == said["confirmed"] + 5 * MORE_PARTS
    ), later
    assert page.of("changes_refused_total") == len(refused) and ends() == before, ends()


async def is_large(at: Field) -> None:
    """After the broker's end, by a new client `main`: what was confirmed is kept, and of what was
    refused comes again what no later ack of the same batch took with it.
    """
    before = await at.clients.do("report", **LARGE)
    await at.clients.do("subscribe", name=LARGE["topic"], client="main", **LARGE, keep=2)
    said = await at.clients.settled(
        LARGE["topic"], client="main", opens=5 * (PARTS + MORE_PARTS) + 1
    )
    assert said["refused"] < before["refused"], (before, said)


async def _of_protocol_7(
    messages: AsyncIterator[pb.SourceMessage], context: object
) -> AsyncIterator[pb.KeeperMessage]:
    """Says so, and leaves it to the source to see that it does not understand."""
    yield pb.KeeperMessage(hello=pb.Hello(name="other", incarnation="1", protocol_versions=[7]))
    async for _ in messages:
        pass


async def other_protocols_are_refused(at: Field, broker: PulsarBroker, page: Page) -> None:
    """By the daemon, and by the plugin: both versions are in the broker's log. A refusal is no
    outage: the load of a topic fails, though this broker may go on with Pulsar's own cursors. The
    daemon is dead, and the late topic not loaded.
    """
    daemon = at.daemons[0]
    this = daemon.program

    async def fails(words: str) -> None:
        said = (
            f"No link with the CursorKeeper daemon at {daemon.address}, which is tried again: "
            f"FAILED_PRECONDITION: {words}"
        )
        await until(
            f"the broker says {said!r}", lambda: said in broker.log.read_text(errors="replace")
        )
        before = page.of("failed_loads_total")
        with pytest.raises(AssertionError, match="LINK_REFUSED"):
            await admin(broker, "GET", f"persistent/{NAMESPACE}/late/stats")
        assert (
            f"late][sub] The cursor does not load: LINK_REFUSED: FAILED_PRECONDITION: {words}"
            in broker.log.read_text(errors="replace")
        )
        assert (
            page.of("failed_loads_total") > before
            and page.of("stock_loads_total") == page.of("link_up") == 0
        ), page.now()

    daemon.program = (sys.executable, "-c", OF_PROTOCOL_7)
    await daemon.start()
    await fails(
        "protocol versions [1] of 'pulsar-broker': this keeper speaks [7]; upgrade one of the two"
    )
    await daemon.kill()
    daemon.program = this
    server = aio.server()
    other = stream_stream_rpc_method_handler(
        _of_protocol_7, pb.SourceMessage.FromString, pb.KeeperMessage.SerializeToString
    )
    server.add_generic_rpc_handlers(
        (method_handlers_generic_handler("cursorkeeper.acks.v1.AckSink", {"Publish": other}),)
    )
    server.add_insecure_port(daemon.address)
    await server.start()
    try:
        await fails(
            "keeper other speaks the protocol versions [7], this client 1; upgrade one of the two"
        )
    finally:
        await server.stop(None)

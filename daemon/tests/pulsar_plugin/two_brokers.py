"""A topic on one of two brokers, with messages and acks that flow while it goes to the other one,
and the verdict at the end.

Serves the tests of topics that move. Owns: where such topics are, their clients. Does not own: what
makes them move.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from cursorkeeper.demo.stack.errors import StackError
from daemon.tests.pulsar_plugin.field import Field, admin, kill, start, topics_of, until
from tools.brokers.cluster import PulsarBroker

CONSUMERS = 2
STARTS_MAX = 4
WHOLE = "0x00000000_0xffffffff"
"""The only bundle of a namespace."""


def topic(name: str) -> str:
    """In a namespace of one bundle for itself: where it is, is not the others' matter."""
    return f"persistent://public/{name}/topic"


async def made(broker: PulsarBroker, *names: str) -> None:
    for name in names:
        await admin(broker, "PUT", f"namespaces/public/{name}", {"bundles": {"numBundles": 1}})


def all_of(*brokers: PulsarBroker) -> str:
    return "pulsar://" + ",".join(each.service_url.removeprefix("pulsar://") for each in brokers)


async def flows(at: Field, name: str, *brokers: PulsarBroker) -> None:
    """Messages and acks, from now on."""
    do = at.clients.do
    await do("client", name=name, url=all_of(*brokers), keep_alive_s=2, operation_s=10)
    for number in range(CONSUMERS):
        await do(
            "subscribe", name=f"{name}-{number}", client=name, topic=topic(name), sub="sub", keep=9
        )
    await do("flow", client=name, topic=topic(name), pause_ms=10)


async def flows_on(at: Field, *names: str, more: int = 100) -> None:
    for name in names:
        await at.clients.do("delivered", topic=topic(name), sub="sub", more=more)


async def is_answered(at: Field, name: str) -> None:
    """Acks get their receipts now, and nothing that was confirmed came again."""
    said = await at.clients.do("answers", topic=topic(name), sub="sub", more=100)
    assert said["again"] == 0, said


async def unload(broker: PulsarBroker, name: str, bundle: str, to: PulsarBroker) -> None:
    """What a load manager does when it has decided."""
    where = to.admin_url.removeprefix("http://")
    await admin(
        broker, "PUT", f"namespaces/public/{name}/{bundle}/unload?destinationBroker={where}"
    )


async def is_at(broker: PulsarBroker, name: str) -> None:
    await until("the topic is where it was sent", lambda: topic(name) in topics_of(broker))


async def settles(at: Field, *names: str) -> None:
    """No more messages: what is to be acked is confirmed at last, and nothing that was confirmed on
    the way came again.
    """
    for name in names:
        await at.clients.do("halt", topic=topic(name))
        said = await at.clients.do("through", topic=topic(name), sub="sub")
        assert said["again"] == 0, said
        for number in range(CONSUMERS):
            await at.clients.do("close", name=f"{name}-{number}")


async def supervised(broker: PulsarBroker) -> None:
    """Starts it as a supervisor does: where the load manager's leader was killed with it, Pulsar
    ends every start until the leader's session is over.
    """
    for _ in range(STARTS_MAX - 1):
        with suppress(StackError):
            await start(broker)
            return
    await start(broker)


async def judged(at: Field, broker: PulsarBroker, *names: str) -> None:
    """By new clients, after kill -9 of every broker."""
    await kill(*at.cluster.brokers)
    await asyncio.gather(at.clients.do("drop"), supervised(broker))
    await at.clients.do("client", name="judge", url=broker.service_url)
    for name in names:
        await at.clients.do(
            "subscribe",
            name=f"judge-{name}",
            client="judge",
            topic=topic(name),
            sub="sub",
            ack="none",
        )
        said = await at.clients.settled(topic(name), client="judge")
        print(name, said)
        assert said["open"] > 10, said

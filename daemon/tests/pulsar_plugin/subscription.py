"""One subscription that lives through a whole roll-out: brokers come and go, and at each of them it
is judged.

Serves the stories of clusters that change. Does not own: the verdict (`clients`).
"""

from __future__ import annotations

import pytest

from daemon.tests.pulsar_plugin.field import NAMESPACE, Field, until
from tools.brokers.cluster import PulsarBroker

COUNT = 1_200


def topic(name: str, namespace: str = NAMESPACE) -> str:
    return f"persistent://{namespace}/{name}"


class Subscription:
    """One that lives through the whole roll-out: at each broker its un-acked messages come, and
    some of them are acked there.
    """

    def __init__(self, at: Field, name: str) -> None:
        self._do, self._clients, self._name, self._of = (
            at.clients.do,
            at.clients,
            name,
            {"topic": name, "sub": "sub"},
        )

    async def begins(self, broker: PulsarBroker) -> None:
        await self._connects(broker)
        await self._do("subscribe", name="now", client="now", **self._of, keep=3)
        await self._do("send", client="now", topic=self._name, count=COUNT)
        await self._do("through", **self._of)

    async def is_whole_at(self, broker: PulsarBroker, keep: int) -> None:
        """By new clients, since the last broker's end. Every `keep`th stays un-acked."""
        await self._connects(broker)
        await self._do("subscribe", name="now", client="now", **self._of, keep=keep)
        await self._clients.settled(self._name, client="now")

    async def is_refused_by(self, broker: PulsarBroker, words: str) -> None:
        await self._connects(broker, operation_s=10)
        with pytest.raises(AssertionError, match="Exception"):
            await self._do("subscribe", name="now", client="now", **self._of)
        await until(
            f"{broker.log} says {words!r}", lambda: words in broker.log.read_text(errors="replace")
        )

    async def _connects(self, broker: PulsarBroker, operation_s: int = 60) -> None:
        """A client that gives up so late: a broker may have to wait for the end of the last one's
        session.
        """
        await self._do("drop")
        await self._do("client", name="now", url=broker.service_url, operation_s=operation_s)

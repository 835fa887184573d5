"""The gateway and the ledgers that Pulsar's own classes write: its cursors' are read, its messages
are given to nobody.
"""

from __future__ import annotations

import pytest

from cursorkeeper.bookkeeper.client import GatewayClient
from cursorkeeper.bookkeeper.errors import GatewayRefused
from cursorkeeper.bookkeeper.settings import GatewayClientSettings
from cursorkeeper.demo.stack import Standalone
from cursorkeeper.format.pulsar import names
from daemon.tests.interop.harness import PulsarHarness

pytestmark = [pytest.mark.jvm, pytest.mark.slow]

TOPIC = names.managed_ledger_name("persistent://interop/ns/whose-ledgers")


async def test_pulsars_cursor_ledgers_are_read_and_its_messages_are_not(
    stack: Standalone, pulsar: PulsarHarness
) -> None:
    topic = f"{TOPIC}-{pulsar.version}"
    pulsar.open_ledger(topic)
    pulsar.open_cursor(topic, "sub")
    messages, _ = pulsar.append(topic, 3).ledgers[0]
    pulsar.mark_delete(topic, "sub", (messages, 1))
    cursor_ledger = pulsar.internals(topic, "sub").cursor_ledger
    for role in ("reader", "writer"):
        client = GatewayClient(GatewayClientSettings(address=stack.gateway, role=role))
        await client.start()
        try:
            for asked in (client.metadata(messages), _first(client, messages)):
                with pytest.raises(GatewayRefused, match="of Pulsar's messages of ") as refused:
                    await asked
                assert refused.value.reason == "NOT_OURS" and str(messages) in str(refused.value)
            seen = {info.ledger async for info in client.list({})}
            assert messages not in seen and (cursor_ledger in seen) == (role == "reader")
            if role == "reader":
                assert (await client.metadata(cursor_ledger)).custom_metadata[
                    "pulsar/cursor"
                ] == b"sub"
                assert not (await client.end_of(messages)).closed, "the broker writes to it"
        finally:
            await client.close()
    pulsar.close_ledger(topic)


async def _first(client: GatewayClient, ledger: int) -> bytes:
    """Its first entry: Pulsar's password is empty, so that nothing but the gateway stands before
    it.
    """
    chunk = await anext(client.read(ledger, 0, unconfirmed=True))
    return chunk.payloads[0]

"""The contract of the ack stream, with the daemon's own stream as the keeper."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio

from clients.tests.ack_stream.conftest import session, topic  # noqa: F401
from daemon.tests.stream.served import ServedKeeper


@pytest_asyncio.fixture
async def keeper() -> AsyncIterator[ServedKeeper]:
    made = ServedKeeper()
    await made.start()
    yield made
    await made.kill()

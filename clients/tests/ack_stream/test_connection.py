"""The gRPC options: that gRPC knows them, and what they are for."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

from grpc._cython import cygrpc

from clients.tests.support.pings import pings_answered
from cursorkeeper_client import ClientSettings
from cursorkeeper_client.ack_stream.connection import serve_subscribe

ROOT = Path(__file__).parents[3]
WITH_OPTIONS = ("clients", "daemon", "pipeline", "bench", "tools", "testcontainers_tests")


def test_every_option_is_one_that_grpc_knows() -> None:
    """It ignores others without a word."""
    texts = [path.read_text() for folder in WITH_OPTIONS for path in (ROOT / folder).rglob("*.py")]
    named = {name for text in texts for name in re.findall(r'\("(grpc\.[a-z0-9_.]+)", ', text)}
    assert len(named) > 10
    library = Path(cygrpc.__file__).read_bytes()
    assert [name for name in sorted(named) if name.encode() + b"\0" not in library] == []


async def test_a_keeper_that_only_pings_keeps_its_subscription() -> None:
    async def quiet(_requests: Any, _context: Any) -> None:
        await asyncio.Event().wait()

    server, port = serve_subscribe("127.0.0.1:0", ClientSettings(), quiet)
    await server.start()
    try:
        assert await pings_answered(f"127.0.0.1:{port}", 20) == 20
    finally:
        await server.stop(grace=0)

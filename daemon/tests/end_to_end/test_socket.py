"""A daemon that listens at a socket of the file system: who may connect, two daemons of one path,
and what a killed one leaves.
"""

from __future__ import annotations

import asyncio
import os
import signal
import stat
import sys
from pathlib import Path

import pytest

from cursorkeeper.demo.stack import Standalone
from cursorkeeper.demo.stack.errors import StackError
from cursorkeeper_client import (
    Acks,
    AnswerTimeout,
    Client,
    ClientSettings,
    LayoutItem,
    LayoutState,
    LedgerAcks,
)
from cursorkeeper_client.tls import TlsFiles
from daemon.tests.end_to_end.conftest import Daemons
from daemon.tests.end_to_end.test_java_client import tls_flags

pytestmark = [pytest.mark.jvm, pytest.mark.timeout(300)]

LEDGER = 7
LAYOUT = [LayoutItem(LEDGER, LayoutState.OPEN)]
ANSWER_MAX_S = 120


async def health(address: str, *flags: str) -> int:
    """The exit code of the command."""
    asked = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "cursorkeeper.cli.main", "health", "--timeout-s", "20"),
        *("--address", address),
        *flags,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    return await asked.wait()


async def confirmed(client: Client, entry: int) -> None:
    async with asyncio.timeout(ANSWER_MAX_S):
        cursor = client.cursor("persistent://a/b/socket", "s", layout=LAYOUT)
        await cursor.durable(await cursor.send(Acks([LedgerAcks(LEDGER, [entry])])))
        await cursor.close()


async def test_one_daemon_at_a_time_serves_a_socket(
    stack: Standalone, daemons: Daemons, tmp_path: Path
) -> None:
    path = tmp_path / "acks.sock"
    address = f"unix:{path}"
    first = await daemons.start(stack.gateway, stack.zookeeper, listen=address)
    assert path.is_socket() and stat.S_IMODE(path.stat().st_mode) == 0o660
    assert await health(address) == 0
    async with Client(address) as client:
        await confirmed(client, 1)
        with pytest.raises(StackError, match="another process listens there"):
            await daemons.start(stack.gateway, stack.zookeeper, listen=address)
        await confirmed(client, 2)
        await first.kill()
        assert path.is_socket(), "killed, it could not remove what is in nobody's use now"
        assert await health(address) == 3
        await first.start()
        await confirmed(client, 3)
        # while streams go on, the one that stops takes its own socket with it and no other
        os.kill(first.pid, signal.SIGTERM)
        async with asyncio.timeout(ANSWER_MAX_S):
            while path.exists() or first.running:
                await asyncio.sleep(0.02)
        await daemons.start(stack.gateway, stack.zookeeper, listen=address)
        await confirmed(client, 4)
    assert path.is_socket()


async def test_tls_at_a_socket(stack: Standalone, daemons: Daemons, tmp_path: Path) -> None:
    address, folder = f"unix:{tmp_path / 'acks.sock'}", tmp_path / "tls"
    await daemons.start(stack.gateway, stack.zookeeper, *tls_flags(folder), listen=address)
    certificate, key, trust = (
        str(folder / f"{name}.pem") for name in ("source", "source-key", "authority")
    )
    flags = (
        *("--tls", "--tls-trust-certs-file-path", trust),
        *("--tls-certificate-file-path", certificate, "--tls-key-file-path", key),
    )
    assert await health(address) == 3
    assert await health(address, *flags) == 3, "the daemon's certificate is not of localhost"
    assert await health(address, *flags, "--tls-server-name", "broker.example.com") == 0
    settings = ClientSettings(
        tls=TlsFiles(certificate, key, trust), tls_server_name="broker.example.com"
    )
    async with Client(address, settings) as client:
        await confirmed(client, 1)


async def test_a_source_is_told_that_nobody_listens(tmp_path: Path) -> None:
    async with Client(f"unix:{tmp_path / 'acks.sock'}") as client:
        with pytest.raises(AnswerTimeout, match="No such file or directory"):
            await client.connected(0.5)

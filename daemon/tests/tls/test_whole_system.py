"""A whole system where nothing of ours is plain text: gateway, daemon, workers, pages, health and a
source, each with a certificate; and who has none, or a wrong one.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import ssl
import sys
import time
import urllib.request
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from cursorkeeper.bookkeeper.client import GatewayClient
from cursorkeeper.bookkeeper.errors import GatewayRetry
from cursorkeeper.bookkeeper.settings import GatewayClientSettings
from cursorkeeper.demo.certificates import CLIENT, SERVER, Authority
from cursorkeeper.demo.processes import DaemonProcess
from cursorkeeper.demo.stack import Standalone
from cursorkeeper_client import Client, ClientSettings, CursorStore
from cursorkeeper_client.errors import CursorKeeperError
from cursorkeeper_client.tls import TlsFiles

pytestmark = pytest.mark.jvm
TOPIC = "persistent://public/default/secured"
GATEWAY, DAEMON = "gateway.example.com", "broker.example.com"
REFRESH_S = 1


class System:
    """Who has which certificate, and the stack."""

    def __init__(self, folder: Path) -> None:
        self.authority = Authority(folder / "authority")
        # as companies issue them: a server's certificate is no client's
        self.gateway = self.authority.issue("gateway", GATEWAY, uses=(SERVER,))
        self.daemon = self.authority.issue("daemon", DAEMON)
        self.source = self.authority.issue("source", "source.example.com", uses=(CLIENT,))
        other = Authority(folder / "other", "other").issue("source", uses=(CLIENT,))
        self.stranger = TlsFiles(other.certificate, other.key, str(self.authority.trust))
        self.nobody = TlsFiles(trust_certs=str(self.authority.trust))
        self.stack = Standalone(
            folder / "stack",
            bookies=1,
            arguments=[
                *("--tls-certificate-file-path", self.gateway.certificate),
                *("--tls-key-file-path", self.gateway.key),
                *("--tls-trust-certs-file-path", self.gateway.trust_certs),
                "--tls-require-trusted-client-cert-on-connect",
                *("--tls-cert-refresh-check-duration-sec", str(REFRESH_S)),
            ],
        )

    def flags(self) -> list[str]:
        """What a daemon of this system is started with."""
        return [
            "--tls-enabled",
            "--gateway-tls-enabled",
            *("--gateway-tls-server-name", GATEWAY),
            *("--tls-server-name", DAEMON),
            *("--tls-certificate-file-path", self.daemon.certificate),
            *("--tls-key-file-path", self.daemon.key),
            *("--tls-trust-certs-file-path", self.daemon.trust_certs),
            "--tls-require-trusted-client-cert-on-connect",
            *("--tls-cert-refresh-check-duration-sec", str(REFRESH_S)),
            *("--ensemble", "1", "--write-quorum", "1", "--ack-quorum", "1"),
        ]

    def half_written(self) -> None:
        """Each key is that of another certificate."""
        spare = self.authority.issue("spare", DAEMON)
        for of in (self.daemon, self.gateway):
            Path(of.key).write_bytes(Path(spare.key).read_bytes())

    @asynccontextmanager
    async def daemon_of(self, folder: Path, *more: str) -> AsyncIterator[DaemonProcess]:
        daemon = DaemonProcess(
            folder, self.stack.gateway, self.stack.zookeeper, [*self.flags(), *more]
        )
        try:
            await daemon.start()
            yield daemon
        finally:
            await daemon.stop()

    def settings(self, files: TlsFiles | None, name: str = DAEMON, **more: Any) -> ClientSettings:
        return ClientSettings(tls=files, tls_server_name=name if files else "", **more)

    def context(self, files: TlsFiles) -> ssl.SSLContext:
        """Of an ordinary HTTPS client; which host it dialled does not matter here."""
        made = ssl.create_default_context(cafile=files.trust_certs)
        made.check_hostname = False
        if files.certificate:
            made.load_cert_chain(files.certificate, files.key)
        return made


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    made = System(tmp_path_factory.mktemp("secured"))
    with made.stack:
        yield made


def page(address: str, context: ssl.SSLContext | None, path: str = "/metrics") -> str:
    scheme = "https" if context else "http"
    with urllib.request.urlopen(f"{scheme}://{address}{path}", context=context, timeout=30) as got:
        text: str = got.read().decode()
    return text


async def health(daemon: DaemonProcess, *flags: str, **variables: str) -> tuple[int, str]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "cursorkeeper.cli.main", "health", "--timeout-s", "20"),
        *("--address", daemon.address, "--json", *flags),
        env={**os.environ, **variables},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    said, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, said.decode()


@pytest.mark.parametrize("workers", [1, 2])
async def test_everything_is_said_through_tls(system: System, workers: int, tmp_path: Path) -> None:
    several = ("--workers", "2", "--worker-port", "0") if workers > 1 else ()
    topics = [f"{TOPIC}-{workers}-{number}" for number in range(6)]
    async with system.daemon_of(tmp_path, *several) as daemon:
        settings = system.settings(system.source)
        async with Client(daemon.address, settings) as client, asyncio.timeout(120):
            for topic in topics:
                async with client.cursor(topic, "s") as cursor:
                    await cursor.ack_many(7, [1, 3, 5])
                    await cursor.durable()
                    # of two workers, one asks the other
                    found = await client.store.ack_state(topic, "s", 7, [1, 2, 3])
                    assert found == {1: True, 2: False, 3: True}
        got = await asyncio.to_thread(page, daemon.metrics, system.context(system.source))
        assert "cursorkeeper_build_info" in got
        files = system.source
        variables = {
            "CURSORKEEPER_TLS_ENABLED": "true",
            "CURSORKEEPER_TLS_TRUST_CERTS_FILE_PATH": files.trust_certs,
            "CURSORKEEPER_TLS_CERTIFICATE_FILE_PATH": files.certificate,
            "CURSORKEEPER_TLS_KEY_FILE_PATH": files.key,
            "CURSORKEEPER_TLS_SERVER_NAME": DAEMON,
        }
        code, said = await health(daemon, **variables)
        assert (code, json.loads(said)["status"]) == (0, "SERVING"), said
        code, said = await health(daemon)
        assert (code, json.loads(said)["status"]) == (3, "NO_ANSWER"), said


async def test_who_has_no_good_certificate_is_not_heard(system: System, tmp_path: Path) -> None:
    async with system.daemon_of(tmp_path) as daemon:
        refused = "may want a certificate"
        cases = {
            "may expect TLS": system.settings(None, connect_timeout_s=5),
            refused: system.settings(system.nobody, connect_timeout_s=5),
            f"{refused}, or does not believe this one": system.settings(
                system.stranger, connect_timeout_s=5
            ),
            "for other names": system.settings(system.source, "other.org", connect_timeout_s=5),
            "of another authority": system.settings(
                TlsFiles(system.source.certificate, system.source.key, system.stranger.certificate),
                connect_timeout_s=5,
            ),
        }
        for what, settings in cases.items():
            async with CursorStore(daemon.address, settings) as store:
                with pytest.raises(CursorKeeperError, match=what):
                    async with asyncio.timeout(60):
                        found = [info async for info in store.list()]
                        pytest.fail(f"{what}: {found}")
        with pytest.raises(OSError):
            await asyncio.to_thread(page, daemon.metrics, None)
        # who scrapes shows nothing
        assert await asyncio.to_thread(page, daemon.metrics, system.context(system.nobody))
        async with CursorStore(daemon.address, system.settings(system.source)) as store:
            assert [info async for info in store.list()] == []


async def test_the_gateway_hears_nobody_else(system: System) -> None:
    for files, words in (
        (None, "may expect TLS"),
        (system.nobody, "want"),
        (system.stranger, "want"),
    ):
        settings = GatewayClientSettings(
            address=system.stack.gateway,
            tls=files,
            tls_server_name=GATEWAY if files else "",
            start_timeout_s=2,
        )
        client = GatewayClient(settings)
        with pytest.raises(GatewayRetry, match=words):
            await client.start()
        await client.close()
    at = str(system.stack.ready["metrics"])
    # a probe shows nothing
    assert await asyncio.to_thread(page, at, system.context(system.nobody), "/health") == (
        "SERVING\n"
    )
    with pytest.raises(OSError):
        await asyncio.to_thread(page, at, None, "/health")


def shown_by(address: str, context: ssl.SSLContext) -> bytes:
    """The certificate that a new connection is shown."""
    host, _, port = address.rpartition(":")
    with (
        socket.create_connection((host, int(port)), 30) as plain,
        context.wrap_socket(plain) as wrapped,
    ):
        return wrapped.getpeercert(binary_form=True) or b""


async def becomes_new(address: str, system: System, before: bytes) -> None:
    context = system.context(system.source)
    for _ in range(600):
        if await asyncio.to_thread(shown_by, address, context) != before:
            return
        await asyncio.sleep(0.1)
    pytest.fail(f"{address} still shows what it did")


async def test_certificates_are_renewed_while_acks_flow(system: System, tmp_path: Path) -> None:
    """What is durable late would be so because a stream broke."""
    longest_s, sent = 0.0, 0
    stopping = asyncio.Event()
    context = system.context(system.source)
    async with system.daemon_of(tmp_path) as daemon:
        pages = (
            daemon.address,
            daemon.metrics,
            system.stack.gateway,
            str(system.stack.ready["metrics"]),
        )
        before = [await asyncio.to_thread(shown_by, at, context) for at in pages]
        async with Client(daemon.address, system.settings(system.source)) as client:
            cursor = client.cursor(f"{TOPIC}-renewed", "s")
            await cursor.opened()

            async def acks() -> None:
                nonlocal longest_s, sent
                while not stopping.is_set():
                    began_s = time.monotonic()
                    await cursor.ack(7, 2 * sent)
                    await cursor.durable()
                    sent += 1
                    longest_s = max(longest_s, time.monotonic() - began_s)

            flowing = asyncio.create_task(acks())
            system.half_written()
            for _ in range(4):
                await asyncio.sleep(REFRESH_S)
                assert [await asyncio.to_thread(shown_by, at, context) for at in pages] == before
            system.authority.issue("daemon", DAEMON)
            system.authority.issue("gateway", GATEWAY, uses=(SERVER,))
            for at, old in zip(pages, before, strict=True):
                await becomes_new(at, system, old)
            stopping.set()
            await flowing
            assert client.connections == 1, "the stream goes on with what it was opened with"
            # a new connection of each kind
            async with CursorStore(daemon.address, system.settings(system.source)) as store:
                found = await store.ack_state(f"{TOPIC}-renewed", "s", 7, [0, 1, 2 * sent - 2])
                assert found == {0: True, 1: False, 2 * sent - 2: True}
            await cursor.close()
    print(f"{sent} messages, the slowest took {longest_s:.3f} s")
    said = (tmp_path / "daemon.log").read_text()
    assert "certificates not renewed" in said and "bug" not in said, said[-2000:]
    assert "the certificates are not renewed" in system.stack.log.read_text()

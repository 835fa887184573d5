"""A daemon behind a gateway that knows its callers one by one, while acks flow: its token is
renewed, its connections end with their age, its rights are taken away and given back.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from cursorkeeper.demo.certificates import SERVER, Authority
from cursorkeeper.demo.processes import DaemonProcess
from cursorkeeper.demo.stack import Standalone
from cursorkeeper_client import Client

pytestmark = pytest.mark.jvm
TOPIC = "persistent://public/default/identified"
AGE_S = 4


def write(file: Path, text: str) -> None:
    """At once, as whoever renews such a file should."""
    draft = file.with_suffix(".draft")
    draft.write_text(text)
    draft.rename(file)


def identities(*tokens: str, deployments: Sequence[str] = ("*",)) -> str:
    hashes = [f"sha256:{hashlib.sha256(token.encode()).hexdigest()}" for token in tokens]
    daemon = {
        "name": "daemon",
        "roles": ["writer"],
        "token_hashes": hashes,
        "deployments": list(deployments),
    }
    return json.dumps({"identities": [daemon]})


class System:
    """The stack with a gateway that reads `known` and writes `audit`, and a daemon's `token`."""

    def __init__(self, folder: Path, content: str, *more: str) -> None:
        self.folder = folder
        self.known, self.token = folder / "identities.json", folder / "token"
        self.audit = folder / "audit.log"
        self.known.write_text(content)
        self.token.write_text("first\n")
        self.stack = Standalone(
            folder / "stack",
            bookies=1,
            arguments=[
                *("--identities-file", str(self.known)),
                *("--audit-log-file", str(self.audit)),
                *("--tls-cert-refresh-check-duration-sec", "1"),
                *more,
            ],
        )

    def daemon(self, *more: str) -> DaemonProcess:
        flags = [
            *(more or ("--gateway-token-file", str(self.token))),
            *("--ensemble", "1", "--write-quorum", "1", "--ack-quorum", "1"),
        ]
        return DaemonProcess(self.folder, self.stack.gateway, self.stack.zookeeper, flags)

    def audited(self) -> list[dict[str, str]]:
        """But for what the gateway warms up with."""
        lines = [json.loads(line) for line in self.audit.read_text().splitlines()]
        return [line for line in lines if line["who"] != "the gateway itself"]


async def until(holds: Callable[[], bool]) -> None:
    for _ in range(600):
        if holds():
            return
        await asyncio.sleep(0.2)
    pytest.fail("it does not become so")


async def test_acks_flow_while_tokens_and_connections_change(tmp_path: Path) -> None:
    system = System(tmp_path, identities("first"), "--connection-age-max-s", str(AGE_S))
    known, token, audited = system.known, system.token, system.audited
    sent, longest_s = 0, 0.0
    with system.stack:
        daemon = system.daemon()
        try:
            await daemon.start()
            async with Client(daemon.address) as client:
                cursor = client.cursor(TOPIC, "s")
                await cursor.opened()
                stopping = asyncio.Event()

                async def acks() -> None:
                    nonlocal sent, longest_s
                    while not stopping.is_set():
                        began_s = time.monotonic()
                        await cursor.ack(7, 2 * sent)
                        await cursor.durable()
                        sent += 1
                        longest_s = max(longest_s, time.monotonic() - began_s)

                flowing = asyncio.create_task(acks())
                async with asyncio.timeout(240):
                    # both count, then the daemon shows the new one, then the old one is gone
                    await asyncio.sleep(1)
                    write(known, identities("first", "second"))
                    await asyncio.sleep(3)
                    write(token, "second\n")
                    await asyncio.sleep(2)
                    write(known, identities("second"))
                    # several connections of their age
                    await until(lambda: len({line["from"] for line in audited()}) >= 3)
                    # nobody is known, and then again
                    write(known, json.dumps({"identities": []}))
                    await until(lambda: any(line["who"] == "anybody" for line in audited()))
                    write(known, identities("second"))
                    before = sent
                    await until(lambda: sent >= before + 20)
                    stopping.set()
                    await flowing
                    found = await client.store.ack_state(TOPIC, "s", 7, range(2 * sent))
                    assert found == {entry: entry % 2 == 0 for entry in range(2 * sent)}
                    await cursor.close()
        finally:
            await daemon.stop()
    print(f"{sent} messages, the slowest took {longest_s:.3f} s")
    lines = audited()
    assert {"create", "fence"} <= {line["action"] for line in lines}
    assert {line["who"] for line in lines} <= {"daemon", "anybody"}
    assert "second" not in system.audit.read_text() and "first" not in system.audit.read_text()
    said = (tmp_path / "daemon.log").read_text()
    assert '"level":"error"' not in said, said[-2000:]


async def test_a_new_root_waits_until_the_file_names_it(tmp_path: Path) -> None:
    system = System(tmp_path, identities("first", deployments=()))
    with system.stack:
        daemon = system.daemon()
        try:
            await daemon.start()
            async with Client(daemon.address) as client, asyncio.timeout(120):
                cursor = client.cursor(TOPIC, "s")
                await cursor.opened()
                # more than fits a footer
                await cursor.ack_many(7, range(0, 400_000, 2))
                waiting = asyncio.create_task(cursor.durable())
                await until(lambda: any(line["action"] == "refused" for line in system.audited()))
                (refused, *_) = system.audited()
                assert (refused["result"], refused["call"]) == ("OTHER_DEPLOYMENT", "Create")
                write(system.known, identities("first", deployments=[refused["deployment"]]))
                await waiting
                assert await client.store.ack_state(TOPIC, "s", 7, [0, 1]) == {0: True, 1: False}
                await cursor.close()
        finally:
            await daemon.stop()


async def test_a_certificate_says_who_a_daemon_is(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "authority")
    gateway = authority.issue("gateway", "gateway.example.com", uses=(SERVER,))
    own = authority.issue("daemon")

    def named(subject: str) -> str:
        one = {"name": "daemon", "roles": ["writer"], "certificates": [subject]}
        return json.dumps({"identities": [one | {"deployments": ["*"]}]})

    system = System(
        tmp_path,
        named("cn=daemon"),
        *("--tls-certificate-file-path", gateway.certificate),
        *("--tls-key-file-path", gateway.key),
        *("--tls-trust-certs-file-path", gateway.trust_certs),
    )
    with system.stack:
        daemon = system.daemon(
            "--gateway-tls-enabled",
            *("--gateway-tls-server-name", "gateway.example.com"),
            *("--tls-certificate-file-path", own.certificate),
            *("--tls-key-file-path", own.key),
            *("--tls-trust-certs-file-path", own.trust_certs),
        )
        try:
            await daemon.start()
            async with Client(daemon.address) as client, asyncio.timeout(120):
                cursor = client.cursor(TOPIC, "s")
                await cursor.opened()
                await cursor.ack_many(7, range(0, 400_000, 2))
                await cursor.durable()
                await until(lambda: any(line["action"] == "create" for line in system.audited()))
                write(system.known, named("CN=another"))
                await cursor.ack_many(7, range(1, 400_000, 2))
                reasons = {"UNKNOWN_CERTIFICATE"}
                await until(lambda: reasons <= {line["result"] for line in system.audited()})
                write(system.known, named("CN=daemon"))
                await cursor.durable()
                await cursor.close()
        finally:
            await daemon.stop()
    assert {line["who"] for line in system.audited()} <= {"daemon", "anybody"}

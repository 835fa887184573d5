"""The Java client (`java/keeper-client`) against a real daemon: its own contract suite, kills in
the middle; and what its jar holds.
"""

from __future__ import annotations

import asyncio
import zipfile
from pathlib import Path

import pytest

from cursorkeeper.demo.certificates import CLIENT, SERVER, Authority
from cursorkeeper.demo.stack import Standalone
from daemon.tests.end_to_end.conftest import Daemons, kill

pytestmark = pytest.mark.jvm

TARGET = Path(__file__).resolve().parents[3] / "java" / "keeper-client" / "target"
JAR = TARGET / "cursorkeeper-keeper-client.jar"
SUITE_MAX_S = 600


def needed(path: Path) -> Path:
    assert path.exists(), f"{path} is missing: run `make jar`"
    return path


def tls_flags(folder: Path) -> tuple[str, ...]:
    """Of a daemon whose sources must have a certificate; the source's is in the same folder."""
    authority = Authority(folder)
    authority.issue("source", "source.example.com", uses=(CLIENT,))
    files = authority.issue("daemon", "broker.example.com", uses=(SERVER,))
    return (
        "--tls-enabled",
        "--tls-require-trusted-client-cert-on-connect",
        *("--tls-certificate-file-path", files.certificate),
        *("--tls-key-file-path", files.key),
        *("--tls-trust-certs-file-path", files.trust_certs),
    )


@pytest.mark.parametrize("kind", ["plain", "workers", "tls", "socket", "socket-tls"])
async def test_the_contract_of_the_java_client_holds_for_the_daemon(
    stack: Standalone, daemons: Daemons, tmp_path: Path, kind: str
) -> None:
    flags: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    if kind == "workers":
        flags = ("--workers", "2", "--worker-port", "0")
    if kind.endswith("tls"):
        flags = tls_flags(tmp_path / "tls")
        options = (f"-Dcursorkeeper.certificates={tmp_path / 'tls'}",)
    listen = f"unix:{tmp_path / 'acks.sock'}" if kind.startswith("socket") else ""
    daemon = await daemons.start(stack.gateway, stack.zookeeper, *flags, listen=listen)
    others = needed(TARGET / "test.classpath").read_text().strip()
    path = f"{needed(JAR)}:{needed(TARGET / 'test-classes')}:{others}"
    log = tmp_path / "contract.log"
    with log.open("wb") as errors:
        suite = await asyncio.create_subprocess_exec(
            "java",
            "-Xmx512m",
            "-Djava.net.preferIPv4Stack=true",
            f"-Dcursorkeeper.address={daemon.address}",
            *options,
            "-cp",
            path,
            "io.cursorkeeper.client.ContractMain",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=errors,
        )
    assert suite.stdin is not None and suite.stdout is not None
    said: list[str] = []
    try:
        async with asyncio.timeout(SUITE_MAX_S):
            while wish := (await suite.stdout.readline()).decode().strip():
                said.append(wish)
                if wish in ("kill", "start"):
                    await (kill(daemon) if wish == "kill" else daemon.start())
                    suite.stdin.write(f"{wish}\n".encode())
            assert await suite.wait() == 0, log.read_text()
    finally:
        if suite.returncode is None:
            suite.kill()
            await suite.wait()
    assert said.count("kill") == said.count("start") == 3
    assert said[-1].endswith("failed 0") and int(said[-1].split()[2]) >= 18, said[-1]


def test_the_jar_holds_no_package_of_anybody_else() -> None:
    """It lives in a broker's class path, beside other versions of what it brings."""
    names = [name for name in zipfile.ZipFile(needed(JAR)).namelist() if not name.endswith("/")]
    foreign = [
        name
        for name in names
        if not name.startswith(("io/cursorkeeper/client/", "io/cursorkeeper/acks/v1/", "META-INF/"))
    ]
    assert not foreign, foreign[:10]
    services = [name for name in names if name.startswith("META-INF/services/")]
    assert any("NameResolverProvider" in name for name in services)
    assert all(
        name.startswith("META-INF/services/io.cursorkeeper.client.shaded.") for name in services
    ), services
    classes = [
        name for name in names if name.startswith("META-INF/versions/") and "/shaded/" not in name
    ]
    assert not classes, classes[:10]

"""What TLS costs: two systems beside each other, one in plain text and one with mutual TLS from the
source to the daemon and from the daemon to the gateway, measured in turns.
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench import throughput
from bench.rows import Row, quantile
from cursorkeeper.demo.certificates import Authority
from cursorkeeper.demo.processes import DaemonProcess
from cursorkeeper.demo.stack import BOTH_COMPILERS, Standalone
from cursorkeeper_client import Client, ClientSettings
from cursorkeeper_client.tls import TlsFiles

TURNS, WARM_UP = 8, 2
SECONDS, ENTRIES = 4.0, 40_000_000
MESSAGES = {"large messages": 16_384, "small messages": 1_000}
FLUSHES = 150
ACKS = 100
NAME = "bench.example.com"


@dataclass
class System:
    daemon: DaemonProcess
    client: Client
    tls: tuple[str, ...]


def run() -> list[Row]:
    return asyncio.run(_run())


async def _run() -> list[Row]:
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stacks:
        for each in ("plain-d", "tls-d"):
            (Path(folder) / each).mkdir()
        files = Authority(Path(folder) / "authority").issue("bench", NAME)
        flags = [
            *("--tls-certificate-file-path", files.certificate),
            *("--tls-key-file-path", files.key),
            *("--tls-trust-certs-file-path", files.trust_certs),
            "--tls-require-trusted-client-cert-on-connect",
        ]
        switches = ["--tls-enabled", "--gateway-tls-enabled", "--gateway-tls-server-name", NAME]
        async with contextlib.AsyncExitStack() as systems:
            made = []
            for name, gateway, daemon, tls in (
                ("plain", (), (), None),
                ("tls", flags, [*switches, *flags], files),
            ):
                stack = stacks.enter_context(
                    Standalone(
                        Path(folder) / name,
                        heap_mib=512,
                        java_options=BOTH_COMPILERS,
                        arguments=list(gateway),
                    )
                )
                made.append(await _system(systems, Path(folder) / f"{name}-d", stack, daemon, tls))
            return [*await _throughput(made), *await _latency(made)]


async def _system(
    systems: contextlib.AsyncExitStack,
    folder: Path,
    stack: Standalone,
    flags: Sequence[str],
    tls: TlsFiles | None,
) -> System:
    daemon = DaemonProcess(folder, stack.gateway, stack.zookeeper, list(flags))
    systems.push_async_callback(daemon.stop)
    await daemon.start()
    settings = ClientSettings(tls=tls, tls_server_name=NAME if tls else "")
    client = await systems.enter_async_context(Client(daemon.address, settings))
    said = (tls.certificate, tls.key, tls.trust_certs, NAME) if tls else ()
    return System(daemon, client, said)


async def _throughput(systems: Sequence[System]) -> list[Row]:
    """Random acks of one cursor, as fast as they go."""
    rows = []
    for case, batch_acks in MESSAGES.items():
        rates: list[list[float]] = [[], []]
        for turn in range(WARM_UP + TURNS):
            for system, found in zip(systems, rates, strict=True):
                said = await throughput.measure(
                    system.daemon,
                    "random",
                    ENTRIES,
                    batch_acks,
                    SECONDS,
                    f"{batch_acks}-{turn}",
                    system.tls,
                )
                found.append(said["acks"] / said["seconds"])
        plain, secured = (quantile(found[WARM_UP:], 0.5) for found in rates)
        rows.append(
            Row(
                "tls_cost",
                f"{case} of {batch_acks:,} acks",
                "stream to durable",
                secured / 1e6,
                "M acks/s",
                secured / plain,
                "plain text",
                "0.9x",
            )
        )
    return rows


async def _latency(systems: Sequence[System]) -> list[Row]:
    """One message at a time."""
    waits: list[list[float]] = [[], []]
    cursors = []
    for system in systems:
        cursors.append(system.client.cursor("persistent://bench/ns/light", "sub"))
        await cursors[-1].opened()
    for number in range(20 + FLUSHES):
        for cursor, found in zip(cursors, waits, strict=True):
            first = number * 2 * ACKS
            began = time.perf_counter()
            await cursor.ack_many(7, range(first, first + 2 * ACKS, 2))
            await cursor.durable()
            found.append(time.perf_counter() - began)
    plain, secured = (quantile(found[20:], 0.5) * 1e3 for found in waits)
    return [
        Row(
            "tls_cost",
            f"one message of {ACKS} acks at a time",
            "more until durable, p50",
            secured - plain,
            "ms",
            secured / plain,
            "plain text",
            "1 ms",
        )
    ]

"""Waiting at the start: the limits in virtual time, the gateway's health from real servers, and
`run` as a process told to stop.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from structlog.testing import capture_logs

from cursorkeeper import readiness
from cursorkeeper.demo.stack.ports import free_port
from cursorkeeper.readiness import Patience, StartError, check_serving
from daemon.tests.runtime.virtual import until, virtual

STATUS = health_pb2.HealthCheckResponse
ROOT = Path(__file__).parents[2]
QUICK_S = 100.0
"""Of a process that should end at once, on a busy machine."""


class Absent:
    """Fails until a moment, in the loop's time; each try takes as long as is said."""

    def __init__(self, until_s: float, *, try_s: float = 0.0, passing: bool = True) -> None:
        self.until_s, self.try_s, self.passing = until_s, try_s, passing
        self.tries_s: list[float] = []

    async def __call__(self) -> str:
        now_s = asyncio.get_running_loop().time()
        self.tries_s.append(now_s)
        await asyncio.sleep(self.try_s)
        if now_s < self.until_s:
            raise StartError("X does not answer", "start it", passing=self.passing)
        return "there"


@virtual
async def test_it_tries_until_the_other_is_there_and_says_so_now_and_then() -> None:
    absent = Absent(35.0)
    with capture_logs() as lines:
        assert await Patience(120).until("X", "h:1", absent) == "there"
    now_s = asyncio.get_running_loop().time()
    assert 35 <= now_s <= 35 + readiness.PAUSE_MAX_S
    pauses = [b - a for a, b in zip(absent.tries_s, absent.tries_s[1:], strict=False)]
    assert (
        pauses[0] <= readiness.PAUSE_MIN_S
        and max(pauses) <= readiness.PAUSE_MAX_S
        and len(pauses) < 80
    )
    told = [line for line in lines if line["event"] == "waiting"]
    assert len(told) == 4, "at once, and every ten seconds"
    first = told[0]
    assert (first["what"], first["where"], first["at_most_s"]) == (
        "X",
        "h:1",
        120.0,
    ) and "does not answer" in first["problem"]
    assert told[-1]["at_most_s"] < 91
    assert [line["event"] for line in lines][-1] == "waited" and 35 <= lines[-1]["waited_s"] <= 36


@virtual
async def test_it_gives_up_at_the_limit_also_in_the_middle_of_a_try() -> None:
    for try_s in (0.0, 7.0, 1000.0):
        began_s = asyncio.get_running_loop().time()
        with pytest.raises(
            StartError, match=r"gave up after start_timeout_s = 20: X .*does not answer"
        ):
            await Patience(20).until("X", "h:1", Absent(float("inf"), try_s=try_s))
        assert asyncio.get_running_loop().time() == pytest.approx(began_s + 20)


@virtual
async def test_the_limit_is_one_for_all_that_is_waited_for() -> None:
    patience = Patience(20)
    await patience.until("X", "h:1", Absent(15))
    with pytest.raises(StartError, match="gave up"):
        await patience.until("Y", "h:2", Absent(1000))
    assert asyncio.get_running_loop().time() == pytest.approx(20)


@virtual
async def test_what_a_person_must_correct_ends_it_at_once() -> None:
    absent = Absent(10, passing=False)
    with capture_logs() as lines, pytest.raises(StartError, match=r"^X does not answer"):
        await Patience(20).until("X", "h:1", absent)
    assert len(absent.tries_s) == 1 and lines == []
    assert asyncio.get_running_loop().time() == 0


@virtual
async def test_without_patience_it_waits_for_a_short_time_and_not_in_silence() -> None:
    with (
        capture_logs() as lines,
        pytest.raises(
            StartError, match=r"gave up after 30 s \(start_timeout_s waits longer\): X does not"
        ),
    ):
        await Patience(0).until("X", "h:1", Absent(float("inf")))
    assert asyncio.get_running_loop().time() == pytest.approx(30)
    assert len(lines) == 3 and "does not answer" in lines[0]["problem"]


@virtual
async def test_a_try_that_takes_long_is_told_while_it_does() -> None:
    """A host that swallows packets fails nothing for a long time."""
    told_at_s: list[float] = []

    async def swallowed() -> str:
        await asyncio.sleep(22)
        return "there"

    def hear(_logger: object, _method: str, event: dict[str, object]) -> dict[str, object]:
        told_at_s.append(asyncio.get_running_loop().time())
        return event

    with capture_logs(processors=[hear]) as lines:
        assert await Patience(60).until("X", "h:1", swallowed) == "there"
    assert told_at_s == [3, 13, 22] and [line["event"] for line in lines] == [
        "waiting",
        "waiting",
        "waited",
    ]
    assert lines[0]["where"] == "h:1" and "X at h:1 does not answer yet" in lines[0]["problem"]


@virtual
async def test_nothing_is_said_of_what_is_there() -> None:
    with capture_logs() as lines:
        await Patience(20).until("X", "h:1", Absent(0))
    assert lines == []


@asynccontextmanager
async def health_server(port: int, status: int | None) -> AsyncIterator[health.aio.HealthServicer]:
    server, servicer = grpc.aio.server(), health.aio.HealthServicer()
    if status is not None:
        health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
        await servicer.set("", status)
    assert server.add_insecure_port(f"127.0.0.1:{port}") == port
    await server.start()
    try:
        yield servicer
    finally:
        await server.stop(0)


async def test_a_gateway_that_comes_late_and_can_serve_later() -> None:
    port = free_port()
    address = f"127.0.0.1:{port}"
    with capture_logs() as lines:
        waiting = asyncio.create_task(
            Patience(60).until("the gateway", address, lambda: check_serving(address))
        )
        await until(lambda: bool(lines))
        assert "UNAVAILABLE" in lines[0]["problem"]
        async with health_server(port, STATUS.NOT_SERVING) as servicer, asyncio.timeout(30):
            with pytest.raises(StartError, match="is there and cannot serve") as caught:
                await check_serving(address)
            assert caught.value.passing and not waiting.done()
            await servicer.set("", STATUS.SERVING)
            await waiting


async def test_a_server_without_health_speaks_for_itself_and_a_silent_one_does_not_hold_us() -> (
    None
):
    port = free_port()
    async with health_server(port, None):
        await check_serving(f"127.0.0.1:{port}")
    with (
        socket.create_server(("127.0.0.1", 0)) as silent,
        pytest.raises(StartError, match="DEADLINE_EXCEEDED") as caught,
    ):
        await check_serving(f"127.0.0.1:{silent.getsockname()[1]}")
    assert caught.value.passing


# ---- the process


class Run:
    """`cursorkeeper run` with nothing behind it."""

    def __init__(self, *flags: str, zookeeper: str = "") -> None:
        path = os.pathsep.join([str(ROOT / "clients"), str(ROOT / "daemon")])
        zookeeper = zookeeper or f"127.0.0.1:{free_port()}"
        where = [
            "--zookeeper",
            zookeeper,
            "--gateway",
            f"127.0.0.1:{free_port()}",
            "--listen",
            "127.0.0.1:0",
        ]
        self.process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "cursorkeeper.cli.main",
                "run",
                *where,
                "--metrics-listen",
                "",
                *flags,
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": path},
        )

    def end(self, number: int | None = None) -> tuple[int, str, str, float]:
        """Exit code, output, log, and the seconds that it took."""
        began_s = time.monotonic()
        if number is not None:
            self.process.send_signal(number)
        out, log = self.process.communicate(timeout=180)
        return self.process.returncode, out, log, time.monotonic() - began_s


@pytest.fixture
def runs() -> Iterator[list[Run]]:
    made: list[Run] = []
    yield made
    for run in made:
        run.process.kill()
        run.process.communicate(timeout=60)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_told_to_stop_while_it_waits_it_stops_at_once(runs: list[Run], number: int) -> None:
    runs.append(Run("--start-timeout-s", "250"))
    assert runs[0].process.stderr is not None
    assert '"event":"waiting"' in runs[0].process.stderr.readline()
    code, out, log, took_s = runs[0].end(number)
    assert (code, out) == (0, "") and "stopped before it was ready" in log
    assert took_s < QUICK_S


def test_told_to_stop_in_the_middle_of_a_try_it_stops_at_once(runs: list[Run]) -> None:
    """A server that takes the connection and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(120)
        runs.append(Run(zookeeper=f"127.0.0.1:{silent.getsockname()[1]}"))
        connection, _ = silent.accept()
        with connection:
            code, out, _, took_s = runs[0].end(signal.SIGTERM)
    assert (code, out) == (0, "") and took_s < QUICK_S


def test_told_to_stop_while_its_modules_load(runs: list[Run]) -> None:
    runs.append(Run("--start-timeout-s", "250"))
    deadline_s = time.monotonic() + 120
    while not is_caught(runs[0].process.pid, signal.SIGTERM):
        assert time.monotonic() < deadline_s, "SIGTERM never had a handler"
        time.sleep(0.002)
    code, out, _, took_s = runs[0].end(signal.SIGTERM)
    assert (code, out) == (0, "") and took_s < QUICK_S


def test_it_gives_up_with_a_reason(runs: list[Run]) -> None:
    runs.append(Run("--start-timeout-s", "4"))
    code, out, log, _ = runs[0].end()
    assert (code, out) == (3, "")
    said = log.splitlines()
    assert said[0].startswith('{"what":"ZooKeeper"') and '"at_most_s":' in said[0]
    assert said[-2].startswith("cursorkeeper: gave up after start_timeout_s = 4: ZooKeeper at ")
    assert said[-1].startswith("What to do: no ZooKeeper server answers")


def test_a_refused_connection_is_called_that_at_once(runs: list[Run]) -> None:
    """By name and address, in the first line: of ZooKeeper by the process, of a gateway by what the
    process asks it.
    """
    runs.append(Run(zookeeper="127.0.0.1:1"))
    assert runs[0].process.stderr is not None
    line = runs[0].process.stderr.readline()
    assert '"where":"127.0.0.1:1"' in line and "connection refused" in line.lower()


def is_caught(pid: int, number: int) -> bool:
    """Whether the process has a handler of its own for a signal."""
    status = Path(f"/proc/{pid}/status").read_text()
    return bool(
        int(next(line.split()[1] for line in status.splitlines() if line.startswith("SigCgt:")), 16)
        >> (number - 1)
        & 1
    )

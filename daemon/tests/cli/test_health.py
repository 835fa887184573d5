"""`health` against real gRPC servers: each answer with its exit code, where it asks, and that it
starts light.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from typer.testing import CliRunner, Result

from cursorkeeper.cli import main as program
from cursorkeeper.demo.stack.ports import free_port
from cursorkeeper.probe import DEFAULT_ADDRESS, LISTEN_VARIABLE, address_to_ask
from cursorkeeper.problems import ProblemError
from cursorkeeper.settings import ENVIRONMENT_PREFIX, Settings
from cursorkeeper.terminal.failure import AWAY, NO, USAGE, exit_code

ROOT = Path(__file__).parents[3]
STATUS = health_pb2.HealthCheckResponse


def ask(*arguments: str, **environment: str) -> Result:
    patient = [] if "--timeout-s" in arguments else ["--timeout-s", "60"]
    return CliRunner().invoke(
        program.app,
        ["health", *patient, *arguments],
        env={"COLUMNS": "160", "NO_COLOR": "1"} | environment,
    )


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """A server that serves as a whole, and of two services one."""
    server = grpc.server(ThreadPoolExecutor(2))
    servicer = health.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
    for service, status in (
        ("", STATUS.SERVING),
        ("up", STATUS.SERVING),
        ("down", STATUS.NOT_SERVING),
    ):
        servicer.set(service, status)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield f"127.0.0.1:{port}"
    server.stop(0).wait(10)


@pytest.mark.parametrize(
    ("service", "code", "status"),
    [
        ("", 0, "SERVING"),
        ("up", 0, "SERVING"),
        ("down", NO, "NOT_SERVING"),
        ("nothing", NO, "SERVICE_UNKNOWN"),
    ],
)
def test_each_answer_has_its_exit_code(address: str, service: str, code: int, status: str) -> None:
    said = ask("--address", address, "--service", service)
    assert said.exit_code == code, said.output
    assert f"{address}: {status}" in said.output and ("What to do: " in said.stderr) == (code != 0)
    line = ask("--address", address, "--service", service, "--json")
    assert line.exit_code == code
    assert json.loads(line.stdout) | {"message": ""} == {
        "address": address,
        "service": service,
        "status": status,
        "message": "",
    }


def test_a_socket_of_the_file_system_is_asked(tmp_path: Path) -> None:
    where = f"unix:{tmp_path / 'acks.sock'}"
    nobody = ask(**{LISTEN_VARIABLE: where})
    assert nobody.exit_code == AWAY and "No such file or directory" in nobody.output
    server = grpc.server(ThreadPoolExecutor(1))
    servicer = health.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
    servicer.set("", STATUS.SERVING)
    server.add_insecure_port(where)
    server.start()
    try:
        for said in (ask("--address", where), ask(**{LISTEN_VARIABLE: where})):
            assert said.exit_code == 0 and said.output == f"{where}: SERVING\n"
    finally:
        server.stop(0).wait(10)


def test_nobody_there() -> None:
    said = ask("--address", f"127.0.0.1:{free_port()}", "--json")
    assert said.exit_code == AWAY and json.loads(said.stdout)["status"] == "NO_ANSWER"
    assert "What to do: start it" in said.stderr


def test_somebody_who_says_nothing_is_given_up_at_the_limit() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        said = ask("--address", f"127.0.0.1:{silent.getsockname()[1]}", "--timeout-s", "0.3")
    assert said.exit_code == AWAY and "NO_ANSWER: Deadline Exceeded" in said.output


def test_a_server_without_health() -> None:
    server = grpc.server(ThreadPoolExecutor(1))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        said = ask("--address", f"127.0.0.1:{port}")
    finally:
        server.stop(0).wait(10)
    assert said.exit_code == AWAY and "NO_HEALTH_SERVICE" in said.output


def test_the_environment_says_where_and_a_proxy_has_no_say(address: str) -> None:
    port = address.rpartition(":")[2]
    proxy = {
        name: f"http://127.0.0.1:{free_port()}"
        for name in ("http_proxy", "https_proxy", "grpc_proxy")
    } | {"no_proxy": ""}
    said = ask(**{LISTEN_VARIABLE: f"0.0.0.0:{port}"}, **proxy)
    assert said.exit_code == 0 and said.output == f"{address}: SERVING\n"


def test_where_it_asks() -> None:
    assert (
        Settings.of().daemon.listen == DEFAULT_ADDRESS
        and f"{ENVIRONMENT_PREFIX}LISTEN" == LISTEN_VARIABLE
    )
    assert (
        address_to_ask(None, None) == DEFAULT_ADDRESS
        and address_to_ask(None, "") == DEFAULT_ADDRESS
    )
    assert address_to_ask("gateway:7651", "0.0.0.0:1") == "gateway:7651"
    assert (
        address_to_ask(None, "[::]:7650")
        == address_to_ask("0.0.0.0:7650", None)
        == "127.0.0.1:7650"
    )
    assert address_to_ask(None, "[::1]:7650") == "[::1]:7650"
    assert (
        address_to_ask(None, "unix:/run/acks.sock")
        == address_to_ask("unix:///run/acks.sock", "0.0.0.0:1")
        == "unix:/run/acks.sock"
    )
    with pytest.raises(ProblemError, match="is not absolute") as relative:
        address_to_ask("unix:acks.sock", None)
    assert exit_code(relative.value.problem) == USAGE
    for given, listen in (
        ("", None),
        ("host", None),
        (":1", None),
        ("h:0", None),
        ("h:65536", None),
        (None, "h:port"),
    ):
        with pytest.raises(ProblemError, match="is not an address to ask") as caught:
            address_to_ask(given, listen)
        assert exit_code(caught.value.problem) == USAGE


def test_a_limit_that_is_none() -> None:
    for wrong in ("0", "-1", "nan", "soon"):
        assert ask("--timeout-s", wrong).exit_code == USAGE


def test_it_loads_nothing_heavy(address: str) -> None:
    """It is started every few seconds, beside a daemon that has the memory and the processor to
    itself otherwise.
    """
    code = (
        f"import sys\nfrom cursorkeeper.cli.main import app\nfor port in ('{address}', "
        "'127.0.0.1:1'):\n    try: app(['health', '--timeout-s', '60', '--address', port])\n    "
        "except SystemExit as end: print(end.code)\nprint([m for m in ('numpy', 'rich', "
        "'cursorkeeper.settings', 'msgspec', 'structlog', 'prometheus_client') if m in "
        "sys.modules])"
    )
    path = os.pathsep.join([str(ROOT / "clients"), str(ROOT / "daemon")])
    environment = os.environ | {"PYTHONPATH": path}
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env=environment,
        timeout=60,
    )
    assert done.stdout.splitlines()[1:] == ["0", "3", "[]"]

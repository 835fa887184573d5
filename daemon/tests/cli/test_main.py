"""The program as a whole, without any system behind it: help, exit codes, errors, start-up time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner, Result

from cursorkeeper import connections
from cursorkeeper.bookkeeper import errors as bk
from cursorkeeper.cli import main as program
from cursorkeeper.core.errors import DamageError, Refusal, RefusedError, TooNewError
from cursorkeeper.demo.stack.ports import free_port
from cursorkeeper.problems import Kind, Problem, ProblemError, problem_of
from cursorkeeper.pulsar_broker.settings import PulsarSettingsError
from cursorkeeper.readiness import StartError
from cursorkeeper.settings import Settings, SettingsError, load
from cursorkeeper.terminal import options
from cursorkeeper.terminal.failure import AWAY, BUG, NO, USAGE, exit_code, show
from cursorkeeper.terminal.group import ExplainingGroup
from cursorkeeper.zookeeper import errors as zk
from daemon.tests.cli.conftest import given_to

CURSOR = "persistent://t/ns/topic|sub"


def cursorkeeper(*arguments: str) -> Result:
    return CliRunner().invoke(program.app, list(arguments), env={"COLUMNS": "160", "NO_COLOR": "1"})


def test_every_command_is_listed_and_has_help() -> None:
    listed = cursorkeeper("--help")
    assert listed.exit_code == 0
    for name in program.LAZY:
        assert f" {name} " in listed.output
        text = cursorkeeper(name, "--help")
        assert text.exit_code == 0, text.output
        assert "Usage:" in text.output and "Traceback" not in text.output


def test_every_command_of_ours_has_json_and_debug() -> None:
    for name in (
        "ls",
        "inspect",
        "verify",
        "export",
        "import",
        "gc",
        "import-pulsar",
        "export-pulsar",
    ):
        text = cursorkeeper(name, "--help").output
        for flag in ("--json", "--debug", "--zookeeper", "--root", "--config", "--broker-conf"):
            assert flag in text, (name, flag)
        assert ("--gateway" in text) == (name != "ls")


def test_version() -> None:
    assert cursorkeeper("--version").output.startswith("cursorkeeper 0.")


def test_no_command_shows_the_help() -> None:
    assert "Commands" in cursorkeeper().output


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["lss"], USAGE, "Did you mean 'ls'"),
        (["ls", "--colour"], USAGE, "--colour"),
        (["inspect"], USAGE, "CURSOR"),
        (["inspect", "no-bar"], USAGE, "'no-bar' is not a cursor's name"),
        (["inspect", "|sub"], USAGE, "is not a cursor's name"),
        (["inspect", "t", "s" * 1100], NO, "1024 are allowed"),
        (["verify"], USAGE, "nothing to verify"),
        (["verify", "--all", CURSOR], USAGE, "cursors and --all"),
        (["import", "/no/such/file"], USAGE, "/no/such/file: No such file"),
        (["export", CURSOR, "-o", "/"], USAGE, "is a directory"),
        (["ls", "--zookeeper", "host:port"], USAGE, "zookeeper = 'host:port'"),
        (["gc", "--gateway", "nowhere"], USAGE, "gateway = 'nowhere' is not an address"),
        (["ls", "--config", "/no/such.toml"], USAGE, "/no/such.toml: no such file"),
        (["ls", "--broker-conf", "/no/such.conf"], USAGE, "/no/such.conf"),
        (["run", "--parent-pid", "-4"], USAGE, "--parent-pid -4"),
        (["run", "--listen", "here"], USAGE, "listen = 'here' is not an address"),
        (["run", "--ensemble", "many"], USAGE, "--ensemble"),
    ],
)
def test_usage_errors(arguments: list[str], code: int, says: str) -> None:
    result = cursorkeeper(*arguments)
    assert result.exit_code == code, result.output
    assert says in " ".join(result.output.split()) and "Traceback" not in result.output


async def test_a_dead_zookeeper_and_a_dead_gateway_are_named() -> None:
    address = f"127.0.0.1:{free_port()}"
    dead = Settings.of(zookeeper=address, gateway=address)
    for opening, name in (
        (connections.zookeeper(dead.systems, 0.3), "ZooKeeper"),
        (connections.gateway(dead, "reader", 0.3), "the ledger gateway"),
    ):
        with pytest.raises(ProblemError) as error:
            await opening.__aenter__()
        problem = error.value.problem
        assert (
            problem.kind is Kind.AWAY
            and problem.message.startswith(f"{name} at {address} does not answer")
            and problem.remedy
        )


@pytest.mark.parametrize("left", [0, 1])
def test_the_exit_code_of_run_is_the_daemons(left: int) -> None:
    served: dict[str, Any] = {}

    def serve(**given: Any) -> int:
        served.update(given)
        return left

    arguments = [
        "--zookeeper",
        "h:1",
        "--no-shrink-ensemble",
        "--source",
        "a:1",
        "--sources",
        "b:2",
        "--ledger-age-max-s",
        "7.5",
        "--uvloop",
    ]
    assert CliRunner().invoke(given_to(serve), [*arguments, "--parent-pid", "12"]).exit_code == left
    settings = load(environment={}, flags=served["flags"])
    assert (
        settings.systems.zookeeper,
        settings.ledgers.shrink_ensemble,
        settings.daemon.sources,
        settings.cursor.ledger_age_max_s,
        served["parent_pid"],
    ) == (
        "h:1",
        False,
        ["a:1", "b:2"],
        7.5,
        12,
    )


ERRORS: list[tuple[BaseException, int, str]] = [
    (ProblemError("m", "r", Kind.AWAY), AWAY, "m"),
    (SettingsError("ensemble = 1: too few"), USAGE, "ensemble"),
    (PulsarSettingsError("Pulsar 9.9: its defaults are not known", "use 4.2"), USAGE, "Pulsar 9.9"),
    (StartError("the gateway at x does not answer"), AWAY, "gateway at x"),
    (RefusedError(Refusal.NOT_FOUND, "c", "m", "r"), NO, "c: m"),
    (DamageError("m", "ledger 1 entry 2"), NO, "ledger 1 entry 2: m"),
    (TooNewError("version 2"), NO, "version 2"),
    (FileNotFoundError(2, "No such file", "f"), USAGE, "f: No such file"),
    (bk.GatewayRetry("TIMEOUT", bk.Outcome.UNKNOWN, ledger=4), AWAY, "ledger 4: TIMEOUT"),
    (bk.NoSuchLedger("NO_SUCH_LEDGER", bk.Outcome.NOT_DONE, ledger=4), NO, "ledger 4"),
    (bk.GatewayRefused("UNAUTHENTICATED", bk.Outcome.NOT_DONE), NO, "UNAUTHENTICATED"),
    (zk.ConnectionLost("gone"), AWAY, "gone"),
    (zk.AccessDenied(path="/x"), NO, "/x"),
    (ZeroDivisionError("x"), BUG, "ZeroDivisionError"),
]


@pytest.mark.parametrize(
    ("error", "code", "says"), ERRORS, ids=[type(e).__name__ for e, _, _ in ERRORS]
)
def test_every_error_has_a_message_a_remedy_and_a_code(
    error: BaseException, code: int, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    problem = problem_of(error)
    assert exit_code(problem) == code and says in str(problem) and problem.remedy
    show(problem)
    assert len(capsys.readouterr().err.splitlines()) == 2


def test_a_traceback_only_with_debug() -> None:
    buggy = typer.Typer(cls=ExplainingGroup)
    buggy.callback()(lambda: None)

    @buggy.command()
    def bug(*, debug: options.Debug = False) -> None:
        raise KeyError("surprise")

    result = CliRunner().invoke(buggy, ["bug"])
    assert result.exit_code == BUG and "--debug" in result.output
    result = CliRunner().invoke(buggy, ["bug", "--debug"])
    assert isinstance(result.exception, KeyError)


def test_problems_fit_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    show(Problem("a\n  b", ""))
    assert capsys.readouterr().err == "cursorkeeper: a b\n"


def run_program(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    root = Path(__file__).parents[3]
    path = os.pathsep.join([str(root / "clients"), str(root / "daemon")])
    return subprocess.run(
        [sys.executable, "-m", "cursorkeeper.cli.main", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=os.environ | {"PYTHONPATH": path} | environment,
    )


def test_help_needs_nothing_heavy() -> None:
    code = (
        "import sys\nfrom typer.testing import CliRunner\nfrom cursorkeeper.cli.main import app\n"
        "assert CliRunner().invoke(app, ['--help']).exit_code == 0\n"
        "print([m for m in ('grpc', 'numpy', 'pyroaring', 'msgspec', 'structlog', "
        "'prometheus_client') if m in sys.modules])"
    )
    root = Path(__file__).parents[3]
    path = os.pathsep.join([str(root / "clients"), str(root / "daemon")])
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"PYTHONPATH": path},
    )
    assert done.stdout.strip() == "[]"


def test_as_a_process() -> None:
    done = run_program("ls", "--zookeeper", "nonsense:", COLUMNS="100")
    assert (done.returncode, done.stdout) == (USAGE, "")
    assert done.stderr.splitlines()[0].startswith("cursorkeeper: zookeeper = 'nonsense:'")


def test_a_setting_from_the_environment_counts_for_tools_too() -> None:
    done = run_program("ls", CURSORKEEPER_ZOOKEEPER="x:y")
    assert done.returncode == USAGE and "'x:y'" in done.stderr


def test_json_lines_are_json(capsys: pytest.CaptureFixture[str]) -> None:
    from cursorkeeper.terminal.output import json_line

    json_line({"a": [1, None], "ü": Path("t")})
    assert json.loads(capsys.readouterr().out) == {"a": [1, None], "ü": "t"}


WAITS = """
import asyncio, os, signal
from cursorkeeper.terminal.prompt import ended_at_once

async def command():
    with ended_at_once():
        signal.raise_signal(signal.SIGINT)  # as a person does who is asked something
    os._exit(9)

asyncio.run(command())
"""


def test_one_ctrl_c_ends_what_waits_for_a_person() -> None:
    """Without an await a cancellation would come only after the answer."""
    ended = subprocess.run(
        [sys.executable, "-c", WAITS], capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.returncode not in (0, 9) and "KeyboardInterrupt" in ended.stderr

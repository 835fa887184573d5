"""The command's own part: what a person reads when a process does not start."""

from __future__ import annotations

import pytest
from cursorkeeper.cli.main import app
from cursorkeeper.demo import command
from cursorkeeper_clients.stack import StackError
from typer.testing import CliRunner


def test_why_the_demo_could_not_run_is_said_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Paths stand in it, and a bracket in one is no markup."""

    def no() -> None:
        raise StackError("no java at [/opt/jdk] of [red]")

    monkeypatch.setattr(command, "check_java", no)
    ended = CliRunner().invoke(app, ["demo"])
    assert (ended.exit_code, ended.stderr) == (3, "the demo could not run: no java at [/opt/jdk] of [red]\n")

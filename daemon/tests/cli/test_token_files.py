"""Token files are read before anything is waited for: a daemon that was told to ask for a token never runs without one."""

from __future__ import annotations

from pathlib import Path

import pytest
from cursorkeeper.cli import main as program
from typer.testing import CliRunner

NOBODY = ["--zookeeper", "127.0.0.1:1", "--gateway", "127.0.0.1:1", "--start-timeout-s", "60"]
"""It would wait for these for a minute."""


@pytest.mark.parametrize("setting", ["source_token_file", "gateway_token_file"])
@pytest.mark.parametrize(("content", "says"), [(None, "No such file or directory"), ("\n", "holds no token")])
def test_a_token_file_that_cannot_be_used_is_refused_at_once(tmp_path: Path, setting: str, content: str | None, says: str) -> None:
    file = tmp_path / "token"
    if content is not None:
        file.write_text(content)
    ended = CliRunner().invoke(program.app, ["run", f"--{setting.replace('_', '-')}", str(file), *NOBODY])
    assert ended.exit_code == 2, ended.output
    assert f"{setting} = {str(file)!r}" in ended.output and says in ended.output and "What to do: " in ended.output

"""Where a job's results go: what is said to people holds nothing that a terminal obeys, and JSON
holds everything.
"""

from __future__ import annotations

import json

import pytest

from cursorkeeper_pipeline.jobs.frame import Reporter

EVIL = "persistent://t/n/\x1b]0;owned\x07\x1b[2J[red]\r\n\x9b31m|s"


def test_names_reach_a_terminal_spelled_out(capsys: pytest.CaptureFixture[str]) -> None:
    Reporter("audit").say(f"record_damaged  {EVIL}")
    said = capsys.readouterr().out
    assert (
        said
        == "record_damaged  persistent://t/n/\\x1b]0;owned\\x07\\x1b[2J[red]\\x0d\\x0a\\x9b31m|s\n"
    )


def test_programs_get_them_as_they_are_and_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    out = Reporter("audit", as_json=True)
    out.say(EVIL)
    out.json({"cursor": EVIL})
    said = capsys.readouterr().out
    assert json.loads(said) == {"cursor": EVIL} and "\x1b" not in said

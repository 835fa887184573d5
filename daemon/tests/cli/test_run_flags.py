"""The flags of `run` are the settings, each with its own words."""

from __future__ import annotations

from typing import get_type_hints

from typer.testing import CliRunner

from cursorkeeper.cli import main as program
from cursorkeeper.cli.run import panels_and_docs
from cursorkeeper.settings import HIDDEN, Settings


def help_text(columns: int = 200) -> str:
    return (
        CliRunner()
        .invoke(program.app, ["run", "--help"], env={"COLUMNS": str(columns), "NO_COLOR": "1"})
        .output
    )


def test_every_setting_is_a_flag_with_its_default() -> None:
    text = help_text()
    for columns in (60, 80, 200):  # whole, at any width
        narrow = help_text(columns)
        for name, kind in get_type_hints(Settings).items():
            if name in HIDDEN:
                continue
            flag = f"--{name.replace('_', '-')}"
            assert f" {flag} " in narrow or f"{flag}," in narrow, (name, columns)
            if kind is bool:
                assert f"--no-{flag[2:]}" in narrow, (name, columns)
    assert "(default: 127.0.0.1:7650)" in text and "(default: 1048576)" in text


def test_docs_and_panels_come_from_the_source() -> None:
    panels, docs = panels_and_docs()
    assert panels.keys() == set(Settings.__struct_fields__)
    assert panels["listen"] == "who and where" and panels["gateway"] == "the systems it stands on"
    assert docs["listen"].startswith("Where sources publish")
    assert docs["chain_ledgers_max"] == "A longer chain starts a snapshot.", "of core.limits"
    assert not [name for name in panels if not docs.get(name)], (
        "every flag of `run` says what it is for"
    )


def test_the_help_says_where_settings_come_from() -> None:
    text = " ".join(help_text().split())
    for word in ("--broker-conf", "--config", "CURSORKEEPER_ZOOKEEPER", "Exit codes", "[/chroot]"):
        assert word in text, word

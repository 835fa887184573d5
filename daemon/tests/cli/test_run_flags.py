"""The flags of `run` are the settings, each with its own words."""

from __future__ import annotations

from dataclasses import fields

from typer.testing import CliRunner

from cursorkeeper.cli import main as program
from cursorkeeper.core.setting import settings_of
from cursorkeeper.settings import GROUPS, SETTINGS, Settings


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
        for name, one in SETTINGS.items():
            flag = f"--{name.replace('_', '-')}"
            assert f" {flag} " in narrow or f"{flag}," in narrow, (name, columns)
            if one.kind is bool:
                assert f"--no-{flag[2:]}" in narrow, (name, columns)
    text = " ".join(text.split())
    assert "(default: 127.0.0.1:7650)" in text and "(default: 1048576)" in text


def test_every_setting_is_declared_once_with_its_help() -> None:
    made = Settings.of()
    groups = [getattr(made, field.name) for field in fields(Settings) if field.name != "given"]
    assert [type(group) for group in groups] == list(GROUPS)
    found = [field for group in groups for field in fields(group)]
    assert [field.name for field in found] == list(SETTINGS), "each in one group"
    for group in groups:
        for name, one in settings_of(type(group)).items():
            assert getattr(group, name) == one.default, name
    assert SETTINGS["chain_ledgers_max"].help == "A longer chain starts a snapshot."
    assert all(one.help for one in SETTINGS.values()), "every flag of `run` says what it is for"
    text = help_text()
    for title in GROUPS.values():
        assert f"Settings: {title}" in text


def test_the_help_says_where_settings_come_from() -> None:
    text = " ".join(help_text().split())
    for word in ("--broker-conf", "--config", "CURSORKEEPER_ZOOKEEPER", "Exit codes", "[/chroot]"):
        assert word in text, word

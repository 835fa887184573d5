"""Serves who runs the daemon: its settings as flags, each with the words of its declaration."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Annotated, Any

import typer

from cursorkeeper.core.setting import settings_of
from cursorkeeper.settings import GROUPS


def _parameter(name: str, annotation: Any) -> inspect.Parameter:
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation
    )


def _shown(default: Any) -> Any:
    if isinstance(default, bool):
        return "yes" if default else "no"
    return default or "none"


def _setting_parameters() -> Iterator[inspect.Parameter]:
    for group, title in GROUPS.items():
        for name, one in settings_of(group).items():
            kind = str if one.is_size else one.kind  # K or M may follow the number
            said = [f"Pulsar's name: {' or '.join(one.pulsar)}"] if one.pulsar else []
            said.append(f"default: {_shown(one.default)}")
            option = typer.Option(
                *_names(name.replace("_", "-"), kind),
                *(["--source"] if name == "sources" else []),
                help=f"{one.help} ({'; '.join(said)})",
                rich_help_panel=f"Settings: {title}",
                metavar=None if kind is bool else "NUMBER" if one.kind in (int, float) else "TEXT",
                show_default=False,
            )
            yield _parameter(name, Annotated[kind | None, option])
            for key in one.pulsar:  # the same by Pulsar's name; the help names it with ours
                hidden = typer.Option(*_names(key, kind), hidden=True, show_default=False)
                yield _parameter(key, Annotated[kind | None, hidden])


def _names(flag: str, kind: type) -> list[str]:
    return [f"--{flag}/--no-{flag}" if kind is bool else f"--{flag}"]


def flags(**given: Any) -> dict[str, Any]:
    """Those that were given; its parameters are the settings."""
    return {name: value for name, value in given.items() if value is not None and value != []}


flags.__signature__ = inspect.Signature(list(_setting_parameters()))  # type: ignore[attr-defined]

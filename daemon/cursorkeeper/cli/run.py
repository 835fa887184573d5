"""`cursorkeeper run`: the daemon. Its flags are the settings, each with the words of its
declaration.
"""

from __future__ import annotations

import asyncio
import gc
import inspect
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from cursorkeeper.core.setting import settings_of
from cursorkeeper.problems import Kind, ProblemError
from cursorkeeper.settings import ENVIRONMENT_PREFIX, GROUPS, Settings, load
from cursorkeeper.terminal import options

HELP = f"""Run the daemon until SIGTERM or SIGINT; then every cursor is flushed and closed.

Later sources win: defaults, --broker-conf, --config, environment ({ENVIRONMENT_PREFIX} + the name
in upper case, as in {ENVIRONMENT_PREFIX}ZOOKEEPER), flags. One JSON line on standard output says
when it is ready; the log is JSON on standard error.

Exit codes: 0 stopped, all cursors closed; 1 stopped before some cursors were closed (what they
confirmed is durable); 2 settings; 3 it cannot start.
"""


def serve(
    *, config: Path | None, broker_conf: Path | None, parent_pid: int, flags: dict[str, Any]
) -> int:
    """Loads the settings and runs; returns the exit code. Raises SettingsError, StartError."""
    settings = load(file=config, broker_conf=broker_conf, flags=flags)
    from cursorkeeper import app
    from cursorkeeper.telemetry import logs

    app.check(settings)
    logs.configure(settings.log_level)
    _spare_collector()
    with asyncio.Runner(loop_factory=_loop_factory(settings)) as runner:
        return runner.run(app.run(settings, parent_pid=parent_pid))


def _spare_collector() -> None:
    """Modules are not looked through for cycles again and again, and hardly any cycle is made: with
    Python's own thresholds the collector took a tenth of the CPU under load, and stood in the way
    of all cursors for a tenth of a second at a time.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)


def _loop_factory(settings: Settings) -> Callable[[], asyncio.AbstractEventLoop] | None:
    if not settings.uvloop:
        return None
    try:
        uvloop = import_module("uvloop")
    except ImportError:
        typer.echo(
            "uvloop is not installed: going on with asyncio's own loop (pip install uvloop)",
            err=True,
        )
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory


# ---- flags from the settings


def _parameter(name: str, annotation: Any) -> inspect.Parameter:
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation
    )


def _shown(default: Any) -> Any:
    if isinstance(default, bool):
        return "yes" if default else "no"
    return default or "none"


def _setting_parameters() -> Iterator[inspect.Parameter]:
    defaults = Settings()
    for group, title in GROUPS.items():
        for name, one in settings_of(group).items():
            kind = str if one.about.is_size else one.kind  # K or M may follow the number
            said = [f"Pulsar's name: {' or '.join(one.about.pulsar)}"] if one.about.pulsar else []
            said.append(f"default: {_shown(getattr(defaults, name))}")
            option = typer.Option(
                *_names(name.replace("_", "-"), kind),
                *(["--source"] if name == "sources" else []),
                help=f"{one.about.help} ({'; '.join(said)})",
                rich_help_panel=f"Settings: {title}",
                metavar=None if kind is bool else "NUMBER" if one.kind in (int, float) else "TEXT",
                show_default=False,
            )
            yield _parameter(name, Annotated[kind | None, option])
            for key in one.about.pulsar:  # the same by Pulsar's name; the help names it with ours
                hidden = typer.Option(*_names(key, kind), hidden=True, show_default=False)
                yield _parameter(key, Annotated[kind | None, hidden])


def _names(flag: str, kind: type) -> list[str]:
    return [f"--{flag}/--no-{flag}" if kind is bool else f"--{flag}"]


def flags(**given: Any) -> dict[str, Any]:
    """Those that were given; its parameters are the settings."""
    return {name: value for name, value in given.items() if value is not None and value != []}


flags.__signature__ = inspect.Signature(list(_setting_parameters()))  # type: ignore[attr-defined]


def command(serve: Callable[..., int] = serve) -> Callable[..., None]:
    """`run`, with what it calls in the end."""

    def run(
        *,
        config: Annotated[
            Path | None,
            typer.Option("--config", "-c", help="Settings, TOML.", metavar="FILE.toml"),
        ] = None,
        broker_conf: Annotated[
            Path | None,
            "Take ZooKeeper's address, quorums, digest and limits from a Pulsar broker.conf.",
            {"metavar": "FILE"},
        ] = None,
        parent_pid: Annotated[
            int | None, "Stop when this process is gone.", {"metavar": "PID"}
        ] = None,
        flags: Annotated[dict[str, Any], flags],
    ) -> int:
        if parent_pid is not None and parent_pid < 0:
            raise ProblemError(
                f"--parent-pid {parent_pid} is no process id",
                "give the id of a running process",
                Kind.USAGE,
            )
        return serve(
            config=config, broker_conf=broker_conf, parent_pid=parent_pid or 0, flags=flags
        )

    run.__doc__ = HELP
    return options.command(run)


run = command()

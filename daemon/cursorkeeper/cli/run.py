"""`cursorkeeper run`: the daemon. Its flags are the settings, each with the words of its
declaration.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from cursorkeeper.problems import Kind, ProblemError
from cursorkeeper.settings import ENVIRONMENT_PREFIX, load
from cursorkeeper.terminal import options
from cursorkeeper.terminal.setting_flags import flags

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
    if settings.daemon.workers > 1:
        from cursorkeeper import supervisor

        return supervisor.serve(settings, parent_pid)
    from cursorkeeper import app

    return app.serve(settings, parent_pid)


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

"""The entry point: which commands there are, and the one place where an error becomes a line and an
exit code.

Commands are loaded when they are called, so that `--help` needs neither grpc nor numpy. Exit codes
of all commands: 0 all is well; 1 the answer is no (damage, refused, not found, not everything
closed); 2 settings or usage; 3 ZooKeeper, the gateway or a port is not to be had; 70 a bug.
"""

from __future__ import annotations

import signal
import sys
from importlib import import_module
from typing import Annotated, Any

import typer

from cursorkeeper.terminal.group import ExplainingGroup
from cursorkeeper.terminal.help import PlainCommand

EPILOG = (
    "Exit codes: 0 all is well, 1 the answer is no (damage, refused, not found), 2 settings or "
    "usage, 3 ZooKeeper, the gateway or a port is not to be had."
)
LAZY = {
    "run": "Run the daemon.",
    "health": "Ask a daemon or a gateway whether it serves.",
    "demo": "Play the bad case on a real stack, with real kills.",
    "ls": "List every cursor, from ZooKeeper alone.",
    "inspect": "Show a cursor's footer, its ledgers and every record.",
    "verify": "Read everything of cursors and check it.",
    "export": "Write a cursor's state as JSON lines of ranges.",
    "import": "Make a cursor from exported JSON lines.",
    "assess": "Say how many acked messages a Pulsar cluster would deliver again.",
    "sizes": "Compute how many bytes an acknowledgement state takes in each encoding.",
    "import-pulsar": "Make cursors from Pulsar's own, live or stopped.",
    "export-pulsar": "Write cursors back as Pulsar's own.",
    "gc": "Delete cursor ledgers that no footer can name any more.",
    "orphans": "List cursors that Pulsar has no more, and delete them.",
    "restore-footer": "Put the bytes of a cursor's footer back, after showing them.",
    "forget-token": "Let sources without fencing tokens open a cursor again.",
    "set-acl": "Give every node in ZooKeeper the ACL that the settings say.",
    "pipeline": "Every cursor of the fleet as tables, and jobs on them, in PySpark.",
}
"""Command -> its line in the list."""
ELSEWHERE = {
    "demo": "cursorkeeper.demo.command:demo",
    "import": "cursorkeeper.cli.restore:restore",
    "pipeline": "cursorkeeper_pipeline.cli:app",
}
"""Where the function, or the group of commands, is whose module is not called as the command."""


class LazyGroup(ExplainingGroup):
    """Knows the commands by name and line; loads one when it is called."""

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """As typer's, with the real command in place of its stub."""
        name, stub, rest = super().resolve_command(ctx, args)
        return name, stub if name is None else load(name), rest


def load(name: str) -> Any:
    named = name.replace("-", "_")
    place = ELSEWHERE.get(name, f"cursorkeeper.cli.{named}:{named}")
    module, _, function = place.partition(":")
    try:
        found = getattr(import_module(module), function)
    except ModuleNotFoundError as error:
        if error.name is None or error.name != module.partition(".")[0]:
            raise
        from cursorkeeper.problems import Kind, ProblemError
        from cursorkeeper.terminal.failure import install

        raise ProblemError(
            f"`{name}` is a distribution of its own",
            install(distribution="cursorkeeper_spark"),
            Kind.USAGE,
        ) from None
    if isinstance(found, typer.Typer):
        return typer.main.get_command(found)
    single = typer.Typer(
        add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None
    )
    single.command(name, cls=PlainCommand)(found)
    return typer.main.get_command(single)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"cursorkeeper {version('cursorkeeper')}")
        raise typer.Exit


app = typer.Typer(
    cls=LazyGroup,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    epilog=EPILOG,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def program(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """CursorKeeper: durable, incremental acknowledgement state for Apache Pulsar subscriptions."""


def _stub() -> None:
    """Never called: `LazyGroup` puts the real command in its place."""


for _name, _line in LAZY.items():
    app.command(_name, help=_line)(_stub)


def main() -> None:
    """Entry point of the distribution."""
    if sys.argv[1:2] == ["run"]:
        # Told to stop while its modules load, a daemon has stopped. As process 1 of a container it
        # would not hear it otherwise.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    app(prog_name="cursorkeeper")


if __name__ == "__main__":
    main()

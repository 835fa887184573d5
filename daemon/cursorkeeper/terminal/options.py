"""The options that commands share, and the settings that follow from them. Loads the settings only
for who wants them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from cursorkeeper.settings import Settings

_PANEL = "Where"


def _debug(ctx: typer.Context, wanted: bool) -> bool:
    if wanted:
        ctx.find_root().meta["cursorkeeper.debug"] = True
    return wanted


Zookeeper = Annotated[
    str | None,
    typer.Option(help="host:port[,host:port...][/chroot] of ZooKeeper.", rich_help_panel=_PANEL),
]
Gateway = Annotated[
    str | None, typer.Option(help="host:port of the ledger gateway.", rich_help_panel=_PANEL)
]
Root = Annotated[
    str | None, typer.Option(help="Where in ZooKeeper the footers are.", rich_help_panel=_PANEL)
]
Config = Annotated[
    Path | None,
    typer.Option(help="Settings of the daemon, TOML.", metavar="FILE.toml", rich_help_panel=_PANEL),
]
BrokerConf = Annotated[
    Path | None,
    typer.Option(
        help="Take addresses and quorums from a Pulsar broker.conf.",
        metavar="FILE",
        rich_help_panel=_PANEL,
    ),
]
Debug = Annotated[
    bool,
    typer.Option("--debug", callback=_debug, is_eager=True, help="Show the traceback of an error."),
]
Json = Annotated[bool, typer.Option("--json", help="JSON lines on standard output, nothing else.")]


def settings_of(
    config: Path | None,
    broker_conf: Path | None,
    *,
    zookeeper: str | None = None,
    gateway: str | None = None,
    root: str | None = None,
) -> Settings:
    """The daemon's own settings, from the same sources. Raises SettingsError."""
    from cursorkeeper.settings import load

    return load(
        file=config,
        broker_conf=broker_conf,
        flags={"zookeeper": zookeeper, "gateway": gateway, "root": root},
    )


_WHERE: dict[str, Any] = {
    "zookeeper": Zookeeper,
    "gateway": Gateway,
    "root": Root,
    "config": Config,
    "broker_conf": BrokerConf,
}


def located(command: Callable[..., None]) -> Callable[..., None]:
    """`command` with the options that say where the systems are in the place of its parameter
    `settings`, and `--debug` as the last. Who also wants one of them as it was given has a
    parameter of its name.
    """
    asked = inspect.signature(command, eval_str=True).parameters

    @wraps(command)
    def located_command(**given: Any) -> None:
        del given["debug"]  # its callback has done all
        where = {name: given.pop(name) for name in _WHERE}
        command(
            settings=settings_of(**where),
            **given,
            **{name: value for name, value in where.items() if name in asked},
        )

    parameters: list[inspect.Parameter] = []
    for one in (one for name, one in asked.items() if name not in _WHERE):
        named = _WHERE if one.name == "settings" else {}
        parameters += [
            inspect.Parameter(name, one.kind, default=None, annotation=kind)
            for name, kind in named.items()
        ] or [one]
    parameters.append(
        inspect.Parameter("debug", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=Debug)
    )
    located_command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    located_command.__annotations__ = {one.name: one.annotation for one in parameters}
    return located_command

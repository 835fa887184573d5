"""The options that commands share, and the settings that follow from them. Loads the settings only for who wants them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from cursorkeeper.settings import Settings

_PANEL = "Where"


def _debug(ctx: typer.Context, wanted: bool) -> bool:
    if wanted:
        ctx.find_root().meta["cursorkeeper.debug"] = True
    return wanted


Zookeeper = Annotated[str | None, typer.Option(help="host:port[,host:port...][/chroot] of ZooKeeper.", rich_help_panel=_PANEL)]
Gateway = Annotated[str | None, typer.Option(help="host:port of the ledger gateway.", rich_help_panel=_PANEL)]
Root = Annotated[str | None, typer.Option(help="Where in ZooKeeper the footers are.", rich_help_panel=_PANEL)]
Config = Annotated[Path | None, typer.Option(help="Settings of the daemon, TOML.", metavar="FILE.toml", rich_help_panel=_PANEL)]
BrokerConf = Annotated[
    Path | None, typer.Option(help="Take addresses and quorums from a Pulsar broker.conf.", metavar="FILE", rich_help_panel=_PANEL)
]
Debug = Annotated[bool, typer.Option("--debug", callback=_debug, is_eager=True, help="Show the traceback of an error.")]
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

    return load(file=config, broker_conf=broker_conf, flags={"zookeeper": zookeeper, "gateway": gateway, "root": root})

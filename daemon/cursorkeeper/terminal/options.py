"""Serves whoever writes a command: what a parameter is on the command line, the options that
commands share, and the settings that follow from them. Loads the settings only for who wants them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
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
    *,
    zookeeper: Zookeeper = None,
    gateway: Gateway = None,
    root: Root = None,
    config: Config = None,
    broker_conf: BrokerConf = None,
) -> Any:
    """The daemon's own `Settings`, from the same sources. Raises SettingsError."""
    from cursorkeeper.settings import load

    return load(
        file=config,
        broker_conf=broker_conf,
        flags={"zookeeper": zookeeper, "gateway": gateway, "root": root},
    )


Here = Annotated["Settings", settings_of]
"""A parameter of a command: the settings, made of the options that say where the systems are."""


def command(function: Callable[..., Any]) -> Callable[..., None]:
    """A function, maybe a coroutine, as typer takes it. What it returns is the exit code; nothing
    is 0. The annotation of a parameter may carry a sentence, and is an option of the parameter's
    name then; or a function that makes it, whose own parameters are the options. `--debug` is the
    last. Who also wants one of a maker's options as it was given has a parameter of its name.
    """
    asked = _parameters(function)
    makers = {name: _said(one) for name, one in asked.items() if inspect.isfunction(_said(one))}
    options: dict[str, inspect.Parameter] = {}
    for name, one in asked.items():
        for each in _parameters(makers[name]).values() if name in makers else [one]:
            options.setdefault(each.name, _as_option(each))

    @wraps(function)
    def run(**given: Any) -> None:
        made = {
            name: maker(**{each: given[each] for each in _parameters(maker)})
            for name, maker in makers.items()
        }
        code = function(**made, **{name: given[name] for name in asked if name not in makers})
        if inspect.iscoroutine(code):
            import asyncio

            code = asyncio.run(code)
        if code:
            raise typer.Exit(code)

    last = inspect.Parameter(
        "debug", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=Debug
    )
    parameters = [*options.values(), last]  # the callback of `debug` does all
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {one.name: one.annotation for one in parameters}
    return run


def _parameters(function: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    return inspect.signature(function, eval_str=True).parameters


def _said(one: inspect.Parameter) -> Any:
    """What the annotation carries first."""
    return getattr(one.annotation, "__metadata__", [None])[0]


def _as_option(one: inspect.Parameter) -> inspect.Parameter:
    annotation, said = one.annotation, _said(one)
    if isinstance(said, str):
        more = annotation.__metadata__[1] if len(annotation.__metadata__) > 1 else {}
        option = typer.Option(f"--{one.name.replace('_', '-')}", help=said, **more)
        annotation = Annotated[annotation.__origin__, option]
    return one.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=annotation)

"""Serves whoever writes a command: what a parameter is on the command line, the options that
commands share, and the settings that follow from them. Loads the settings only for who wants them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
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
Yes = Annotated[bool, "Write without asking."]


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


def settings_without_gateway(
    *,
    zookeeper: Zookeeper = None,
    root: Root = None,
    config: Config = None,
    broker_conf: BrokerConf = None,
) -> Any:
    """Of a command that reads ZooKeeper alone."""
    return settings_of(zookeeper=zookeeper, root=root, config=config, broker_conf=broker_conf)


Here = Annotated["Settings", settings_of]
"""A parameter of a command: the settings, made of the options that say where the systems are."""
HereWithoutGateway = Annotated["Settings", settings_without_gateway]


def command(function: Callable[..., Any]) -> Callable[..., None]:
    """A function, maybe a coroutine, as typer takes it. What it returns is the exit code; nothing
    is 0. The annotation of a parameter may carry a sentence, and is an option of the parameter's
    name then; or a function that makes it, whose own parameters are declared in the same way.
    `--debug` is the last. Who also wants one of a maker's options as it was given has a parameter
    of its name.
    """
    options: dict[str, inspect.Parameter] = {}
    for one in _options(function):
        options.setdefault(one.name, one)

    @wraps(function)
    def run(**given: Any) -> None:
        code = _called(function, given)
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


def _declared(function: Callable[..., Any]) -> Iterator[tuple[inspect.Parameter, Any]]:
    """Each parameter, and what its annotation carries first."""
    for one in inspect.signature(function, eval_str=True).parameters.values():
        yield one, getattr(one.annotation, "__metadata__", [None])[0]


def _options(function: Callable[..., Any]) -> Iterator[inspect.Parameter]:
    for one, said in _declared(function):
        if inspect.isfunction(said):
            yield from _options(said)
            continue
        annotation = one.annotation
        if isinstance(said, str):
            more = annotation.__metadata__[1] if len(annotation.__metadata__) > 1 else {}
            option = typer.Option(f"--{one.name.replace('_', '-')}", help=said, **more)
            annotation = Annotated[annotation.__origin__, option]
        yield one.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=annotation)


def _called(function: Callable[..., Any], given: Mapping[str, Any]) -> Any:
    return function(
        **{
            one.name: _called(said, given) if inspect.isfunction(said) else given[one.name]
            for one, said in _declared(function)
        }
    )

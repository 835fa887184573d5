"""`cursorkeeper ls`: every cursor that has a footer, from ZooKeeper alone, in bulk."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from cursorkeeper import connections
from cursorkeeper.core.errors import DamageError
from cursorkeeper.core.footer import Footer
from cursorkeeper.core.names import CursorName
from cursorkeeper.inspection import roots
from cursorkeeper.inspection.footer_view import base_kind
from cursorkeeper.runtime.footers import FooterStore
from cursorkeeper.settings import Settings
from cursorkeeper.terminal import options
from cursorkeeper.terminal.failure import NO
from cursorkeeper.terminal.output import Bar, Table, json_line, say
from cursorkeeper.terminal.printable import printable

TABLE_ROWS_MAX = 2_000
"""A longer list is printed as it comes, in plain columns."""
COLUMNS = (
    "cursor",
    "state",
    "epoch",
    "token",
    "gen",
    "mark-delete",
    "base",
    "chain",
    "holes",
    "partials",
    "format",
)
NUMBERS = ("epoch", "token", "gen", "chain", "holes", "partials")


@dataclass(frozen=True, slots=True)
class Listed:
    """One cursor. `footer` None: `problem` says why it cannot be read."""

    name: CursorName
    footer: Footer | None
    problem: str = ""

    def as_json(self) -> dict[str, Any]:
        head = {
            "cursor": self.name.display,
            "topic": self.name.topic,
            "subscription": self.name.subscription,
        }
        f = self.footer
        if f is None:
            return {**head, "state": "damaged", "problem": self.problem}
        return {
            **head,
            "state": str(f.state),
            "epoch": f.epoch,
            "fencingToken": f.fencing_token,
            "generation": f.generation,
            "writer": f.writer,
            "markDelete": list(f.mark_delete),
            "base": base_kind(f.base),
            "chain": len(f.chain),
            "previous": f.previous is not None,
            "holes": f.stats.holes,
            "span": f.stats.span,
            "partialBatches": f.stats.partial_batches,
            "deltaBytes": f.stats.delta_bytes,
            "format": f.format,
            "truncated": f.truncated is not None,
        }

    def as_row(self) -> list[str]:
        """One line of the table."""
        f = self.footer
        if f is None:
            return [self.name.display, "DAMAGED", *[""] * (len(COLUMNS) - 2)]
        return [
            self.name.display,
            str(f.state),
            str(f.epoch),
            str(f.fencing_token or "-"),
            str(f.generation),
            str(f.mark_delete),
            base_kind(f.base),
            str(len(f.chain)),
            f"{f.stats.holes:,}",
            f"{f.stats.partial_batches:,}",
            f"{f.format}, TRUNCATED" if f.truncated is not None else f.format,
        ]


async def list_cursors(footers: FooterStore, bar: Bar) -> AsyncIterator[Listed]:
    """Every cursor, bucket by bucket. Raises ZooKeeperError."""
    async for names in footers.batches():
        bar.grow(len(names))
        for name, footer in zip(names, await footers.read_many(names), strict=True):
            if isinstance(footer, DamageError):
                yield Listed(name, None, str(footer))
            elif footer is not None:
                yield Listed(name, footer)
        bar.advance(len(names))


async def show(
    footers: FooterStore,
    bar: Bar,
    *,
    as_json: bool,
    deleted: bool,
    table_rows_max: int = TABLE_ROWS_MAX,
) -> int:
    """Prints the list; returns the number of damaged footers."""
    rows: list[Listed] = []
    damaged: list[Listed] = []
    streaming = False
    async for item in list_cursors(footers, bar):
        if item.footer is None:
            damaged.append(item)
        elif item.footer.state == "deleted" and not deleted:
            continue
        if as_json:
            json_line(item.as_json())
        elif streaming:
            _plain(item)
        else:
            rows.append(item)
            if len(rows) > table_rows_max:
                streaming = True
                typer.echo("\t".join(COLUMNS))
                for row in rows:
                    _plain(row)
    if not as_json and not streaming:
        _table(rows)
    for item in damaged:
        say(f"{item.name}: {item.problem}", err=True)
    return len(damaged)


def _plain(item: Listed) -> None:
    typer.echo("\t".join(map(printable, item.as_row())))


def _table(rows: list[Listed]) -> None:
    if not rows:
        say("no cursors")
        return
    made = Table(COLUMNS, right=NUMBERS)
    for item in sorted(rows, key=lambda i: i.name.canonical):
        made.add_row(*item.as_row())
    made.show()


def settings_without_gateway(
    *,
    zookeeper: options.Zookeeper = None,
    root: options.Root = None,
    config: options.Config = None,
    broker_conf: options.BrokerConf = None,
) -> Settings:
    settings: Settings = options.settings_of(
        zookeeper=zookeeper, root=root, config=config, broker_conf=broker_conf
    )
    return settings


@options.command
async def ls(
    *,
    settings: Annotated[Settings, settings_without_gateway],
    deleted: Annotated[bool, "Tombstones of deleted cursors too."] = False,
    as_json: options.Json = False,
) -> int:
    """List every cursor with its footer: state, owner's epoch, mark-delete, base, chain, holes.

    Reads ZooKeeper alone. The numbers are those of the moment a footer was written; of an open
    cursor `markDelete` is a lower bound. A footer that cannot be read is listed as damaged, and the
    exit code is 1.
    """
    async with connections.zookeeper(settings) as keeper:
        await roots.check_root(keeper, settings)
        footers = connections.footer_store(keeper, settings)
        with Bar("reading footers") as bar:
            damaged = await show(footers, bar, as_json=as_json, deleted=deleted)
    if damaged:
        say(
            f"{damaged} footer(s) cannot be read. What to do: `cursorkeeper inspect` shows the "
            "bytes, and `cursorkeeper restore-footer` puts the *latest* ones back",
            err=True,
        )
        return NO
    return 0

"""`cursorkeeper orphans`: cursors that Pulsar has no more, and deleting them. For operators, after
topics were deleted by force.

Who is an orphan, what may go and when a search is not believed: `cursorkeeper.orphans`. Owns the
options and the exit code.
"""

from __future__ import annotations

import re
import secrets
import time
from contextlib import AsyncExitStack
from typing import Annotated

from cursorkeeper import connections
from cursorkeeper.inspection import roots
from cursorkeeper.migration.pulsar_systems import pulsar_conf, pulsar_settings
from cursorkeeper.orphans.fleet import PERCENT_MAX, Fleet
from cursorkeeper.orphans.listing import (
    COLUMNS,
    MAY_GO,
    NUMBERS,
    UNITS_S,
    ended_json,
    listed,
    summary_json,
)
from cursorkeeper.orphans.pulsar_store import PulsarStore
from cursorkeeper.orphans.removal import Ending, Removed, Remover
from cursorkeeper.orphans.search import search
from cursorkeeper.problems import Kind, ProblemError
from cursorkeeper.runtime.footers import FooterStore
from cursorkeeper.settings import Settings
from cursorkeeper.terminal import options
from cursorkeeper.terminal import pulsar as pulsar_options
from cursorkeeper.terminal.failure import AWAY, NO
from cursorkeeper.terminal.output import Bar, Table, say, show

TEMPLATES = "orphans/templates"
_AGE = re.compile(r"(\d+(?:\.\d+)?) ?([smhd])")
WRONG_STORE = (
    "give the address and chroot of Pulsar's own ZooKeeper with --pulsar-zookeeper; "
    "other metadata stores are not read"
)
DOUBTED = (
    "check --pulsar-zookeeper and its chroot; if so many topics were deleted in truth, say "
    "so with --percent-max (100: none may be left)"
)


def seconds(text: str) -> float:
    """24h, 30m, 7d, 0s. Raises ProblemError."""
    form = _AGE.fullmatch(text.strip())
    if form is None:
        raise ProblemError(
            f"--age {text!r} is no age", "write a number and s, m, h or d, as in 24h", Kind.USAGE
        )
    return float(form[1]) * UNITS_S[form[2]]


async def look(footers: FooterStore, pulsar: PulsarStore, where: str, bar: Bar) -> Fleet:
    """One search. `where`: the address of Pulsar's store. Raises ProblemError where the store is
    none, ZooKeeperError.
    """
    if trouble := await pulsar.trouble():
        raise ProblemError(
            f"the ZooKeeper at {where} is not Pulsar's metadata store: {trouble}",
            WRONG_STORE,
            Kind.USAGE,
        )
    return await search(footers, pulsar, looked=bar.advance)


async def report(
    fleet: Fleet,
    remover: Remover | None,
    bar: Bar,
    *,
    now_ms: int,
    age_s: float,
    percent_max: float,
    as_json: bool,
) -> int:
    """Lists them, or with a remover deletes what may go; returns the exit code. Raises
    ProblemError, ZooKeeperError.
    """
    doubt = fleet.doubt(percent_max)
    rows, removed = listed(fleet, now_ms, age_s), list[Removed]()
    if remover is None:
        table = Table(COLUMNS, right=NUMBERS, as_json=as_json)
        for row in rows:
            table.add(row)
        table.show()
    elif doubt:
        raise ProblemError(f"{doubt}: nothing was deleted", DOUBTED)
    else:
        chosen = [row.orphan for row in rows if row.verdict == MAY_GO]
        bar.grow(len(chosen))
        async for orphan, one in remover.remove_all(chosen):
            removed.append(one)
            show(ended_json(orphan, one), f"{TEMPLATES}/ended.txt", as_json=as_json)
            bar.advance()
    summary, deleting = summary_json(fleet, rows, removed, doubt), remover is not None
    show(summary, f"{TEMPLATES}/summary.txt", as_json=as_json, deleting=deleting)
    if doubt:
        say(f"{doubt}: --delete would delete nothing. What to do: {DOUBTED}", err=True)
    if fleet.unreadable:
        say(
            f"{fleet.unreadable:,} footer(s) cannot be read, and are left alone: `cursorkeeper ls` "
            "names them",
            err=True,
        )
    if summary["endings"][Ending.UNDECIDED]:
        say(
            "What to do: run it again when ZooKeeper is back: what it lists then was not deleted",
            err=True,
        )
        return AWAY
    return NO if doubt or fleet.unreadable else 0


@options.command
async def orphans(
    *,
    delete: Annotated[bool, "Delete those that may go. Without it they are only listed."] = False,
    age: Annotated[
        str, "How long a footer must not have been written: 24h, 30m, 7d.", {"metavar": "AGE"}
    ] = "24h",
    percent_max: Annotated[
        float, "Delete nothing if more of all cursors are orphans.", {"min": 0, "max": 100}
    ] = PERCENT_MAX,
    pulsar_zookeeper: pulsar_options.PulsarZookeeper = None,
    pulsar_broker_conf: pulsar_options.PulsarBrokerConf = None,
    settings: options.Here,
    broker_conf: options.BrokerConf,
    as_json: options.Json = False,
) -> int:
    """List the cursors that Pulsar has no more, and delete them with --delete.

    A topic that is deleted by force takes its cursors from Pulsar's metadata store and tells nobody
    else. Each cursor of a persistent topic is looked up there, and is an orphan if its topic or its
    subscription is gone. One goes only if it is closed, its footer was not written for --age, and
    Pulsar, asked again, still does not have it; who opens it meanwhile keeps it. Nothing goes if
    the store looks wrong. The daemon looks by itself if it has `pulsar_metadata`. Exit code 1: the
    store is doubted, or a footer cannot be read.
    """
    age_s = seconds(age)
    address = pulsar_zookeeper or (None if pulsar_broker_conf else settings.limits.pulsar_metadata)
    conf = pulsar_conf(pulsar_broker_conf or broker_conf)
    pulsar = pulsar_settings(settings, conf, address).systems
    async with AsyncExitStack() as stack:
        keeper = await stack.enter_async_context(connections.zookeeper(settings.systems))
        await roots.check_root(keeper, settings.systems, needs_id=True)
        same = pulsar.zookeeper == settings.systems.zookeeper
        theirs = PulsarStore(
            keeper if same else await stack.enter_async_context(connections.zookeeper(pulsar))
        )
        footers, remover = connections.footer_store(keeper, settings), None
        if delete:
            ledgers = await stack.enter_async_context(connections.gateway(settings, "writer"))
            remover = Remover(theirs, footers, ledgers, lambda: new_writer(settings))
        with Bar("looking for orphans") as bar:
            fleet = await look(footers, theirs, pulsar.zookeeper, bar)
        with Bar("deleting orphans", 0) as bar:
            return await report(
                fleet,
                remover,
                bar,
                now_ms=round(time.time() * 1000),
                age_s=age_s,
                percent_max=percent_max,
                as_json=as_json,
            )


def new_writer(settings: Settings) -> str:
    """Of one tombstone, and of nothing else ever."""
    return f"{settings.daemon.identity}/orphans/{secrets.token_hex(8)}"

"""`cursorkeeper orphans`: cursors that Pulsar has no more, and deleting them. For operators, after
topics were deleted by force.

Who is an orphan, what may go and when a search is not believed: `cursorkeeper.orphans`. Owns the
table, the words and the exit code.
"""

from __future__ import annotations

import asyncio
import re
import secrets
import time
from collections import Counter
from contextlib import AsyncExitStack
from typing import Annotated, Any

from cursorkeeper import connections
from cursorkeeper.cli import migration
from cursorkeeper.inspection import roots
from cursorkeeper.migration.pulsar_systems import pulsar_conf, pulsar_settings
from cursorkeeper.orphans.fleet import PERCENT_MAX, Fleet, Orphan
from cursorkeeper.orphans.pulsar_store import PulsarStore
from cursorkeeper.orphans.removal import Ending, Removed, Remover
from cursorkeeper.orphans.search import search
from cursorkeeper.problems import Kind, ProblemError
from cursorkeeper.runtime.footers import FooterStore
from cursorkeeper.settings import Settings
from cursorkeeper.terminal import options
from cursorkeeper.terminal.failure import AWAY, NO
from cursorkeeper.terminal.output import Bar, Table, json_line, say

AT_ONCE = 8
"""Orphans that are deleted at the same time."""
COLUMNS = ("gone", "idle", "ledgers", "bytes", "verdict", "cursor")
"""The name comes last: a terminal of any width folds it and nothing else."""
NUMBERS = ("idle", "ledgers", "bytes")
UNITS_S = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
_AGE = re.compile(r"(\d+(?:\.\d+)?) ?([smhd])")
MAY_GO = "may go"
WRONG_STORE = (
    "give the address and chroot of Pulsar's own ZooKeeper with --pulsar-zookeeper; "
    "other metadata stores are not read"
)
DOUBTED = (
    "check --pulsar-zookeeper and its chroot; if so many topics were deleted in truth, say "
    "so with --percent-max (100: none may be left)"
)
OPEN = (
    "an open one is closed by its daemon (`writer` of --json) when its source has been away for "
    "detached_cursor_max_ms; one whose daemon is gone for ever stays until a source deletes it by "
    "name (DeleteCursor, with the `fencingToken` of --json)"
)


def seconds(text: str) -> float:
    """24h, 30m, 7d, 0s. Raises ProblemError."""
    form = _AGE.fullmatch(text.strip())
    if form is None:
        raise ProblemError(
            f"--age {text!r} is no age", "write a number and s, m, h or d, as in 24h", Kind.USAGE
        )
    return float(form[1]) * UNITS_S[form[2]]


def rough(duration_s: float) -> str:
    """As long as a cell is wide: 3d, 5h, 12m, 40s."""
    for unit in "dhm":
        if duration_s >= UNITS_S[unit]:
            return f"{duration_s / UNITS_S[unit]:,.0f}{unit}"
    return f"{duration_s:.0f}s"


class Listing:
    """What a search found, as people and programs see it. `now_ms` and `age_s` say who is young."""

    def __init__(self, fleet: Fleet, *, now_ms: int, age_s: float, as_json: bool) -> None:
        self.fleet, self._now_ms, self._age_s, self._as_json = fleet, now_ms, age_s, as_json
        self.orphans = sorted(fleet.orphans, key=lambda orphan: orphan.name.canonical)
        self.removed: Counter[Ending] = Counter()
        self.ledgers_left = 0

    @property
    def deletable(self) -> list[Orphan]:
        return [orphan for orphan in self.orphans if not orphan.stays(self._now_ms, self._age_s)]

    def show(self) -> None:
        """Each orphan, none deleted."""
        table = Table(COLUMNS, right=NUMBERS)
        for orphan in self.orphans:
            stays, idle_s = orphan.stays(self._now_ms, self._age_s), orphan.idle_s(self._now_ms)
            if self._as_json:
                json_line({**orphan.as_json(), "idleS": round(idle_s), "verdict": stays or MAY_GO})
            else:
                numbers = (rough(idle_s), str(orphan.ledgers), f"{orphan.stored_bytes:,}")
                table.add_row(str(orphan.why), *numbers, stays or MAY_GO, orphan.name.display)
        if len(table):
            table.show()

    def ended(self, orphan: Orphan, removed: Removed) -> None:
        """One that was to be deleted."""
        self.removed[removed.ending] += 1
        self.ledgers_left += removed.ledgers_left
        if self._as_json:
            told = {
                "ending": str(removed.ending),
                "said": removed.said,
                "ledgersLeft": removed.ledgers_left,
            }
            json_line({**orphan.as_json(), **told})
        else:
            say(f"{removed.ending:>10}  {orphan.name}{f': {removed.said}' if removed.said else ''}")

    def summary(self, doubt: str, *, deleting: bool) -> None:
        """The last line, and what to do."""
        fleet, verdicts = (
            self.fleet,
            Counter(o.stays(self._now_ms, self._age_s) or MAY_GO for o in self.orphans),
        )
        if self._as_json:
            endings = {str(ending): count for ending, count in self.removed.items()}
            counts: dict[str, Any] = {
                **fleet.as_json(),
                "listed": len(self.orphans),
                "verdicts": dict(verdicts),
                "endings": endings,
            }
            json_line(
                {"summary": "orphans", **counts, "ledgersLeft": self.ledgers_left, "doubt": doubt}
            )
            return
        which = (
            f": {', '.join(f'{count:,} {verdict}' for verdict, count in verdicts.most_common())}"
            if verdicts
            else ""
        )
        foreign = (
            f"; {fleet.foreign:,} are of no topic that Pulsar can have" if fleet.foreign else ""
        )
        say(f"{fleet.orphans_count:,} orphans among {fleet.cursors:,} cursors{which}{foreign}")
        if fleet.orphans_count > len(self.orphans):
            say(f"{len(self.orphans):,} of them are listed: run it again when these are deleted")
        if deleting:
            endings_said = (
                ", ".join(f"{count:,} {ending}" for ending, count in self.removed.most_common())
                or "none deleted"
            )
            say(
                endings_said
                + (
                    f"; {self.ledgers_left:,} ledgers are left to garbage collection"
                    if self.ledgers_left
                    else ""
                )
            )
        elif verdicts[MAY_GO] and not doubt:
            say(
                f"What to do: --delete deletes the {verdicts[MAY_GO]:,} that may go; Pulsar is "
                f"asked again before each"
            )
        if verdicts["open"]:
            say(f"Open: {OPEN}")


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


async def delete_all(listing: Listing, remover: Remover, bar: Bar) -> None:
    """What may go, some at a time. Raises ZooKeeperError where ZooKeeper refuses."""
    chosen = listing.deletable
    bar.grow(len(chosen))
    for start in range(0, len(chosen), AT_ONCE):
        some = chosen[start : start + AT_ONCE]
        for orphan, removed in zip(
            some, await asyncio.gather(*map(remover.remove, some)), strict=True
        ):
            listing.ended(orphan, removed)
            bar.advance()


async def report(listing: Listing, percent_max: float, remover: Remover | None, bar: Bar) -> int:
    """Lists them, or with a remover deletes what may go; returns the exit code. Raises
    ProblemError, ZooKeeperError.
    """
    doubt = listing.fleet.doubt(percent_max)
    if remover is None:
        listing.show()
    elif doubt:
        raise ProblemError(f"{doubt}: nothing was deleted", DOUBTED)
    else:
        await delete_all(listing, remover, bar)
    listing.summary(doubt, deleting=remover is not None)
    if doubt:
        say(f"{doubt}: --delete would delete nothing. What to do: {DOUBTED}", err=True)
    if listing.fleet.unreadable:
        say(
            f"{listing.fleet.unreadable:,} footer(s) cannot be read, and are left alone: "
            f"`cursorkeeper ls` names them",
            err=True,
        )
    if listing.removed[Ending.UNDECIDED]:
        say(
            "What to do: run it again when ZooKeeper is back: what it lists then was not deleted",
            err=True,
        )
        return AWAY
    return NO if doubt or listing.fleet.unreadable else 0


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
    pulsar_zookeeper: migration.PulsarZookeeper = None,
    pulsar_broker_conf: migration.PulsarBrokerConf = None,
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
    address = pulsar_zookeeper or (None if pulsar_broker_conf else settings.pulsar_metadata)
    pulsar = pulsar_settings(settings, pulsar_conf(pulsar_broker_conf or broker_conf), address)
    async with AsyncExitStack() as stack:
        keeper = await stack.enter_async_context(connections.zookeeper(settings))
        await roots.check_root(keeper, settings, needs_id=True)
        same = pulsar.zookeeper == settings.zookeeper
        theirs = PulsarStore(
            keeper if same else await stack.enter_async_context(connections.zookeeper(pulsar))
        )
        footers, remover = connections.footer_store(keeper, settings), None
        if delete:
            ledgers = await stack.enter_async_context(connections.gateway(settings, "writer"))
            remover = Remover(theirs, footers, ledgers, lambda: new_writer(settings))
        with Bar("looking for orphans") as bar:
            fleet = await look(footers, theirs, pulsar.zookeeper, bar)
        listing = Listing(fleet, now_ms=round(time.time() * 1000), age_s=age_s, as_json=as_json)
        with Bar("deleting orphans", 0) as bar:
            return await report(listing, percent_max, remover, bar)


def new_writer(settings: Settings) -> str:
    """Of one tombstone, and of nothing else ever."""
    return f"{settings.identity}/orphans/{secrets.token_hex(8)}"

"""`cursorkeeper restore-footer`: bytes of a footer into its znode, as a write of ours would put them there.

Owns what is shown and asked before: what the bytes hold against what is there, and whether the cursor's own ledgers show
that they are not the latest. Invariants: nothing is written unasked; a write is a compare-and-set on what was shown; the
znode's version never starts again, so that a write that is late meets another one: on the way to it nothing
in the znode counts as a footer.
"""

from __future__ import annotations

import asyncio
import secrets
import shlex
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from cursorkeeper import connections
from cursorkeeper.cli import cursor_name
from cursorkeeper.connections import Ports
from cursorkeeper.core.errors import DamageError
from cursorkeeper.core.footer import Footer
from cursorkeeper.core.names import CursorName
from cursorkeeper.core.positions import NUMBER_MAX
from cursorkeeper.format import footer as codec
from cursorkeeper.inspection import roots
from cursorkeeper.inspection.footer_view import footer_json
from cursorkeeper.problems import Kind, ProblemError
from cursorkeeper.runtime.gc import Owned, doubt, owned_of
from cursorkeeper.runtime.ledgers import APPLICATION
from cursorkeeper.settings import Settings
from cursorkeeper.terminal import options
from cursorkeeper.terminal.failure import NO
from cursorkeeper.terminal.output import Bar, json_line, say
from cursorkeeper.zookeeper import errors as zk
from cursorkeeper.zookeeper.values import Create, Op, SetData

ABSENT = -1
SHOWN = ("state", "epoch", "writer", "write", "generation", "markDelete", "base", "chain", "previous", "fencingToken")
"""Members that are compared; the others are for reports."""
WRITES_PER_REQUEST = 200
"""Names of 1 KiB leave room for a footer with a state in it."""
WRITES_MAX = 1_000_000
LATEST = (
    "find the *latest* bytes: in the log of the daemon that held the cursor (`footer to restore`), else in ZooKeeper's newest copy. "
    "If there are none, --older takes these: what was confirmed since is forgotten, and delivered again"
)


@dataclass(frozen=True, slots=True)
class Plan:
    """What would be written over `version` (-1: there is no znode), and what is to be said about it."""

    name: CursorName
    version: int
    there: Footer | None
    problem_there: str
    given: Footer
    problems: list[str] = field(default_factory=list)
    """Why the bytes are not the latest."""
    notes: list[str] = field(default_factory=list)
    """What may be a sign of that, and need not be."""
    epoch_seen: int = 0
    """The highest of the footers and of all ledgers of the cursor."""

    @property
    def version_wanted(self) -> int:
        """Above every version that the znode had: a write that is late meets another one."""
        return max(self.version, self.given.written_as or 0) + 1

    def check_writes(self, writes_max: int) -> None:
        """Raises ProblemError: a version grows by one with each write, and the bytes may say any."""
        writes = self.version_wanted - self.version
        if writes > writes_max:
            raise ProblemError(
                f"{self.name}: its znode has to reach version {self.version_wanted:,}, which takes {writes:,} writes; at most "
                f"{writes_max:,} are made",
                "if the bytes are right, raise --writes-max: ZooKeeper takes some ten thousand of them a second, each some hundred "
                "bytes of its log",
            )

    def differences(self) -> dict[str, tuple[Any, Any]]:
        """Member -> (there, given)."""
        given = footer_json(self.given, self.version)
        there = footer_json(self.there, self.version) if self.there is not None else dict.fromkeys(given)
        return {key: (there[key], given[key]) for key in SHOWN if there[key] != given[key]}

    def footer(self) -> Footer:
        """What is written. Older bytes become a footer of their own, so that no epoch has two owners."""
        if not self.problems:
            return self.given
        token = max(self.given.fencing_token, 0 if self.there is None else self.there.fencing_token)
        writer = f"restore-footer/{secrets.token_hex(8)}"
        return replace(self.given, epoch=self.epoch_seen, writer=writer, write=1, fencing_token=token)


async def look(ports: Ports, name: CursorName, root: str, data: bytes | None) -> Plan:
    """`data`: the bytes to put back; None: those that are there. Raises ProblemError, DamageError, what the clients raise."""
    path = name.path(root)
    await ports.zookeeper.sync(path)
    try:
        node = await ports.zookeeper.get(path)
    except zk.NoNode:
        node = None
    if data is None and node is None:
        raise ProblemError(f"{name}: it has no footer", "name a FILE with the latest bytes")
    there, problem = None, "there is none"
    if node is not None:
        try:
            there, problem = codec.decode(node.data, name), ""
            codec.decode(node.data, name, node.version)
        except DamageError as e:
            problem = str(e)
    try:
        given = codec.decode(node.data if data is None and node is not None else data or b"", name)
    except DamageError as e:
        raise e.at(f"{name}: the bytes to put back") from None
    plan = Plan(name, ABSENT if node is None else node.version, there, problem, given)
    return await _held_against(ports, plan)


async def _held_against(ports: Ports, plan: Plan) -> Plan:
    """Whether something later than the bytes is known: a footer, or a ledger."""
    owned = await _ledgers(ports, plan.name)
    problems = [why for one in owned if (why := doubt(one, plan.given))]
    known = {one.ledger for one in owned}
    problems += [f"ledger {gone}, which the bytes name, is not there" for gone in sorted(plan.given.named_ledgers() - known)]
    epochs = [plan.given.epoch, *(one.epoch for one in owned)]
    if plan.there is not None:
        epochs.append(plan.there.epoch)
        if (plan.there.epoch, plan.there.write) > (plan.given.epoch, plan.given.write):
            problems.append(
                f"the footer that is there is of epoch {plan.there.epoch}, write {plan.there.write}, and the bytes of epoch "
                f"{plan.given.epoch}, write {plan.given.write}"
            )
        if plan.there.fencing_token > plan.given.fencing_token:
            problems.append(
                f"the footer that is there has fencing token {plan.there.fencing_token}, and the bytes {plan.given.fencing_token}: the "
                "higher one is kept"
            )
    named = plan.given.named_ledgers()
    notes = [
        f"ledger {one.ledger} is of the same owner, and the bytes do not name it: if a later write of it does, they are not the latest"
        for one in owned
        if (one.epoch, one.writer) == (plan.given.epoch, plan.given.writer) and one.ledger not in named
    ]
    return replace(plan, problems=problems, notes=notes, epoch_seen=min(max(epochs), NUMBER_MAX - 1))


async def _ledgers(ports: Ports, name: CursorName) -> list[Owned]:
    """Every ledger that says it is this cursor's."""
    deployment = await ports.footers.known_deployment()
    found = [owned_of(info, deployment) async for info in ports.ledgers.list({"application": APPLICATION})]
    return [owned for owned in found if owned is not None and owned.name == name]


async def write(ports: Ports, plan: Plan, root: str, bar: Bar) -> int:
    """The znode's version then. Until it is reached, what the znode holds says that it is not: it is refused, and this goes on
    when it is called again. Raises ProblemError, ZooKeeperError."""
    path, version, wanted = plan.name.path(root), plan.version, plan.version_wanted
    data = ports.footers.encoded(plan.footer().written_at(wanted))
    if version == ABSENT:
        await ports.zookeeper.ensure_path(path.rpartition("/")[0])
    while version < wanted:
        reached = min(version + WRITES_PER_REQUEST, wanted)
        try:
            await ports.zookeeper.multi([_one_write(path, v, data if v + 1 == reached else b"") for v in range(version, reached)])
        except zk.OutcomeUnknown:
            if await _there(ports, path) != (reached, data):
                raise
        except zk.MultiFailed as e:
            if not isinstance(e.culprit, zk.BadVersion | zk.NodeExists | zk.NoNode):
                raise
            raise ProblemError(f"{plan.name}: its footer has changed since it was shown", "look at it again") from e
        bar.advance(reached - version)
        version = reached
    return version


async def _there(ports: Ports, path: str) -> tuple[int, bytes]:
    """The znode's version and bytes; ABSENT and none of them."""
    await ports.zookeeper.sync(path)
    try:
        node = await ports.zookeeper.get(path)
    except zk.NoNode:
        return ABSENT, b""
    return node.version, node.data


def _one_write(path: str, version: int, data: bytes) -> Op:
    return Create(path, data) if version == ABSENT else SetData(path, data, version)


def show(plan: Plan) -> None:
    say(str(plan.name), bold=True)
    where = "there is no znode" if plan.version == ABSENT else f"the znode has version {plan.version}"
    said = "an earlier release" if plan.given.written_as is None else f"version {plan.given.written_as}"
    say(f"  {where}{f'; {plan.problem_there}' if plan.problem_there and plan.version != ABSENT else ''}")
    say(f"  the bytes were written as {said}")
    for key, (there, given) in plan.differences().items():
        say(f"  {key:<11} there: {there}")
        say(f"  {'':<11} bytes: {given}")
    for note in plan.notes:
        say(f"  note: {note}")
    for problem in plan.problems:
        say(f"  NOT THE LATEST: {problem}")


def as_json(plan: Plan, written: int | None) -> dict[str, Any]:
    return {
        "cursor": plan.name.display,
        "znodeVersion": None if plan.version == ABSENT else plan.version,
        "problemThere": plan.problem_there,
        "writtenAs": plan.given.written_as,
        "differences": {key: {"there": there, "bytes": given} for key, (there, given) in plan.differences().items()},
        "notTheLatest": plan.problems,
        "notes": plan.notes,
        "written": written is not None,
        "version": written,
    }


def verification(name: CursorName) -> str:
    """The command that a person may give next, for a shell."""
    return f"cursorkeeper verify {shlex.quote(cursor_name.typed(name))}"


def bytes_of(file: Path) -> bytes:
    """Of a file, or of standard input; without the line end that an editor or a log adds."""
    data = sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
    return data.rstrip(b"\r\n")


@options.located
def restore_footer(
    *,
    cursor: Annotated[str, typer.Argument(help=f"{cursor_name.FORM}.", metavar="CURSOR")],
    file: Annotated[Path | None, typer.Argument(help="The latest bytes of its footer; - for standard input.")] = None,
    as_it_is: Annotated[bool, typer.Option("--as-it-is", help="The bytes that are in the znode now, instead of a file.")] = False,
    older: Annotated[
        bool, typer.Option("--older", help="Also bytes that are not the latest: what was confirmed since is forgotten.")
    ] = False,
    writes_max: Annotated[
        int, typer.Option(min=1, help="So many writes may be made: the znode's version grows by one with each.")
    ] = WRITES_MAX,
    yes: Annotated[bool, typer.Option("--yes", help="Write without asking.")] = False,
    settings: Settings,
    json: options.Json = False,
) -> None:
    """Put the bytes of a cursor's footer back into ZooKeeper, after showing what they hold.

    For a cursor that is refused with FOOTER_REPLACED, FOOTER_LOST, or a DAMAGED footer. Bytes written by other means are
    refused, because nothing says that they are the latest; with older ones, confirmed acks are delivered again. What is
    there is compared with the bytes, and both with the cursor's ledgers. Whoever holds the cursor meanwhile is deposed.

    The znode's version is brought above the one that the bytes were written as, a write for each. If that is interrupted,
    run the command again: it goes on.
    """
    if (file is None) == (not as_it_is):
        raise ProblemError("what is to be put back?", "name a FILE, or say --as-it-is", Kind.USAGE)
    name = cursor_name.parse(cursor)
    data = None if file is None else bytes_of(file)

    async def looked() -> Plan:
        async with connections.ports(settings) as ports:
            await roots.check_root(ports.zookeeper, settings, needs_id=True)
            return await look(ports, name, settings.root, data)

    async def done(plan: Plan) -> int:
        async with connections.ports(settings) as ports:
            with Bar("writing", plan.version_wanted - plan.version) as bar:
                return await write(ports, plan, settings.root, bar)

    plan, written = asyncio.run(looked()), None
    if not json:
        show(plan)
    plan.check_writes(writes_max)
    may = older or not plan.problems
    # a person may think for longer than a session of ZooKeeper lives
    if may and (yes or (not json and sys.stdin.isatty() and typer.confirm("write this?"))):
        written = asyncio.run(done(plan))
    if json:
        json_line(as_json(plan, written))
    elif written is not None:
        say(f"written as version {written}; `{verification(name)}` says what a recovery finds")
    if written is not None:
        return
    why = "" if may else ": these bytes are not the latest"
    say(f"cursorkeeper: {name}: nothing was written{why}", err=True)
    say(f"What to do: {'add --yes' if may else LATEST}", err=True)
    raise typer.Exit(NO)

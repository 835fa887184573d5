"""Serves who puts bytes of a footer back into its znode, as a write of ours would put them there.

Owns what the bytes hold against what is there, and whether the cursor's own ledgers show that they
are not the latest. Invariants: a write is a compare-and-set on what was shown; the znode's version
never starts again, so that a write that is late meets another one: on the way to it nothing in the
znode counts as a footer.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field, replace
from typing import Any

from cursorkeeper.connections import Ports
from cursorkeeper.core.errors import DamageError
from cursorkeeper.core.footer import Footer
from cursorkeeper.core.names import CursorName
from cursorkeeper.core.positions import NUMBER_MAX
from cursorkeeper.format import footer as codec
from cursorkeeper.inspection.footer_view import footer_json
from cursorkeeper.inspection.progress import Progress
from cursorkeeper.problems import ProblemError
from cursorkeeper.runtime.gc import Owned, doubt, owned_of
from cursorkeeper.runtime.ledgers import APPLICATION
from cursorkeeper.zookeeper import errors as zk
from cursorkeeper.zookeeper.synced import read_synced
from cursorkeeper.zookeeper.values import Create, Op, SetData

ABSENT = -1


SHOWN = (
    "state",
    "epoch",
    "writer",
    "write",
    "generation",
    "markDelete",
    "base",
    "chain",
    "previous",
    "fencingToken",
)
"""Members that are compared; the others are for reports."""


WRITES_PER_REQUEST = 200
"""Names of 1 KiB leave room for a footer with a state in it."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What would be written over `version` (-1: there is no znode), and what is to be said about
    it.
    """

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
        """Raises ProblemError: a version grows by one with each write, and the bytes may say
        any.
        """
        writes = self.version_wanted - self.version
        if writes > writes_max:
            raise ProblemError(
                f"{self.name}: its znode has to reach version {self.version_wanted:,}, which "
                f"takes {writes:,} writes; at most {writes_max:,} are made",
                "if the bytes are right, raise --writes-max: ZooKeeper takes some ten thousand "
                "of them a second, each some hundred bytes of its log",
            )

    def differences(self) -> dict[str, tuple[Any, Any]]:
        """Member -> (there, given)."""
        given = footer_json(self.given, self.version)
        there = (
            footer_json(self.there, self.version)
            if self.there is not None
            else dict.fromkeys(given)
        )
        return {key: (there[key], given[key]) for key in SHOWN if there[key] != given[key]}

    def as_json(self) -> dict[str, Any]:
        """What is to be seen before it is written."""
        return {
            "cursor": self.name.display,
            "znodeVersion": None if self.version == ABSENT else self.version,
            "problemThere": self.problem_there,
            "writtenAs": self.given.written_as,
            "differences": {
                key: {"there": there, "bytes": given}
                for key, (there, given) in self.differences().items()
            },
            "notTheLatest": self.problems,
            "notes": self.notes,
        }

    def footer(self) -> Footer:
        """What is written. Older bytes become a footer of their own, so that no epoch has two
        owners.
        """
        if not self.problems:
            return self.given
        token = max(self.given.fencing_token, 0 if self.there is None else self.there.fencing_token)
        writer = f"restore-footer/{secrets.token_hex(8)}"
        return replace(
            self.given, epoch=self.epoch_seen, writer=writer, write=1, fencing_token=token
        )


async def look(ports: Ports, name: CursorName, data: bytes | None) -> Plan:
    """`data`: the bytes to put back; None: those that are there. Raises ProblemError, DamageError,
    what the clients raise.
    """
    node = await read_synced(ports.zookeeper, ports.footers.path(name))
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
    problems += [
        f"ledger {gone}, which the bytes name, is not there"
        for gone in sorted(plan.given.named_ledgers() - known)
    ]
    epochs = [plan.given.epoch, *(one.epoch for one in owned)]
    if plan.there is not None:
        epochs.append(plan.there.epoch)
        if (plan.there.epoch, plan.there.write) > (plan.given.epoch, plan.given.write):
            problems.append(
                f"the footer that is there is of epoch {plan.there.epoch}, write "
                f"{plan.there.write}, and the bytes of epoch "
                f"{plan.given.epoch}, write {plan.given.write}"
            )
        if plan.there.fencing_token > plan.given.fencing_token:
            problems.append(
                f"the footer that is there has fencing token {plan.there.fencing_token}, and the "
                f"bytes {plan.given.fencing_token}: the higher one is kept"
            )
    named = plan.given.named_ledgers()
    notes = [
        f"ledger {one.ledger} is of the same owner, and the bytes do not name it: if a later "
        f"write of it does, they are not the latest"
        for one in owned
        if (one.epoch, one.writer) == (plan.given.epoch, plan.given.writer)
        and one.ledger not in named
    ]
    return replace(
        plan, problems=problems, notes=notes, epoch_seen=min(max(epochs), NUMBER_MAX - 1)
    )


async def _ledgers(ports: Ports, name: CursorName) -> list[Owned]:
    """Every ledger that says it is this cursor's."""
    deployment = await ports.footers.known_deployment()
    found = [
        owned_of(info, deployment)
        async for info in ports.ledgers.list({"application": APPLICATION})
    ]
    return [owned for owned in found if owned is not None and owned.name == name]


async def write(ports: Ports, plan: Plan, progress: Progress) -> int:
    """The znode's version then. Until it is reached, what the znode holds says that it is not: it
    is refused, and this goes on when it is called again. Raises ProblemError, ZooKeeperError.
    """
    path, version, wanted = ports.footers.path(plan.name), plan.version, plan.version_wanted
    data = ports.footers.encoded(plan.footer().written_at(wanted))
    if version == ABSENT:
        await ports.zookeeper.ensure_path(path.rpartition("/")[0])
    while version < wanted:
        reached = min(version + WRITES_PER_REQUEST, wanted)
        try:
            await ports.zookeeper.multi(
                [
                    _one_write(path, v, data if v + 1 == reached else b"")
                    for v in range(version, reached)
                ]
            )
        except zk.OutcomeUnknown:
            node = await read_synced(ports.zookeeper, path)
            if node is None or (node.version, node.data) != (reached, data):
                raise
        except zk.MultiFailed as e:
            if not isinstance(e.culprit, zk.BadVersion | zk.NodeExists | zk.NoNode):
                raise
            raise ProblemError(
                f"{plan.name}: its footer has changed since it was shown", "look at it again"
            ) from e
        progress.advance(reached - version)
        version = reached
    return version


def _one_write(path: str, version: int, data: bytes) -> Op:
    return Create(path, data) if version == ABSENT else SetData(path, data, version)

"""The record of a run: one znode that says which run it is, and whether it is still to be done.

OPEN -> DONE | ABORTED, each by compare-and-set; what is decided stays. The driver creates it before
the first task; a second run with the same id continues it if it is about the same, and is refused
if not; tasks ask it before each cursor. It counts and explains, it does not decide what is true of
a cursor: footers do.

Below it is what the run has noted of single cursors, each once (`note`): what an export may
replace, what an import has found wrong. Nothing is noted once the run is decided.

Its random token is what tells this run from every other one, also of another cluster on the same
BookKeeper that has topics of the same names, the same id and the same address: an id is a name, and
names come twice.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import secrets
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from enum import StrEnum
from typing import Any, Final

import msgspec

from cursorkeeper.problems import Kind, ProblemError
from cursorkeeper.zookeeper import errors as zk
from cursorkeeper.zookeeper.port import ZooKeeper
from cursorkeeper.zookeeper.values import Check, Create

FORMAT: Final = 1
TRIES_MAX: Final = 20
FORGOTTEN_AT_ONCE: Final = 16
"""Of each folder of notes."""
ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class State(StrEnum):
    OPEN = "OPEN"
    DONE = "DONE"
    ABORTED = "ABORTED"


class RunDone(ProblemError):
    """Every cursor of this run is well already: another driver was quicker, and has said so."""


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """See the module. `about`: what makes it this run and no other. `counts`: of the newest run
    that ended, cursors by status. `skipped`: paths that were no cursors. `token`: random, on every
    ledger that the run makes. Times in milliseconds since 1970.
    """

    id: str
    kind: str
    about: dict[str, str]
    state: State = State.OPEN
    runs: int = 1
    created_ms: int = 0
    decided_ms: int = 0
    counts: dict[str, int] = {}
    skipped: int = 0
    token: str = ""
    format: int = FORMAT


def folder_of(root: str, kind: str) -> str:
    """Beside the footers: `/cursorkeeper/cursors` has its imports in `/cursorkeeper/imports`."""
    return f"{root.rpartition('/')[0]}/{kind}s"


def id_of(kind: str, about: Mapping[str, str]) -> str:
    """An id for a run that was given none: the same for the same run."""
    text = msgspec.json.encode([kind, sorted(about.items())])
    return f"{kind}-{hashlib.blake2b(text, digest_size=6).hexdigest()}"


def checked_id(given: str) -> str:
    """The name of a run as it was given. Raises ProblemError if no znode can be called so."""
    if not ID.fullmatch(given):
        remedy = "use letters, digits, dots, dashes and underscores, at most 64"
        raise ProblemError(f"id {given!r} cannot be the name of a run", remedy, Kind.USAGE)
    return given


class RunRecord:
    """One run's znode; also what a task asks."""

    def __init__(self, zookeeper: ZooKeeper, folder: str, id: str) -> None:
        self._zk, self.path, self.id = zookeeper, f"{folder}/{id}", id

    async def begin(self, kind: str, about: Mapping[str, str]) -> Record:
        """The record as it is now: new, or that of an earlier run. Raises ProblemError: it is about
        something else, or was aborted.
        """
        fresh = Record(
            id=self.id,
            kind=kind,
            about=dict(about),
            created_ms=_now_ms(),
            token=secrets.token_hex(16),
        )

        def begun(found: Record | None) -> Record:
            if found is None:
                return fresh
            self._check(found, fresh)
            if found.state is State.DONE:
                return found
            return msgspec.structs.replace(found, runs=found.runs + 1)

        return await self._change(begun)

    async def decide(
        self, state: State, counts: Mapping[str, int] | None = None, skipped: int = 0
    ) -> Record:
        """OPEN -> `state`, or what was decided before. OPEN: only the counts are kept. Raises
        ProblemError.
        """

        def decided(found: Record | None) -> Record:
            if found is None:
                raise ProblemError(
                    f"there is no run {self.id} at {self.path}",
                    "look at the id; a run tells it when it begins",
                )
            if found.state is not State.OPEN:
                return found
            return msgspec.structs.replace(
                found,
                state=state,
                decided_ms=_now_ms(),
                counts=dict(counts or found.counts),
                skipped=skipped or found.skipped,
            )

        return await self._change(decided)

    async def _change(self, change: Callable[[Record | None], Record]) -> Record:
        """What `change` makes of the record (None: there is none), written unless it is the
        same.
        """
        for _ in range(TRIES_MAX):
            found = await self._look()
            changed = change(found[0] if found else None)
            try:
                if found is None:
                    await self._zk.ensure_path(self.path.rpartition("/")[0])
                    await self._zk.create(self.path, msgspec.json.encode(changed))
                elif changed is not found[0]:
                    await self._zk.set(self.path, msgspec.json.encode(changed), found[1])
                return changed
            except (zk.NodeExists, zk.BadVersion, zk.NoNode, zk.Disconnected, zk.SessionExpired):
                # what is there is read again: another driver was quicker, or the answer was lost
                continue
        raise self._undecided()

    async def find(self) -> Record | None:
        """The record as it is. Raises ProblemError, ZooKeeperError."""
        found = await self._look()
        return None if found is None else found[0]

    async def check_open(self, *, sync: bool = False) -> Record:
        """Before a task begins a cursor; the record. `sync`: what is decided by now is seen, not
        only what was a moment ago.

        Raises RunDone, ProblemError, ZooKeeperError.
        """
        if sync:
            await self._zk.sync(self.path)
        return (await self._open())[0]

    async def _open(self) -> tuple[Record, int]:
        found = await self._look()
        if found is None:
            raise ProblemError(
                f"the record of this run ({self.path}) is gone",
                "find out who deleted it, and run it again",
            )
        if found[0].state is not State.OPEN:
            kind = RunDone if found[0].state is State.DONE else ProblemError
            raise kind(
                f"run {self.id} is {found[0].state}: nothing more is begun",
                "this attempt is late; it has done no harm",
            )
        return found

    async def note(self, place: str, data: bytes = b"") -> bytes:
        """What the first attempt that said something at this place below the record has said:
        `data`, if this is it. In one transaction with a check that the run is open: what is
        forgotten once it is decided does not come back. Raises RunDone, ProblemError,
        ZooKeeperError.
        """
        path = f"{self.path}/{place}"
        for _ in range(TRIES_MAX):
            _, version = await self._open()
            try:
                await self._zk.multi([Check(self.path, version), Create(path, data)])
                return data
            except zk.MultiFailed as e:
                match e.culprit:
                    case zk.NodeExists():
                        if (found := await self.noted(place)) is not None:
                            return found
                    case zk.NoNode():
                        await self._make_folder(place.rpartition("/")[0], version)
                    case zk.BadVersion():
                        await self._zk.sync(self.path)
                    case _:
                        raise e.culprit from None
        raise self._undecided()

    async def _make_folder(self, folder: str, version: int) -> None:
        """The folders of a place, as far as they are missing and the record is as it was: not
        below one that is decided, and never the record itself.
        """
        path = self.path
        for part in folder.split("/"):
            path = f"{path}/{part}"
            with suppress(zk.MultiFailed):
                await self._zk.multi([Check(self.path, version), Create(path, b"")])

    async def noted(self, place: str) -> bytes | None:
        """None: nothing. Raises ZooKeeperError."""
        try:
            return (await self._zk.get(f"{self.path}/{place}")).data
        except zk.NoNode:
            return None

    async def forget(self, folder: str) -> None:
        """What was noted in it, once the run is decided. Raises ZooKeeperError."""
        path = f"{self.path}/{folder}"
        with suppress(zk.NoNode, zk.NotEmpty):
            names = await self._zk.children(path)
            for first in range(0, len(names), FORGOTTEN_AT_ONCE):
                some = names[first : first + FORGOTTEN_AT_ONCE]
                await asyncio.gather(*(self.forget(f"{folder}/{name}") for name in some))
            await self._zk.delete(path, 0)

    async def _look(self) -> tuple[Record, int] | None:
        try:
            node = await self._zk.get(self.path)
        except zk.NoNode:
            return None
        try:
            record = msgspec.json.decode(node.data, type=Record)
        except (msgspec.DecodeError, msgspec.ValidationError) as e:
            raise ProblemError(
                f"{self.path} is not the record of a run: {e}", "look at it; give another --id"
            ) from None
        if record.format > FORMAT:
            raise ProblemError(
                f"{self.path} was written by a newer release",
                "upgrade this program, or give another --id",
            )
        return record, node.version

    def _check(self, found: Record, wanted: Record) -> None:
        differ = [
            f"{key} is {found.about.get(key, '')!r} there and {wanted.about.get(key, '')!r} now"
            for key in sorted(found.about.keys() | wanted.about.keys())
            if found.about.get(key) != wanted.about.get(key)
        ]
        if found.kind != wanted.kind:
            differ.append(f"it is an {found.kind}")
        if differ:
            raise ProblemError(
                f"run {self.id} is another one: {'; '.join(differ)}",
                "give another --id",
                Kind.USAGE,
            )
        if found.state is State.ABORTED:
            raise ProblemError(
                f"run {self.id} was aborted",
                "give another --id: what it has done is left alone where it is the same",
            )

    def _undecided(self) -> ProblemError:
        return ProblemError(
            f"{self.path} was not decided in {TRIES_MAX} tries",
            "look at ZooKeeper, and run it again",
            Kind.AWAY,
        )


def _now_ms() -> int:
    return int(time.time() * 1000)


def as_json(record: Record) -> dict[str, Any]:
    return {
        "id": record.id,
        "state": str(record.state),
        "runs": record.runs,
        "createdMs": record.created_ms,
    }

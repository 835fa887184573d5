"""Writing one cursor into a Pulsar cluster: a new ledger if one is needed, then the znode by
compare-and-set.

The compare-and-set is one transaction with a check that the *topic's* znode is as it was: a broker
that loads a topic rewrites that (it begins a new message ledger), and only a broker that has the
topic deletes a subscription. So a late write fails if the cursor's version was passed, and also if
the cursor was deleted and its versions began anew. (The load of a terminated topic rewrites
nothing, and a topic that is made anew begins to count anew: there the cursor's own version is all
that tells.)

Nothing of Pulsar's is touched before that; after it the state is Pulsar's. A ledger that the znode
does not name is deleted again; it carries marks, in case this process dies (`leftovers`). The old
cursor ledger goes only after that, and only if it was closed and is this cursor's.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from cursorkeeper.bookkeeper import errors as bk
from cursorkeeper.bookkeeper.port import LedgerSpec, LedgerState
from cursorkeeper.core.errors import DamageError
from cursorkeeper.format.pulsar import cursor_info, names
from cursorkeeper.migration.cluster import PulsarCursorRef, PulsarPorts
from cursorkeeper.migration.destination import Destination
from cursorkeeper.migration.errors import MigrationError
from cursorkeeper.migration.patience import Patience
from cursorkeeper.migration.pulsar_reader import STATE_BYTES_MAX
from cursorkeeper.migration.target import WritePlan
from cursorkeeper.problems import Kind
from cursorkeeper.zookeeper import errors as zk
from cursorkeeper.zookeeper.synced import read_synced
from cursorkeeper.zookeeper.values import Check, Create, SetData

CAS_TRIES_MAX = 10
CHANGED = (
    "its znode changed while it was exported: a broker has the topic, or somebody else exports it"
)
AGAIN = "find out who; then run this again: nothing of Pulsar's was changed"

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Written:
    """`ledger` -1: in the znode."""

    ledger: int
    notes: tuple[str, ...]


def custom_metadata(ref: PulsarCursorRef) -> dict[str, bytes]:
    return {
        "application": b"pulsar",
        "component": b"managed-ledger",
        "pulsar/managed-ledger": names.managed_ledger_name(ref.topic).encode(),
        "pulsar/cursor": names.encode_name(ref.subscription).encode(),
    }


def named_by(znode: bytes) -> int | None:
    """The ledger that a cursor's znode names (-1: none); None: it cannot be read."""
    try:
        raw, _ = cursor_info.unwrap(znode, limit_bytes=STATE_BYTES_MAX)
        return cursor_info.decode(raw).cursors_ledger
    except DamageError:
        return None


def limited(spec: LedgerSpec, bookies: int) -> LedgerSpec:
    """The same quorums, as far as there are bookies: Pulsar's next ledger has the full ones
    again.
    """
    ensemble = max(1, min(spec.ensemble, bookies))
    write = min(spec.write_quorum, ensemble)
    return LedgerSpec(ensemble, write, min(spec.ack_quorum, write), spec.digest, spec.password)


@dataclass(frozen=True, slots=True)
class Writer:
    """One cursor's. `marks`: of new ledgers, beside what Pulsar looks at."""

    ports: PulsarPorts
    ref: PulsarCursorRef
    spec: LedgerSpec
    patience: Patience
    marks: Mapping[str, bytes] = field(default_factory=dict)

    async def write(self, plan: WritePlan, there: Destination) -> Written:
        """In the place of what was seen there. Raises MigrationError; the clients' errors."""
        notes: list[str] = []
        ledger = -1
        if plan.entry is not None:
            ledger = await self._new_ledger(plan.entry, notes)
        try:
            await self._swap(plan.znode if ledger < 0 else plan.znode_for(ledger), there, ledger)
        except MigrationError as e:
            # certainly not named by the znode
            if e.kind in (Kind.REFUSED, Kind.CHANGED) and ledger >= 0:
                notes += await self._delete(ledger, f"the new ledger {ledger}")
            raise
        if there.cursor_ledger >= 0:
            notes += await self.drop_old(there.cursor_ledger)
        return Written(ledger, tuple(notes))

    async def _new_ledger(self, entry: bytes, notes: list[str]) -> int:
        ledgers = self.ports.ledgers
        bookies = (await self._wait(ledgers.describe)).writable_bookies
        spec = limited(self.spec, bookies)
        if spec != self.spec:
            notes.append(
                f"{bookies} bookies: written with "
                f"{spec.ensemble}/{spec.write_quorum}/{spec.ack_quorum}"
            )
        ledger = await self._wait(lambda: self._create(spec))
        try:
            await ledgers.append(ledger, 0, entry)
            end = await ledgers.close_ledger(ledger)
            back = [
                payload async for chunk in ledgers.read(ledger, 0) for payload in chunk.payloads
            ]
            if end.last_entry != 0 or back != [entry]:
                raise self._error(
                    Kind.AWAY,
                    f"ledger {ledger}",
                    "what was written is not what is read",
                    "run this again",
                )
        except BaseException:
            notes += await self._delete(ledger, f"the new ledger {ledger}")
            raise
        return ledger

    async def _create(self, spec: LedgerSpec) -> int:
        try:
            return await self.ports.ledgers.create(
                spec, {**custom_metadata(self.ref), **self.marks}
            )
        except bk.GatewayRetry as e:
            if e.outcome is bk.Outcome.NOT_DONE:
                raise
            # repeating it could leave one more ledger that nobody knows of
            message = f"no answer to the creation of a ledger: {e.reason}; an empty one may be left"
            raise self._error(Kind.AWAY, "", message, "run this again") from e

    # ---- the znode

    async def _swap(self, value: bytes, there: Destination, ledger: int) -> None:
        """Compare-and-set, decided. `ledger`: that `value` names, -1 for none. Raises
        MigrationError: REFUSED, CHANGED = the znode does not name the ledger, AWAY = not known.
        """
        path, keeper = self.ref.path, self.ports.zookeeper
        change = SetData(path, value, there.version) if there.exists else Create(path, value)
        for _ in range(CAS_TRIES_MAX):
            try:
                await keeper.multi([Check(self.ref.topic_path, there.topic_version), change])
                return
            except zk.MultiFailed as e:
                match e.culprit:
                    case zk.NoNode():
                        message = "the topic or its cursor was deleted meanwhile"
                        raise self._error(Kind.REFUSED, path, message, AGAIN) from e
                    case zk.BadVersion() | zk.NodeExists():
                        if await self._is_mine(value, there.version, ledger):
                            return  # an earlier try arrived after all
                        raise self._error(Kind.CHANGED, path, CHANGED, AGAIN) from e
                raise e.culprit from None
            except zk.Disconnected:
                await self._wait(lambda: keeper.sync(path))
        raise self._error(
            Kind.AWAY,
            path,
            f"no answer to {CAS_TRIES_MAX} tries",
            "run this again: it finds out what is there",
        )

    async def _is_mine(self, value: bytes, version: int, ledger: int) -> bool:
        """Whether an earlier try was done: what it wrote is there, or what a broker has made of it
        since, which still names the ledger.
        """
        path = self.ref.path
        node = await self._wait(lambda: read_synced(self.ports.zookeeper, path))
        if node is None:
            return False
        if ledger < 0:
            return node.data == value and node.version == version + 1
        named = named_by(node.data)
        if named is None:
            raise self._error(
                Kind.AWAY,
                self.ref.path,
                f"{CHANGED}, and cannot be read",
                f"look at it; ledger {ledger} is left",
            )
        return named == ledger

    # ---- ledgers that nobody names any more

    async def drop_old(self, ledger: int, told: str = "") -> list[str]:
        """One that the znode has named and does not name any more. Notes; `told` if it went."""
        what = f"the old cursor ledger {ledger}"
        try:
            info = await self._wait(lambda: self.ports.ledgers.metadata(ledger))
        except bk.NoSuchLedger:
            return []
        except (bk.GatewayError, MigrationError) as e:
            return [f"{what} is left: {e}"]
        if info.state is not LedgerState.CLOSED:
            return [f"{what} is left: it is not closed"]
        if not custom_metadata(self.ref).items() <= info.custom_metadata.items():
            return [f"{what} is left: its metadata does not say that it is this cursor's"]
        return await self._delete(ledger, what) or ([told] if told else [])

    async def _delete(self, ledger: int, what: str) -> list[str]:
        try:
            await self._wait(lambda: self.ports.ledgers.delete(ledger))
        except (bk.GatewayError, MigrationError) as e:
            return [f"{what} is left: {e}"]
        return []

    async def _wait(self, call: Callable[[], Awaitable[T]]) -> T:
        return await self.patience.repeat(self.ref, call)

    def _error(self, kind: Kind, place: str, message: str, remedy: str) -> MigrationError:
        return MigrationError(kind, self.ref, place, message, remedy)

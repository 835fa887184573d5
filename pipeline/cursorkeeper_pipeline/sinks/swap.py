"""What one attempt at an export may change at Pulsar's side: one znode, once, as the attempt has
seen it; and ledgers that say for what.

The swap is a compare-and-set of the cursor's znode, in one transaction with a check that the
*topic's* znode is as it was: a broker that loads a topic rewrites that (it begins a new message
ledger), and only a broker that has the topic deletes a subscription. So a late swap fails if the
cursor's version was passed, and also if the cursor was deleted and its versions began anew. A
ledger's metadata names the version that its maker's swap replaces, and carries the token of the
run's record: from that, `leftovers` knows which ledgers are the run's and nobody can name any more.
(The load of a terminated topic rewrites nothing, and a topic that is made anew begins to count
anew: there the cursor's own version is all that tells.)

Before its first change an attempt pins the version (if its run replaces) and then asks the run's
record, synced; see `cursor_export`.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, NamedTuple, cast

from cursorkeeper.bookkeeper.port import LedgerSpec, LedgerStore
from cursorkeeper.migration.cluster import PulsarCursorRef, PulsarPorts
from cursorkeeper.migration.errors import MigrationError
from cursorkeeper.migration.pulsar_writer import ABSENT, AGAIN, CHANGED, named_by
from cursorkeeper.problems import Kind, ProblemError
from cursorkeeper.zookeeper import errors as zk
from cursorkeeper.zookeeper.port import ZooKeeper
from cursorkeeper.zookeeper.values import Check, Create, DataSet, SetData, Version
from cursorkeeper_pipeline.sinks.pins import Pin, Pins
from cursorkeeper_pipeline.sinks.record import RunDone, RunRecord

RUN_KEY, TOPIC_KEY, SUBSCRIPTION_KEY = (
    "cursorkeeper-export",
    "cursorkeeper-topic",
    "cursorkeeper-subscription",
)
"""The first is for people: a run's id is a name, and names come twice."""
VERSION_KEY: Final = "cursorkeeper-replaces"
TOKEN_KEY: Final = "cursorkeeper-run-token"
SWAP_BYTES: Final = 4_096
"""What the transaction holds beside the znode's value, in a request that ZooKeeper limits as a
whole: two paths.
"""


class Seen(NamedTuple):
    """Of Pulsar, before an attempt decides. `topic`: version of its znode (ABSENT: none); `cursor`:
    of the cursor's.
    """

    topic: int
    cursor: Pin


async def look(zookeeper: ZooKeeper, ref: PulsarCursorRef) -> Seen:
    """Raises ZooKeeperError."""
    await zookeeper.sync(ref.path)
    topic = await zookeeper.exists(ref.topic_path)
    try:
        node = await zookeeper.get(ref.path)
    except zk.NoNode:
        pin = Pin(ABSENT, -1)
    else:
        named = named_by(node.data)
        pin = Pin(node.version, -1 if named is None else named)
    return Seen(ABSENT if topic is None else topic.version, pin)


@dataclass(slots=True)
class Swap:
    """One attempt's. `pins` None: the run replaces nothing. `pinned`: what the run may replace,
    once this attempt has begun, and `token`: the record's then. `late`: the run was DONE before it
    could.
    """

    ref: PulsarCursorRef
    seen: Seen
    record: RunRecord
    pins: Pins | None = None
    pinned: Pin | None = field(default=None, init=False)
    token: str = field(default="", init=False)
    late: RunDone | None = field(default=None, init=False)

    def ports(self, pulsar: PulsarPorts) -> PulsarPorts:
        """The same; what changes Pulsar's side goes through this."""
        return PulsarPorts(
            cast(ZooKeeper, Guarded(pulsar.zookeeper, self)),
            cast(LedgerStore, Marked(pulsar.ledgers, self)),
        )

    async def begin(self) -> None:
        """Before the first change. Raises ProblemError: the run was decided; MigrationError
        CHANGED: another attempt was quicker, and has pinned another version.
        """
        if self.pinned is not None:
            return
        pin = await self.pin()
        if pin.version != self.seen.cursor.version:
            raise self.changed()
        self.pinned = pin

    async def pin(self) -> Pin:
        """What the run may replace; from now on, if this is its first attempt. Raises ProblemError:
        the run was decided.
        """
        seen = self.seen.cursor
        pin = seen if self.pins is None else await self.pins.pin(self.ref, seen)
        try:
            self.token = (await self.record.check_open(sync=True)).token
        except ProblemError as e:
            self.late = e if isinstance(e, RunDone) else None
            if pin is seen and self.pins is not None:
                with suppress(zk.ZooKeeperError):
                    await self.pins.unpin(self.ref)
            raise
        return pin

    def changed(self) -> MigrationError:
        """Nothing was done: look again."""
        return MigrationError(Kind.CHANGED, str(self.ref), self.ref.path, CHANGED, AGAIN)

    @property
    def marks(self) -> dict[str, bytes]:
        """Of new ledgers, beside what Pulsar looks at: by whom, for what, and what the swap
        replaces.
        """
        more = {
            RUN_KEY: self.record.id,
            TOPIC_KEY: self.ref.topic,
            SUBSCRIPTION_KEY: self.ref.subscription,
            TOKEN_KEY: self.token,
        }
        return {key: value.encode() for key, value in more.items()} | {
            VERSION_KEY: b"%d" % self.seen.cursor.version
        }


class Marked:
    """Pulsar's ledgers, as far as an export uses them; what is created is marked."""

    def __init__(self, ledgers: LedgerStore, swap: Swap) -> None:
        self._ledgers, self._swap = ledgers, swap
        self.append, self.close_ledger, self.delete = (
            ledgers.append,
            ledgers.close_ledger,
            ledgers.delete,
        )
        self.read, self.metadata, self.end_of = ledgers.read, ledgers.metadata, ledgers.end_of
        self.describe = ledgers.describe

    async def create(self, spec: LedgerSpec, custom_metadata: Mapping[str, bytes]) -> int:
        await self._swap.begin()
        return await self._ledgers.create(spec, {**custom_metadata, **self._swap.marks})


class Guarded:
    """Pulsar's ZooKeeper, as far as an export uses it; nothing is written but the cursor's znode,
    at one version, and while the topic's is as it was.
    """

    def __init__(self, zookeeper: ZooKeeper, swap: Swap) -> None:
        self._zookeeper, self._swap = zookeeper, swap
        self.get, self.exists, self.sync = zookeeper.get, zookeeper.exists, zookeeper.sync
        self.children = zookeeper.children

    async def set(self, path: str, data: bytes, version: Version) -> int:
        """As the port's; MigrationError CHANGED: certainly not done."""
        result = await self._multi(SetData(path, data, version), version)
        assert isinstance(result, DataSet)
        return result.version

    async def create(self, path: str, data: bytes) -> str:
        await self._multi(Create(path, data), ABSENT)
        return path

    async def _multi(self, op: SetData | Create, version: Version) -> object:
        swap = self._swap
        assert op.path == swap.ref.path, "an export writes nothing else"
        # the engine looked after this attempt did, and found another one
        if version != swap.seen.cursor.version:
            raise swap.changed()
        await swap.begin()
        try:
            return (await self._zookeeper.multi([Check(swap.ref.topic_path, swap.seen.topic), op]))[
                1
            ]
        except zk.MultiFailed as e:
            if e.culprit_index == 1:
                raise e.culprit from None
            # an earlier try, whose answer was lost, may have been done: as after any other failed
            # compare-and-set, who asked looks
            await self._zookeeper.sync(op.path)
            if await self._zookeeper.exists(op.path) is None:
                raise swap.changed() from e
            raise zk.BadVersion("the topic's znode changed", path=op.path) from e

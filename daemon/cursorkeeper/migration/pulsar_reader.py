"""Reading one Pulsar cursor without disturbing anybody: no recovery, no fence, no write.

Owns the order of the reads: znode, cursor ledger, topic znode last, so that the layout is never
older than the state. A cursor ledger that is gone means that the znode may have moved on: it is
read again, and only if it has not is the ledger missing. Every failure is a MigrationError with
cursor, place and remedy; a smaller state is never taken silently.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

from cursorkeeper.bookkeeper import errors as bk
from cursorkeeper.core.errors import DamageError, TooNewError
from cursorkeeper.core.positions import Position
from cursorkeeper.format.pulsar import cursor_info, ledger_info
from cursorkeeper.format.pulsar.layout import layout_items, resolve
from cursorkeeper.format.pulsar.values import (
    Compression,
    ManagedCursorInfo,
    ManagedLedgerInfo,
    PositionInfo,
)
from cursorkeeper.migration.cluster import PulsarCursorRef, PulsarPorts
from cursorkeeper.migration.cursor_ledger import newest_of
from cursorkeeper.migration.errors import MigrationError
from cursorkeeper.migration.patience import Patience
from cursorkeeper.migration.pulsar_cursor import Freshness, PulsarCursor
from cursorkeeper.migration.repair import is_beyond, repair
from cursorkeeper.problems import Kind
from cursorkeeper.zookeeper import errors as zk
from cursorkeeper.zookeeper.synced import read_synced
from cursorkeeper.zookeeper.values import Node

STATE_BYTES_MAX = 256 << 20
"""A state is never expanded beyond this."""
MOVED_MAX = 5
"""How often a znode may change under a reader before it gives up."""
ROLL_BACK = (
    "restore the ledger, or do what Pulsar would do with --roll-back-unreadable: go back to the "
    "znode's mark-delete and deliver everything that was acked individually again"
)
LOOK = "look at it with Pulsar's own tools; nothing was changed"
UPGRADE = "use a release that knows this version of Pulsar; nothing was changed"

T = TypeVar("T")


async def read_cursor(
    ports: PulsarPorts,
    ref: PulsarCursorRef,
    *,
    roll_back_unreadable: bool = False,
    patience: Patience | None = None,
) -> PulsarCursor:
    """The newest state that can be seen without disturbing anybody: nothing is recovered, nothing
    fenced.

    `roll_back_unreadable`: where the cursor ledger is gone or unreadable, do what Pulsar does, and
    say so: go back to the znode's mark-delete and lose every individual ack. Raises MigrationError.
    """
    return await _Reader(ports, ref, patience or Patience(), roll_back_unreadable).read()


@dataclass(slots=True)
class _Reader:
    _ports: PulsarPorts
    _ref: PulsarCursorRef
    _patience: Patience
    _roll_back: bool
    _warnings: list[str] = field(default_factory=list)
    _bytes_read: int = 0

    async def read(self) -> PulsarCursor:
        with self._errors(self._ref.path):
            node = await self._node(
                self._ref.path, Kind.NOT_FOUND, "there is no such subscription (any more)"
            )
            for _ in range(MOVED_MAX):
                znode, compression = self._znode(node)
                try:
                    state, freshness = await self._state(node, znode)
                    break
                except _LedgerGone as gone:
                    now = await self._node(
                        self._ref.path, Kind.NOT_FOUND, "the subscription was deleted meanwhile"
                    )
                    if self._znode(now)[0].cursors_ledger == znode.cursors_ledger:
                        state, freshness = self._rolled_back(now, znode, gone)
                        node = now
                        break
                    node = now
            else:
                message = "its znode changes faster than its ledger can be read"
                raise self._error(
                    Kind.AWAY, self._ref.path, message, "run this again when it is quieter"
                )
        return await self._fitted(node, znode, compression, state, freshness)

    def _znode(self, node: Node) -> tuple[ManagedCursorInfo, Compression]:
        raw, compression = cursor_info.unwrap(node.data, limit_bytes=STATE_BYTES_MAX)
        info, notes = cursor_info.decode_with_notes(raw)
        self._warnings, self._bytes_read = list(notes), len(node.data)
        return info, compression

    async def _state(self, node: Node, znode: ManagedCursorInfo) -> tuple[PositionInfo, Freshness]:
        mtime_ms = node.stat.mtime_ms
        if znode.is_inline:
            if znode.mark_delete is None:
                raise self._error(
                    Kind.DAMAGED,
                    self._ref.path,
                    "it names no cursor ledger and holds no mark-delete",
                    LOOK,
                )
            return cursor_info.inline_state(znode), Freshness(znode_mtime_ms=mtime_ms)
        ledger = znode.cursors_ledger
        try:
            with self._errors(f"ledger {ledger}", unreadable=True):
                found, freshness = await newest_of(
                    self._ports.ledgers,
                    self._ref,
                    ledger,
                    self._patience,
                    STATE_BYTES_MAX,
                    mtime_ms,
                )
        except bk.NoSuchLedger as e:
            raise _LedgerGone(f"cursor ledger {ledger} does not exist") from e
        except MigrationError as e:
            if self._roll_back and e.kind in (Kind.DAMAGED, Kind.MISSING):
                return self._rolled_back(node, znode, _LedgerGone(f"{e.where}: {e.message}"))
            raise
        self._warnings += found.notes
        self._bytes_read += found.stored_bytes
        return found.info, freshness

    def _rolled_back(
        self, node: Node, znode: ManagedCursorInfo, why: Exception
    ) -> tuple[PositionInfo, Freshness]:
        if not self._roll_back or znode.mark_delete is None:
            raise self._error(
                Kind.MISSING, f"ledger {znode.cursors_ledger}", str(why), ROLL_BACK
            ) from why
        return PositionInfo(znode.mark_delete), Freshness(
            znode_mtime_ms=node.stat.mtime_ms, rolled_back=str(why)
        )

    async def _fitted(
        self,
        node: Node,
        znode: ManagedCursorInfo,
        compression: Compression,
        state: PositionInfo,
        freshness: Freshness,
    ) -> PulsarCursor:
        """With the topic's layout, which is read last."""
        place = self._ref.topic_path
        with self._errors(place):
            found = await self._node(
                place, Kind.MISSING, "the topic's znode does not exist, only its cursor's"
            )
            topic = ledger_info.decode(found.data)
            layout = layout_items(topic)
            resolved, warnings = resolve(state, topic)
            end = await self._end(topic) if is_beyond(resolved.mark_delete, layout) else None
            repaired, done = repair(resolved, layout, end)
        return PulsarCursor(
            self._ref,
            repaired,
            layout,
            dict(znode.cursor_properties),
            freshness,
            state,
            znode,
            node.version,
            compression,
            topic,
            self._bytes_read + len(found.data),
            (*self._warnings, *warnings, *done),
        )

    async def _end(self, topic: ManagedLedgerInfo) -> Position:
        """The last position of the topic's last ledger, as far as a reader sees it."""
        last = topic.ledgers[-1].ledger
        try:
            return Position(
                last,
                (await self._wait(lambda: self._ports.ledgers.end_of(last))).last_add_confirmed,
            )
        except bk.NoSuchLedger:
            return Position(last, -1)

    # ---- calls and their errors

    async def _node(self, path: str, kind: Kind, missing: str) -> Node:
        node = await self._wait(lambda: read_synced(self._ports.zookeeper, path))
        if node is None:
            raise self._error(
                kind, path, missing, "`--dry-run` with --namespace or --tenant lists what there is"
            )
        return node

    async def _wait(self, call: Callable[[], Awaitable[T]]) -> T:
        return await self._patience.repeat(self._ref, call)

    def _error(self, kind: Kind, place: str, message: str, remedy: str) -> MigrationError:
        return MigrationError(kind, self._ref, place, message, remedy)

    @contextmanager
    def _errors(self, place: str, *, unreadable: bool = False) -> Iterator[None]:
        """What the clients and the formats raise, as ours."""
        try:
            with decoding(self._ref, place, ROLL_BACK if unreadable else LOOK):
                yield
        except bk.NoSuchLedger:
            raise
        except bk.GatewayRefused as e:
            raise self._error(
                Kind.DAMAGED, place, str(e), ROLL_BACK if unreadable else e.remedy
            ) from e
        except (bk.GatewayError, zk.ZooKeeperError) as e:
            raise self._error(Kind.AWAY, place, str(e), e.remedy) from e


@contextmanager
def decoding(ref: PulsarCursorRef, place: str, remedy: str = LOOK) -> Iterator[None]:
    """What the formats raise of damage, as ours. `remedy`: for bytes that cannot be trusted."""
    try:
        yield
    except TooNewError as e:
        raise MigrationError(Kind.TOO_NEW, ref, e.place or place, e.message, UPGRADE) from e
    except DamageError as e:
        raise MigrationError(Kind.DAMAGED, ref, e.place or place, e.message, remedy) from e


class _LedgerGone(Exception):
    """The znode's cursor ledger cannot be read, and why."""

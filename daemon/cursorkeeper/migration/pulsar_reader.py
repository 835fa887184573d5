"""Reading one Pulsar cursor without disturbing anybody: no recovery, no fence, no write.

Owns the order of the reads: znode, cursor ledger, topic znode last, so that the layout is never
older than the state. A cursor ledger that is gone means that the znode may have moved on: it is
read again, and only if it has not is the ledger missing. Every failure is a MigrationError with
cursor, place and remedy; a smaller state is never taken silently.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
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
    limit_bytes: int = STATE_BYTES_MAX,
) -> PulsarCursor:
    """The newest state that can be seen without disturbing anybody: nothing is recovered, nothing
    fenced.

    `roll_back_unreadable`: where the cursor ledger is gone or unreadable, do what Pulsar does, and
    say so: go back to the znode's mark-delete and lose every individual ack. `limit_bytes` bounds
    the state in memory. Raises MigrationError.
    """
    return await _Reader(
        ports, ref, patience or Patience(), limit_bytes, roll_back_unreadable
    ).read()


class _Reader:
    def __init__(
        self,
        ports: PulsarPorts,
        ref: PulsarCursorRef,
        patience: Patience,
        limit_bytes: int,
        roll_back: bool,
    ) -> None:
        self._ports, self._ref, self._patience = ports, ref, patience
        self._limit_bytes, self._roll_back = limit_bytes, roll_back
        self._warnings: list[str] = []
        self._bytes_read = 0

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
        raw, compression = cursor_info.unwrap(node.data, limit_bytes=self._limit_bytes)
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
            return cursor_info.inline_state(znode), Freshness(mtime_ms)
        ledger = znode.cursors_ledger
        try:
            with self._errors(f"ledger {ledger}", unreadable=True):
                found = await newest_of(
                    self._ports.ledgers, self._ref, ledger, self._patience, self._limit_bytes
                )
        except bk.NoSuchLedger as e:
            raise _LedgerGone(f"cursor ledger {ledger} does not exist") from e
        except MigrationError as e:
            if self._roll_back and e.kind in (Kind.DAMAGED, Kind.MISSING):
                return self._rolled_back(node, znode, _LedgerGone(f"{e.where}: {e.message}"))
            raise
        self._warnings += found.state.notes
        self._bytes_read += found.state.stored_bytes
        return found.state.info, Freshness(
            mtime_ms,
            ledger,
            found.state.last_entry,
            found.ledger_state,
            found.created_ms,
            max(0, found.state.last_entry - found.last_add_confirmed),
            found.stopped_by,
            found.state.skipped,
        )

    def _rolled_back(
        self, node: Node, znode: ManagedCursorInfo, why: Exception
    ) -> tuple[PositionInfo, Freshness]:
        if not self._roll_back or znode.mark_delete is None:
            raise self._error(
                Kind.MISSING, f"ledger {znode.cursors_ledger}", str(why), ROLL_BACK
            ) from why
        return PositionInfo(znode.mark_delete), Freshness(node.stat.mtime_ms, rolled_back=str(why))

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
        async def call() -> Node:
            await self._ports.zookeeper.sync(path)
            return await self._ports.zookeeper.get(path)

        try:
            return await self._wait(call)
        except zk.NoNode as e:
            raise self._error(
                kind, path, missing, "`--dry-run` with --namespace or --tenant lists what there is"
            ) from e

    async def _wait(self, call: Callable[[], Awaitable[T]]) -> T:
        return await self._patience.repeat(str(self._ref), call)

    def _error(self, kind: Kind, place: str, message: str, remedy: str) -> MigrationError:
        return MigrationError(kind, str(self._ref), place, message, remedy)

    @contextmanager
    def _errors(self, place: str, *, unreadable: bool = False) -> Iterator[None]:
        """What the clients and the formats raise, as ours."""
        try:
            yield
        except TooNewError as e:
            raise self._error(Kind.TOO_NEW, e.place or place, e.message, UPGRADE) from e
        except DamageError as e:
            raise self._error(
                Kind.DAMAGED, e.place or place, e.message, ROLL_BACK if unreadable else LOOK
            ) from e
        except bk.NoSuchLedger:
            raise
        except bk.GatewayRefused as e:
            raise self._error(
                Kind.DAMAGED, place, str(e), ROLL_BACK if unreadable else e.remedy
            ) from e
        except (bk.GatewayError, zk.ZooKeeperError) as e:
            raise self._error(Kind.AWAY, place, str(e), e.remedy) from e


class _LedgerGone(Exception):
    """The znode's cursor ledger cannot be read, and why."""

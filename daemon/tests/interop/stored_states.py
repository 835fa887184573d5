"""Our states as Pulsar would find them: in the znode, or in a cursor ledger that the znode names.
The bytes are our codec's.
"""

from __future__ import annotations

from collections.abc import Mapping

from cursorkeeper.format.pulsar import cursor_info, position_info
from cursorkeeper.format.pulsar.values import Compression, Form, ManagedCursorInfo, PositionInfo
from daemon.tests.interop.cluster import Cluster
from daemon.tests.interop.topic import Topic


def inline(state: PositionInfo, texts: Mapping[str, str] | None = None) -> ManagedCursorInfo:
    """The state as a graceful close leaves it in the znode. `texts`: cursor properties."""
    return ManagedCursorInfo(
        -1,
        state.mark_delete,
        state.acked,
        state.batches,
        state.properties,
        texts or {},
        state.crossing,
    )


async def into_znode(
    cluster: Cluster,
    topic: Topic,
    cursor: str,
    state: PositionInfo,
    texts: Mapping[str, str] | None = None,
    compression: Compression = Compression.NONE,
) -> None:
    """The whole state in the znode, compressed whatever its size."""
    value = cursor_info.wrap(cursor_info.encode(inline(state, texts)), compression, 0)
    assert (value[:2] == b"\x47\x78") == (compression is not Compression.NONE)
    await cluster.put_cursor(topic.name, cursor, value)


async def into_ledger(
    cluster: Cluster,
    topic: Topic,
    cursor: str,
    state: PositionInfo,
    form: Form,
    texts: Mapping[str, str] | None = None,
) -> None:
    """One entry behind an older one, and a znode that points there with a lower bound of
    mark-delete.
    """
    older = position_info.encode(PositionInfo(state.mark_delete), form)
    await entries_into_ledger(
        cluster, topic, cursor, state, [older, position_info.encode(state, form)], texts
    )


async def entries_into_ledger(
    cluster: Cluster,
    topic: Topic,
    cursor: str,
    state: PositionInfo,
    entries: list[bytes],
    texts: Mapping[str, str] | None = None,
    metadata: Mapping[str, str] | None = None,
) -> None:
    """Entries as they are; of the state only mark-delete is used, for the znode."""
    ledger = topic.write_ledger(cursor, entries, metadata)
    await cluster.put_pointer(
        topic.name,
        cursor,
        ManagedCursorInfo(ledger, state.mark_delete, cursor_properties=texts or {}),
    )

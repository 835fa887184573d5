"""Our own cursors of a selection, as references to Pulsar's, from ZooKeeper alone."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

from cursorkeeper.core.footer import Footer, FooterState
from cursorkeeper.core.names import CursorName
from cursorkeeper.format.pulsar import names
from cursorkeeper.migration.cluster import PulsarCursorRef, Selection, SkippedPath
from cursorkeeper.runtime.footers import READ_BATCH, FooterStore


async def iter_ours(
    footers: FooterStore, selection: Selection, *, skipped: Callable[[SkippedPath], None]
) -> AsyncIterator[PulsarCursorRef]:
    """Every cursor that has a footer and that Pulsar can have; a tombstone is none. One footer that
    cannot be read is one. Raises ZooKeeperError.
    """
    if selection.topic and selection.subscription:
        alone = CursorName(selection.topic, selection.subscription)
        if await _living(footers, [alone]):
            yield PulsarCursorRef(selection.topic, selection.subscription)
            return
    batch: list[CursorName] = []
    async for name in footers.names():
        try:
            managed = names.managed_ledger_name(name.topic)
        except ValueError as e:
            if selection == Selection.everything():
                skipped(SkippedPath(name.display, f"Pulsar cannot have it: {e}"))
            continue
        if is_chosen(managed, name.subscription, selection):
            batch.append(name)
        if len(batch) >= READ_BATCH:
            for found in await _living(footers, batch):
                yield found
            batch = []
    for found in await _living(footers, batch):
        yield found


async def _living(footers: FooterStore, found: list[CursorName]) -> list[PulsarCursorRef]:
    read = await footers.read_many(found)
    return [
        PulsarCursorRef(name.topic, name.subscription)
        for name, footer in zip(found, read, strict=True)
        if footer is not None
        and not (isinstance(footer, Footer) and footer.state is FooterState.DELETED)
    ]


def is_chosen(managed: str, subscription: str, selection: Selection) -> bool:
    """Whether a cursor of the managed ledger `tenant/namespace/persistent/topic` is asked for."""
    if selection.subscription not in ("", subscription):
        return False
    if selection.topic:
        wanted = names.managed_ledger_name(selection.topic)
        base, dash, number = managed.rpartition("-partition-")
        return managed == wanted or (bool(dash) and base == wanted and number.isdecimal())
    if selection.namespace:
        return managed.startswith(f"{selection.namespace}/{names.DOMAIN}/")
    return not selection.tenant or managed.startswith(f"{selection.tenant}/")

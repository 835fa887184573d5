"""`gc` on fakes: what goes, what stays, and that a dry run only looks."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cursorkeeper.bookkeeper.port import LedgerSpec
from cursorkeeper.connections import Ports
from cursorkeeper.format import footer as footer_bytes
from cursorkeeper.repair.garbage import sweep
from cursorkeeper.runtime.ledgers import custom_metadata
from daemon.tests.cli.conftest import CliWorld
from daemon.tests.support.world import NAME


async def ledger(ports: Ports, epoch: int, writer: str) -> int:
    """One of the cursor, which no footer names."""
    metadata = custom_metadata(NAME, epoch, 1, writer, await ports.footers.deployment())
    return await ports.ledgers.create(LedgerSpec(), metadata)


async def test_only_what_no_footer_can_name(world: CliWorld) -> None:
    footer = await world.closed(l7=((1, 3),))
    writer = await world.ports("writer")
    orphan = await ledger(writer, footer.epoch, footer.writer)
    strange = await writer.ledgers.create(LedgerSpec(), {"application": b"cursorkeeper"})
    swept = await sweep(await world.ports(), world.bar, dry_run=True)
    assert [(g.ledger, g.cursor) for g in swept.garbage] == [(orphan, NAME)]
    report = swept.report
    assert (report.named, report.garbage, report.may_be_named, report.unknown, report.deleted) == (
        1,
        1,
        0,
        1,
        0,
    )
    assert orphan in world.bookkeeper.ledgers
    swept = await sweep(writer, world.bar, dry_run=False)
    assert swept.report.deleted == 1 and orphan not in world.bookkeeper.ledgers and not swept.doubts
    assert {strange, footer.chain[0].ledger} <= world.bookkeeper.ledgers.keys()
    swept = await sweep(writer, world.bar, dry_run=False)
    assert swept.report.garbage == 0 and swept.garbage == []


@pytest.mark.parametrize(("above", "writer_of"), [(1, "w"), (0, "another")])
async def test_a_footer_that_is_not_the_newest_lets_nothing_go(
    world: CliWorld, above: int, writer_of: str
) -> None:
    """An older copy, or one that was deleted and made anew: a ledger of a later epoch, or of
    another owner of this one, shows it.
    """
    footer = await world.closed(l7=((1, 3),))
    ports = await world.ports("writer")
    orphan = await ledger(ports, footer.epoch - 1, "before")
    newer = await ledger(ports, footer.epoch + above, writer_of)
    swept = await sweep(ports, world.bar, dry_run=False)
    assert (swept.report.kept, swept.report.deleted, swept.report.doubtful, swept.garbage) == (
        1 + (not above),
        0,
        1,
        [],
    )
    [doubt] = swept.doubts
    assert (
        doubt.cursor == NAME
        and f"ledger {newer} is of epoch {footer.epoch + above} by {writer_of}" in doubt.why
    )
    assert {orphan, newer} <= world.bookkeeper.ledgers.keys()


async def test_a_footer_that_something_else_wrote_lets_nothing_go(world: CliWorld) -> None:
    footer = await world.closed(l7=((1, 3),))
    ports = await world.ports("writer")
    orphan = await ledger(ports, footer.epoch - 1, "before")
    node = await ports.zookeeper.get(NAME.path())
    await ports.zookeeper.set(NAME.path(), node.data, node.version)
    swept = await sweep(ports, world.bar, dry_run=False)
    assert orphan in world.bookkeeper.ledgers and "its znode has version" in swept.doubts[0].why


@pytest.mark.parametrize("older_ms", [1, 60_000])
async def test_what_is_older_than_the_footers_znode_is_kept_whatever_its_epoch(
    world: CliWorld, older_ms: int
) -> None:
    """A footer that was deleted and made anew, also at once, reaches every epoch in time; the
    ledgers of before were never its own.
    """
    footer = await world.closed(l7=((1, 3),))
    ports = await world.ports("writer")
    old = await ledger(ports, 1, "before")
    world.bookkeeper.ledgers[old].created_ms = (
        world.zookeeper.tree.get(NAME.path()).stat.ctime_ms - older_ms
    )
    later = replace(footer, epoch=footer.epoch + 10)
    node = await ports.zookeeper.get(NAME.path())
    await ports.zookeeper.set(
        NAME.path(), footer_bytes.encode(later.written_at(node.version + 1)), node.version
    )
    swept = await sweep(ports, world.bar, dry_run=False)
    assert (swept.report.kept, swept.report.deleted) == (1, 0) and old in world.bookkeeper.ledgers
    assert [(kept.ledger, kept.cursor) for kept in swept.older] == [(old, NAME)], "and it is named"

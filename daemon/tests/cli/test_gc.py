"""`gc` on fakes: what goes, what stays, and that a dry run only looks."""

from __future__ import annotations

from cursorkeeper.cli.gc import sweep
from cursorkeeper.runtime.ledgers import custom_metadata
from cursorkeeper_clients.bookkeeper.port import LedgerSpec

from daemon.tests.cli.conftest import CliWorld
from daemon.tests.support.world import NAME


async def test_only_what_no_footer_can_name(world: CliWorld) -> None:
    footer = await world.closed(l7=((1, 3),))
    writer = await world.ports("writer")
    deployment = await writer.footers.deployment()
    orphan = await writer.ledgers.create(LedgerSpec(), custom_metadata(NAME, footer.epoch, 1, "w", deployment))
    newer = await writer.ledgers.create(LedgerSpec(), custom_metadata(NAME, footer.epoch + 1, 1, "w", deployment))
    strange = await writer.ledgers.create(LedgerSpec(), {"application": b"cursorkeeper"})
    report, found = await sweep(await world.ports(), world.bar, dry_run=True)
    assert [(g.ledger, g.cursor) for g in found] == [(orphan, NAME)]
    assert (report.named, report.garbage, report.may_be_named, report.unknown, report.deleted) == (1, 1, 1, 1, 0)
    assert orphan in world.bookkeeper.ledgers
    report, _ = await sweep(writer, world.bar, dry_run=False)
    assert report.deleted == 1 and orphan not in world.bookkeeper.ledgers
    assert {newer, strange, footer.chain[0].ledger} <= world.bookkeeper.ledgers.keys()
    report, found = await sweep(writer, world.bar, dry_run=False)
    assert report.garbage == 0 and found == []

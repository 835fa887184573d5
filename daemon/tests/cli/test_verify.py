"""`verify` on fakes: healthy, open, and each kind of damage with its meaning and remedy. It never
changes anything.
"""

from __future__ import annotations

import json
from dataclasses import asdict

import pytest

from cursorkeeper.cli.verify import told
from cursorkeeper.core.footer import SnapshotBase
from cursorkeeper.core.names import CursorName
from cursorkeeper.format import footer as footer_bytes
from cursorkeeper.inspection import checks, verification
from cursorkeeper.inspection.checks import Report, check
from cursorkeeper.problems import Kind, NotFound, ProblemError
from daemon.tests.cli.conftest import EAGER, CliWorld
from daemon.tests.fakes.bookkeeper.fake import Damage
from daemon.tests.support.world import NAME, acks, ranges


async def checked(world: CliWorld, wait_s: float = 0.2) -> Report:
    ports = await world.ports()
    before = {i: (x.state, list(x.entries)) for i, x in world.bookkeeper.ledgers.items()}
    report = await check(ports.footers, ports.ledgers, NAME, wait_s=wait_s)
    assert before == {i: (x.state, list(x.entries)) for i, x in world.bookkeeper.ledgers.items()}, (
        "verify changed something"
    )
    return report


async def test_a_closed_cursor(world: CliWorld) -> None:
    await world.closed(l7=((1, 3), (5, 9)), l8=((0, 1),))
    report = await checked(world)
    assert report.is_good and not report.at_least and report.previous == "none"
    assert report.totals is not None and asdict(report.totals) == {
        "ledgers": 2,
        "acked": 10,
        "holes": 2,
        "partials": 0,
    }
    assert report.records == 2 and report.ledgers == 1


async def test_inline_and_empty_cursors_need_no_ledger(world: CliWorld) -> None:
    await world.closed()
    assert (await checked(world)).is_good
    inline = CliWorld(seed=3)
    footer = await inline.closed(l7=((1, 3),))
    assert footer.chain == ()
    report = await checked(inline)
    assert report.is_good and report.totals is not None and report.totals.acked == 3


async def test_an_older_snapshot_gives_the_same_state(world: CliWorld) -> None:
    await world.with_two_snapshots()
    report = await checked(world)
    assert report.is_good, report.findings
    assert report.previous == "same" and report.ledgers > 1


async def test_an_open_cursor_is_at_least(world: CliWorld) -> None:
    source = await world.source()
    for entry in (1, 3, 5):
        source.ack(acks(7, entry))
        await source.durable()
    report = await checked(world)
    assert report.is_good and report.at_least
    source.ack(acks(7, 7))
    await source.durable()


async def test_a_cursor_at_work_can_be_verified_again_and_again(world: CliWorld) -> None:
    world.limits = EAGER
    source = await world.source()
    for at in range(40):
        source.ack(ranges(7, (10 * at + 1, 10 * at + 8)))
        await source.durable()
        ports = await world.ports()
        report = await check(ports.footers, ports.ledgers, NAME)
        assert report.is_good, report.findings


async def test_a_damaged_delta_is_named_and_refused(
    world: CliWorld, capsys: pytest.CaptureFixture[str]
) -> None:
    footer = await world.closed(l7=((1, 3),))
    ledger = footer.chain[0].ledger
    world.bookkeeper.damage(ledger, 1, Damage.FLIP)
    report = await checked(world)
    assert [(f.ledger, f.entry) for f in report.findings] == [(ledger, 1)]
    assert "crc32c" in report.findings[0].message
    await told(verification.verify_all(await world.ports(), world.bar), as_json=False)
    assert f"\n        ledger {ledger} entry 1: " in capsys.readouterr().out
    assert report.remedy == checks.REFUSES


async def test_what_bookkeeper_itself_refuses_is_named(world: CliWorld) -> None:
    footer = await world.closed(l7=((1, 3),))
    world.bookkeeper.damage(footer.chain[0].ledger, 1, Damage.DIGEST)
    report = await checked(world)
    assert "DIGEST_MISMATCH" in report.findings[0].message and report.remedy == checks.REFUSES


async def test_a_damaged_open_record_is_harmless(world: CliWorld) -> None:
    footer = await world.closed(l7=((1, 3),))
    world.bookkeeper.damage(footer.chain[0].ledger, 0, Damage.FLIP)
    report = await checked(world)
    assert not report.is_good and report.remedy == checks.USABLE and report.totals is not None


async def test_a_damaged_segment_falls_back(world: CliWorld) -> None:
    footer = await world.with_two_snapshots()
    base = footer.base
    assert isinstance(base, SnapshotBase)
    world.bookkeeper.damage(base.ledger, base.first_entry, Damage.FLIP)
    report = await checked(world)
    assert (base.ledger, base.first_entry) in [(f.ledger, f.entry) for f in report.findings]
    assert report.remedy == checks.FALLS_BACK and report.previous == "not compared"
    assert report.totals is not None and report.totals.acked == 180


async def test_damage_that_only_the_older_snapshot_needs(world: CliWorld) -> None:
    footer = await world.with_two_snapshots()
    assert footer.previous is not None
    only_old = sorted({c.ledger for c in footer.previous.chain} - {c.ledger for c in footer.chain})
    last = next(c.last_entry for c in footer.previous.chain if c.ledger == only_old[0])
    assert last is not None
    world.bookkeeper.damage(only_old[0], last, Damage.TRUNCATE)
    report = await checked(world)
    assert not report.is_good and report.remedy == checks.USABLE and report.previous == "unreadable"


async def test_both_snapshots_damaged_is_refused(world: CliWorld) -> None:
    footer = await world.with_two_snapshots()
    assert footer.previous is not None
    for base in (footer.base, footer.previous.base):
        assert isinstance(base, SnapshotBase)
        world.bookkeeper.damage(base.ledger, base.last_entry, Damage.FLIP)
    report = await checked(world)
    assert report.findings_count == 2 and report.remedy == checks.REFUSES


async def test_a_lost_ledger_is_named(world: CliWorld) -> None:
    footer = await world.closed(l7=((1, 3),))
    world.bookkeeper.lose_ledger(footer.chain[0].ledger)
    ports = await world.ports()
    report = await verification.verify(ports, NAME, world.bar)
    assert (
        f"ledger {footer.chain[0].ledger} does not exist" in report.findings[0].message
        and report.remedy
    )


async def test_a_short_ledger_is_damage(world: CliWorld) -> None:
    footer = await world.closed(l7=((1, 3),))
    del world.bookkeeper.ledger(footer.chain[0].ledger).entries[1:]
    report = await checked(world)
    assert "ends at entry 0" in report.findings[0].message and report.remedy == checks.REFUSES


async def test_records_of_another_cursor_are_damage(world: CliWorld) -> None:
    mine = await world.closed(l7=((1, 3),))
    other = await world.closed(CursorName("persistent://t/ns/x", "s"), l7=((1, 3),))
    stored = world.bookkeeper.ledger(mine.chain[0].ledger).entries
    stored[1] = world.bookkeeper.ledger(other.chain[0].ledger).entries[1]
    report = await checked(world)
    assert "another cursor" in report.findings[0].message


async def test_repeated_records_are_noticed(world: CliWorld) -> None:
    source = await world.source()
    for entry in (1, 3):
        source.ack(acks(7, entry))
        await source.durable()
    await world.close(source)
    stored = world.bookkeeper.ledger((await world.footer()).chain[0].ledger).entries
    stored[2] = stored[1]
    report = await checked(world)
    assert "sequence" in report.findings[0].message


async def test_missing_bookies_are_no_damage(world: CliWorld) -> None:
    footer = await world.closed(l7=((1, 3),))
    world.bookkeeper.damage(footer.chain[0].ledger, 1, Damage.GONE)
    with pytest.raises(ProblemError) as error:
        await checked(world)
    assert error.value.kind is Kind.AWAY and "not damage" in error.value.problem.remedy


async def test_all(world: CliWorld, capsys: pytest.CaptureFixture[str]) -> None:
    names = [CursorName(f"persistent://t/ns/{n}", "s") for n in range(3)]
    for name in names:
        await world.closed(name, l7=((1, 3),))
    await world.overwrite(names[1], b"{}")
    ports = await world.ports()
    assert await told(verification.verify_all(ports, world.bar), as_json=True) == (3, 1)
    found = {x["cursor"]: x for x in map(json.loads, capsys.readouterr().out.splitlines())}
    assert (
        not found[names[1].display]["ok"]
        and "version" in found[names[1].display]["damage"][0]["message"]
    )
    assert found[names[0].display]["ok"] and found[names[0].display]["totals"]["acked"] == 3
    await told(verification.verify_all(ports, world.bar), as_json=False)
    text = capsys.readouterr().out
    assert text.count("ok  ") == 2 and text.count("DAMAGED") == 1 and "What to do:" in text


async def test_an_unknown_cursor_is_not_damage(world: CliWorld) -> None:
    ports = await world.ports()
    with pytest.raises(NotFound):
        await told(verification.verify_some(ports, [NAME], world.bar), as_json=False)


async def test_a_footer_that_is_older_than_its_ledgers(
    world: CliWorld, capsys: pytest.CaptureFixture[str]
) -> None:
    """As when all of ZooKeeper was restored from a copy: the znode has the version that the footer
    says.
    """
    await world.closed(l7=((1, 3),))
    session = (await world.ports()).zookeeper
    older = footer_bytes.decode((await session.get(NAME.path())).data)
    source = await world.source()
    await source.durable(source.ack(acks(7, 20)))
    await world.close(source)
    assert await all_verified(world) == (1, 0)
    version = (await session.get(NAME.path())).version
    await world.overwrite(NAME, footer_bytes.encode(older.written_at(version + 1)))
    capsys.readouterr()
    assert await all_verified(world) == (1, 1)
    found = json.loads(capsys.readouterr().out)
    assert "is of epoch 2" in found["damage"][0]["message"]
    assert "restore-footer" in found["remedy"]


async def all_verified(world: CliWorld) -> tuple[int, int]:
    ports = await world.ports()
    return await told(verification.verify_all(ports, world.bar), as_json=True)

"""The reading commands on cursors that are written in Pulsar's form."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cursorkeeper.cli import inspect, ls
from cursorkeeper.core import events as ev
from cursorkeeper.core.limits import Limits
from cursorkeeper.core.values import PartialKey
from cursorkeeper.inspection.checks import Report, check
from cursorkeeper.inspection.reader import read_state
from cursorkeeper.terminal.output import show
from daemon.tests.cli.conftest import CliWorld
from daemon.tests.fakes.bookkeeper.fake import Damage
from daemon.tests.support.whole import writer
from daemon.tests.support.world import NAME, Source, acks, partial, small

FAST = small(Limits(), inline_state_max_bytes=0, whole_state_interval_ms=1)


def made(**settings: Any) -> CliWorld:
    return CliWorld(seed=2, limits=FAST, state_writer=writer(**settings))


async def flushed(world: CliWorld) -> Source:
    """A chunked state and a small one behind it; still open."""
    source = await world.source()
    source.ack(acks(7, 2, 5, 5_000), partial(7, 9, 10, {3}))
    await source.durable()
    return source


def lines(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


async def shown(world: CliWorld, *, as_json: bool = True) -> int:
    return await inspect.show(await world.ports(), NAME, world.bar, records=True, as_json=as_json)


def shown_report(report: Report) -> None:
    show(report.as_json(), "inspection/templates/report.txt", as_json=False)


async def checked(world: CliWorld) -> Report:
    ports = await world.ports()
    before = {i: (x.state, list(x.entries)) for i, x in world.bookkeeper.ledgers.items()}
    report = await check(ports.footers, ports.ledgers, NAME, wait_s=0.2)
    assert before == {i: (x.state, list(x.entries)) for i, x in world.bookkeeper.ledgers.items()}, (
        "verify changed something"
    )
    return report


async def test_inspect_shows_parts_footer_and_state(capsys: pytest.CaptureFixture[str]) -> None:
    world = made()
    source = await flushed(world)
    source.ack(acks(7, 3))
    await source.durable()
    await world.close(source)
    assert await shown(world) == 0
    found = lines(capsys)
    footer = next(x for x in found if x["type"] == "footer")
    assert (
        footer["format"] == "pulsar"
        and footer["chain"][0]["format"] == "pulsar"
        and footer["truncated"] is None
    )
    entries = [x for x in found if x["type"] == "state_entry"]
    parts = [x for x in entries if x["kind"] == "part"]
    closing = [x for x in entries if x["kind"] == "footer"]
    assert len(closing) == 2 and [p["part"] for p in parts[: parts[0]["parts"]]] == list(
        range(1, parts[0]["parts"] + 1)
    )
    newest = closing[-1]
    assert (newest["acks"], newest["ranges"], newest["partials"], newest["form"]) == (
        4,
        3,
        1,
        "longArray",
    )
    assert newest["stateBytes"] == sum(x["storedBytes"] for x in entries[-newest["entries"] :])
    assert await shown(world, as_json=False) == 0
    text = capsys.readouterr().out
    assert "whole state of" in text and "4 acks in 3 ranges of 1 ledgers as longArray" in text


async def test_a_live_cursor_is_seen_with_its_newest_state(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The last entry of an open ledger is not shown to ordinary readers, and here it is what makes
    a state whole.
    """
    world = made()
    await flushed(world)
    report = await checked(world)
    assert report.is_good and report.at_least, report.findings
    assert report.totals is not None and (report.totals.acked, report.totals.partials) == (3, 1)
    _, answer, at_least = await read_state(await world.ports(), NAME, world.bar, 0.2)
    assert at_least and answer.state.is_acked(7, 5_000)
    partial_found = {key: set(p.missing) for key, p in answer.state.iter_partials()}
    assert partial_found == {PartialKey(7, 9): {3}}
    shown_report(report)
    assert "ok" in capsys.readouterr().out


async def test_an_unfinished_tail_is_shown_and_no_damage(
    capsys: pytest.CaptureFixture[str],
) -> None:
    world = made()
    source = await flushed(world)
    ledger = source.machine.chain[0].ledger
    whole = len(world.bookkeeper.ledgers[ledger].entries)
    source.keeper.abandon()
    world.bookkeeper.ledgers[ledger].entries.extend([b"\x08" * 64, b"\x09" * 64])
    world.bookkeeper.fence_behind(ledger)
    assert await shown(world) == 0
    tail = [x for x in lines(capsys) if x.get("kind") == "unfinished"]
    assert [x["entry"] for x in tail] == [whole, whole + 1]
    report = await checked(world)
    assert report.is_good and report.unfinished == 2, report.findings
    shown_report(report)
    assert "2 entries of a flush that was cut off" in capsys.readouterr().out
    again = Source(await world.keeper())
    told = await again.open()
    assert told.machine is not None and told.machine.acks.is_acked(7, 5_000)
    assert ("unfinished state", whole) in [
        (e, f.get("entry")) for e, f in again.keeper.telemetry.events
    ]  # type: ignore[attr-defined]


async def test_damage_is_named_with_its_place(capsys: pytest.CaptureFixture[str]) -> None:
    world = made()
    source = await flushed(world)
    ledger = source.machine.chain[0].ledger
    last = len(world.bookkeeper.ledgers[ledger].entries) - 1
    await world.close(source)
    world.bookkeeper.damage(ledger, last, Damage.FLIP)
    assert await shown(world) > 0
    report = await checked(world)
    assert not report.is_good and any(f.ledger == ledger for f in report.findings)
    assert "refused" in report.remedy
    capsys.readouterr()


async def test_somebody_elses_ledger_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    world = made()
    source = await flushed(world)
    ledger = source.machine.chain[0].ledger
    await world.close(source)
    metadata = dict(world.bookkeeper.ledgers[ledger].custom_metadata)
    world.bookkeeper.ledgers[ledger].custom_metadata = metadata | {"cursor": b"another"}
    assert await shown(world) == 1
    assert [x["problem"] for x in lines(capsys) if x["type"] == "ledger_problem"] == [
        f"belongs to another, not to {NAME.canonical}"
    ]
    report = await checked(world)
    assert not report.is_good and "belongs to another" in report.findings[0].message


async def test_truncation_is_visible_everywhere(capsys: pytest.CaptureFixture[str]) -> None:
    world = made(ranges_max=1, truncate=True)
    source = await world.source()
    source.ack(acks(7, 2, 5, 9))
    await source.durable()
    await world.close(source)
    await shown(world)
    footer = next(x for x in lines(capsys) if x["type"] == "footer")
    assert footer["truncated"] == {
        "acks": 2,
        "batches": 0,
        "properties": 0,
        "limit": "managedLedgerMaxUnackedRangesToPersist=1",
    }
    await shown(world, as_json=False)
    assert "TRUNCATED" in capsys.readouterr().out
    await ls.show((await world.ports()).footers, world.bar, as_json=False, deleted=False)
    assert "pulsar, TRUNCATED" in capsys.readouterr().out
    report = await checked(world)
    assert report.truncated is not None and report.is_good
    shown_report(report)
    assert (
        "TRUNCATED by the operator's leave (managedLedgerMaxUnackedRangesToPersist=1): 2 acks"
        in capsys.readouterr().out
    )


async def test_an_inline_state_in_pulsars_form(capsys: pytest.CaptureFixture[str]) -> None:
    world = CliWorld(
        seed=3, limits=small(Limits(), whole_state_interval_ms=1), state_writer=writer()
    )
    source = await world.source()
    source.ack(acks(7, 2, 5))
    await source.durable()
    source.seq += 1
    source.send(ev.SetProperties(source.attach, source.seq, 1, {"a": "b"}))
    await world.close(source)
    assert await shown(world) == 0
    footer = next(x for x in lines(capsys) if x["type"] == "footer")
    assert footer["base"] | {"bytes": 0} == {
        "kind": "pulsar",
        "epoch": 1,
        "bytes": 0,
        "markDelete": [0, -1],
        "acks": 2,
        "partialBatches": 0,
    }
    assert footer["cursorProperties"] == {"a": "b"}
    assert await shown(world, as_json=False) == 0
    assert "inline in Pulsar's form" in capsys.readouterr().out
    report = await checked(world)
    assert report.is_good and report.totals is not None and report.totals.acked == 2

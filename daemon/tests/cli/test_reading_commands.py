"""`ls` and `inspect` on fakes: what they print, and that they leave the owner alone."""

from __future__ import annotations

import json

import pytest

from cursorkeeper.bookkeeper.port import LedgerState
from cursorkeeper.cli import inspect, ls
from cursorkeeper.core.errors import DamageError
from cursorkeeper.core.names import CursorName
from cursorkeeper.hold import Purpose, delete
from cursorkeeper.inspection import footer_list
from cursorkeeper.problems import NotFound
from daemon.tests.cli.conftest import CliWorld
from daemon.tests.fakes.bookkeeper.fake import Damage
from daemon.tests.support.world import NAME, acks, closed, partial

OTHER = CursorName("persistent://t/ns/other", "sub|2")


def lines(capsys: pytest.CaptureFixture[str]) -> list[dict]:
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


async def test_ls_of_nothing(world: CliWorld, capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        await ls.show((await world.ports()).footers, world.bar, as_json=False, deleted=False) == 0
    )
    assert capsys.readouterr().out == "no cursors\n"


async def test_ls(world: CliWorld, capsys: pytest.CaptureFixture[str]) -> None:
    await world.closed(l7=((1, 3), (5, 9)))
    await world.source(OTHER)
    footers = (await world.ports()).footers
    assert await ls.show(footers, world.bar, as_json=True, deleted=False) == 0
    by_name = {x["cursor"]: x for x in lines(capsys)}
    assert by_name[NAME.display] | {"writer": ""} == {
        "cursor": NAME.display,
        "topic": NAME.topic,
        "subscription": NAME.subscription,
        "state": "closed",
        "epoch": 1,
        "fencingToken": 0,
        "generation": 1,
        "writer": "",
        "markDelete": [0, -1],
        "base": "empty",
        "chain": 1,
        "previous": False,
        "holes": 2,
        "span": 10,
        "partialBatches": 0,
        "deltaBytes": by_name[NAME.display]["deltaBytes"],
        "format": "native",
        "truncated": False,
    }
    assert by_name[OTHER.display]["state"] == "open"
    await ls.show(footers, world.bar, as_json=False, deleted=False)
    text = capsys.readouterr().out
    assert (
        f"{NAME.display}  closed      1    1         0:-1  empty" in text.replace("mark-delete", "")
        or NAME.display in text
    )
    assert text.splitlines()[0].split() == list(footer_list.COLUMNS)


async def test_ls_names_damaged_footers_and_goes_on(
    world: CliWorld, capsys: pytest.CaptureFixture[str]
) -> None:
    await world.closed()
    await world.closed(OTHER)
    await world.overwrite(OTHER, b'{"version": 1')
    assert await ls.show((await world.ports()).footers, world.bar, as_json=True, deleted=False) == 1
    captured = capsys.readouterr()
    states = {x["cursor"]: x["state"] for x in map(json.loads, captured.out.splitlines())}
    assert states == {NAME.display: "closed", OTHER.display: "damaged"}
    assert f"{OTHER.display}: footer: not JSON" in captured.err


async def test_ls_leaves_tombstones_out(
    world: CliWorld, capsys: pytest.CaptureFixture[str]
) -> None:
    await world.closed()
    await delete(
        NAME,
        await world.ports(),
        world.settings,
        Purpose("test", "tested", "look"),
        only=None,
        what="deleting it",
    )
    footers = (await world.ports()).footers
    await ls.show(footers, world.bar, as_json=True, deleted=False)
    assert lines(capsys) == []
    await ls.show(footers, world.bar, as_json=True, deleted=True)
    assert [x["state"] for x in lines(capsys)] == ["deleted"]


async def test_many_cursors_come_in_plain_columns(
    world: CliWorld, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in range(3):
        await world.closed(CursorName(f"persistent://t/ns/{number}", "s"))
    await ls.show(
        (await world.ports()).footers, world.bar, as_json=False, deleted=False, table_rows_max=1
    )
    text = capsys.readouterr().out.splitlines()
    assert len(text) == 4 and all(line.count("\t") == len(footer_list.COLUMNS) - 1 for line in text)


async def test_inspect_shows_every_record(
    world: CliWorld, capsys: pytest.CaptureFixture[str]
) -> None:
    source = await world.source()
    source.ack(acks(7, 1, 2, 5), partial(7, 9, 10, {1, 3}))
    await source.durable()
    source.ack(acks(8, 3))
    await source.durable()
    await world.close(source)
    assert await inspect.show(await world.ports(), NAME, world.bar, records=True, as_json=True) == 0
    shown = lines(capsys)
    assert [x["type"] for x in shown] == ["footer", "ledger", "record", "record", "record"]
    footer, ledger, opened, first, second = shown
    assert (
        footer["chain"] == [{"ledger": ledger["ledger"], "lastEntry": 2}]
        and footer["state"] == "closed"
    )
    assert (
        ledger["roles"] == ["chain"]
        and not ledger["atLeast"]
        and ledger["customMetadata"]["application"] == "cursorkeeper"
    )
    assert opened["kind"] == "open" and opened["cursor"] == NAME.canonical
    assert (first["acks"], first["ranges"], first["ledgers"], first["partials"]) == (3, 2, 1, 1)
    assert (second["acks"], second["entry"], second["ok"], second["codec"]) == (1, 2, True, "none")
    assert second["storedBytes"] == 40 + second["bodyBytes"]


async def test_inspect_for_people(world: CliWorld, capsys: pytest.CaptureFixture[str]) -> None:
    await world.with_two_snapshots()
    assert (
        await inspect.show(await world.ports(), NAME, world.bar, records=True, as_json=False) == 0
    )
    text = capsys.readouterr().out
    for word in (
        "snapshot in ledger",
        "previous",
        "mark-delete",
        "3/3/2 CRC32C",
        "segment",
        "snapshot_end",
        "opened by",
        "ranges of 1 ledgers",
    ):
        assert word in text, text
    assert "Traceback" not in text


async def test_inspect_never_fences(world: CliWorld, capsys: pytest.CaptureFixture[str]) -> None:
    source = await world.source()
    source.ack(acks(7, 1))
    await source.durable()
    source.ack(acks(7, 3))
    await source.durable()
    assert await inspect.show(await world.ports(), NAME, world.bar, records=True, as_json=True) == 0
    shown = lines(capsys)
    assert shown[1]["atLeast"] and shown[1]["state"] == "OPEN"
    assert all(found.state is LedgerState.OPEN for found in world.bookkeeper.ledgers.values())
    source.ack(acks(7, 5))
    await source.durable()


async def test_inspect_shows_bad_records_and_goes_on(
    world: CliWorld, capsys: pytest.CaptureFixture[str]
) -> None:
    source = await world.source()
    for entry in (1, 3, 5, 7):
        source.ack(acks(7, entry))
        await source.durable()
    await world.close(source)
    ledger = (await world.footer()).chain[0].ledger
    world.bookkeeper.damage(ledger, 2, Damage.FLIP)
    world.bookkeeper.damage(ledger, 3, Damage.DIGEST)
    assert await inspect.show(await world.ports(), NAME, world.bar, records=True, as_json=True) == 2
    records = [x for x in lines(capsys) if x["type"] == "record"]
    assert [x["ok"] for x in records] == [True, True, False, False, True]
    assert "crc32c" in records[2]["problem"] and "DIGEST_MISMATCH" in records[3]["problem"]
    assert (
        await inspect.show(await world.ports(), NAME, world.bar, records=True, as_json=False) == 2
    )
    assert "BAD" in capsys.readouterr().out


async def test_inspect_of_a_lost_ledger(
    world: CliWorld, capsys: pytest.CaptureFixture[str]
) -> None:
    footer = await world.closed(l7=((1, 2),))
    world.bookkeeper.lose_ledger(footer.chain[0].ledger)
    assert await inspect.show(await world.ports(), NAME, world.bar, records=True, as_json=True) == 1
    assert lines(capsys)[1]["state"] == "MISSING"
    await inspect.show(await world.ports(), NAME, world.bar, records=False, as_json=False)
    assert "MISSING" in capsys.readouterr().out


async def test_inspect_of_an_unreadable_footer_shows_its_bytes(
    world: CliWorld, capsys: pytest.CaptureFixture[str]
) -> None:
    await world.closed()
    await world.overwrite(NAME, b"\xffgarbage")
    with pytest.raises(DamageError, match="not JSON"):
        await inspect.show(await world.ports(), NAME, world.bar, records=True, as_json=False)
    assert "\\xffgarbage" in capsys.readouterr().out


async def test_inspect_of_an_unknown_cursor(world: CliWorld) -> None:
    with pytest.raises(NotFound, match="there is no such cursor"):
        await inspect.show(await world.ports(), NAME, world.bar, records=True, as_json=False)


async def test_inspect_shows_layout_and_properties(
    world: CliWorld, capsys: pytest.CaptureFixture[str]
) -> None:
    source = await world.source()
    source.ack(acks(7, 1), properties={"x": 4})
    from cursorkeeper.core import events as ev

    source.seq += 1
    source.send(ev.SetLayout(source.attach, source.seq, 1, (closed(7, 10), closed(9, 3))))
    source.seq += 1
    source.send(ev.SetProperties(source.attach, source.seq, 1, {"a": "b"}))
    await source.durable()
    await world.close(source)
    await inspect.show(await world.ports(), NAME, world.bar, records=True, as_json=True)
    records = [x for x in lines(capsys) if x.get("kind") == "delta"]
    assert sum(x.get("layout", 0) for x in records) == 2
    assert any("markDeleteProperties" in x for x in records) and any(
        "cursorProperties" in x for x in records
    )

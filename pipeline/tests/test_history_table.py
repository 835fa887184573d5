"""The table `deltas` against real cursors: what was acked is what the history says; damage, and a
footer that moves on.

In Spark: `test_tables_spark`.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta

import pyarrow as pa
import pytest

from cursorkeeper.core.footer import Footer
from cursorkeeper.core.names import CursorName
from cursorkeeper.demo.stack import Standalone
from cursorkeeper.problems import ProblemError
from cursorkeeper_pipeline import schemas
from cursorkeeper_pipeline.keys import cursor_key
from cursorkeeper_pipeline.source.history import Deltas, History
from cursorkeeper_pipeline.source.options import Options
from cursorkeeper_pipeline.source.shards import Reader
from pipeline.tests.real_cursors import EAGER, fleet, options_of

pytestmark = pytest.mark.jvm
NAMES = [CursorName(f"persistent://t/ns{at % 2}/topic-{at}", "sub") for at in range(12)]
WHOLE = CursorName("persistent://t/ns0/whole", "sub")
"""Whole states tell no history."""


def rows(options: Options) -> list[dict]:
    read = [batch for part in Deltas().plan(options) for batch in Deltas().read(options, part)]
    return pa.Table.from_batches(read, schema=schemas.DELTAS).to_pylist()


def acked(found: list[dict], name: CursorName) -> set[int]:
    mine = [row for row in found if row["cursor_key"] == cursor_key(name) and row["kind"] == "ack"]
    assert {row["ledger_id"] for row in mine} <= {7}
    return {entry for row in mine for entry in range(row["first_entry"], row["last_entry"] + 1)}


def of_rounds(rounds: int) -> set[int]:
    return set(range(1, 1 + 40 * rounds, 2))


def test_what_was_acked_is_told(stack: Standalone, root: str) -> None:
    async def make() -> dict[CursorName, Footer]:
        async with fleet(stack, root) as made:
            await made.closed_in_pulsar_s_form(WHOLE)
            return {
                name: await made.closed(name, rounds=1 + at % 4) for at, name in enumerate(NAMES)
            }

    footers = asyncio.run(make())
    with pytest.raises(ProblemError, match=r"/nobody/cursors .* does not exist"):
        rows(options_of(stack, "/nobody/cursors", "deltas"))
    found = rows(options_of(stack, root, "deltas", tasks="3"))
    for at, name in enumerate(NAMES):
        assert acked(found, name) == of_rounds(1 + at % 4)
        mine = [row for row in found if row["cursor_key"] == cursor_key(name)]
        assert {row["bk_ledger"] for row in mine} <= {c.ledger for c in footers[name].chain}
        assert [row["sequence"] for row in mine] == sorted(row["sequence"] for row in mine)
    assert {row["kind"] for row in found} == {"ack"} and cursor_key(WHOLE) not in {
        row["cursor_key"] for row in found
    }
    some = rows(options_of(stack, root, "deltas", namespace="t/ns1"))
    assert {row["cursor_key"] for row in some} == {cursor_key(name) for name in NAMES[1::2]}

    created = [row["ledger_created"] for row in found]
    after, before = (max(created) + timedelta(days=1)).isoformat(), min(created).isoformat()
    assert (
        rows(options_of(stack, root, "deltas", until=before))
        == []
        == rows(options_of(stack, root, "deltas", since=after))
    )
    inside = options_of(stack, root, "deltas", since=before, until=after)
    key = ("cursor_key", "bk_ledger", "bk_entry", "first_entry")
    assert sorted(rows(inside), key=lambda r: [r[k] for k in key]) == sorted(
        found, key=lambda r: [r[k] for k in key]
    )


def test_damage_is_a_row_or_the_end(stack: Standalone, root: str) -> None:
    flipped, gone, garbage, good = NAMES[:4]

    async def make() -> tuple[int, int]:
        async with fleet(stack, root) as made:
            for name in NAMES[:4]:
                await made.closed(name)
            copy = await made.flip(flipped, 2)
            missing = (await made.footer(gone)).chain[-1].ledger
            await made.ports.ledgers.delete(missing)
            await made.overwrite(garbage, b"not a footer")
            return copy, missing

    copy, missing = asyncio.run(make())
    found = rows(options_of(stack, root, "deltas"))
    odd = {
        (row["cursor_key"], row["kind"], row["bk_ledger"], row["bk_entry"])
        for row in found
        if row["kind"] != "ack"
    }
    assert odd == {
        (cursor_key(flipped), "damaged", copy, 2),
        (cursor_key(gone), "missing", missing, -1),
        (cursor_key(garbage), "damaged", -1, -1),
    }
    assert acked(found, good) == of_rounds(3) and len(acked(found, flipped)) == 40
    for name, said in (
        (flipped, f"ledger {copy} entry 2: crc32c"),
        (gone, f"ledger {missing} does not exist"),
        (garbage, "not JSON"),
    ):
        with pytest.raises(ProblemError, match=rf"{name.topic}.*{said}.*What to do: "):
            rows(options_of(stack, root, "deltas", mode="failfast", topic=name.topic))


def test_a_live_cursor_is_read_and_a_footer_that_moved_on_is_followed(
    stack: Standalone, root: str
) -> None:
    """Between the footer's read and the ledgers' the owner takes snapshots, and deletes what the
    old footer named.
    """
    name = NAMES[0]

    async def story() -> tuple[list, int, Footer, Footer]:
        async with fleet(stack, root) as made:
            source = await made.source(name, EAGER)
            await made.acked(source, 2)
            options = options_of(stack, root, "deltas")
            reader = Reader(made.ports.zookeeper, options)
            stale = await reader.one(name)
            assert stale is not None and isinstance(stale.footer, Footer)
            await made.acked(source, 4, start=2)
            now = await made.footer(name)
            assert not stale.footer.named_ledgers() & now.named_ledgers()
            # the deletion of what was dropped is not waited for by the source: until the stale
            # footer's ledgers are gone
            async with asyncio.timeout(60):
                while await made.exist(stale.footer.named_ledgers()):  # noqa: ASYNC110
                    await asyncio.sleep(0.02)
            history = History(made.ports.ledgers, reader, options, stale)
            pieces = [piece async for piece in history.pieces()]
            return pieces, stale.stat.version, stale.footer, now

    pieces, version, _, now = asyncio.run(story())
    assert pieces and {piece.where.bk_ledger for piece in pieces} <= now.named_ledgers()
    assert all(piece.where.footer_version > version and piece.kind == 0 for piece in pieces)


def test_deleted_cursors_have_no_history(stack: Standalone, root: str) -> None:
    async def make() -> None:
        async with fleet(stack, root) as made:
            footer = await made.closed(NAMES[0])
            await made.overwrite(
                NAMES[0], replace(footer, state=type(footer.state).DELETED, chain=())
            )

    asyncio.run(make())
    assert rows(options_of(stack, root, "deltas")) == []
    assert rows(options_of(stack, root, "deltas", deleted="true")) == []

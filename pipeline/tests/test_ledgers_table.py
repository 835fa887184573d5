"""The table `ledgers` against real ledgers: whose they are, and what garbage collection would
say.
"""

from __future__ import annotations

import asyncio

import pyarrow as pa
import pytest

from cursorkeeper.core.names import CursorName
from cursorkeeper.demo.stack import Standalone
from cursorkeeper.problems import ProblemError
from cursorkeeper.runtime.ledgers import custom_metadata
from cursorkeeper_pipeline import schemas
from cursorkeeper_pipeline.keys import cursor_key
from cursorkeeper_pipeline.source.ledgers import Ledgers
from cursorkeeper_pipeline.source.options import Options
from cursorkeeper_pipeline.source.tables import table_of
from pipeline.tests.real_cursors import fleet, options_of

pytestmark = pytest.mark.jvm
A, B, C, D, LOST = (CursorName(f"persistent://{tenant}/ns/topic", "sub") for tenant in "abcdl")


def rows(options: Options) -> dict[int, dict]:
    """By ledger. Other tests' ledgers are in it too."""
    table = pa.Table.from_batches(
        [batch for part in Ledgers().plan(options) for batch in Ledgers().read(options, part)],
        schema=schemas.LEDGERS,
    )
    return {row["ledger_id"]: row for row in table.to_pylist()}


def test_verdicts(stack: Standalone, root: str) -> None:
    async def make() -> dict[str, int]:
        async with fleet(stack, root) as made:
            named = (await made.closed(A)).chain[-1].ledger
            open_source = await made.source(B)
            await made.acked(open_source, 1)
            deployment = await made.ports.footers.deployment()
            footer = await made.footer(A)
            epoch = footer.epoch
            for name in (C, D):
                await made.closed(name)

            async def ledger(
                name: CursorName,
                epoch: int,
                deployment: str = deployment,
                writer: str = footer.writer,
            ) -> int:
                return await made.ledger(
                    [b"x"], custom_metadata(name, epoch, 1, writer, deployment)
                )

            found = {
                "named": named,
                "open": (await made.footer(B)).chain[-1].ledger,
                "garbage": await ledger(A, epoch),
                "newer": await ledger(C, epoch + 1, writer="w"),
                "older, of a footer in doubt": await ledger(C, epoch - 1),
                "another writer's": await ledger(D, epoch, writer="w"),
                "no footer": await ledger(LOST, 1),
                "foreign": await ledger(A, epoch, "f" * 32),
                "nobody's": await made.ledger([b"x"]),
                "unreadable": await ledger(B, 0),
            }
            await made.overwrite(B, b"not a footer")
            return found

    made = asyncio.run(make())
    found = rows(options_of(stack, root, "ledgers"))
    said = {
        what: (found[ledger]["verdict"], found[ledger]["ours"], found[ledger]["cursor_key"])
        for what, ledger in made.items()
    }
    a, b, c, d = (cursor_key(name) for name in (A, B, C, D))
    assert said == {
        "named": ("named", True, a),
        "open": ("unknown", True, b),
        "garbage": ("garbage", True, a),
        "newer": ("may_be_named", True, c),
        "older, of a footer in doubt": ("kept", True, c),
        "another writer's": ("kept", True, d),
        "no footer": ("unknown", True, cursor_key(LOST)),
        "foreign": ("unknown", False, None),
        "nobody's": ("unknown", False, None),
        "unreadable": ("unknown", True, b),
    }
    doubts = {
        what: found[ledger]["doubt"] for what, ledger in made.items() if found[ledger]["doubt"]
    }
    assert doubts.pop("unreadable").startswith("footer: not JSON") and doubts.pop(
        "open"
    ).startswith("footer: not JSON")
    newer, other = made["newer"], made["another writer's"]
    assert doubts.keys() == {"newer", "another writer's"}, "the words of `cursorkeeper gc`"
    assert doubts["newer"] == f"ledger {newer} is of epoch 2 by w, and the footer only of epoch 1"
    assert doubts["another writer's"].startswith(
        f"ledger {other} is of epoch 1 by w, and the footer of that epoch by "
    )
    shown = found[made["named"]]
    assert (shown["cursor"], shown["state"], shown["epoch"]) == (A.display, "closed", 1) and shown[
        "last_entry"
    ] > 0 < shown["bytes"]
    assert (
        found[made["foreign"]]["cursor"] == A.display and found[made["nobody's"]]["cursor"] is None
    )
    assert found[made["open"]]["created"].year > 2000

    chosen = rows(options_of(stack, root, "ledgers", tenant="a"))
    assert {made[what] for what in ("named", "garbage", "foreign")} == set(chosen) & set(
        made.values()
    )
    with pytest.raises(Exception, match=r"not JSON.*What to do"):
        rows(options_of(stack, root, "ledgers", mode="failfast"))


def test_a_root_that_is_not_there_is_refused(stack: Standalone, root: str) -> None:
    for table in ("ledgers", "cursors", "hole_stats", "deltas", "checks"):
        options = options_of(stack, "/nothing/here", table)
        with pytest.raises(
            ProblemError,
            match=r"^/nothing/here in ZooKeeper at .* does not exist, so nothing can be said of "
            r"its cursors",
        ):
            table_of(table).plan(options)

"""The table `ledgers` against real ledgers: whose they are, and what garbage collection would say."""

from __future__ import annotations

import asyncio

import pyarrow as pa
import pytest
from cursorkeeper.core.names import CursorName
from cursorkeeper.runtime.ledgers import custom_metadata
from cursorkeeper_clients.stack import Standalone
from cursorkeeper_pipeline import schemas
from cursorkeeper_pipeline.source.fleet import cursor_key
from cursorkeeper_pipeline.source.ledgers import Ledgers
from cursorkeeper_pipeline.source.options import Options

from pipeline.tests.real_cursors import fleet, options_of

pytestmark = pytest.mark.jvm
A, B, LOST = (CursorName(f"persistent://{tenant}/ns/topic", "sub") for tenant in "abl")


def rows(options: Options) -> dict[int, dict]:
    """By ledger. Other tests' ledgers are in it too."""
    table = pa.Table.from_batches(
        [batch for part in Ledgers().plan(options) for batch in Ledgers().read(options, part)], schema=schemas.LEDGERS
    )
    return {row["ledger_id"]: row for row in table.to_pylist()}


def test_verdicts(stack: Standalone, root: str) -> None:
    async def make() -> dict[str, int]:
        async with fleet(stack, root) as made:
            named = (await made.closed(A)).chain[-1].ledger
            open_source = await made.source(B)
            await made.acked(open_source, 1)
            deployment = await made.ports.footers.deployment()
            epoch = (await made.footer(A)).epoch

            async def ledger(name: CursorName, epoch: int, deployment: str = deployment) -> int:
                return await made.ledger([b"x"], custom_metadata(name, epoch, 1, "w", deployment))

            found = {
                "named": named, "open": (await made.footer(B)).chain[-1].ledger, "garbage": await ledger(A, epoch),
                "newer": await ledger(A, epoch + 1), "no footer": await ledger(LOST, 1), "foreign": await ledger(A, epoch, "f" * 32),
                "nobody's": await made.ledger([b"x"]), "unreadable": await ledger(B, 0),
            }  # fmt: skip
            await made.overwrite(B, b"not a footer")
            return found

    made = asyncio.run(make())
    found = rows(options_of(stack, root, "ledgers"))
    said = {what: (found[ledger]["verdict"], found[ledger]["ours"], found[ledger]["cursor_key"]) for what, ledger in made.items()}
    a, b = cursor_key(A), cursor_key(B)
    assert said == {
        "named": ("named", True, a), "open": ("unknown", True, b), "garbage": ("garbage", True, a), "newer": ("may_be_named", True, a),
        "no footer": ("unknown", True, cursor_key(LOST)), "foreign": ("unknown", False, None), "nobody's": ("unknown", False, None),
        "unreadable": ("unknown", True, b),
    }  # fmt: skip
    shown = found[made["named"]]
    assert (shown["cursor"], shown["state"], shown["epoch"]) == (A.display, "closed", 1) and shown["last_entry"] > 0 < shown["bytes"]
    assert found[made["foreign"]]["cursor"] == A.display and found[made["nobody's"]]["cursor"] is None
    assert found[made["open"]]["created"].year > 2000

    chosen = rows(options_of(stack, root, "ledgers", tenant="a"))
    assert {made[what] for what in ("named", "garbage", "newer", "foreign")} == set(chosen) & set(made.values())
    with pytest.raises(Exception, match=r"not JSON.*What to do"):
        rows(options_of(stack, root, "ledgers", mode="failfast"))

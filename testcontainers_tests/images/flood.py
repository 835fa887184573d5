"""A source that hands over as many acks as it is given credit for: many cursors, each one large
column after the other.

Run in the daemon's image as `python flood.py DAEMON CURSORS BATCHES`. It says when everything is
handed over, waits until all is durable, over however many connections, and ends with 0. Cursor `c`
has acked, in the end, exactly `acked(c, batches)`.
"""

from __future__ import annotations

import asyncio
import json
import math
import sys

import numpy as np
from numpy.typing import NDArray
from pyroaring import BitMap

from cursorkeeper_client import (
    Acks,
    Client,
    ClientSettings,
    Cursor,
    LayoutItem,
    LayoutState,
    LedgerAcks,
)

LEDGER, SPAN, BATCH = 5, 8_000_000, 250_000


def column(cursor: int, batch: int) -> NDArray[np.uint32]:
    """The entries of one batch, in random order."""
    return np.random.default_rng((cursor, batch)).integers(0, SPAN, BATCH, dtype=np.uint32)


def acked(cursor: int, batches: int) -> BitMap:
    """Every entry of a cursor."""
    return BitMap(np.concatenate([column(cursor, batch) for batch in range(batches)]))


def topic(cursor: int) -> str:
    """Of a cursor."""
    return f"persistent://containers/flood/topic-{cursor}"


async def send(cursor: Cursor, number: int, batches: int) -> None:
    """All of one cursor."""
    for batch in range(batches):
        await cursor.send(Acks([LedgerAcks(LEDGER, column(number, batch))]))


async def main(daemon: str, cursors: int, batches: int) -> None:
    """See the module."""
    settings = ClientSettings(
        name="flood", back_off_max_ms=1_000, open_timeout_s=60, connect_timeout_s=5
    )
    async with Client(daemon, settings) as source:
        layout = [LayoutItem(LEDGER, LayoutState.OPEN)]
        made = [source.cursor(topic(number), "steady", layout=layout) for number in range(cursors)]
        print(json.dumps({"ready": "flood"}), flush=True)
        await asyncio.gather(*(send(cursor, number, batches) for number, cursor in enumerate(made)))
        print(json.dumps({"handed_over": True}), flush=True)
        await asyncio.gather(*(cursor.durable(timeout_s=math.inf) for cursor in made))
    print(json.dumps({"done": True}), flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))

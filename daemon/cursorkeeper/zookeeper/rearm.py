"""Setting watches again after a reconnect.

Owns the split into setWatches requests and the wait for all of them. Does not own the table of
watches, nor when. The server compares each path with the zxid given: changed since then fires at
once, unchanged is watched again.

Invariants: every request is below the limit; all of them name the same zxid; and that zxid stays
the one to compare with until *all* are
answered: were it to move with the first answer, watches of the requests behind it would miss what
happened while we were away.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator

from cursorkeeper.zookeeper import codec
from cursorkeeper.zookeeper.connection import Connection
from cursorkeeper.zookeeper.errors import ConnectionLost, ZooKeeperError
from cursorkeeper.zookeeper.watches import WatchTable

_FIXED_BYTES = 64  # header, zxid and the lengths of three lists, with room


def requests(paths: Iterable[str], zxid: int, bytes_max: int) -> Iterator[codec.Request[None]]:
    """The setWatches requests for these, each of at most `bytes_max` bytes (or of one path)."""
    part: list[str] = []
    size = _FIXED_BYTES
    for path in paths:
        path_bytes = 4 + len(path.encode())
        if part and size + path_bytes > bytes_max:
            yield codec.set_watches(zxid, part)
            part, size = [], _FIXED_BYTES
        part.append(path)
        size += path_bytes
    if part:
        yield codec.set_watches(zxid, part)


async def rearm(
    connection: Connection, table: WatchTable, zxid: int, *, bytes_max: int, limit_s: float
) -> bool:
    """Whether all watches are set again. False: the connection is over, or was ended here because
    an answer took above `limit_s`.
    """
    try:
        async with asyncio.timeout(limit_s):
            # One at a time: a reconnect of many clients is a load of its own for the server.
            for request in list(requests(table.callbacks, zxid, bytes_max)):
                if not connection.alive:
                    return False
                await connection.send(request)
    except TimeoutError:
        connection.end(ConnectionLost(f"watches were not set again within {limit_s:.3g} s"))
    except ZooKeeperError as refused:
        connection.end(refused)
    return connection.alive

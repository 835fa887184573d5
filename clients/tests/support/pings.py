"""HTTP/2 by hand: pings to a server that has nothing to say, as keepalive sends them, without its
pauses.
"""

from __future__ import annotations

import asyncio
import struct

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
SETTINGS, PING, GOAWAY = 4, 6, 7
ACK = 1


def _frame(kind: int, content: bytes = b"") -> bytes:
    return struct.pack(">I", len(content))[1:] + bytes([kind, 0]) + bytes(4) + content


async def pings_answered(address: str, count: int) -> int:
    """How many of so many are answered before the server says goodbye."""
    host, port = address.rsplit(":", 1)
    async with asyncio.timeout(60):
        reader, writer = await asyncio.open_connection(host, int(port))
        try:
            writer.write(PREFACE + _frame(SETTINGS))
            for answered in range(count):
                writer.write(_frame(PING, struct.pack(">Q", answered)))
                while True:
                    head = await reader.readexactly(9)
                    content = await reader.readexactly(int.from_bytes(head[:3], "big"))
                    if head[3] == GOAWAY:
                        return answered
                    if head[3] == PING and head[4] & ACK and content == struct.pack(">Q", answered):
                        break
            return count
        finally:
            writer.close()

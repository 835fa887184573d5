"""A TCP proxy that delays: every byte leaves `delay_ms` (plus up to `jitter_ms`) after it came, in
both directions, in order.

Run inside a container as `python3 proxy.py LISTEN_PORT HOST:PORT DELAY_MS JITTER_MS`. Kernel delay
(tc netem) is not to be had everywhere; this is. Invariants: nothing is lost or changed; at most
QUEUE_MAX chunks wait per direction, then it no longer reads.
"""

from __future__ import annotations

import asyncio
import random
import sys

CHUNK_BYTES, QUEUE_MAX = 65_536, 4_096


async def pump(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, delay_s: float, jitter_s: float
) -> None:
    """One direction, until it ends."""
    loop = asyncio.get_running_loop()
    queue: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(QUEUE_MAX)

    async def read() -> None:
        while data := await reader.read(CHUNK_BYTES):
            await queue.put((loop.time() + delay_s + random.uniform(0, jitter_s), data))
        await queue.put((0.0, b""))

    reading = asyncio.ensure_future(read())
    try:
        while True:
            due, data = await queue.get()
            if not data:
                break
            await asyncio.sleep(max(0.0, due - loop.time()))
            writer.write(data)
            await writer.drain()
    finally:
        reading.cancel()


async def main(port: int, target: str, delay_s: float, jitter_s: float) -> None:
    """For ever."""
    host, _, target_port = target.rpartition(":")

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            other_reader, other_writer = await asyncio.wait_for(
                asyncio.open_connection(host, int(target_port)), 5
            )
        except (TimeoutError, OSError):
            writer.close()
            return
        pumps = [
            asyncio.ensure_future(pump(reader, other_writer, delay_s, jitter_s)),
            asyncio.ensure_future(pump(other_reader, writer, delay_s, jitter_s)),
        ]
        await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        for one in pumps:
            one.cancel()
        await asyncio.gather(*pumps, return_exceptions=True)
        for side in (writer, other_writer):
            side.close()

    server = await asyncio.start_server(accept, "0.0.0.0", port)
    print('{"ready": "proxy"}', flush=True)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(
        main(int(sys.argv[1]), sys.argv[2], float(sys.argv[3]) / 1000, float(sys.argv[4]) / 1000)
    )

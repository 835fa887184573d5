"""Stories of cursors in the native form. The first line of each docstring goes into the recording.

Owns the settings that make a small cursor go through everything that a large one would. Invariant:
a story leaves nothing to chance that its name promises; where time decides (a kill inside a
snapshot), it tries again on another cursor.
"""

from __future__ import annotations

import asyncio
import random

from pyroaring import BitMap

from cursorkeeper_client import AckedIndexes, LayoutItem, LedgerAcks, PartialBatch, Position
from tools.record_release.stage import Cursor, Stage, until
from tools.record_release.stories import (
    CLOSED,
    LAYOUT,
    OPEN,
    TRIMMED,
    Ended,
    Story,
    has_snapshot,
    newest_ledger,
    scattered,
    some_traffic,
    topic,
)

NO_SNAPSHOT = ("--snapshot-bytes-min", "1000000000")
SMALL_SEGMENTS = ("--max-entry-bytes", "65536", "--mark-delete-properties-bytes-max", "16384")
SEGMENT, SNAPSHOT_END = 3, 4
"""Kinds of records, in their fourth byte."""
TRIES_MAX = 8
EVEN = list(range(30_000, 230_000, 1_000))
PRODUCERS = {f"producer-{number:04}": number for number in range(40)}
"""Both take less room when they are compressed, whatever the codec."""


async def created(stage: Stage) -> Ended:
    """Created with properties, nothing acked; the daemon was killed."""
    async with stage.daemon() as daemon:
        cursor = await daemon.open(
            topic("created"), layout=LAYOUT, properties={"made": "by", "": "empty name"}
        )
        cursor.truth.keeps_layout = False  # told, and not confirmed: nothing was flushed yet
        await daemon.kill()
    return Ended(cursor)


async def native_deltas(stage: Stage) -> Ended:
    """Deltas in one ledger, the daemon was killed and the gateway closed its ledger."""
    return await _deltas(stage, "native-deltas")


async def native_deltas_lz4(stage: Stage) -> Ended:
    """Deltas that are compressed with LZ4."""
    return await _deltas(stage, "native-deltas-lz4", "--codec", "lz4")


async def native_deltas_none(stage: Stage) -> Ended:
    """Deltas that are not compressed."""
    return await _deltas(stage, "native-deltas-none", "--codec", "none")


async def native_digest_mac(stage: Stage) -> Ended:
    """Deltas in a ledger that BookKeeper keeps with another digest than the usual one."""
    return await _deltas(stage, "native-digest-mac", "--digest", "MAC")


async def _deltas(stage: Stage, name: str, *flags: str) -> Ended:
    async with stage.daemon(*flags) as daemon:
        cursor = await daemon.open(topic(name), layout=LAYOUT)
        await some_traffic(cursor, name)
        await cursor.acked(LedgerAcks(33, EVEN), properties=PRODUCERS)
        await daemon.kill()
    return Ended(cursor)


async def native_power_cut(stage: Stage) -> Ended:
    """Deltas of two owners; bookies, ZooKeeper, gateway and daemon were killed at once, so the last
    ledger is still open.
    """
    async with stage.daemon() as daemon:
        cursor = await daemon.open(topic("native-power-cut"), layout=LAYOUT)
        await some_traffic(cursor, "first owner", 3)
        await daemon.kill()
    async with stage.daemon() as daemon:
        await daemon.take_over(cursor)
        await some_traffic(cursor, "second owner", 4)
        await stage.cut_power(daemon)
    return Ended(cursor, settled=False)


async def native_killed_in_traffic(stage: Stage) -> Ended:
    """Killed while acks flowed: what was not confirmed may be there or not."""
    rng = random.Random("traffic")
    async with stage.daemon() as daemon:
        cursor = await daemon.open(topic("native-killed-in-traffic"), layout=LAYOUT)
        await some_traffic(cursor, "traffic", 2)
        enough = cursor.handle.last_seq + 40

        async def flows() -> bool:
            for _ in range(4):
                await cursor.ack(scattered(rng, 11, 3_000, 12), scattered(rng, 33, 20_000, 8))
            return cursor.handle.durable_seq >= enough

        await until("some of the acks are confirmed", flows)
        await daemon.kill()
    return Ended(cursor)


async def native_snapshot_and_chain(stage: Stage) -> Ended:
    """A snapshot of several segments, then another owner whose chain has several ledgers."""
    rng = random.Random("chain")
    layout = [LayoutItem(11, CLOSED, 3_000_000), LayoutItem(33, OPEN)]
    flags = (*SMALL_SEGMENTS, "--snapshot-bytes-min", "2000", "--snapshot-interval-min-s", "0.05")
    async with stage.daemon(*flags) as daemon:
        cursor = await daemon.open(
            topic("native-snapshot-and-chain"),
            layout=layout,
            properties={"kept": "in the snapshot"},
        )
        await cursor.acked(LedgerAcks(33, partials=[PartialBatch(5, 9, BitMap([1, 8]))]))

        async def has_several_segments() -> bool:
            await cursor.acked(scattered(rng, 11, 3_000_000, 600))
            footer = await stage.footer(cursor)
            return has_snapshot(footer) and footer["base"]["snapshot"]["numParts"] >= 3

        await until("there is a snapshot of several segments", has_several_segments)
        await daemon.kill()
    async with stage.daemon(*SMALL_SEGMENTS, *NO_SNAPSHOT, "--ledger-bytes-max", "1500") as daemon:
        await daemon.take_over(cursor)
        while len((await stage.footer(cursor))["chain"]) < 5:
            await cursor.acked(
                scattered(rng, 11, 3_000_000, 100),
                scattered(rng, 33, 9_000, 60),
                properties={"left": rng.getrandbits(62)},
            )
        await cursor.confirmed()
        await daemon.kill()
    return Ended(cursor)


async def native_two_snapshots(stage: Stage) -> Ended:
    """Two snapshots, LZ4: the footer's fall-back is a snapshot too."""
    rng = random.Random("two")
    flags = ("--codec", "lz4", "--snapshot-bytes-min", "1000", "--snapshot-interval-min-s", "0.05")
    async with stage.daemon(*flags) as daemon:
        cursor = await daemon.open(topic("native-two-snapshots"), layout=LAYOUT)
        await cursor.acked(LedgerAcks(33, EVEN), properties=PRODUCERS)

        async def falls_back_on_a_snapshot() -> bool:
            await cursor.acked(scattered(rng, 33, 20_000, 200))
            footer = await stage.footer(cursor)
            return bool(footer["previous"]) and "snapshot" in footer["previous"]["base"]

        await until("there are two snapshots", falls_back_on_a_snapshot)
        await daemon.kill()
    return Ended(cursor)


async def native_killed_in_snapshot(stage: Stage) -> Ended:
    """Killed while the second snapshot was being written: segments without an end record, and the
    first one is the base.
    """
    for number in range(TRIES_MAX):
        cursor = await _killed_in_snapshot(stage, number)
        footer = await stage.footer(cursor)
        kinds = [entry[3] for entry in await stage.entries(newest_ledger(footer))]
        base = footer["base"]["snapshot"]["ledger"]
        if (
            SEGMENT in kinds
            and SNAPSHOT_END not in kinds
            and newest_ledger(footer) != base
            and footer["previous"]
        ):
            return Ended(cursor)
    raise TimeoutError(f"the snapshot was over before the kill {TRIES_MAX} times")


async def _killed_in_snapshot(stage: Stage, number: int) -> Cursor:
    rng = random.Random(f"in snapshot {number}")
    wide = 50_000_000
    layout = [LayoutItem(11, CLOSED, 3_000), LayoutItem(20, CLOSED, wide), LayoutItem(33, OPEN)]
    flags = (*SMALL_SEGMENTS, "--snapshot-bytes-min", "1500", "--snapshot-interval-min-s", "0.05")
    async with stage.daemon(*flags) as daemon:
        cursor = await daemon.open(topic(f"native-killed-in-snapshot-{number}"), layout=layout)

        async def has_one() -> bool:
            await cursor.acked(scattered(rng, 11, 3_000, 200))
            return has_snapshot(await stage.footer(cursor))

        await until("there is a snapshot", has_one)
        base = (await stage.footer(cursor))["base"]["snapshot"]["ledger"]
        await cursor.acked(scattered(rng, 20, wide, 1_500))
        await cursor.acked(scattered(rng, 20, wide, 1_500))

        async def is_writing_the_next() -> bool:
            newest = newest_ledger(await stage.footer(cursor))
            return (
                newest != base
                and [entry[3] for entry in await stage.entries(newest)].count(SEGMENT) >= 3
            )

        await until("segments of the next snapshot are there", is_writing_the_next)
        await daemon.kill()
    await stage.settle(cursor)
    return cursor


async def native_closed_inline(stage: Stage) -> Ended:
    """Closed: the whole state is in the footer."""
    async with stage.daemon() as daemon:
        cursor = await daemon.open(
            topic("native-closed-inline"), layout=LAYOUT, properties={"a": "b"}
        )
        await some_traffic(cursor, "inline", 2)
        await cursor.handle.close()
        await _until_no_ledger(stage, cursor)
        await daemon.kill()
    return Ended(cursor, "closed")


async def native_closed_in_ledger(stage: Stage) -> Ended:
    """Closed with inline states switched off: the chain's ledger is sealed, its last entry is in
    the footer.
    """
    async with stage.daemon("--inline-state-max-bytes", "0") as daemon:
        cursor = await daemon.open(topic("native-closed-in-ledger"), layout=LAYOUT)
        await some_traffic(cursor, "sealed", 2)
        await cursor.handle.close()
        await daemon.kill()
    return Ended(cursor, "closed")


async def native_inline_backstop(stage: Stage) -> Ended:
    """BookKeeper went away, so the state was confirmed by the footer alone; then the daemon was
    killed.
    """
    async with (
        stage.second_gateway() as (address, gateway),
        stage.daemon("--bookkeeper-away-ms", "300", gateway=address) as daemon,
    ):
        cursor = await daemon.open(topic("native-inline-backstop"), layout=LAYOUT)
        await some_traffic(cursor, "backstop", 2)
        await asyncio.to_thread(gateway.kill)
        await cursor.acked(LedgerAcks(11, [0, 1, 2, 3]), LedgerAcks(33, ranges=[50, 90]))
        await daemon.kill()
    return Ended(cursor, settled=False)


async def native_reset(stage: Stage) -> Ended:
    """Reset, then more acks: generation 2 on an inline base."""
    async with stage.daemon() as daemon:
        cursor = await daemon.open(
            topic("native-reset"), layout=LAYOUT, properties={"kept": "over the reset"}
        )
        await some_traffic(cursor, "reset", 3)
        await cursor.reset(Position(20, 99))
        await cursor.acked(
            LedgerAcks(20, ranges=[150, 180]), LedgerAcks(33, [4, 5]), properties={"after": 1}
        )
        await daemon.kill()
    return Ended(cursor)


async def native_deleted(stage: Stage) -> Ended:
    """Deleted by its second owner: a tombstone, and no ledger."""
    async with stage.daemon() as daemon:
        cursor = await daemon.open(topic("native-deleted"), layout=LAYOUT)
        await some_traffic(cursor, "deleted", 2)
        await daemon.kill()
    async with stage.daemon() as daemon:
        await daemon.take_over(cursor)
        await cursor.acked(LedgerAcks(33, [1]))
        await cursor.handle.delete()
        await _until_no_ledger(stage, cursor)
        await daemon.kill()
    return Ended(cursor, "deleted")


async def _until_no_ledger(stage: Stage, cursor: Cursor) -> None:
    async def none_left() -> bool:
        return not [
            info async for info in stage.gateway.list({"cursor": cursor.name.canonical.encode()})
        ]

    await until("its ledgers are deleted", none_left)


async def native_batch_indexes(stage: Stage) -> Ended:
    """Partly acked batches in both ways to say it, one finished by either, one of which the size is
    not known.
    """
    async with stage.daemon() as daemon:
        cursor = await daemon.open(topic("native-batch-indexes"), layout=LAYOUT)
        words = PartialBatch(100, 200, BitMap([0, 63, 64, 127, 128, 199]))
        indexes = AckedIndexes(101, 200, ((0, 62), (64, 126), (190, 199)))
        await cursor.acked(LedgerAcks(11, partials=[words, indexes]))
        await cursor.acked(
            LedgerAcks(
                11,
                partials=[
                    AckedIndexes(100, 200, ((0, 0), (64, 64))),
                    PartialBatch(102, 4, BitMap([3])),
                ],
            )
        )
        await cursor.acked(
            LedgerAcks(
                11, partials=[AckedIndexes(102, 4, ((3, 3),)), PartialBatch(103, 2, BitMap([0]))]
            )
        )
        await cursor.acked(
            LedgerAcks(
                11,
                partials=[PartialBatch(103, 2, BitMap([1])), PartialBatch(104, 0, BitMap([2, 5]))],
            )
        )
        await cursor.acked(
            LedgerAcks(33, partials=[PartialBatch(0, 65_536, BitMap(range(0, 65_536, 9_001)))])
        )
        await daemon.kill()
    return Ended(cursor)


async def native_mark_delete_over_ledgers(stage: Stage) -> Ended:
    """Mark-delete crossed three data ledgers, one of them empty, by single acks, by a cumulative
    ack and by a later layout.
    """
    async with stage.daemon() as daemon:
        cursor = await daemon.open(topic("native-mark-delete-over-ledgers"), layout=LAYOUT)
        await cursor.acked(LedgerAcks(20, ranges=[0, 9, 12, 4_999]))
        await cursor.acked(LedgerAcks(11, ranges=[0, 2_000]), LedgerAcks(14, [0]))
        await cursor.acked(
            LedgerAcks(33, ranges=[0, 39]),
            mark_delete=Position(11, 2_999),
            properties={"crossed": 3},
        )
        await cursor.acked(LedgerAcks(20, [10, 11]))
        cursor.tell_layout(
            LayoutItem(33, CLOSED, 40), LayoutItem(40, CLOSED, 10), LayoutItem(41, OPEN)
        )
        await cursor.acked(LedgerAcks(40, [0, 1, 5]), LedgerAcks(41, [3]))
        await daemon.kill()
    return Ended(cursor)


async def native_trimmed_ledger(stage: Stage) -> Ended:
    """A data ledger with acks was trimmed behind one with holes."""
    async with stage.daemon() as daemon:
        cursor = await daemon.open(topic("native-trimmed-ledger"), layout=LAYOUT)
        await some_traffic(cursor, "trimmed", 1)
        cursor.tell_layout(*LAYOUT[:3], LayoutItem(20, TRIMMED), LAYOUT[4])
        await cursor.acked(LedgerAcks(33, [9]))
        await daemon.kill()
    return Ended(cursor)


async def native_properties(stage: Stage) -> Ended:
    """Properties of the mark-delete and of the subscription, replaced and cleared; names outside
    ASCII.
    """
    async with stage.daemon() as daemon:
        cursor = await daemon.open(
            topic("properties/ä"),
            subscription="abonnement|%2F é",
            layout=LAYOUT,
            properties={"old": "gone"},
        )
        await cursor.acked(
            LedgerAcks(11, [0]),
            properties={"producer-1": -1, "größe": -(1 << 63), "z": (1 << 63) - 1},
        )
        cursor.set_properties({"größe": "groß", "empty": "", "quote": '"\\\n'})
        await cursor.acked(LedgerAcks(11, [5]))
        await daemon.kill()
    return Ended(cursor)


STORIES: tuple[Story, ...] = (
    created,
    native_deltas,
    native_deltas_lz4,
    native_deltas_none,
    native_digest_mac,
    native_power_cut,
    native_killed_in_traffic,
    native_snapshot_and_chain,
    native_two_snapshots,
    native_killed_in_snapshot,
    native_closed_inline,
    native_closed_in_ledger,
    native_inline_backstop,
    native_reset,
    native_deleted,
    native_batch_indexes,
    native_mark_delete_over_ledgers,
    native_trimmed_ledger,
    native_properties,
)

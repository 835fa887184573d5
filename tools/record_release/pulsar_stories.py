"""Stories of cursors whose daemon writes `format = "pulsar"`. The first line of each docstring goes
into the recording.
"""

from __future__ import annotations

import random

from cursorkeeper_client import LayoutItem, LedgerAcks, Position
from tools.record_release.stage import Cursor, Daemon, Stage, until
from tools.record_release.stories import (
    CLOSED,
    LAYOUT,
    OPEN,
    Ended,
    Story,
    newest_ledger,
    scattered,
    some_traffic,
    topic,
)

PULSAR = ("--format", "pulsar", "--flush-interval-ms", "10")
SEVERAL = (
    *PULSAR,
    "--persistent-unacked-ranges-with-multiple-entries-enabled",
    "--max-entry-bytes",
    "65536",
)
RANGES = ("--no-managed-ledger-persist-individual-ack-as-long-array",)
NEVER_SNAPSHOT_AGAIN = ("--snapshot-interval-min-s", "100000")
SLICE = 65_536
WIDE = 1_000_000
WIDE_LAYOUT = [LayoutItem(11, CLOSED, WIDE), LayoutItem(33, OPEN)]
TRIES_MAX = 8


async def _opened(
    daemon: Daemon, name: str, layout: list[LayoutItem], properties: dict[str, str] | None = None
) -> Cursor:
    cursor = await daemon.open(topic(name), layout=layout, properties=properties)
    cursor.truth.keeps_sizes = cursor.truth.keeps_layout = False
    return cursor


async def _one_entry(stage: Stage, name: str, *flags: str) -> Ended:
    async with stage.daemon(*PULSAR, *flags) as daemon:
        cursor = await _opened(daemon, name, LAYOUT, properties={"first": "1"})
        await some_traffic(cursor, name, 3)
        cursor.set_properties({"in": "the footer"})
        await cursor.confirmed()
        await daemon.kill()
    return Ended(cursor)


async def pulsar_one_entry(stage: Stage) -> Ended:
    """Whole states in one entry each, acked entries as long arrays."""
    return await _one_entry(stage, "pulsar-one-entry")


async def pulsar_ranges(stage: Stage) -> Ended:
    """Whole states in one entry each, acked entries as message ranges."""
    return await _one_entry(stage, "pulsar-ranges", *RANGES)


async def pulsar_lz4(stage: Stage) -> Ended:
    """One entry each, LZ4."""
    return await _one_entry(stage, "pulsar-lz4", "--cursor-info-compression-type", "LZ4")


async def pulsar_zlib(stage: Stage) -> Ended:
    """One entry each, ZLIB."""
    return await _one_entry(stage, "pulsar-zlib", "--cursor-info-compression-type", "ZLIB")


async def pulsar_zstd(stage: Stage) -> Ended:
    """One entry each, ZSTD."""
    return await _one_entry(stage, "pulsar-zstd", "--cursor-info-compression-type", "ZSTD")


async def pulsar_snappy(stage: Stage) -> Ended:
    """One entry each, SNAPPY."""
    return await _one_entry(stage, "pulsar-snappy", "--cursor-info-compression-type", "SNAPPY")


async def pulsar_several_entries(stage: Stage) -> Ended:
    """Whole states as slices and a footer (PIP-381), not compressed; the whole stack was killed, so
    the ledger is still open.
    """
    async with stage.daemon(*SEVERAL) as daemon:
        cursor = await _opened(daemon, "pulsar-several-entries", WIDE_LAYOUT)
        await cursor.acked(LedgerAcks(11, ranges=[1, 400_000, 400_002, WIDE - 1]))
        await cursor.acked(LedgerAcks(33, [0, 4]))
        await stage.cut_power(daemon)
    return Ended(cursor, settled=False)


async def pulsar_several_entries_lz4(stage: Stage) -> Ended:
    """Whole states as slices and a footer, compressed, acked entries as message ranges."""
    rng = random.Random("several lz4")
    flags = (*RANGES, "--cursor-info-compression-type", "LZ4")
    async with stage.daemon(*SEVERAL, *flags) as daemon:
        cursor = await _opened(daemon, "pulsar-several-entries-lz4", WIDE_LAYOUT)
        await cursor.acked(scattered(rng, 11, WIDE, 8_500))
        await cursor.acked(LedgerAcks(33, [0, 4]), properties={"n": 2})
        await daemon.kill()
    return Ended(cursor)


async def pulsar_cut_off(stage: Stage) -> Ended:
    """Killed inside a state of many slices: those without a footer were never confirmed, the state
    before counts.
    """
    for number in range(TRIES_MAX):
        cursor, before = await _cut_off(stage, number)
        entries = await stage.entries(newest_ledger(await stage.footer(cursor)))
        if len(entries) > before and len(entries[-1]) == SLICE:
            return Ended(cursor)
    raise TimeoutError(f"the state was complete before the kill {TRIES_MAX} times")


async def _cut_off(stage: Stage, number: int) -> tuple[Cursor, int]:
    wide = 40_000_000
    async with stage.daemon(*SEVERAL) as daemon:
        cursor = await _opened(
            daemon, f"pulsar-cut-off-{number}", [LayoutItem(11, CLOSED, wide), LayoutItem(33, OPEN)]
        )
        await cursor.acked(LedgerAcks(11, [3, 5]))
        ledger = newest_ledger(await stage.footer(cursor))
        before = len(await stage.entries(ledger))
        await cursor.ack(LedgerAcks(11, [wide - 1]))

        async def slices_arrive() -> bool:
            return len(await stage.entries(ledger)) > before

        await until("slices of the next state are there", slices_arrive)
        await daemon.kill()
    await stage.settle(cursor)
    return cursor, before


async def pulsar_closed_inline(stage: Stage) -> Ended:
    """Closed: the state is in the footer as Pulsar's ManagedCursorInfo, compressed with ZSTD."""
    small = (
        "--managed-cursor-info-compression-type",
        "ZSTD",
        "--managed-cursor-info-compression-threshold-in-bytes",
        "16",
    )
    async with stage.daemon(*PULSAR, *small) as daemon:
        cursor = await _opened(daemon, "pulsar-closed-inline", LAYOUT, properties={"a": "b"})
        await some_traffic(cursor, "pulsar inline", 1)
        await cursor.handle.close()
        await daemon.kill()
    return Ended(cursor, "closed")


async def pulsar_closed_in_ledger(stage: Stage) -> Ended:
    """Closed with inline states switched off: the ledger of whole states is sealed."""
    async with stage.daemon(*PULSAR, "--inline-state-max-bytes", "0") as daemon:
        cursor = await _opened(daemon, "pulsar-closed-in-ledger", LAYOUT)
        await some_traffic(cursor, "pulsar sealed", 2)
        await cursor.handle.close()
        await daemon.kill()
    return Ended(cursor, "closed")


async def pulsar_reset(stage: Stage) -> Ended:
    """Reset, then more acks: generation 2, a ledger of whole states."""
    async with stage.daemon(*PULSAR) as daemon:
        cursor = await _opened(
            daemon, "pulsar-reset", LAYOUT, properties={"kept": "over the reset"}
        )
        await some_traffic(cursor, "pulsar reset", 1)
        await cursor.reset(Position(20, -1))
        await cursor.acked(LedgerAcks(20, ranges=[150, 180]))
        await daemon.kill()
    return Ended(cursor)


async def pulsar_truncated(stage: Stage) -> Ended:
    """The operator allowed to leave acks out at a limit: the footer says how many, the newest are
    not stored.
    """
    flags = (
        "--truncate-ack-state",
        "--managed-ledger-max-unacked-ranges-to-persist",
        "40",
        *RANGES,
    )
    async with stage.daemon(*PULSAR, *flags) as daemon:
        cursor = await _opened(daemon, "pulsar-truncated", LAYOUT)
        await cursor.acked(
            LedgerAcks(11, list(range(1, 61, 2))), LedgerAcks(20, list(range(0, 50, 2)))
        )
        await daemon.kill()
    return Ended(cursor, truncated_acks=cursor.handle.truncated_acks)


async def pulsar_to_native(stage: Stage) -> Ended:
    """Written in Pulsar's form, then by a native daemon: records in one ledger of the chain, whole
    states in the other.
    """
    for number in range(TRIES_MAX):
        cursor = await _pulsar_then_native(
            stage, f"pulsar-to-native-{number}", *NEVER_SNAPSHOT_AGAIN, power_cut=True
        )
        if "snapshot" not in (await stage.footer(cursor))["base"]:
            return Ended(cursor, settled=False)
    raise TimeoutError(f"the snapshot was there before the kill {TRIES_MAX} times")


async def pulsar_behind_native(stage: Stage) -> Ended:
    """Written in Pulsar's form, then by a native daemon that took one snapshot: Pulsar's ledger is
    the fall-back.
    """
    return Ended(await _pulsar_then_native(stage, "pulsar-behind-native", *NEVER_SNAPSHOT_AGAIN))


async def _pulsar_then_native(
    stage: Stage, name: str, *flags: str, power_cut: bool = False
) -> Cursor:
    async with stage.daemon(*PULSAR) as daemon:
        cursor = await _opened(daemon, name, LAYOUT, properties={"from": "pulsar"})
        await some_traffic(cursor, name, 2)
        await daemon.kill()
    async with stage.daemon(*flags) as daemon:
        await daemon.take_over(cursor, layout=LAYOUT)
        cursor.truth.keeps_layout = True
        await cursor.acked(LedgerAcks(33, ranges=[30_000, 30_050]))
        if power_cut:
            await stage.cut_power(daemon)
        else:
            await stage.until_footer(
                cursor, "has a snapshot", lambda footer: "snapshot" in footer["base"]
            )
            await daemon.kill()
    return cursor


STORIES: tuple[Story, ...] = (
    pulsar_one_entry,
    pulsar_ranges,
    pulsar_lz4,
    pulsar_zlib,
    pulsar_zstd,
    pulsar_snappy,
    pulsar_several_entries,
    pulsar_several_entries_lz4,
    pulsar_cut_off,
    pulsar_closed_inline,
    pulsar_closed_in_ledger,
    pulsar_reset,
    pulsar_truncated,
    pulsar_to_native,
    pulsar_behind_native,
)

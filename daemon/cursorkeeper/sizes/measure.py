"""The rows of the table. One state is in memory at a time; `step` is called when a column of a row
is done.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from cursorkeeper.core.limits import MIB
from cursorkeeper.format.pulsar.values import Form
from cursorkeeper.sizes import encodings, native
from cursorkeeper.sizes.encodings import ENCODINGS, FLUSH_ACKS
from cursorkeeper.sizes.holes import Workload, further_acks

BACKLOGS = (1_000_000, 10_000_000, 100_000_000)
DENSITIES = (0.001, 0.01, 0.1)
STEPS_PER_ROW = len(ENCODINGS)
COLUMNS = ("backlog", "un-acked", *(encoding.title for encoding in ENCODINGS))


class Row(msgspec.Struct, frozen=True):
    """One backlog at one hole density, as one line of `sizes --json`. `bytes_by_key`: the keys of
    `ENCODINGS`.
    """

    backlog: int
    density: float
    holes: int
    ledgers: int = msgspec.field(name="dataLedgers")
    snapshot_entries: int = msgspec.field(name="snapshotEntries")
    delta_acks: int = msgspec.field(name="deltaAcks")
    bytes_by_key: dict[str, int] = msgspec.field(name="bytes")

    def as_json(self) -> Any:
        return msgspec.to_builtins(self)

    def as_row(self) -> list[str]:
        """Of the table, whose columns are `COLUMNS`."""
        sizes = [size(self.bytes_by_key[encoding.key]) for encoding in ENCODINGS]
        return [f"{self.backlog:,}", f"{self.density:g}", *sizes]


def size(count: int) -> str:
    """Bytes for people: MiB, as in the issue, or KiB below a tenth of one."""
    return f"{count / MIB:,.2f} MiB" if count >= MIB // 10 else f"{count / 1024:,.1f} KiB"


def measure(workload: Workload, step: Callable[[], None] = lambda: None) -> Row:
    found: dict[str, int] = {}

    def took(key: str, size: int) -> None:
        found[key] = size
        step()

    info, state = workload.states()
    holes = workload.entries - sum(map(len, info.acked.values()))
    took("dense_bytes", encodings.form_bytes(info, Form.LONG_ARRAY))
    took("dense_heap_bytes", encodings.dense_heap_bytes(info))
    took("ranges_bytes", encodings.form_bytes(info, Form.RANGES))
    plain, packed = encodings.roaring_bytes(info)
    took("roaring_bytes", plain)
    took("roaring_lz4_bytes", packed)
    took("pulsar_zstd_bytes", encodings.pulsar_zstd_bytes(info))
    snapshot_bytes, snapshot_entries = native.snapshot_records(state)
    took("snapshot_bytes", snapshot_bytes)
    acks = further_acks(state, FLUSH_ACKS, workload.seed)
    took("delta_bytes", sum(map(len, native.flush(state, acks))))
    return Row(
        workload.entries,
        workload.density,
        holes,
        len(workload.layout()),
        snapshot_entries,
        sum(len(a) for a in acks.values()),
        found,
    )

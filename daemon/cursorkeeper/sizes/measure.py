"""The rows of the table. One state is in memory at a time; `step` is called when a column of a row
is done.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from cursorkeeper.format.pulsar.values import Form
from cursorkeeper.sizes import encodings, native
from cursorkeeper.sizes.encodings import ENCODINGS, FLUSH_ACKS
from cursorkeeper.sizes.holes import Workload, further_acks

BACKLOGS = (1_000_000, 10_000_000, 100_000_000)
DENSITIES = (0.001, 0.01, 0.1)
STEPS_PER_ROW = len(ENCODINGS)


@dataclass(frozen=True, slots=True)
class Row:
    """One backlog at one hole density. `bytes_by_key`: the keys of `ENCODINGS`."""

    backlog: int
    density: float
    holes: int
    ledgers: int
    bytes_by_key: dict[str, int] = field(default_factory=dict)
    snapshot_entries: int = 0
    delta_acks: int = 0

    def as_json(self) -> dict[str, object]:
        """Sizes are in bytes."""
        return {
            "backlog": self.backlog,
            "density": self.density,
            "holes": self.holes,
            "dataLedgers": self.ledgers,
            "snapshotEntries": self.snapshot_entries,
            "deltaAcks": self.delta_acks,
            "bytes": self.bytes_by_key,
        }


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
        found,
        snapshot_entries,
        sum(len(a) for a in acks.values()),
    )

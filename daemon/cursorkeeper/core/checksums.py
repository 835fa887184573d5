"""One checksum over several: what ties a snapshot's end record to its segments."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import google_crc32c


def combined(checksums: Sequence[int]) -> int:
    """CRC-32C over the checksums as little-endian u32, in order."""
    return int(google_crc32c.value(struct.pack(f"<{len(checksums)}I", *checksums)))

"""Entry ids as runs: base64 of little-endian 32-bit pairs `[first, last]`, ascending and apart. The
harness's wire form.

Owns both directions. Invariant: `decode(encode(b)) == b`; entry ids are below 2^31, as Pulsar's
ledgers are.
"""

from __future__ import annotations

import base64

import numpy as np
from pyroaring import BitMap


def encode(entries: BitMap) -> str:
    """Raises OverflowError for an entry id that does not fit a signed 32-bit number."""
    if entries and entries.max() >= 1 << 31:
        raise OverflowError(f"entry id {entries.max()} does not fit 31 bits")
    ids = np.asarray(entries.to_array(), dtype=np.int64)
    if not len(ids):
        return ""
    breaks = np.flatnonzero(np.diff(ids) > 1)
    firsts, lasts = ids[np.append(0, breaks + 1)], ids[np.append(breaks, len(ids) - 1)]
    return base64.b64encode(np.stack([firsts, lasts], axis=1).astype("<i4").tobytes()).decode()


def decode(text: str) -> BitMap:
    """The entry ids of the runs."""
    entries = BitMap()
    for first, last in np.frombuffer(base64.b64decode(text), "<i4").reshape(-1, 2).tolist():
        entries.add_range(first, last + 1)
    return entries

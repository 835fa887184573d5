"""Serves who takes a cursor back to Pulsar: whether Pulsar itself changed a cursor since the broker
plugin held it. Pure.

The plugin notes the version of Pulsar's znode that its state belongs to, and what tells who wrote
it (`Imprint` in java/pulsar-plugin); a load asks the same of it.
"""

from __future__ import annotations

import re
from typing import Final

from cursorkeeper.migration.destination import Destination

_NOTE: Final = re.compile(r"(\d+)@(\d+)/(-?\d+)/(\d+)")
"""Version, time of creation, cursor ledger, when its writer was last in use (both times in ms)."""


def gone_past(noted: str, there: Destination) -> str:
    """How Pulsar has gone past what was noted, in words; empty: it has not."""
    found = _NOTE.fullmatch(noted)
    if found is None:
        return f"its znode has version {there.version}, and ours belongs to none"
    version, created_at_ms, ledger, active_at_ms = map(int, found.groups())
    if created_at_ms != there.created_at_ms:
        return "its znode was deleted and made again"
    if there.version == version - 1:
        return ""  # the write that was noted did not come
    if there.version != version:
        return f"its znode has version {there.version}, ours belongs to {version}"
    info = there.znode
    if info is not None and (info.cursors_ledger, info.last_active_ms or 0) != (
        ledger,
        active_at_ms,
    ):
        return f"version {version} of its znode is Pulsar's own work"
    return ""

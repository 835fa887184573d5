"""One Pulsar cursor as it was read: the state, the topic's layout, and how fresh that is. Values
only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from cursorkeeper.bookkeeper.port import LedgerState
from cursorkeeper.core.state import AckState
from cursorkeeper.core.values import LayoutItem, Stamp
from cursorkeeper.format.pulsar.chunks import Skipped
from cursorkeeper.format.pulsar.states import to_ack_state
from cursorkeeper.format.pulsar.values import (
    Compression,
    ManagedCursorInfo,
    ManagedLedgerInfo,
    PositionInfo,
)
from cursorkeeper.migration.cluster import PulsarCursorRef

INLINE_SENTENCE = (
    "the znode holds the state: exact if no broker has the topic, else up to one "
    "flush (1 s, at the end of traffic 60 s) old"
)
CLOSED_SENTENCE = "closed cursor ledger: exact"
LIVE_SENTENCE = (
    "live cursor ledger: the state may be up to one flush (1 s, at the end of traffic 60 s) old"
)


class Freshness(msgspec.Struct, frozen=True, rename="camel"):
    """Where the state was found, and what may be newer. `ledger` -1: in the znode.

    `beyond_confirmed`: how many entries the state lies beyond the last add confirmed that a reader
    sees; such an entry may not have reached its ack quorum. `stopped_by`: why the newest entries
    could not be looked for. `skipped`: newer entries that hold no state, newest first.
    `rolled_back`: why only the znode's mark-delete was taken; empty = it was not.
    """

    ledger: int = -1
    entry: int = -1
    ledger_state: LedgerState | None = None
    ledger_created_ms: int = 0
    znode_mtime_ms: int = 0
    beyond_confirmed: int = 0
    stopped_by: str = ""
    skipped: tuple[Skipped, ...] = msgspec.field(default=(), name="skippedEntries")
    rolled_back: str = ""

    @property
    def source(self) -> str:
        """`znode`, or `ledger L entry E`."""
        return "znode" if self.ledger < 0 else f"ledger {self.ledger} entry {self.entry}"

    @property
    def is_final(self) -> bool:
        """Nothing can be written after it without a new ledger, and nothing newer was left out."""
        return self.ledger_state is LedgerState.CLOSED and not (
            self.skipped or self.stopped_by or self.rolled_back
        )

    @property
    def sentence(self) -> str:
        if self.rolled_back:
            return (
                f"ROLLED BACK to the znode's mark-delete, every individual ack is lost: "
                f"{self.rolled_back}"
            )
        if self.ledger < 0:
            return INLINE_SENTENCE
        said = CLOSED_SENTENCE if self.ledger_state is LedgerState.CLOSED else LIVE_SENTENCE
        if self.stopped_by:
            said += f"; newer entries could not be looked for ({self.stopped_by})"
        if self.skipped:
            said += (
                f"; {len(self.skipped)} newer entries hold no whole state: {self.skipped[0].reason}"
            )
        return said

    def as_json(self) -> dict[str, Any]:
        return {
            "source": "znode" if self.ledger < 0 else "ledger",
            **msgspec.to_builtins(self),
            "ledgerState": self.ledger_state.name if self.ledger_state is not None else None,
            "sentence": self.sentence,
        }


@dataclass(frozen=True, slots=True)
class PulsarCursor:
    """See the module. `state` has no ranges across ledgers, and no position that the topic does not
    have; what was done to get there is in `warnings`. `original` is the state as Pulsar wrote it.
    `bytes_read`: znodes and ledger entries, as stored.
    """

    ref: PulsarCursorRef
    state: PositionInfo
    layout: tuple[LayoutItem, ...]
    cursor_properties: Mapping[str, str]
    freshness: Freshness
    original: PositionInfo
    znode: ManagedCursorInfo
    znode_version: int
    znode_compression: Compression
    topic: ManagedLedgerInfo
    bytes_read: int
    warnings: tuple[str, ...] = field(default=())

    @property
    def acks(self) -> AckState:
        return to_ack_state(
            self.state,
            self.layout,
            stamp=Stamp(1, 0),
            cursor_properties=self.cursor_properties,
        )

"""Benches whose owners write whole states in Pulsar's form."""

from __future__ import annotations

from typing import Any

from cursorkeeper.core import effects as fx
from cursorkeeper.core.limits import Limits
from cursorkeeper.core.values import RawEntry
from cursorkeeper.format.pulsar import chunks
from cursorkeeper.format.whole_state import PulsarStateWriter, WholeStateSettings
from daemon.tests.support.machine_bench import Bench, Owner

SLICE = 64


def writer(**settings: Any) -> PulsarStateWriter:
    """Several entries of 64 bytes and no limit, if nothing else is said."""
    return PulsarStateWriter(
        WholeStateSettings(
            **{"multiple": True, "max_entry_bytes": SLICE, "state_bytes_max": None, **settings}
        )
    )


def whole_bench(limits: Limits | None = None, **settings: Any) -> Bench:
    return Bench(limits, writer(**settings))


def raw(owner: Owner, ledger: int | None = None) -> list[bytes]:
    """Every raw entry that was sent (to one ledger), in order."""
    sent = [(e.ledger, e.record) for e in owner.did(fx.Append)]
    return [r.payload for where, r in sent if isinstance(r, RawEntry) and ledger in (None, where)]


def footers(entries: list[bytes]) -> list[int]:
    """Which of them are the footers of chunks."""
    return [at for at, entry in enumerate(entries) if chunks.parse_footer(entry) is not None]

"""Recorded acks of real Pulsar consumers as batches, what follows from them by plain sets, and
Pulsar's own cursor.

Reads a folder with `acks.csv.gz` (ms, topic, consumer, kind I|C, ledger, entry, batch_index,
batch_size; in the order in which they were made) and `final.json.gz` (layout, mark-delete and acked
ranges as Pulsar held them in memory).
"""

from __future__ import annotations

import csv
import gzip
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

RANGE = re.compile(r"\((-?\d+):(-?\d+)\.\.(\d+):(-?\d+)\]")
BATCH_ACKS = 512
NOT_BATCHED = -1


class TraceError(Exception):
    """The folder does not hold a trace; the message says what is wrong with it."""


@dataclass(slots=True)
class TraceBatch:
    """Acks to send as one message. `partials`: (ledger, entry) -> (batch size, indexes acked)."""

    mark_delete: tuple[int, int] | None = None
    entries: dict[int, list[int]] = field(default_factory=dict)
    partials: dict[tuple[int, int], tuple[int, set[int]]] = field(default_factory=dict)
    acks: int = 0


@dataclass(frozen=True, slots=True)
class PulsarCursor:
    """What Pulsar's cursor held at the end. `acked`: entries above mark-delete."""

    layout: tuple[tuple[int, int | None], ...]
    """(ledger, entries); None: the open one."""
    mark_delete: tuple[int, int]
    acked: frozenset[tuple[int, int]]


@dataclass(slots=True)
class Expected:
    """What follows from the acks, by plain sets."""

    entries: set[tuple[int, int]] = field(default_factory=set)
    missing: dict[tuple[int, int], set[int]] = field(default_factory=dict)
    cumulative: tuple[int, int] | None = None

    def individual(self, ledger: int, entry: int, index: int, size: int) -> None:
        key = (ledger, entry)
        if index == NOT_BATCHED:
            self.entries.add(key)
            return
        if key in self.entries:
            return
        left = self.missing.setdefault(key, set(range(size)))
        left.discard(index)
        if not left:
            del self.missing[key]
            self.entries.add(key)

    def up_to(self, ledger: int, entry: int, index: int, size: int) -> None:
        """One cumulative ack: everything before the entry, and the entry up to the index."""
        whole = index == NOT_BATCHED or index == size - 1
        mark = (ledger, entry if whole else entry - 1)
        if self.cumulative is None or mark > self.cumulative:
            self.cumulative = mark
        if not whole:
            for acked in range(index + 1):
                self.individual(ledger, entry, acked, size)
        self.missing = {k: v for k, v in self.missing.items() if k > self.cumulative}

    def missing_above(self, mark_delete: tuple[int, int]) -> dict[tuple[int, int], set[int]]:
        """Partly acked batches above a mark-delete."""
        return {k: v for k, v in self.missing.items() if k > mark_delete}


class Trace:
    def __init__(self, folder: Path) -> None:
        try:
            self._final: dict[str, Any] = json.loads(
                gzip.decompress((folder / "final.json.gz").read_bytes())
            )
            with gzip.open(folder / "acks.csv.gz", "rt", newline="") as lines:
                self._rows = [_row(r) for r in csv.DictReader(lines)]
        except FileNotFoundError as e:
            raise TraceError(
                f"{e.filename} does not exist: a trace folder holds acks.csv.gz and final.json.gz"
            ) from e
        except (OSError, ValueError, KeyError) as e:
            raise TraceError(f"{folder}: not a trace: {e!r}") from e

    @property
    def topics(self) -> list[str]:
        """Names of the recorded topics."""
        return list(self._final)

    @property
    def acks(self) -> int:
        """How many acks were recorded, over all topics."""
        return len(self._rows)

    def pulsar(self, topic: str) -> PulsarCursor:
        """The cursor that Pulsar itself kept."""
        body = self._final[topic]
        ledgers = body["data_ledgers"]
        layout = tuple(
            (ledger, count if at < len(ledgers) - 1 else None)
            for at, (ledger, count) in enumerate(ledgers)
        )
        ledger, entry = body["mark_delete_position"].split(":")
        acked: set[tuple[int, int]] = set()
        for first_ledger, first, last_ledger, last in RANGE.findall(
            body["individually_deleted_messages"]
        ):
            if first_ledger != last_ledger:
                raise TraceError(f"{topic}: a range across ledgers: {first_ledger}..{last_ledger}")
            acked.update((int(last_ledger), e) for e in range(int(first) + 1, int(last) + 1))
        return PulsarCursor(layout, (int(ledger), int(entry)), frozenset(acked))

    def expected(self, topic: str) -> Expected:
        """What follows from the acks of one topic."""
        found = Expected()
        for name, kind, ledger, entry, index, size in self._rows:
            if name == topic:
                (found.up_to if kind == "C" else found.individual)(ledger, entry, index, size)
        return found

    def batches(self, topic: str) -> Iterator[TraceBatch]:
        """The acks of one topic, gathered as a source gathers them: a few hundred a message, in
        their order.
        """
        batch = TraceBatch()
        for name, kind, ledger, entry, index, size in self._rows:
            if name != topic:
                continue
            if kind == "C":
                _add_cumulative(batch, ledger, entry, index, size)
            elif index == NOT_BATCHED:
                batch.entries.setdefault(ledger, []).append(entry)
            else:
                _add_index(batch, ledger, entry, {index}, size)
            batch.acks += 1
            if batch.acks >= (BATCH_ACKS if kind == "I" else 8):
                yield batch
                batch = TraceBatch()
        if batch.acks:
            yield batch


def _row(row: dict[str, str]) -> tuple[str, str, int, int, int, int]:
    return (
        row["topic"],
        row["kind"],
        int(row["ledger"]),
        int(row["entry"]),
        int(row["batch_index"]),
        int(row["batch_size"]),
    )


def _add_index(batch: TraceBatch, ledger: int, entry: int, indexes: set[int], size: int) -> None:
    key = (ledger, entry)
    known = batch.partials.get(key, (size, set()))[1] | indexes
    if len(known) == size:
        batch.partials.pop(key, None)
        batch.entries.setdefault(ledger, []).append(entry)
    else:
        batch.partials[key] = (size, known)


def _add_cumulative(batch: TraceBatch, ledger: int, entry: int, index: int, size: int) -> None:
    whole = index in (NOT_BATCHED, size - 1)
    mark = (ledger, entry if whole else entry - 1)
    if batch.mark_delete is None or mark > batch.mark_delete:
        batch.mark_delete = mark
    if not whole:
        _add_index(batch, ledger, entry, set(range(index + 1)), size)

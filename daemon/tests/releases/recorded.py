"""The recordings of `testdata/releases/`, as values; their README has the form of the files.

Owns the reading of those files, and that they are what was recorded. Does not own what a cursor's
bytes mean.
"""

from __future__ import annotations

import hashlib
import json
import lzma
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from cursorkeeper.bookkeeper.port import Digest, LedgerSpec
from cursorkeeper.core.names import CursorName

RELEASES = Path(__file__).resolve().parents[3] / "testdata" / "releases"
Json = dict[str, Any]


@dataclass(frozen=True)
class RecordedLedger:
    """One cursor ledger as bookies and metadata held it; `entries` without any recovery."""

    ledger: int
    closed: bool
    spec: LedgerSpec
    custom_metadata: dict[str, bytes]
    entries: tuple[bytes, ...]


@dataclass(frozen=True)
class Recorded:
    """One cursor at the end of its story. `expected`: what was confirmed; `sent`: what may be there
    too, if that is more.

    `end`: killed, closed or deleted; `epoch`: of its last owner.
    """

    release: str
    story: str
    name: CursorName
    root: str
    deployment: str
    path: str
    footer: bytes
    ledgers: tuple[RecordedLedger, ...]
    end: str
    epoch: int
    expected: Json
    sent: Json | None

    @property
    def is_pulsar(self) -> bool:
        """Written by a daemon of that format, at least in part."""
        return self.story.startswith("pulsar")

    def with_entries(self, ledger: int, entries: tuple[bytes, ...]) -> Recorded:
        """The same, with other entries in one ledger."""
        return replace(
            self,
            ledgers=tuple(
                replace(own, entries=entries) if own.ledger == ledger else own
                for own in self.ledgers
            ),
        )


@cache
def releases() -> tuple[str, ...]:
    """Every recorded one."""
    return tuple(sorted(folder.parent.name for folder in RELEASES.glob("*/release.json")))


@cache
def recordings() -> tuple[Recorded, ...]:
    """Every cursor of every release."""
    return tuple(recorded for release in releases() for recorded in _of(RELEASES / release))


def each(*, deleted: bool = False) -> pytest.MarkDecorator:
    """Runs a test for every recorded cursor that was not deleted, or for every one that was."""
    found = [recorded for recorded in recordings() if (recorded.end == "deleted") is deleted]
    assert found, f"no recordings in {RELEASES}"
    return pytest.mark.parametrize(
        "recorded", found, ids=[f"{recorded.release}-{recorded.story}" for recorded in found]
    )


def _of(folder: Path) -> list[Recorded]:
    shared = json.loads((folder / "release.json").read_text())
    return [_one(folder, story, shared) for story in shared["cursors"]]


def _one(folder: Path, story: str, shared: Json) -> Recorded:
    told = json.loads((folder / f"{story}.json").read_text())
    packed = folder / f"{story}.entries.xz"
    body = lzma.decompress(packed.read_bytes()) if packed.exists() else b""
    assert hashlib.sha256(body).hexdigest() == told["sha256"], f"{packed} is not what was recorded"
    ledgers, at = [], 0
    for ledger in told["ledgers"]:
        entries = []
        for size in ledger["entries"]:
            entries.append(body[at : at + size])
            at += size
        ledgers.append(_ledger(ledger, tuple(entries)))
    assert at == len(body), f"{packed} holds {len(body)} bytes, the manifest speaks of {at}"
    znode, name = told["znode"], CursorName(**told["cursor"])
    return Recorded(
        shared["release"],
        story,
        name,
        shared["root"],
        shared["deployment"],
        znode["path"],
        znode["data"].encode(),
        tuple(ledgers),
        told["end"],
        told["epoch"],
        told["expected"],
        told.get("sent"),
    )


def _ledger(told: Json, entries: tuple[bytes, ...]) -> RecordedLedger:
    closed = told["state"] == "CLOSED"
    assert not closed or told["lastEntry"] == len(entries) - 1, (
        f"ledger {told['ledger']} is not complete"
    )
    spec = LedgerSpec(
        told["ensemble"], told["writeQuorum"], told["ackQuorum"], Digest[told["digest"]]
    )
    metadata = {key: value.encode() for key, value in told["customMetadata"].items()}
    return RecordedLedger(told["ledger"], closed, spec, metadata, entries)

"""docs/reference/data-format.md suffices: `java/reader`, which was written from it, finds of every
cursor what the daemon finds.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass

import pytest
from google_crc32c import value as crc32c

from cursorkeeper.core.footer import ChainLedger, EmptyBase
from cursorkeeper.core.positions import Position
from cursorkeeper.format.record import CRC_AT, HEADER
from daemon.tests.format import hostile
from daemon.tests.reader.cases import Case, Json, Stored, daemon_reading, difference, java_reading
from daemon.tests.reader.lived_cursors import lived_case
from daemon.tests.reader.make_vectors import GENERATION, NAME, OPEN, Cursor, case_of
from daemon.tests.reader.make_vectors import VECTORS as VECTORS_FILE
from daemon.tests.reader.random_cursors import random_case
from daemon.tests.releases.recorded import recordings

pytestmark = pytest.mark.jvm

SEEDS = range(400)
LIVES = range(60)
VECTORS = json.loads(VECTORS_FILE.read_text())


@dataclass(frozen=True)
class Read:
    """One cursor, read twice."""

    what: str
    case: Case
    ours: Json
    theirs: Json


@pytest.fixture(scope="module")
def reads() -> list[Read]:
    """One process of the other reader answers for all."""
    told = [(f"seed {seed}", random_case(seed)) for seed in SEEDS]
    told += [(f"life {seed}", lived_case(seed)) for seed in LIVES]
    told += [(f"vector {vector['what']}", case_of(vector)) for vector in VECTORS]
    told += [
        (f"{one.release} {one.story}", Case.of(one.name, one.footer, one.ledgers))
        for one in recordings()
    ]
    answers = java_reading([case for _, case in told])
    return [
        Read(what, case, daemon_reading(case), theirs)
        for (what, case), theirs in zip(told, answers, strict=True)
    ]


def test_random_cursors_and_what_earlier_releases_wrote_are_read_alike(reads: list[Read]) -> None:
    assert len(reads) >= len(SEEDS) + len(LIVES) + 30
    found = [
        f"{read.what} {read.case.faults}: {said}"
        for read in reads
        if (said := difference(read.case, read.ours, read.theirs))
    ]
    assert not found, f"{len(found)} of {len(reads)} differ:\n" + "\n".join(found[:5])


def test_the_vectors_are_read_as_they_say(reads: list[Read]) -> None:
    read_vectors = [read for read in reads if read.what.startswith("vector")]
    for vector, read in zip(VECTORS, read_vectors, strict=True):
        for told in (read.ours, read.theirs):
            assert {key: told.get(key) for key in told if key != "why"} == vector["expected"], (
                vector["what"]
            )


def test_the_random_cursors_reach_everything_that_a_reader_does(reads: list[Read]) -> None:
    """Or the test above would prove little."""
    found = [read.ours for read in reads if read.what.startswith("seed")]
    seen = Counter(
        told.get("refused") or ("fell back" if told.get("fellBack") else told["state"])
        for told in found
    )
    least = {
        "open": 100,
        "closed": 5,
        "deleted": 5,
        "fell back": 15,
        "damaged": 40,
        "too new": 10,
        "missing": 1,
        "replaced": 5,
    }
    assert all(seen[what] >= least[what] for what in least), seen
    assert sum(any(item[1] == "trimmed" for item in told.get("layout", ())) for told in found) >= 10
    assert sum(bool(told.get("batches")) for told in found) >= 50


BEGIN = Position(0, -1)
RUNS_KEPT = {"acks that make bits of runs", "runs of one", "long runs", "a long array of runs"}
"""The other reader keeps runs, and counts them: what has a million of them is more than it
takes.
"""


def hostile_cases() -> dict[str, Case]:
    """Right checksums, and far more than they are."""
    found = {}
    for what, make in hostile.VECTORS.items():
        cursor = (
            Cursor(base=EmptyBase(BEGIN)).ledger(OPEN, *map(ours, make())).footer(mark_delete=BEGIN)
        )
        found[what] = cursor.case
        # Segments are read where a snapshot lists them. Of 70,000 full ledgers the words alone
        # would take minutes.
        if what.startswith("slices") and "all acked" not in what:
            segments = [ours(entry) for entry in make()]
            end = len(segments) + 1
            listed = Cursor().snapshot(OPEN, *segments, None, listed=range(1, end), at=end)
            found[f"{what}, in a snapshot"] = listed.footer(mark_delete=BEGIN).case
    words = hostile.number(8, 5, 0x12, 2_000_000) + b"\x55" * 2_000_000
    found["a long array of runs"] = whole_state(
        bytes.fromhex("08051001") + hostile.number(0x32, len(words)) + words
    )
    return found


def whole_state(entry: bytes, **metadata: str) -> Case:
    told = {
        "cursor": NAME.canonical,
        "format": "pulsar",
        "epoch": "6",
        "generation": "2",
        "entry-bytes-max": "5000000",
        **metadata,
    }
    cursor = Cursor(ledgers={100: Stored((entry,), told)})
    cursor.chain = [ChainLedger(100, 0, "pulsar")]
    return cursor.case


def ours(entry: bytes) -> bytes:
    """The same record, as one of this cursor and its generation."""
    body, codec = entry[HEADER.size :], entry[4]
    head = HEADER.pack(
        b"CK",
        1,
        entry[3],
        codec,
        NAME.record_hash,
        1,
        GENERATION,
        1,
        int.from_bytes(entry[32:36], "little"),
        0,
    )
    return head[:CRC_AT] + crc32c(head + body).to_bytes(4, "little") + body


def test_what_asks_for_more_memory_than_there_is_is_refused_by_name() -> None:
    cases = hostile_cases()
    # as many bytes of zlib could become as much
    announced = (2**31 - 1).to_bytes(4, "big") + bytes(2_200_000)
    answers = java_reading(
        [*cases.values(), whole_state(announced, **{"pulsar/cursor-compressionType": "ZLIB"})]
    )
    assert answers.pop()["refused"] == "too large"
    for (what, case), theirs in zip(cases.items(), answers, strict=True):
        if what in RUNS_KEPT:
            assert theirs["refused"] == "too large", what
        else:
            assert difference(case, daemon_reading(case), theirs) == "", what
    assert sum(told.get("refused") == "too large" for told in answers) >= len(RUNS_KEPT) + 4

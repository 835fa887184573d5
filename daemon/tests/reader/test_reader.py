"""DATA_FORMAT.md suffices: `java/reader`, which was written from it, finds of every cursor what the daemon finds."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass

import pytest

from daemon.tests.reader.cases import Case, Json, daemon_reading, difference, java_reading
from daemon.tests.reader.lived_cursors import lived_case
from daemon.tests.reader.make_vectors import VECTORS as VECTORS_FILE
from daemon.tests.reader.make_vectors import case_of
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
    told += [(f"{one.release} {one.story}", Case.of(one.name, one.footer, one.ledgers)) for one in recordings()]
    answers = java_reading([case for _, case in told])
    return [Read(what, case, daemon_reading(case), theirs) for (what, case), theirs in zip(told, answers, strict=True)]


def test_random_cursors_and_what_earlier_releases_wrote_are_read_alike(reads: list[Read]) -> None:
    assert len(reads) >= len(SEEDS) + len(LIVES) + 30
    found = [f"{read.what} {read.case.faults}: {said}" for read in reads if (said := difference(read.case, read.ours, read.theirs))]
    assert not found, f"{len(found)} of {len(reads)} differ:\n" + "\n".join(found[:5])


def test_the_vectors_are_read_as_they_say(reads: list[Read]) -> None:
    read_vectors = [read for read in reads if read.what.startswith("vector")]
    for vector, read in zip(VECTORS, read_vectors, strict=True):
        for told in (read.ours, read.theirs):
            assert {key: told.get(key) for key in told if key != "why"} == vector["expected"], vector["what"]


def test_the_random_cursors_reach_everything_that_a_reader_does(reads: list[Read]) -> None:
    """Or the test above would prove little."""
    found = [read.ours for read in reads if read.what.startswith("seed")]
    seen = Counter(told.get("refused") or ("fell back" if told.get("fellBack") else told["state"]) for told in found)
    least = {"open": 100, "closed": 5, "deleted": 5, "fell back": 15, "damaged": 40, "too new": 10, "missing": 1, "replaced": 5}
    assert all(seen[what] >= least[what] for what in least), seen
    assert sum(any(item[1] == "trimmed" for item in told.get("layout", ())) for told in found) >= 10
    assert sum(bool(told.get("batches")) for told in found) >= 50

"""What a release before may meet: it refuses by name what only a later one reads, and never takes
that for damage.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from cursorkeeper.core.names import CursorName
from cursorkeeper.core.values import Record, Segment, Slice
from cursorkeeper.format import record
from daemon.tests.format.test_snapshot import scattered

SOURCES = Path(__file__).parents[3] / "testdata" / "releases" / "cursorkeeper-0.1.0-sources.tar.xz"
NAME = CursorName("persistent://public/default/orders", "billing")
READ = """
import sys
from cursorkeeper.core.errors import TooNewError
from cursorkeeper.format import record, replay
entry = bytes.fromhex(sys.stdin.read())
for read in (record.decode, lambda entry, of: replay.split_bodies([entry], of)):
    try:
        read(entry, int(sys.argv[1]))
        print("read")
    except TooNewError as error:
        print(error.message)
"""


@pytest.fixture(scope="module")
def older(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the package of 0.1.0 is."""
    folder = tmp_path_factory.mktemp("sources")
    with tarfile.open(SOURCES) as archive:
        archive.extractall(folder, filter="data")
    return folder / "cursorkeeper-0.1.0" / "daemon"


@pytest.mark.parametrize(
    ("version", "said"),
    [(1, "read"), (2, "a record of version 2, this program reads up to 1: upgrade it first")],
)
def test_release_0_1_0_on_a_segment(older: Path, version: int, said: str) -> None:
    segment = Segment(slices=(Slice(812, 0, 99_999, True, scattered(0.01, 100_000)),))
    settings = record.EncodeSettings(record_version=version)
    entry = record.encode(Record(NAME.record_hash, 1, 1, 1, segment), settings)
    assert record.peek(entry).version == version
    told = subprocess.run(
        [sys.executable, "-c", READ, str(NAME.record_hash)],
        input=entry.hex(),
        env={**os.environ, "PYTHONPATH": str(older)},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert told.stdout.splitlines() == [said] * 2

"""Certificates of a demo, by the command that makes them: once a year, for whom it was said."""

from __future__ import annotations

import ssl
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from cursorkeeper.demo.certificates import DAY, good_until, make

MAX_S = 60
NAMES = ("daemon", "source")


def made(*words: str) -> None:
    command = [sys.executable, "-m", "cursorkeeper.demo.certificates", *words]
    subprocess.run(command, check=True, timeout=MAX_S)


def contents(folder: Path) -> dict[str, bytes]:
    files = (file for file in folder.rglob("*") if file.is_file())
    return {str(file.relative_to(folder)): file.read_bytes() for file in files}


def are_good(folder: Path) -> None:
    """For most of a year, and for each other."""
    until = good_until(folder, NAMES)
    assert until is not None and until > datetime.now(UTC) + timedelta(days=364)
    for name in NAMES:
        own = folder / name
        context = ssl.create_default_context(cafile=own / "authority.pem")
        context.load_cert_chain(own / f"{name}.pem", own / f"{name}-key.pem")


@pytest.mark.parametrize(("flags", "others"), [((), 0), (("--readable",), 0o044)])
def test_they_are_made_once_and_can_be_used(
    flags: tuple[str, ...], others: int, tmp_path: Path
) -> None:
    made(*flags, str(tmp_path), *NAMES)
    files = contents(tmp_path)
    assert set(files) == {"authority/authority.pem"} | {
        f"{name}/{file}.pem" for name in NAMES for file in ("authority", name, f"{name}-key")
    }, "nobody has another's key, and nobody the authority's"
    for file in files:
        assert (tmp_path / file).stat().st_mode & 0o077 == others
    are_good(tmp_path)
    made(*flags, str(tmp_path), *NAMES)
    assert contents(tmp_path) == files


@pytest.mark.parametrize("left", [-DAY / 2, 29 * DAY])
def test_what_has_ended_or_ends_soon_is_made_anew(left: timedelta, tmp_path: Path) -> None:
    make(tmp_path, NAMES, ends=left)
    before = contents(tmp_path)
    made(str(tmp_path), *NAMES)
    after = contents(tmp_path)
    assert set(after) == set(before)
    assert not [file for file in after if after[file] == before[file]]
    are_good(tmp_path)


def test_what_ends_later_stays(tmp_path: Path) -> None:
    make(tmp_path, NAMES, ends=31 * DAY)
    before = contents(tmp_path)
    made(str(tmp_path), *NAMES)
    assert contents(tmp_path) == before


@pytest.mark.parametrize(
    "harm",
    [
        lambda folder, other: (folder / "source/source-key.pem").unlink(),
        lambda folder, other: (folder / "daemon/daemon.pem").write_text("-----"),
        lambda folder, other: (other / "daemon/daemon-key.pem").rename(
            folder / "daemon/daemon-key.pem"
        ),
        lambda folder, other: (other / "daemon/authority.pem").rename(
            folder / "daemon/authority.pem"
        ),
        lambda folder, other: (other / "authority/authority.pem").rename(
            folder / "authority/authority.pem"
        ),
    ],
)
def test_what_a_run_left_half_done_is_made_anew(
    harm: Callable[[Path, Path], object], tmp_path: Path
) -> None:
    folder, other = tmp_path / "one", tmp_path / "other"
    for each in (folder, other):
        each.mkdir()
        make(each, NAMES)
    harm(folder, other)
    assert good_until(folder, NAMES) is None
    made(str(folder), *NAMES)
    are_good(folder)

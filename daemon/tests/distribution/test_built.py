"""What wheel and sdist hold, that the same sources make the same bytes, and that none is built
without the jar unasked.
"""

from __future__ import annotations

import os
import re
import subprocess
import tarfile
import time
from collections import Counter
from email.parser import Parser
from pathlib import Path
from zipfile import ZipFile

import pytest

from daemon.tests.distribution.build import (
    JAR,
    JAR_IN_DISTRIBUTION,
    PACKAGES,
    ROOT,
    VERSION,
    build,
    built,
    project,
    unpacked,
)

pytestmark = [pytest.mark.jvm, pytest.mark.slow]  # the jar must have been built
MESSAGE_CODE = {
    "clients": {
        f"cursorkeeper_client/_proto/acks{end}" for end in ("_pb2.py", "_pb2.pyi", "_pb2_grpc.py")
    },
    "daemon": {
        f"cursorkeeper/bookkeeper/_proto/ledgers{end}"
        for end in ("_pb2.py", "_pb2.pyi", "_pb2_grpc.py")
    },
    "pipeline": set[str](),
}


def tracked(folder: str) -> set[str]:
    """What the repository holds of a distribution's packages."""
    names = [f"{folder}/{package}" for package in PACKAGES[folder]]
    out = subprocess.run(
        ["git", "ls-files", "-z", "--", *names], cwd=ROOT, capture_output=True, check=True
    ).stdout
    return {
        name.removeprefix(f"{folder}/")
        for name in out.decode().split("\0")
        if name and (ROOT / name).is_file()
    }


@pytest.mark.parametrize("folder", PACKAGES)
def test_a_wheel_holds_its_packages_whole_the_daemons_the_jar_once_and_nothing_else(
    folder: str, wheels: dict[str, Path]
) -> None:
    info = f"{project(folder)['name'].replace('-', '_')}-{VERSION}.dist-info"
    with ZipFile(wheels[folder]) as archive:
        names = archive.namelist()
        if folder == "daemon":
            assert archive.read(JAR_IN_DISTRIBUTION) == (ROOT / JAR).read_bytes()
    assert max(Counter(names).values()) == 1
    jar = {JAR_IN_DISTRIBUTION} if folder == "daemon" else set()
    assert {name for name in names if not name.startswith(f"{info}/")} == tracked(
        folder
    ) | MESSAGE_CODE[folder] | jar
    assert {f"{package}/py.typed" for package in PACKAGES[folder]} <= set(names)
    assert not [
        name for name in names if "test" in name.lower() and not name.startswith(f"{info}/")
    ]
    assert f"{info}/licenses/LICENSE" in names


@pytest.mark.parametrize("folder", PACKAGES)
def test_its_metadata_says_what_it_is_and_names_no_place(
    folder: str, wheels: dict[str, Path]
) -> None:
    said = project(folder)
    with ZipFile(wheels[folder]) as archive:
        info = next(name.partition("/")[0] for name in archive.namelist() if ".dist-info/" in name)
        metadata = Parser().parsestr(archive.read(f"{info}/METADATA").decode())
        scripts = (
            archive.read(f"{info}/entry_points.txt").decode().split() if folder == "daemon" else []
        )
        assert "Tag: py3-none-any" in archive.read(f"{info}/WHEEL").decode()
        here = b"|".join(re.escape(str(p).encode()) for p in (ROOT, Path.home()))
        places = re.compile(rb"(?:" + here + rb")\b|https?://[^ \")]+/simple")
        assert not [
            name
            for name in archive.namelist()
            if not name.endswith(".jar") and places.search(archive.read(name))
        ]
    assert scripts == (
        ["[console_scripts]", "cursorkeeper", "=", "cursorkeeper.cli.main:main"]
        if folder == "daemon"
        else []
    )
    assert (metadata["Name"], metadata["Version"], metadata["License-Expression"]) == (
        said["name"],
        VERSION,
        "Apache-2.0",
    )
    assert (
        metadata["Requires-Python"] == said["requires-python"]
        and metadata["License-File"] == "LICENSE"
    )
    wanted = {name for name in metadata.get_all("Requires-Dist", []) if "extra ==" not in name}
    assert len(wanted) == len(said["dependencies"])
    assert "# CursorKeeper" in metadata.get_payload()


@pytest.mark.parametrize("folder", ["clients", "daemon"])
def test_the_libraries_it_asks_for_are_new_enough_for_the_message_code(
    folder: str, wheels: dict[str, Path]
) -> None:
    """Generated code refuses to be imported beside an older grpc or protobuf than its
    generator's.
    """
    asked = (
        dependency.split(">=")
        for dependency in project(folder)["dependencies"]
        if ">=" in dependency and ",<" not in dependency
    )
    floors = {name: _version(floor) for name, floor in asked}
    with ZipFile(wheels[folder]) as archive:
        code = "".join(archive.read(name).decode() for name in sorted(MESSAGE_CODE[folder]))
    for library, said in (
        ("grpcio", r"GRPC_GENERATED_VERSION = '([\d.]+)'"),
        ("protobuf", r"Protobuf Python Version: ([\d.]+)"),
    ):
        made = re.search(said, code)
        assert made is not None and _version(made[1]) <= floors[library]


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split("."))


@pytest.mark.parametrize("folder", PACKAGES)
def test_an_sdist_holds_its_packages_and_what_a_build_of_them_needs(
    folder: str, sdists: dict[str, Path]
) -> None:
    with tarfile.open(sdists[folder]) as archive:
        names = [member.name.partition("/")[2] for member in archive if member.isfile()]
    assert max(Counter(names).values()) == 1
    around = {"LICENSE", "PKG-INFO", "README.md", "pyproject.toml", ".gitignore"}
    around |= {"hatch_build.py"} if folder != "pipeline" else set()
    jar = {JAR_IN_DISTRIBUTION} if folder == "daemon" else set()
    assert set(names) == tracked(folder) | MESSAGE_CODE[folder] | around | jar


@pytest.mark.parametrize("folder", PACKAGES)
def test_the_same_sources_make_the_same_bytes(
    folder: str, sdists: dict[str, Path], wheels: dict[str, Path], tmp_path: Path
) -> None:
    """In two folders, with other times and rights; and so a wheel can be built from its sdist
    without Maven, and is the checkout's.
    """
    sources, other = (
        unpacked(sdists[folder], tmp_path / "one"),
        unpacked(sdists[folder], tmp_path / "other"),
    )
    for path in other.rglob("*.py"):
        os.utime(path, (time.time(), 1_000_000_000))
        path.chmod(0o600)
    made = [built(place, "wheel", place / "made") for place in (sources, other)]
    assert made[0].name == made[1].name == wheels[folder].name
    assert made[0].read_bytes() == made[1].read_bytes() == wheels[folder].read_bytes()
    assert (
        built(ROOT / folder, "sdist", tmp_path / "again").read_bytes()
        == sdists[folder].read_bytes()
    )

    dated = built(
        sources,
        "wheel",
        tmp_path / "dated",
        CURSORKEEPER_WHEEL_JAR="no",
        SOURCE_DATE_EPOCH="1700000000",
    )
    with ZipFile(dated) as archive:
        assert {member.date_time for member in archive.infolist()} == {
            time.gmtime(1_700_000_000)[:6]
        }


def test_without_the_jar_nothing_is_built_unless_it_was_asked_for(
    sdists: dict[str, Path], tmp_path: Path
) -> None:
    folder = unpacked(sdists["daemon"], tmp_path / "sources")
    (folder / JAR_IN_DISTRIBUTION).unlink()
    for target in ("wheel", "sdist"):
        done = build(folder, target, tmp_path / "none")
        assert (
            done.returncode != 0
            and f"{JAR_IN_DISTRIBUTION}: build it with `make jar`" in done.stdout + done.stderr
        )
    assert "use yes or no" in "".join(
        [
            (done := build(folder, "wheel", tmp_path / "none", CURSORKEEPER_WHEEL_JAR="0")).stdout,
            done.stderr,
        ]
    )
    assert not (tmp_path / "none").exists() or not list((tmp_path / "none").iterdir())
    whole = unpacked(sdists["daemon"], tmp_path / "whole")
    for number, (place, target, said) in enumerate(
        ((folder, "wheel", "no"), (folder, "wheel:editable", ""), (whole, "wheel", "no"))
    ):
        made = built(place, target, tmp_path / str(number), CURSORKEEPER_WHEEL_JAR=said)
        with ZipFile(made) as archive:
            assert not [name for name in archive.namelist() if name.endswith(".jar")]

"""What wheel and sdist hold, that the same sources make the same bytes, and that none is built without the jar unasked."""

from __future__ import annotations

import os
import re
import tarfile
import time
import tomllib
from collections import Counter
from email.parser import Parser
from pathlib import Path
from zipfile import ZipFile

import pytest

from daemon.tests.distribution.build import JAR, JAR_IN_WHEEL, ROOT, build, built, unpacked

pytestmark = [pytest.mark.jvm, pytest.mark.slow]  # the jar must have been built
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PACKAGES = {
    "cursorkeeper": ROOT / "daemon",
    "cursorkeeper_client": ROOT / "clients",
    "cursorkeeper_pipeline": ROOT / "pipeline",
    "pyspark_cursorkeeper": ROOT / "pipeline",
}
GENERATED = {f"{name}{end}" for name in ("acks", "ledgers") for end in ("_pb2.py", "_pb2.pyi", "_pb2_grpc.py")}
JUNK = re.compile(r"(^|/)(__pycache__|\.venv|\.git|\.build|\.\w+_cache|target|dist|build)/|\.pyc$|_pb2")


def test_the_wheel_holds_both_packages_whole_the_jar_once_and_nothing_else(wheel: Path) -> None:
    with ZipFile(wheel) as archive:
        names = archive.namelist()
        jar = archive.read(JAR_IN_WHEEL)
    info = f"cursorkeeper-{PROJECT['version']}.dist-info"
    assert {name.partition("/")[0] for name in names} == {*PACKAGES, info}
    assert max(Counter(names).values()) == 1
    assert [name for name in names if name.endswith(".jar")] == [JAR_IN_WHEEL] and jar == (ROOT / JAR).read_bytes()
    for package, folder in PACKAGES.items():
        sources = {str(path.relative_to(folder)) for path in (folder / package).rglob("*.py") if "_proto" not in path.parts}
        assert sources <= set(names) and sources
        assert f"{package}/py.typed" in names
    assert {name.rpartition("/")[2] for name in names if "/_proto/" in name} == GENERATED | {"__init__.py"}
    assert not [name for name in names if "test" in name.lower() and not name.startswith(f"{info}/")]
    assert f"{info}/licenses/LICENSE" in names


def test_its_metadata_says_what_it_is_and_names_no_place(wheel: Path) -> None:
    with ZipFile(wheel) as archive:
        info = next(name.partition("/")[0] for name in archive.namelist() if ".dist-info/" in name)
        metadata = Parser().parsestr(archive.read(f"{info}/METADATA").decode())
        assert archive.read(f"{info}/entry_points.txt").decode().split() == [
            "[console_scripts]",
            "cursorkeeper",
            "=",
            "cursorkeeper.cli.main:main",
        ]
        assert "Tag: py3-none-any" in archive.read(f"{info}/WHEEL").decode()
        here = b"|".join(re.escape(str(p).encode()) for p in (ROOT, Path.home()))
        places = re.compile(rb"(?:" + here + rb")\b|https?://[^ \")]+/simple")
        assert not [name for name in archive.namelist() if not name.endswith(".jar") and places.search(archive.read(name))]
    assert (metadata["Name"], metadata["Version"], metadata["License-Expression"]) == ("cursorkeeper", PROJECT["version"], "Apache-2.0")
    assert metadata["Requires-Python"] == PROJECT["requires-python"] and metadata["License-File"] == "LICENSE"
    wanted = {name for name in metadata.get_all("Requires-Dist", []) if "extra ==" not in name}
    assert len(wanted) == len(PROJECT["dependencies"])
    assert "# CursorKeeper" in metadata.get_payload()


def test_the_libraries_it_asks_for_are_new_enough_for_the_message_code(wheel: Path) -> None:
    """Generated code refuses to be imported beside an older grpc or protobuf than its generator's."""
    floors = {
        name: _version(floor)
        for name, floor in (dependency.split(">=") for dependency in PROJECT["dependencies"] if ",<" not in dependency)
    }
    with ZipFile(wheel) as archive:
        for name in ("acks", "ledgers"):
            code = archive.read(f"cursorkeeper_client/_proto/{name}_pb2_grpc.py").decode()
            made = re.search(r"GRPC_GENERATED_VERSION = '([\d.]+)'", code)
            assert made is not None and _version(made[1]) <= floors["grpcio"]
            made = re.search(r"Protobuf Python Version: ([\d.]+)", archive.read(f"cursorkeeper_client/_proto/{name}_pb2.py").decode())
            assert made is not None and _version(made[1]) <= floors["protobuf"]


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split("."))


def test_the_sdist_holds_the_checkout_and_the_jar(sdist: Path, tracked: set[str]) -> None:
    with tarfile.open(sdist) as archive:
        names = [member.name.partition("/")[2] for member in archive if member.isfile()]
    assert max(Counter(names).values()) == 1
    assert tracked <= set(names), "every tracked file"
    assert JAR in names and "PKG-INFO" in names
    assert not [name for name in names if JUNK.search(name) and name != JAR]


def test_the_same_sources_make_the_same_bytes(sdist: Path, tmp_path: Path) -> None:
    """In two folders, with other times and rights, the message code generated anew; and so a wheel can be built without Maven."""
    folder, other = unpacked(sdist, tmp_path / "one"), unpacked(sdist, tmp_path / "other")
    for path in other.rglob("*.py"):
        os.utime(path, (time.time(), 1_000_000_000))
        path.chmod(0o600)
    assert not (folder / "clients/cursorkeeper_client/_proto/acks_pb2.py").exists()
    made = [built(sources, "wheel", sources / "made") for sources in (folder, other)]
    assert made[0].name == made[1].name and made[0].read_bytes() == made[1].read_bytes()
    with ZipFile(made[0]) as archive:
        assert JAR_IN_WHEEL in archive.namelist()

    dated = built(folder, "wheel", tmp_path / "dated", CURSORKEEPER_WHEEL_JAR="no", SOURCE_DATE_EPOCH="1700000000")
    with ZipFile(dated) as archive:
        assert {member.date_time for member in archive.infolist()} == {time.gmtime(1_700_000_000)[:6]}


def test_without_the_jar_nothing_is_built_unless_it_was_asked_for(sdist: Path, tmp_path: Path) -> None:
    folder = unpacked(sdist, tmp_path / "sources")
    (folder / JAR).unlink()
    for target in ("wheel", "sdist"):
        done = build(folder, target, tmp_path / "none")
        assert done.returncode != 0 and f"{JAR}: build it with `make jar`" in done.stdout + done.stderr
    assert "use yes or no" in "".join([(done := build(folder, "wheel", tmp_path / "none", CURSORKEEPER_WHEEL_JAR="0")).stdout, done.stderr])
    assert not (tmp_path / "none").exists() or not list((tmp_path / "none").iterdir())
    for number, (target, said) in enumerate((("wheel", "no"), ("wheel:editable", ""))):
        made = built(folder, target, tmp_path / str(number), CURSORKEEPER_WHEEL_JAR=said)
        with ZipFile(made) as archive:
            assert not [name for name in archive.namelist() if name.endswith(".jar")]

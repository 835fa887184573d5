"""Building distributions as `make dist` does, each in a process of its own with an environment that says nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
JAR = "java/gateway/target/cursorkeeper-gateway.jar"
JAR_IN_WHEEL = "cursorkeeper/demo/stack/cursorkeeper-gateway.jar"
OURS = ("CURSORKEEPER_", "PYTHON", "SOURCE_DATE_EPOCH", "VIRTUAL_ENV")


def plain_environment(**more: str) -> dict[str, str]:
    """Of this process, without what would change a build or a program of ours."""
    return {name: value for name, value in os.environ.items() if not name.startswith(OURS)} | more


def build(folder: Path, target: str, into: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """hatchling, on the sources in `folder`. `target`: wheel, wheel:editable or sdist."""
    return subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", target, "-d", str(into)],
        cwd=folder, env=plain_environment(**environment), capture_output=True, text=True, timeout=400, check=False,
    )  # fmt: skip


def built(folder: Path, target: str, into: Path, **environment: str) -> Path:
    """The file."""
    done = build(folder, target, into, **environment)
    assert done.returncode == 0, done.stderr + done.stdout
    (made,) = into.iterdir()
    return made


def unpacked(sdist: Path, into: Path) -> Path:
    """The folder of an sdist's sources."""
    with tarfile.open(sdist) as archive:
        archive.extractall(into, filter="data")
    (folder,) = into.iterdir()
    return folder

"""Building distributions as `make dist` does, each in a process of its own with an environment that
says nothing else.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
JAR = "java/gateway/target/cursorkeeper-gateway.jar"
JAR_IN_DISTRIBUTION = "cursorkeeper/demo/stack/cursorkeeper-gateway.jar"
PACKAGES = {
    "clients": ("cursorkeeper_client",),
    "daemon": ("cursorkeeper",),
    "pipeline": ("cursorkeeper_pipeline", "pyspark_cursorkeeper"),
}
"""By the folder of a distribution."""
OURS = ("CURSORKEEPER_", "PYTHON", "SOURCE_DATE_EPOCH", "VIRTUAL_ENV")


def project(folder: str) -> dict[str, Any]:
    """What a distribution says of itself."""
    said: dict[str, Any] = tomllib.loads((ROOT / folder / "pyproject.toml").read_text())["project"]
    return said


VERSION = str(project("daemon")["version"])


def plain_environment(**more: str) -> dict[str, str]:
    """Of this process, without what would change a build or a program of ours."""
    return {name: value for name, value in os.environ.items() if not name.startswith(OURS)} | more


def build(
    folder: Path, target: str, into: Path, **environment: str
) -> subprocess.CompletedProcess[str]:
    """hatchling, on the sources in `folder`. `target`: wheel, wheel:editable or sdist."""
    return subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", target, "-d", str(into)],
        cwd=folder,
        env=plain_environment(**environment),
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )


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

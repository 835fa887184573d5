"""One wheel and one sdist of the checkout, for all tests of this folder."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from daemon.tests.distribution.build import ROOT, built


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(ROOT, "wheel", tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="session")
def tracked() -> set[str]:
    """What the repository holds, before the sdist is built."""
    out = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout
    return {name for name in out.decode().split("\0") if name and (ROOT / name).is_file()}


@pytest.fixture(scope="session")
def sdist(tmp_path_factory: pytest.TempPathFactory, tracked: set[str]) -> Path:
    return built(ROOT, "sdist", tmp_path_factory.mktemp("sdist"))

"""Wheels and sdists of the checkout, one of each distribution, for all tests of this folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from daemon.tests.distribution.build import PACKAGES, ROOT, built


@pytest.fixture(scope="session")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """By the distribution's folder."""
    return {
        folder: built(ROOT / folder, "wheel", tmp_path_factory.mktemp("wheel"))
        for folder in PACKAGES
    }


@pytest.fixture(scope="session")
def sdists(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """By the distribution's folder."""
    return {
        folder: built(ROOT / folder, "sdist", tmp_path_factory.mktemp("sdist"))
        for folder in PACKAGES
    }

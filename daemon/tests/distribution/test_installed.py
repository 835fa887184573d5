"""Wheel and sdist in an empty environment, in a folder of their own, as somebody has them who has never seen this repository.

One environment gets the libraries once, from the hashed lock; each distribution is then installed into it in its turn.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from daemon.tests.distribution.build import JAR_IN_WHEEL, ROOT, built, plain_environment

pytestmark = [pytest.mark.jvm, pytest.mark.slow]
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]


class Environment:
    """A venv that holds the locked libraries and, at a time, one distribution."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.elsewhere = folder / "venv", folder / "elsewhere"
        self.elsewhere.mkdir()
        self._holds: Path | None = None
        subprocess.run([sys.executable, "-m", "venv", str(self.folder)], check=True, timeout=400)
        self.run("pip", "install", "--quiet", "--no-compile", "--require-hashes", "-r", str(ROOT / "requirements.lock"))

    def run(self, program: str, *arguments: str, code: int = 0, **environment: str) -> str:
        """A program of it; its output, and its errors with it if it is pip. Fails unless it ends with `code`."""
        around = plain_environment(**{"COLUMNS": "200"} | environment)
        around["PATH"] = environment.get("PATH", os.pathsep.join([str(self.folder / "bin"), around["PATH"]]))
        done = subprocess.run(
            [str(self.folder / "bin" / program), *arguments],
            cwd=self.elsewhere, env=around, capture_output=True, text=True, timeout=600, check=False,
        )  # fmt: skip
        assert done.returncode == code, (done.returncode, done.stdout[-3000:], done.stderr[-3000:])
        return done.stdout if code == 0 else done.stdout + done.stderr

    def install(self, distribution: Path, *flags: str) -> None:
        """In place of what it holds."""
        if self._holds != distribution:
            self.run("pip", "uninstall", "--quiet", "--yes", "cursorkeeper")
            self.run("pip", "install", "--quiet", *flags, str(distribution))
            self._holds = distribution

    def python(self, code: str) -> str:
        """The output of a program in it."""
        return self.run("python", "-c", code).strip()


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    return Environment(tmp_path_factory.mktemp("installed"))


@pytest.fixture
def of_wheel(environment: Environment, wheel: Path) -> Environment:
    environment.install(wheel, "--no-deps")  # that the locked libraries are all it needs, `pip check` says
    return environment


def check_is_whole(environment: Environment) -> None:
    assert environment.run("cursorkeeper", "--version") == f"cursorkeeper {VERSION}\n"
    environment.run("pip", "check")
    where = "import cursorkeeper.app as a, cursorkeeper_client._proto.acks_pb2 as p; from cursorkeeper.demo.stack import find_jar"
    files = environment.python(f"{where}; print(a.__file__, p.__file__, find_jar())").split()
    assert all(file.startswith(f"{environment.folder}/") for file in files) and files[2].endswith(JAR_IN_WHEEL)


def test_the_demo_from_an_installed_wheel(of_wheel: Environment) -> None:
    check_is_whole(of_wheel)
    report = json.loads(of_wheel.run("cursorkeeper", "demo", "--entries", "1000000", "--json"))
    assert (report["confirmed_but_lost"], report["unacked_but_skipped"]) == (0, 0)
    assert report["confirmed"] == report["acked"] > 990_000 and len(report["kills"]) == 3
    assert list(of_wheel.elsewhere.iterdir()) == [], "it leaves nothing where it was called"


def test_the_demo_without_java_says_so_before_it_starts_anything(of_wheel: Environment) -> None:
    said = of_wheel.run("cursorkeeper", "demo", code=3, PATH=str(of_wheel.folder / "bin"))
    assert "there is no `java` on PATH" in said and "install a JDK" in " ".join(said.split())


def test_an_sdist_as_a_user_installs_it(environment: Environment, sdist: Path) -> None:
    """pip fetches what the build needs into an environment that it isolates, builds the wheel, and installs it."""
    environment.install(sdist)
    check_is_whole(environment)


def test_a_wheel_that_was_built_without_the_jar_says_which_one_has_it(environment: Environment, tmp_path: Path) -> None:
    environment.install(built(ROOT, "wheel", tmp_path / "plain", CURSORKEEPER_WHEEL_JAR="no"), "--no-deps")
    said = " ".join(environment.run("cursorkeeper", "demo", code=3).split())
    assert "install the wheel that brings it along, or name a jar in CURSORKEEPER_GATEWAY_JAR" in said
    assert environment.run("cursorkeeper", "--version") == f"cursorkeeper {VERSION}\n"

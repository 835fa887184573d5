"""Wheels and sdists in an empty environment, in a folder of their own, as somebody has them who has
never seen this repository.

One environment gets the daemon's libraries once, from the hashed lock; its distribution and its
client's are then installed into it in their turn, as wheels and as sdists. Another one has what the
client needs, and nothing else.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from daemon.tests.distribution.build import (
    JAR_IN_DISTRIBUTION,
    ROOT,
    VERSION,
    built,
    plain_environment,
)
from daemon.tests.stream.served import ServedKeeper
from daemon.tests.support import first_source

pytestmark = [pytest.mark.jvm, pytest.mark.slow]


class Environment:
    """A venv that holds a lock's libraries and, at a time, a set of distributions."""

    def __init__(self, folder: Path, lock: str) -> None:
        self.folder, self.elsewhere = folder / "venv", folder / "elsewhere"
        self.elsewhere.mkdir()
        self._holds: tuple[Path, ...] = ()
        subprocess.run([sys.executable, "-m", "venv", str(self.folder)], check=True, timeout=400)
        self.run(
            "pip", "install", "--quiet", "--no-compile", "--require-hashes", "-r", str(ROOT / lock)
        )

    def run(self, program: str, *arguments: str, code: int = 0, **environment: str) -> str:
        """A program of it; its output, and its errors with it if it is pip. Fails unless it ends
        with `code`.
        """
        around = plain_environment(**{"COLUMNS": "200"} | environment)
        around["PATH"] = environment.get(
            "PATH", os.pathsep.join([str(self.folder / "bin"), around["PATH"]])
        )
        done = subprocess.run(
            [str(self.folder / "bin" / program), *arguments],
            cwd=self.elsewhere,
            env=around,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        assert done.returncode == code, (done.returncode, done.stdout[-3000:], done.stderr[-3000:])
        return done.stdout if code == 0 else done.stdout + done.stderr

    def install(self, *distributions: Path, flags: tuple[str, ...] = ()) -> None:
        """In place of what it holds."""
        if self._holds != distributions:
            self.run("pip", "uninstall", "--quiet", "--yes", "cursorkeeper", "cursorkeeper-client")
            self.run("pip", "install", "--quiet", *flags, *map(str, distributions))
            self._holds = distributions

    def python(self, code: str) -> str:
        """The output of a program in it."""
        return self.run("python", "-c", code).strip()


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    return Environment(tmp_path_factory.mktemp("installed"), "requirements.lock")


@pytest.fixture
def of_wheel(environment: Environment, wheels: dict[str, Path]) -> Environment:
    # that the locked libraries are all it needs, `pip check` says
    environment.install(wheels["clients"], wheels["daemon"], flags=("--no-deps",))
    return environment


def check_is_whole(environment: Environment) -> None:
    assert environment.run("cursorkeeper", "--version") == f"cursorkeeper {VERSION}\n"
    environment.run("pip", "check")
    where = (
        "import cursorkeeper.app as a, cursorkeeper_client._proto.acks_pb2 as p; from "
        "cursorkeeper.demo.stack import find_jar"
    )
    files = environment.python(f"{where}; print(a.__file__, p.__file__, find_jar())").split()
    assert all(file.startswith(f"{environment.folder}/") for file in files) and files[2].endswith(
        JAR_IN_DISTRIBUTION
    )


def test_the_demo_from_an_installed_wheel(of_wheel: Environment) -> None:
    check_is_whole(of_wheel)
    report = json.loads(of_wheel.run("cursorkeeper", "demo", "--entries", "1000000", "--json"))
    assert (report["confirmed_but_lost"], report["unacked_but_skipped"]) == (0, 0)
    assert report["confirmed"] == report["acked"] > 990_000 and len(report["kills"]) == 3
    assert list(of_wheel.elsewhere.iterdir()) == [], "it leaves nothing where it was called"


def test_the_demo_without_java_says_so_before_it_starts_anything(of_wheel: Environment) -> None:
    said = of_wheel.run("cursorkeeper", "demo", code=3, PATH=str(of_wheel.folder / "bin"))
    assert "there is no `java` on PATH" in said and "install a JDK" in " ".join(said.split())


def test_sdists_as_a_user_installs_them(environment: Environment, sdists: dict[str, Path]) -> None:
    """pip fetches what the build needs into environments that it isolates, builds the wheels, and
    installs them.
    """
    environment.install(sdists["clients"], sdists["daemon"])
    check_is_whole(environment)


def test_a_wheel_that_was_built_without_the_jar_says_which_has_it(
    environment: Environment, wheels: dict[str, Path], tmp_path: Path
) -> None:
    plain = built(ROOT / "daemon", "wheel", tmp_path / "plain", CURSORKEEPER_WHEEL_JAR="no")
    environment.install(wheels["clients"], plain, flags=("--no-deps",))
    said = " ".join(environment.run("cursorkeeper", "demo", code=3).split())
    assert (
        "install the wheel that brings it along, or name a jar in CURSORKEEPER_GATEWAY_JAR" in said
    )
    assert environment.run("cursorkeeper", "--version") == f"cursorkeeper {VERSION}\n"


def test_without_the_third_distribution_the_pipeline_says_which_it_is(
    of_wheel: Environment,
) -> None:
    said = " ".join(of_wheel.run("cursorkeeper", "pipeline", "report", code=2).split())
    assert (
        f"pip install cursorkeeper_spark-{VERSION}-py3-none-any.whl" in said
        and "Traceback" not in said
    )


EVERY_MODULE = """
import importlib, pkgutil, sys
import cursorkeeper_client
for module in pkgutil.walk_packages(cursorkeeper_client.__path__, "cursorkeeper_client."):
    importlib.import_module(module.name)
loaded = {name.partition(".")[0] for name in sys.modules}
print(cursorkeeper_client.__file__, *sorted(loaded - set(sys.stdlib_module_names)))
"""


async def test_a_source_in_python_needs_the_client_alone(
    wheels: dict[str, Path], tmp_path: Path
) -> None:
    """All of it is imported, and the program of "Your first source" says what the page says;
    nothing of the daemon or of its libraries is there.
    """
    environment = Environment(tmp_path, "requirements-client.lock")
    environment.install(wheels["clients"], flags=("--no-deps",))
    environment.run("pip", "check")
    file, *loaded = environment.python(EVERY_MODULE).split()
    assert file.startswith(f"{environment.folder}/") and {"grpc", "numpy", "pyroaring"} <= set(
        loaded
    )
    for program in ("import cursorkeeper", "import typer", "import rich"):
        assert "ModuleNotFoundError" in environment.run("python", "-c", program, code=1)
    keeper = await ServedKeeper().start()
    try:
        for said in first_source.outputs():
            ran = await asyncio.to_thread(
                environment.run, "python", "-c", first_source.program(), keeper.address
            )
            assert ran == said
    finally:
        await keeper.kill()

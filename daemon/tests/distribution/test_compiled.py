"""Machine code of `core` and `format` is used for exactly the source that it was made of."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from cursorkeeper import compiled
from tools import compile_core

WHERE = "import cursorkeeper.core.state as s, cursorkeeper.core.limits as l; print(s.__file__)"


def run(code: str, package: Path = compiled.HERE.parent, **environment: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(package), **environment},
        capture_output=True,
        text=True,
        timeout=60,
    )
    return done.returncode, (done.stdout + done.stderr).strip()


def test_the_source_runs_where_it_is_wanted() -> None:
    assert run(WHERE, CURSORKEEPER_COMPILED="no") == (0, str(compiled.HERE / "core/state.py"))


def test_a_variable_that_says_neither_is_refused() -> None:
    code, said = run(WHERE, CURSORKEEPER_COMPILED="maybe")
    assert code == 1 and said == "CURSORKEEPER_COMPILED = 'maybe': use yes or no"


@pytest.mark.skipif(not compiled.IS_COMPILED, reason="make compiled was not run, or cannot")
def test_a_source_that_has_changed_runs_as_it_is(tmp_path: Path) -> None:
    copied = tmp_path / "cursorkeeper"
    shutil.copytree(compiled.HERE, copied, ignore=shutil.ignore_patterns("__pycache__"))
    code, said = run(WHERE, tmp_path)
    assert code == 0 and said.startswith(str(copied / "_compiled/core/state."))
    with (copied / "core/limits.py").open("a") as file:
        file.write("# changed\n")
    assert run(WHERE, tmp_path) == (0, str(copied / "core/state.py"))


def test_a_translated_source_has_the_same_lines() -> None:
    """Tracebacks name lines."""
    found = 0
    for package in compiled.PACKAGES:
        for path in (compiled.HERE / package).glob("*.py"):
            text = path.read_text()
            lines = text.rstrip("\n").split("\n")
            copied = compile_core.translated(text).split("\n")
            for line, translated in zip(lines, copied, strict=False):
                found += line != translated
                assert line == translated or line.startswith(("@", "from __future__")), line
    assert found


def test_what_is_not_translated_is_there() -> None:
    for name in compile_core.AS_IT_IS:
        assert (compiled.HERE / name).is_file(), name

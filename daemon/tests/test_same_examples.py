"""Every test is given the same chances everywhere: the examples of properties do not depend on what
else was imported, or on the hour.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROPERTY = """
import os
from hypothesis import given, strategies as st

@given(st.lists(st.integers(0, 1 << 40), max_size=8))
def test_it(numbers: list[int]) -> None:
    with open(os.environ["SAID"], "a") as said:
        print(numbers, file=said)
"""


def examples(folder: Path, *imports: str) -> str:
    folder.mkdir()
    (folder / "test_property.py").write_text(
        "".join(f"import {name}\n" for name in imports) + PROPERTY
    )
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "--rootdir",
        str(folder),
        "-c",
        os.devnull,
    ]
    subprocess.run(
        [*command, "-p", "conftest", str(folder)],
        cwd=folder,
        env={
            **os.environ,
            "PYTHONPATH": f"{ROOT}:{ROOT}/clients:{ROOT}/daemon",
            "PYTEST_ADDOPTS": "",
            "SAID": str(folder / "said"),
        },
        check=True,
        capture_output=True,
        timeout=300,
    )
    return (folder / "said").read_text()


@pytest.mark.slow
def test_a_property_is_checked_with_the_same_examples_whatever_was_imported(tmp_path: Path) -> None:
    few = examples(tmp_path / "few")
    assert few.count("\n") > 50
    assert examples(tmp_path / "many", "cursorkeeper.settings", "cursorkeeper.core.machine") == few

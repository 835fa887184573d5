"""Where the jar is looked for, and which Java will do: folders as a checkout and as site-packages
have them, scripts in Java's place.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from cursorkeeper.demo.stack import StackError, check_java, find_jar
from cursorkeeper.demo.stack.jar import (
    JAR_IN_REPOSITORY,
    JAR_NAME,
    JAR_VARIABLE,
    SOURCES_IN_REPOSITORY,
)


def touched(file: Path) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.touch()
    return file


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """The module's place in a checkout; its jar is not built yet."""
    touched(tmp_path / "checkout" / SOURCES_IN_REPOSITORY)
    return touched(tmp_path / "checkout/daemon/cursorkeeper/demo/stack/jar.py")


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """The module's place in site-packages, without a jar beside it."""
    return touched(tmp_path / "venv/lib/python3.11/site-packages/cursorkeeper/demo/stack/jar.py")


def test_a_checkout_has_its_own(checkout: Path) -> None:
    touched(checkout.parent / JAR_NAME)  # nothing puts one there; it would not count
    with pytest.raises(StackError, match="make jar"):
        find_jar({}, checkout)
    jar = touched(checkout.parents[4] / JAR_IN_REPOSITORY)
    assert find_jar({}, checkout) == jar


def test_a_wheel_brings_it_along_or_says_which_does(installed: Path) -> None:
    with pytest.raises(
        StackError,
        match=rf"CURSORKEEPER_WHEEL_JAR=no.*install the wheel that brings it along.*{JAR_VARIABLE}",
    ):
        find_jar({}, installed)
    jar = touched(installed.parent / JAR_NAME)
    assert find_jar({}, installed) == jar


def test_a_named_one_comes_first_and_must_be_there(
    checkout: Path, installed: Path, tmp_path: Path
) -> None:
    touched(checkout.parents[4] / JAR_IN_REPOSITORY)
    touched(installed.parent / JAR_NAME)
    named = tmp_path / "other.jar"
    for here in (checkout, installed):
        with pytest.raises(StackError, match=rf"{named}. What to do: {JAR_VARIABLE} names it"):
            find_jar({JAR_VARIABLE: str(named)}, here)
        assert find_jar({JAR_VARIABLE: ""}, here).name == JAR_NAME
    touched(named)
    assert (
        find_jar({JAR_VARIABLE: str(named)}, checkout)
        == find_jar({JAR_VARIABLE: str(named)}, installed)
        == named
    )


def test_the_environment_counts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(JAR_VARIABLE, str(touched(tmp_path / "named.jar")))
    assert find_jar() == tmp_path / "named.jar"


def java(folder: Path, said: str, status: int = 0) -> str:
    """A `java` that says its version as some vendor's does."""
    script = folder / "java"
    script.write_text(
        f"#!{sys.executable}\nimport sys\nsys.stderr.write({said!r})\nsys.exit({status})\n"
    )
    script.chmod(0o755)
    return str(script)


@pytest.mark.parametrize(
    ("said", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15\nOpenJDK Runtime Environment', 17),
        ('Picked up JAVA_TOOL_OPTIONS: -Xmx1g\nopenjdk version "21" 2023-09-19', 21),
        ('java version "25-ea" 2025-09-16', 25),
    ],
)
def test_a_java_that_will_do(tmp_path: Path, said: str, version: int) -> None:
    assert check_java(java(tmp_path, said)) == version


@pytest.mark.parametrize(
    ("said", "status", "found"),
    [
        ('openjdk version "11.0.22" 2024-01-16', 0, "is Java 11, and the gateway needs 17"),
        ('java version "1.8.0_402"', 0, "is Java 8, and the gateway needs 17"),
        ("Unable to locate a Java Runtime.", 1, "ended with status 1 and said 'Unable to locate"),
        ('openjdk version "17.0.15"\nError: could not create the JVM', 1, "ended with status 1"),
        ("what?", 0, "said 'what"),
    ],
)
def test_a_java_that_will_not(tmp_path: Path, said: str, status: int, found: str) -> None:
    with pytest.raises(
        StackError, match="What to do: install a JDK or a JRE of version 17"
    ) as caught:
        check_java(java(tmp_path, said, status))
    assert found in str(caught.value)


def test_no_java_at_all(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(StackError, match="there is no `java` on PATH"):
        check_java()
    (tmp_path / "java").write_text("#!/no/such/interpreter\n")
    (tmp_path / "java").chmod(0o755)
    with pytest.raises(StackError, match="cannot be run"):
        check_java()

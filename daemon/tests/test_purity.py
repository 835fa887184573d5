"""What decides is pure: `core`, `format` and `pulsar_broker` never wait, look at a clock, throw dice, log or talk to anything."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "cursorkeeper"
FORBIDDEN = {
    "asyncio", "time", "datetime", "random", "secrets", "uuid", "logging", "structlog", "os", "socket", "subprocess", "grpc",
    "aiozk", "concurrent", "prometheus_client", "tempfile", "shutil", "io", "urllib.request", "http",
}  # fmt: skip
FORBIDDEN_HERE = {f"cursorkeeper.{name}" for name in ("runtime", "cli", "telemetry", "bookkeeper", "zookeeper")} | {"cursorkeeper_client"}
FILES = sorted(path for part in ("core", "format", "pulsar_broker") for path in (PACKAGE / part).rglob("*.py"))


def impurities(source: str) -> Iterator[str]:
    """What a pure file must not hold, each with its line."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)]
        elif isinstance(node, (ast.AsyncFunctionDef, ast.AsyncFor, ast.AsyncWith, ast.Await)):
            yield f"line {node.lineno}: {type(node).__name__}"
            continue
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in {"open", "print", "input", "__import__"}:
            yield f"line {node.lineno}: {node.func.id}()"
            continue
        else:
            continue
        for name in names:
            parts = name.split(".")
            roots = {".".join(parts[:n]) for n in range(1, len(parts) + 1)}
            if roots & (FORBIDDEN | FORBIDDEN_HERE):
                yield f"line {node.lineno}: import of {name}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_the_file_is_pure(path: Path) -> None:
    assert list(impurities(path.read_text())) == []


def test_core_does_not_know_format() -> None:
    for path in (PACKAGE / "core").rglob("*.py"):
        assert "cursorkeeper.format" not in path.read_text(), path.name


def test_all_folders_were_found() -> None:
    assert {path.parent.name for path in FILES} == {"core", "format", "pulsar", "pulsar_broker"}
    assert len(FILES) > 20


@pytest.mark.parametrize(
    "source",
    [
        "import asyncio", "import os.path", "from time import monotonic", "def f():\n    import random", "async def f(): ...",
        "import numpy, grpc.aio", "from urllib.request import urlopen", "from urllib import request", "open('x')",
        "from cursorkeeper.runtime import x", "from cursorkeeper import cli",
    ],
)  # fmt: skip
def test_impure_code_is_caught(source: str) -> None:
    assert len(set(impurities(source))) >= 1


def test_pure_code_is_not() -> None:
    assert list(impurities("import timeit\nfrom urllib.parse import quote\nimport numpy.random_state\n")) == []

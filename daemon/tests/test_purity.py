"""What decides is pure: `core`, `format` and `pulsar_broker` never wait, look at a clock, throw
dice, log or talk to anything.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "cursorkeeper"
FORBIDDEN = {
    "asyncio",
    "time",
    "datetime",
    "random",
    "secrets",
    "uuid",
    "logging",
    "structlog",
    "os",
    "socket",
    "subprocess",
    "grpc",
    "concurrent",
    "prometheus_client",
    "tempfile",
    "shutil",
    "io",
    "urllib.request",
    "http",
}
FORBIDDEN_HERE = {
    f"cursorkeeper.{name}" for name in ("runtime", "cli", "telemetry", "bookkeeper", "zookeeper")
} | {"cursorkeeper_client"}
COMPONENTS = (
    "turn",
    "life",
    "handles",
    "questions",
    "ownership",
    "claim",
    "flow",
    "writer",
    "form",
    "snapshots",
    "ledgers",
    "flush",
    "evidence",
    "pause",
    "proof",
    "intake",
    "ending",
)
FILES = sorted(
    path for part in ("core", "format", "pulsar_broker") for path in (PACKAGE / part).rglob("*.py")
)


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
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in {"open", "print", "input", "__import__"}
        ):
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


def assigned(node: ast.AST) -> list[ast.Attribute]:
    """The attributes that a statement assigns."""
    if isinstance(node, ast.Assign):
        targets = node.targets
    elif isinstance(node, (ast.AugAssign, ast.AnnAssign)):
        targets = [node.target]
    else:
        return []
    each = [
        x
        for target in targets
        for x in (target.elts if isinstance(target, ast.Tuple) else [target])
    ]
    return [target for target in each if isinstance(target, ast.Attribute)]


def is_own(target: ast.Attribute) -> bool:
    return isinstance(target.value, ast.Name) and target.value.id == "self"


def fields_of(tree: ast.Module) -> set[str]:
    """The fields of a file's classes."""
    bodies = [node.body for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    declared = {
        one.target.id
        for body in bodies
        for one in body
        if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name)
    }
    return declared | {
        target.attr for node in ast.walk(tree) for target in assigned(node) if is_own(target)
    }


def foreign_writes(source: str) -> list[str]:
    """Fields of somebody else that are assigned in a file."""
    tree = ast.parse(source)
    own = fields_of(tree)
    found = [
        target
        for node in ast.walk(tree)
        for target in assigned(node)
        if not is_own(target) and target.attr not in own
    ]
    return [ast.unparse(target) for target in found]


@pytest.mark.parametrize(
    "path", [f for f in FILES if f.parent.name == "core"], ids=lambda path: path.name
)
def test_a_field_has_one_writer(path: Path) -> None:
    """A part of a cursor changes its own fields; what others want of it are its methods. Counters
    are everybody's.
    """
    assert [write for write in foreign_writes(path.read_text()) if "counters." not in write] == []


def test_another_writer_is_caught() -> None:
    source = "self.other.x = 1\nmine.y += 1\nself.z = 2\na.b, self.c = 1, 2\nother.c = 3"
    assert foreign_writes(source) == ["self.other.x", "mine.y", "a.b"]


def test_nobody_outside_reaches_into_a_machine() -> None:
    """Whoever holds a cursor's machine gives it events and asks it questions; what its parts are is
    its own.
    """
    parts = "|".join(COMPONENTS)
    reach = re.compile(rf"machine\.({parts})\b")
    found = [
        (path.name, line.strip())
        for path in PACKAGE.rglob("*.py")
        if path.parent.name != "core"
        for line in path.read_text().splitlines()
        if reach.search(line)
    ]
    assert found == []
    assert reach.search("runner.machine.flow.acks") and not reach.search("machine.statistics")


def test_core_does_not_know_format() -> None:
    for path in (PACKAGE / "core").rglob("*.py"):
        assert "cursorkeeper.format" not in path.read_text(), path.name


def test_all_folders_were_found() -> None:
    assert {path.parent.name for path in FILES} == {"core", "format", "pulsar", "pulsar_broker"}
    assert len(FILES) > 20


@pytest.mark.parametrize(
    "source",
    [
        "import asyncio",
        "import os.path",
        "from time import monotonic",
        "def f():\n    import random",
        "async def f(): ...",
        "import numpy, grpc.aio",
        "from urllib.request import urlopen",
        "from urllib import request",
        "open('x')",
        "from cursorkeeper.runtime import x",
        "from cursorkeeper import cli",
    ],
)
def test_impure_code_is_caught(source: str) -> None:
    assert len(set(impurities(source))) >= 1


def test_pure_code_is_not() -> None:
    assert (
        list(
            impurities("import timeit\nfrom urllib.parse import quote\nimport numpy.random_state\n")
        )
        == []
    )

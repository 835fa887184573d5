"""Machine code is used for exactly the source that it was made of."""

from __future__ import annotations

import ast
import dataclasses
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyroaring import BitMap

from cursorkeeper import compiled
from cursorkeeper.core.shape import component
from cursorkeeper.core.values import Partial
from cursorkeeper.format import codec
from tools import compile_core

WHERE = "import cursorkeeper.core.state as s, cursorkeeper.core.limits as l; print(s.__file__)"


def run(
    code: str,
    package: Path = compiled.HERE.parent,
    words: Sequence[str] = (),
    **environment: str,
) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-c", code, *words],
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
    assert code == 0 and said.startswith(str(copied / "_compiled" / compiled.digest() / "core"))
    with (copied / "core/limits.py").open("a") as file:
        file.write("# changed\n")
    assert run(WHERE, tmp_path) == (0, str(copied / "core/state.py"))


@pytest.mark.skipif(not compiled.IS_COMPILED, reason="make compiled was not run, or cannot")
def test_a_copy_that_was_cut_off_is_not_used(tmp_path: Path) -> None:
    copied = tmp_path / "cursorkeeper"
    shutil.copytree(compiled.HERE, copied, ignore=shutil.ignore_patterns("__pycache__"))
    (one, *_) = sorted((copied / "_compiled").rglob("machine*.so"))
    one.write_bytes(one.read_bytes()[:1000])
    assert run(WHERE, tmp_path) == (0, str(copied / "core/state.py"))


@pytest.mark.skipif(not compiled.IS_COMPILED, reason="make compiled was not run, or cannot")
def test_it_is_compiled_with_the_flags_of_the_interpreter() -> None:
    """Among them is that Python's own checks are left out, which end the process."""
    (library,) = (compiled.HERE / "_compiled").rglob("machine_code__mypyc*.so")
    assert b"PyInit" in library.read_bytes() and b"__assert_fail" not in library.read_bytes()


def test_machine_code_of_other_modules_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would be used for ever, with fewer modules than this release translates."""
    before = compiled.digest()
    monkeypatch.setitem(compiled.HOT, "stream", ("session",))
    assert compiled.digest() != before


def test_values_are_exchanged_with_who_runs_the_source() -> None:
    """As between a Spark driver and its workers."""
    value = "Partial(9, BitMap([3]))"
    code = f"""
import pickle, sys
from pyroaring import BitMap
from cursorkeeper.core.values import Partial
if sys.argv[1:]:
    assert pickle.loads(bytes.fromhex(sys.argv[1])) == {value}
else:
    print(pickle.dumps({value}).hex())
"""
    for writer, reader in (("", "no"), ("no", "")):
        code_, said = run(code, CURSORKEEPER_COMPILED=writer)
        assert code_ == 0, said
        assert run(code, words=[said], CURSORKEEPER_COMPILED=reader) == (0, "")


def test_threads_expand_each_with_a_decompressor_of_its_own() -> None:
    """A class of the C library is not honoured by a compiled one: `coders` runs as it is."""
    bodies = [bytes([number]) * 50_000 + os.urandom(50_000) for number in range(8)]
    packed = [codec.compress(body, codec.Codec.ZSTD, 3) for body in bodies]
    assert all(used is codec.Codec.ZSTD for used, _ in packed)

    def expanded(number: int) -> bool:
        return all(
            codec.expand(packed[number][1], codec.Codec.ZSTD, len(bodies[number])) == bodies[number]
            for _ in range(50)
        )

    with ThreadPoolExecutor(8) as threads:
        assert all(threads.map(expanded, range(8)))


def test_a_class_with_a_base_that_is_not_honoured_is_refused() -> None:
    source = "class A(Protocol): ...\nclass B(A): ...\nclass C(threading.local): ...\n"
    assert compile_core.foreign({"x.py": source}) == ["x.py: class C(threading.local)"]


WAITS = """
async def f():
    try:
        await a()
    except E:
        await b()
    finally:
        await c()
    try:
        pass
    except E:
        async def g():
            await d()
    else:
        await e()
    async with h():
        pass
"""


def test_waiting_while_an_exception_is_handled_is_refused() -> None:
    assert compile_core.pauses({"x.py": WAITS}) == ["x.py:6", "x.py:8", "x.py:16"]


def test_machine_code_is_made_anew_when_what_it_uses_changes() -> None:
    covered = {*compiled.WHOLE, *compiled.HOT, *compiled.BESIDE}
    used: set[str] = set()
    for package in (*compiled.WHOLE, *compiled.HOT):
        for path in (compiled.HERE / package).glob("*.py"):
            if compiled.is_translated(path.relative_to(compiled.HERE)):
                used |= {
                    f"{node.module}.{one.name}"
                    for node in ast.walk(ast.parse(path.read_text()))
                    if isinstance(node, ast.ImportFrom) and node.module
                    for one in node.names
                }
    ours = {name.split(".")[1] for name in used if name.startswith("cursorkeeper.")}
    assert ours - {"compiled"} <= covered
    theirs = {name for name in used if name.startswith("cursorkeeper_client.")}
    known = {f"cursorkeeper_client.{name[:-3].replace('/', '.')}" for name in compiled.CLIENT}
    known.add("cursorkeeper_client._proto")
    assert not {name for name in theirs if not name.startswith(tuple(known))}


def test_a_translated_source_has_the_same_lines() -> None:
    """So a traceback of machine code names the line of the source."""
    found = 0
    for package in (*compiled.WHOLE, *compiled.HOT):
        for path in (compiled.HERE / package).glob("*.py"):
            name, text = path.relative_to(compiled.HERE), path.read_text()
            if name.as_posix() in compile_core.AS_IT_IS or not compiled.is_translated(name):
                continue
            lines = text.rstrip("\n").split("\n")
            copied = compile_core.translated(text).split("\n")
            for line, translated in zip(lines, copied, strict=False):
                found += line != translated
                is_constructor = not line and translated.startswith("    def __init__(self")
                assert (
                    line == translated
                    or is_constructor
                    or line.startswith(("@", "from __future__"))
                ), line
    assert found


DECLARED = """
@component
class Part:
    given: int
    said: str = "a"
    made: list[int] = field(default_factory=list)
    begun: int = field(init=False)

    def __post_init__(self) -> None:
        self.begun = 7

"""


def test_constructors_are_those_of_the_dataclass() -> None:
    names = {"component": component, "field": dataclasses.field}
    exec(DECLARED, names)
    spelled = {"dataclasses": dataclasses, "field": dataclasses.field}
    (text, *_) = compile_core.translated(DECLARED).split("copyreg")
    assert "def __init__" in text
    exec(text, spelled)
    for words, more in (((1,), {}), ((1, "b", [3]), {}), ((1,), {"made": [4]})):
        of_source, of_copy = (
            {name: getattr(made, name) for name in ("given", "said", "made", "begun")}
            for made in (names["Part"](*words, **more), spelled["Part"](*words, **more))  # type: ignore[operator]
        )
        assert of_source == of_copy
    one, other = spelled["Part"](1), spelled["Part"](1)  # type: ignore[operator]
    assert one.made is not other.made
    with pytest.raises(TypeError):
        spelled["Part"]()  # type: ignore[operator]


@pytest.mark.parametrize(
    "field", ["made: int = field(default=3)", "made: int = field(default=3, compare=False)"]
)
def test_a_field_that_is_declared_otherwise_is_refused(field: str) -> None:
    with pytest.raises(SystemExit, match=r"Part\.made"):
        compile_core.translated(f"@component\nclass Part:\n    {field}\n\n")


def test_a_value_that_never_changes_does_not_when_compiled() -> None:
    one = Partial(9, BitMap([3]))
    with pytest.raises(AttributeError):
        one.batch_size = 3  # type: ignore[misc]
    assert repr(one) == "Partial(batch_size=9, missing=BitMap([3]))"
    assert one == dataclasses.replace(one, batch_size=9) != dataclasses.replace(one, batch_size=8)


def test_what_is_not_translated_is_there() -> None:
    for name in compile_core.AS_IT_IS:
        assert (compiled.HERE / name).is_file(), name

"""Translates what each message of acks passes in the daemon to machine code with mypyc, beside its
source: `core`, `format`, and the modules that `cursorkeeper/compiled.py` names.

Run by `make compiled`, and by the wheel's build hook where it is asked for. A machine without a C
compiler or Python's headers is told so, or why the compiler failed, and runs the source as it is:
that is no failure, unless `--fail-on` says so. What was made is used for exactly this source only
(`cursorkeeper/compiled.py`).

mypyc makes plain classes of those whose decorators it does not know, so two of `core/shape` are
spelled out as the dataclasses that they are: in a copy, line by line. Their constructors are
spelled out, too, in the blank line after each class, or they would be Python. Values that never
change are pickled and copied by their fields, because compiled ones cannot be filled in later.
What cannot be translated is in `AS_IT_IS`, with its reason.

A coroutine of mypyc's has no exception of its own that is being handled, as one of Python's has:
where it waits inside an `except`, whatever else runs meanwhile is inside it, too, and what that
catches keeps this one, and this one the next, for ever. So waiting there is refused.
"""

from __future__ import annotations

import argparse
import ast
import fcntl
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterator, Mapping
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "daemon/cursorkeeper"
WORK = ROOT / ".build/compiled"
LOCK = ROOT / ".build/compiled.lock"
AS_IT_IS = {
    "core/shape.py": "makes the decorators themselves",
    "core/errors.py": "exceptions, which are pickled with what they say",
    "core/setting.py": "a field specifier of its own",
    "core/limits.py": "fields by that specifier",
    "core/names.py": "properties that are computed once",
    "core/footer.py": "structures of msgspec",
    "format/coders.py": "what each thread has of its own, by a base class written in C",
    "format/footer.py": "structures of msgspec",
}
# Of any other base than these and its own classes mypyc leaves out what it does, without a word.
_BASES = {"Enum", "Generic", "IntEnum", "IntFlag", "NamedTuple", "Protocol", "StrEnum"}
MADE_BY = "made_by"
GROUP = "cursorkeeper.core.machine_code"
"""All modules are in one library of this name, and what is imported are small files that open it:
a module calls another's functions as it calls its own, and their code stands together.
"""
OWN_CALLS = ["-fno-semantic-interposition", "-fno-plt", "-fvisibility=hidden"]
"""No other library takes the place of what is called in this one, so it is called directly. Beside
the flags of the interpreter, for which CFLAGS would be instead of them.
"""
_SPELLED = {
    "@frozen": "@dataclasses.dataclass(frozen=True, init=False)",
    "@component": "@dataclasses.dataclass(eq=False, repr=False, init=False)",
}
_EXTENDED = {"@extended": "@shape.mypyc_attr(allow_interpreted_subclasses=True)"}
_FUTURE = "from __future__ import annotations"
_VALUE = re.compile(r"^@frozen\nclass (\w+)", re.MULTILINE)


def translated(text: str) -> str:
    """The same source, line by line, with the decorators that mypyc knows."""
    spelled = _SPELLED | _EXTENDED
    lines = [spelled.get(line, line) for line in text.split("\n")]
    values = _VALUE.findall(text)
    if len(values) != text.count("@frozen") or any("@component" in line for line in lines):
        raise SystemExit("a decorator of core/shape stands where it is not understood")
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ClassDef) and _is_data(node):
            if node.bases or any(lines[node.end_lineno : node.end_lineno + 1]):  # type: ignore[misc, operator]
                raise SystemExit(f"class {node.name} has a base, or no blank line after it")
            lines[node.end_lineno] = constructor(node)  # type: ignore[index]
    lines += [f"copyreg.pickle({name}, shape.by_fields)" for name in values]
    imports = "import copyreg, dataclasses; from cursorkeeper.core import shape"
    return "\n".join(lines).replace(_FUTURE, f"{_FUTURE}; {imports}", 1)


def _is_data(node: ast.ClassDef) -> bool:
    return any(f"@{ast.unparse(one)}" in _SPELLED for one in node.decorator_list)


def constructor(node: ast.ClassDef) -> str:
    """What `dataclasses` would make at run time, in one line."""
    takes, does = ["self"], []
    for item in node.body:
        if isinstance(item, ast.AnnAssign) and "ClassVar" not in ast.unparse(item.annotation):
            name, kind = ast.unparse(item.target), ast.unparse(item.annotation)
            default = item.value
            if not (isinstance(default, ast.Call) and ast.unparse(default.func) == "field"):
                takes.append(f"{name}: {kind}" + (f" = {ast.unparse(default)}" if default else ""))
                does.append(f"self.{name} = {name}")
                continue
            asked = {one.arg: ast.unparse(one.value) for one in default.keywords}
            if asked == {"init": "False"}:
                continue
            if set(asked) != {"default_factory"}:
                raise SystemExit(f"{node.name}.{name} is declared in a way that is not understood")
            takes.append(f"{name}: {kind} | None = None")
            made = f"({asked['default_factory']})()"
            does.append(f"self.{name} = {made} if {name} is None else {name}")
    if any(
        isinstance(item, ast.FunctionDef) and item.name == "__post_init__" for item in node.body
    ):
        does.append("self.__post_init__()")
    return (
        f"    def __init__({', '.join(takes)}) -> None: {'; '.join(does) or 'pass'}  # type: ignore"
    )


def foreign(sources: Mapping[str, str]) -> list[str]:
    """Classes whose bases mypyc would not honour, by file."""
    classes = [
        (name, node)
        for name, text in sources.items()
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.ClassDef)
    ]
    ours = {node.name for _, node in classes}
    return [
        f"{name}: class {node.name}({ast.unparse(base)})"
        for name, node in classes
        for base in node.bases
        if ast.unparse(base).partition("[")[0] not in ours | _BASES
        and not ast.unparse(base).endswith(("Exception", "Error"))
    ]


def pauses(sources: Mapping[str, str]) -> list[str]:
    """Where something is waited for while an exception is handled, by file and line."""
    return [
        f"{name}:{at.lineno}"
        for name, text in sources.items()
        for node in ast.walk(ast.parse(text))
        for at in _handled(node)
        if isinstance(at, ast.Await | ast.Yield | ast.YieldFrom | ast.AsyncFor | ast.AsyncWith)
    ]


def _handled(node: ast.AST) -> list[ast.AST]:
    """What runs while an exception is handled, of this statement. A context is left by waiting."""
    if isinstance(node, ast.AsyncWith):
        return [node]
    if not isinstance(node, ast.Try):
        return []
    return [
        inner for part in (*node.handlers, *node.finalbody) for inner in _of_this_function(part)
    ]


def _of_this_function(node: ast.AST) -> Iterator[ast.AST]:
    yield node
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
        for child in ast.iter_child_nodes(node):
            yield from _of_this_function(child)


def copy(is_translated: Callable[[Path], bool]) -> list[str]:
    """Writes the copies; returns the files to translate. Nothing of an earlier run is left: modules
    that were translated at different times do not fit together.
    """
    shutil.rmtree(WORK, ignore_errors=True)
    found: dict[str, str] = {}
    for path in sorted((*PACKAGE.rglob("*.py"), *PACKAGE.rglob("*.pyi"))):
        name = path.relative_to(PACKAGE)
        text = path.read_text()
        if is_translated(name) and name.as_posix() not in AS_IT_IS:
            text = translated(text)
            found[f"cursorkeeper/{name}"] = text
        copied = WORK / "cursorkeeper" / name
        copied.parent.mkdir(parents=True, exist_ok=True)
        copied.write_text(text)
    if strangers := foreign(found):
        raise SystemExit("not translated: " + ", ".join(strangers))
    if waiting := pauses(found):
        raise SystemExit("waits while an exception is handled: " + ", ".join(waiting))
    return list(found)


def missing() -> str:
    """What this machine lacks; empty: nothing."""
    compiler = os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc"
    if shutil.which(compiler.split()[0]) is None:
        return "a C compiler (apt-get install gcc libc6-dev)"
    if not Path(sysconfig.get_path("include"), "Python.h").is_file():
        return "Python's headers (apt-get install python3-dev)"
    return ""


def main(words: list[str] | None = None) -> Path:
    """Where the machine code is, or would be."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--fail-on",
        choices=["failure", "lack"],
        help="what ends with exit code 1: the compiler's failure; or also a machine without one",
    )
    fails_on = parser.parse_args(words).fail_on
    # a wheel is built where neither is installed
    sys.path[:0] = [str(ROOT / "daemon"), str(ROOT / "clients")]
    from cursorkeeper import compiled

    there = PACKAGE / compiled.COMPILED / compiled.digest()
    if is_made(there):
        return there
    LOCK.parent.mkdir(exist_ok=True)
    with LOCK.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two of them would work in one folder
        if is_made(there):
            return there
        lack = missing()
        why = f"this machine lacks {lack}" if lack else build(copy(compiled.is_translated))
        if why:
            print(
                f"{why}\nThe daemon is not compiled, so acks take about twice the CPU.",
                file=sys.stderr,
            )
            sys.exit(1 if fails_on == "lack" or (fails_on and not lack) else 0)
        put(there)
    return there


def is_made(there: Path) -> bool:
    """By these lines and this mypyc, and whole."""
    from cursorkeeper import compiled

    try:
        return (there / MADE_BY).read_text() == made_by() and (
            there / compiled.FILES
        ).read_text() == compiled.files(there)
    except OSError:
        return False


def build(files: list[str]) -> str:
    """In a process of its own: setuptools and mypyc work in the current folder. What went wrong;
    empty: nothing.
    """
    headers = Path("build", *GROUP.split(".")[:-1])  # mypyc itself does not look there
    code = (
        "import sys; from mypyc.build import mypycify; from setuptools import setup; "
        "made = mypycify(['--config-file=', '--ignore-missing-imports', *sys.argv[1:]], "
        f"group_name='{GROUP}', multi_file=True, opt_level='1', debug_level='0')\n"
        "for one in made:\n"
        f"    one.extra_compile_args += {OWN_CALLS!r}\n"
        f"    one.include_dirs.append('{headers}')\n"
        "setup(name='cursorkeeper', packages=[], ext_modules=made, "
        f"script_args=['-q', 'build_ext', '--build-lib', 'out', '-j{os.cpu_count() or 1}'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *files],
        cwd=WORK,
        env={**os.environ, "MYPYPATH": str(ROOT / "clients"), "PYTHONPATH": ""},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if done.returncode:
        return f"{done.stdout}\nmypyc or the C compiler failed (exit code {done.returncode})"
    return ""


def made_by() -> str:
    """What the same source is translated anew for: another mypyc, or another of these lines."""
    return f"mypyc {version('mypy')}, {sha256(Path(__file__).read_bytes()).hexdigest()}"


def put(there: Path) -> None:
    """It appears whole; what was made of other source goes."""
    from cursorkeeper import compiled

    out = WORK / "out/cursorkeeper"
    (out / compiled.FILES).write_text(compiled.files(out))
    (out / MADE_BY).write_text(made_by())
    new = there.with_name("new")
    shutil.rmtree(new, ignore_errors=True)
    shutil.copytree(out, new)
    for old in there.parent.iterdir():
        if old.is_dir() and old != new:
            gone = old.with_name(f"old-{os.getpid()}")
            old.rename(gone)
            shutil.rmtree(gone)
        elif old != new:
            old.unlink()
    new.rename(there)
    made = list(there.rglob("*.so"))
    size = sum(path.stat().st_size for path in made)
    print(f"compiled {len(made) - 1} modules, {size / 1e6:.1f} MB", file=sys.stderr)


if __name__ == "__main__":
    main()

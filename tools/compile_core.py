"""Translates the daemon's `core` and `format` to machine code with mypyc, beside their source.

Run by `make compiled`, and by the wheel's build hook where it is asked for. A machine without a C
compiler or Python's headers is told so, or why the compiler failed, and runs the source as it is:
that is no failure, unless `--strict` says so. What was made is used for exactly this source only
(`cursorkeeper/compiled.py`).

mypyc makes plain classes of those whose decorators it does not know, so two of `core/shape` are
spelled out as the dataclasses that they are: in a copy, line by line. Values that never change are
pickled and copied by their fields, because compiled ones cannot be filled in later. What cannot be
translated is in `AS_IT_IS`, with its reason.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "daemon/cursorkeeper"
WORK = ROOT / ".build/compiled"
AS_IT_IS = {
    "core/shape.py": "makes the decorators themselves",
    "core/setting.py": "a field specifier of its own",
    "core/limits.py": "fields by that specifier",
    "core/names.py": "properties that are computed once",
    "core/footer.py": "structures of msgspec",
    "format/footer.py": "structures of msgspec",
}
_SPELLED = {
    "@frozen": "@dataclasses.dataclass(frozen=True)",
    "@component": "@dataclasses.dataclass(eq=False, repr=False)",
}
_FUTURE = "from __future__ import annotations"


_VALUE = re.compile(r"^@frozen\nclass (\w+)", re.MULTILINE)


def translated(text: str) -> str:
    """The same source, line by line, with the decorators that mypyc knows."""
    lines = [_SPELLED.get(line, line) for line in text.split("\n")]
    lines += [f"copyreg.pickle({name}, shape.by_fields)" for name in _VALUE.findall(text)]
    imports = "import copyreg, dataclasses; from cursorkeeper.core import shape"
    return "\n".join(lines).replace(_FUTURE, f"{_FUTURE}; {imports}", 1)


def copy(packages: tuple[str, ...]) -> list[str]:
    """Writes the copies; returns the files to translate. Nothing of an earlier run is left: modules
    that were translated at different times do not fit together.
    """
    shutil.rmtree(WORK, ignore_errors=True)
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        name = path.relative_to(PACKAGE)
        text = path.read_text()
        if name.parts[0] in packages and len(name.parts) == 2 and name.name != "__init__.py":
            text = translated(text)
            if str(name) not in AS_IT_IS:
                found.append(f"cursorkeeper/{name}")
        copied = WORK / "cursorkeeper" / name
        copied.parent.mkdir(parents=True, exist_ok=True)
        copied.write_text(text)
    return found


def missing() -> str:
    """What this machine lacks; empty: nothing."""
    compiler = (sysconfig.get_config_var("CC") or "cc").split()[0]
    if shutil.which(os.environ.get("CC", compiler)) is None and shutil.which("gcc") is None:
        return "a C compiler (apt-get install gcc libc6-dev)"
    if not Path(sysconfig.get_path("include"), "Python.h").is_file():
        return "Python's headers (apt-get install python3-dev)"
    return ""


def main(words: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--strict", action="store_true", help="a machine without a compiler fails")
    arguments = parser.parse_args(words)
    sys.path.insert(0, str(ROOT / "daemon"))
    from cursorkeeper import compiled

    if compiled.IS_COMPILED:
        return
    lack, digest = missing(), compiled.digest()
    why = f"this machine lacks {lack}" if lack else build(copy(compiled.PACKAGES))
    if why:
        print(
            f"{why}\nThe daemon's core is not compiled, so it takes about twice the CPU.",
            file=sys.stderr,
        )
        sys.exit(1 if arguments.strict else 0)
    put(compiled.FOLDER, digest)


def build(files: list[str]) -> str:
    """In a process of its own: setuptools and mypyc work in the current folder. What went wrong;
    empty: nothing.
    """
    code = (
        "import sys; from mypyc.build import mypycify; from setuptools import setup; "
        "setup(name='cursorkeeper', packages=[], ext_modules=mypycify("
        "['--config-file=', '--ignore-missing-imports', *sys.argv[1:]], "
        "opt_level='1', debug_level='0', separate=True), "
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


def put(folder: Path, digest: str) -> None:
    """The digest is written last: without it nothing is used."""
    shutil.rmtree(folder, ignore_errors=True)
    made = sorted((WORK / "out").rglob("*.so"))
    for path in made:
        there = folder / path.relative_to(WORK / "out/cursorkeeper")
        there.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, there)
    (folder / "digest").write_text(digest)
    size = sum(path.stat().st_size for path in made)
    print(f"compiled {len(made) // 2} modules, {size / 1e6:.1f} MB", file=sys.stderr)


if __name__ == "__main__":
    main()

"""Serves every process of the daemon: whether what messages of acks pass runs as machine code.

`tools/compile_core.py` translates `core`, `format` and the modules in `HOT` with mypyc into a
folder that is named by the digest of what it translated. Python's own source stays the only source:
the machine code is used if it was made of exactly these files, for this interpreter, and is whole;
otherwise the files run as they are, about half as fast. `CURSORKEEPER_COMPILED=no` asks for that.
"""

from __future__ import annotations

import os
import sys
from collections.abc import MutableSequence
from hashlib import sha256
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

HERE = Path(__file__).resolve().parent
WHOLE = ("core", "format")
"""Packages of which everything is translated but `__init__`."""
HOT = {
    "bookkeeper": ("append_queue",),
    "runtime": ("admission", "intake", "keeper", "listener", "patience", "runner", "timers"),
    "stream": ("credits", "outbox", "outstanding", "session"),
}
"""Modules of other packages, for the same reason."""
COMPILED = "_compiled"
FILES = "files"
"""Names and sizes of what belongs to it, a line each: a copy may have been cut off."""
VARIABLE = "CURSORKEEPER_COMPILED"


def digest(root: Path = HERE) -> str:
    """Of all that source, and of the interpreter that it is translated for."""
    said = sha256(EXTENSION_SUFFIXES[0].encode())
    for package in sorted((*WHOLE, *HOT)):
        for path in sorted((root / package).rglob("*.py")):
            name = path.relative_to(root)
            if package in WHOLE or is_translated(name):
                said.update(f"{name.as_posix()}\0".encode())
                said.update(path.read_bytes() + b"\0")
    return said.hexdigest()


def is_translated(name: Path) -> bool:
    """Whether this file, named from here, becomes machine code as far as it can."""
    package, module = name.parts[0], name.stem
    if len(name.parts) != 2 or module == "__init__":
        return False
    return package in WHOLE or module in HOT.get(package, ())


def files(folder: Path) -> str:
    """What `FILES` of a whole folder says."""
    found = sorted(folder.rglob("*.so"))
    return "".join(
        f"{path.relative_to(folder).as_posix()} {path.stat().st_size}\n" for path in found
    )


def _is_wanted() -> bool:
    said = os.environ.get(VARIABLE, "")
    if said not in ("", "yes", "no"):
        sys.exit(f"{VARIABLE} = {said!r}: use yes or no")
    return said != "no"


def _folder() -> Path | None:
    """Where the machine code is; None: the source runs."""
    if not _is_wanted() or not (HERE / COMPILED).is_dir():
        return None
    folder = HERE / COMPILED / digest()
    try:
        is_whole = (folder / FILES).read_bytes() == files(folder).encode()
    except OSError:
        return None
    return folder if is_whole else None


FOLDER = _folder()
IS_COMPILED = FOLDER is not None


def prefer(package: str, path: MutableSequence[str]) -> None:
    """The machine code of a package's modules is found before their source."""
    if FOLDER is not None:
        path.insert(0, str(FOLDER / package.rpartition(".")[2]))

"""Serves every process of the daemon: whether `core` and `format` run as machine code.

`tools/compile_core.py` translates these packages with mypyc into `_compiled`, beside a digest of
what it translated. Python's own source stays the only source: the machine code is used if it was
made of exactly these files, for this interpreter; otherwise the files run as they are, about half
as fast. `CURSORKEEPER_COMPILED=no` asks for that.
"""

from __future__ import annotations

import os
import sys
from collections.abc import MutableSequence
from hashlib import sha256
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

HERE = Path(__file__).resolve().parent
PACKAGES = ("core", "format")
FOLDER = HERE / "_compiled"
DIGEST = FOLDER / "digest"
VARIABLE = "CURSORKEEPER_COMPILED"


def digest(root: Path = HERE) -> str:
    """Of all that is translated, and of the interpreter that it is translated for."""
    said = sha256(EXTENSION_SUFFIXES[0].encode())
    for package in PACKAGES:
        for path in sorted((root / package).glob("*.py")):
            said.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return said.hexdigest()


def _is_wanted() -> bool:
    said = os.environ.get(VARIABLE, "")
    if said not in ("", "yes", "no"):
        sys.exit(f"{VARIABLE} = {said!r}: use yes or no")
    return said != "no"


def _is_there() -> bool:
    try:
        return DIGEST.read_text() == digest()
    except OSError:
        return False


IS_COMPILED = _is_wanted() and _is_there()


def prefer(package: str, path: MutableSequence[str]) -> None:
    """The machine code of a package's modules is found before their source."""
    if IS_COMPILED:
        path.insert(0, str(FOLDER / package.rpartition(".")[2]))

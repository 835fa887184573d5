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
from importlib.util import find_spec
from pathlib import Path

HERE = Path(__file__).resolve().parent
WHOLE = ("core", "format")
"""Packages of which everything is translated but `__init__`."""
HOT = {
    "bookkeeper": ("append_queue",),
    "runtime": (
        "admission",
        "intake",
        "keeper",
        "ledger_join",
        "listener",
        "patience",
        "runner",
        "timers",
    ),
    "stream": (
        "codec",
        "credits",
        "early_parts",
        "outbox",
        "outstanding",
        "plain_acks",
        "session",
        "state_parts",
    ),
}
"""Modules of other packages, for the same reason."""
BESIDE = ("access", "zookeeper")
"""Packages that these use, beside the ones above: what their functions give is known to the machine
code, so it is made anew when they change. Of the client it uses `CLIENT`.
"""
CLIENT = ("ack_stream/groups.py", "back_off.py", "gap.py")
COMPILED = "_compiled"
FILES = "files"
"""Names and sizes of what belongs to it, a line each: a copy may have been cut off."""
VARIABLE = "CURSORKEEPER_COMPILED"


def digest(root: Path = HERE) -> str:
    """Of all source that counts, and of the interpreter that it is translated for."""
    said = sha256(EXTENSION_SUFFIXES[0].encode())
    said.update(repr(HOT).encode())
    for package in sorted((*WHOLE, *HOT, *BESIDE)):
        for path in sorted((root / package).rglob("*.py")):
            if "_proto" not in path.parts:
                said.update(f"{path.relative_to(root).as_posix()}\0".encode())
                said.update(path.read_bytes() + b"\0")
    client = find_spec("cursorkeeper_client")
    assert client is not None and client.submodule_search_locations
    for name in CLIENT:
        said.update(Path(client.submodule_search_locations[0], name).read_bytes() + b"\0")
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

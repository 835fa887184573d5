"""Generates the Python message code from `proto/` into `cursorkeeper_clients._proto`.

Run by `make`, by the wheel's build hook and by nothing else. The virtual include path makes the generated imports
absolute inside our own package, so that no top-level package is claimed.
"""

from __future__ import annotations

import sys
from importlib.resources import files
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "clients" / "cursorkeeper_clients" / "_proto"
VIRTUAL = "cursorkeeper_clients/_proto"


def build() -> list[Path]:
    """Generate every module that is older than its source; returns the files written."""
    sources = sorted((ROOT / "proto").glob("*.proto"))
    stale = [s for s in sources if _is_stale(s)]
    if not stale:
        return []
    from grpc_tools import protoc

    out = str(ROOT / "clients")
    include = str(files("grpc_tools") / "_proto")
    code = protoc.main(
        ["protoc", f"-I{VIRTUAL}={ROOT / 'proto'}", f"-I{include}", f"--python_out={out}", f"--pyi_out={out}", f"--grpc_python_out={out}"]
        + [f"{VIRTUAL}/{s.name}" for s in stale]
    )
    if code != 0:
        raise SystemExit(f"protoc failed with exit code {code}")
    return stale


def _is_stale(source: Path) -> bool:
    made = TARGET / f"{source.stem}_pb2.py"
    return not made.exists() or made.stat().st_mtime < source.stat().st_mtime


if __name__ == "__main__":
    for path in build():
        print(f"generated from {path.relative_to(ROOT)}", file=sys.stderr)

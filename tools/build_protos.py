"""Generates the Python message code from `proto/`, each file into the package that speaks it.

Run by `make`, by the wheel's build hook and by nothing else. The virtual include path makes the
generated imports absolute inside our own packages, so that no top-level package is claimed.
"""

from __future__ import annotations

import sys
from importlib.resources import files
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TARGETS = {
    "acks": ("clients", "cursorkeeper_client/_proto"),
    "ledgers": ("daemon", "cursorkeeper/bookkeeper/_proto"),
}
"""By the name of a source: the folder of a distribution, and in it that of the package."""


def build() -> list[Path]:
    """Generate every module that is older than its source; returns the sources."""
    sources = [ROOT / "proto" / f"{name}.proto" for name in TARGETS]
    stale = [s for s in sources if _is_stale(s)]
    for source in stale:
        from grpc_tools import protoc

        folder, package = TARGETS[source.stem]
        out, include = ROOT / folder, files("grpc_tools") / "_proto"
        written = (f"--{kind}_out={out}" for kind in ("python", "pyi", "grpc_python"))
        code = protoc.main(
            [
                "protoc",
                f"-I{package}={ROOT / 'proto'}",
                f"-I{include}",
                *written,
                f"{package}/{source.name}",
            ]
        )
        if code != 0:
            raise SystemExit(f"protoc failed with exit code {code}")
    return stale


def _is_stale(source: Path) -> bool:
    made = ROOT.joinpath(*TARGETS[source.stem]) / f"{source.stem}_pb2.py"
    return not made.exists() or made.stat().st_mtime < source.stat().st_mtime


if __name__ == "__main__":
    for path in build():
        print(f"generated from {path.relative_to(ROOT)}", file=sys.stderr)

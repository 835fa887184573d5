"""`python -m bench [--json] [NAME ...]`: all benchmarks, or some of them; `--help` lists them.

A benchmark is a module of this package with `run`, which gives rows; it is imported when it is its
turn, because some need PySpark.
"""

from __future__ import annotations

import argparse
import ast
import asyncio
import inspect
import os
import platform
import re
import tempfile
from importlib import import_module
from pathlib import Path
from typing import Any

from bench.rows import Row, show
from cursorkeeper.demo.stack import BOTH_COMPILERS, Standalone

GROUPS: list[tuple[list[str], dict[str, Any] | None]] = [
    (["delta_bytes", "snapshot_bytes", "ack_message", "memory", "pulsar_codec"], None),
    (
        ["latency", "receipt_latency", "throughput", "loads"],
        {"heap_mib": 512, "java_options": BOTH_COMPILERS},
    ),
    (["in_turn", "many_cursors", "idle_cursors"], {"heap_mib": 1536}),
    (["footers"], {"bookies": 1, "heap_mib": 768, "java_options": BOTH_COMPILERS}),
    (["recovery"], {"heap_mib": 1024, "java_options": BOTH_COMPILERS}),
    (["report"], {"bookies": 1, "heap_mib": 768}),
    (["pipeline"], {"heap_mib": 768}),
    (["tls_cost"], None),
]
"""Names, and the stack that they run on one after another; None: on none."""
PLUGIN = "pulsar_plugin"
"""Has brokers of its own, and rows as soon as they are there."""
NAMES = [*(name for names, _ in GROUPS for name in names), PLUGIN]


def run(name: str, *stack: Standalone) -> list[Row]:
    made = import_module(f"bench.{name}").run(*stack)
    rows: list[Row] = asyncio.run(made) if inspect.iscoroutine(made) else made
    return rows


def main() -> None:
    """Runs them in the order of `NAMES`, whatever the order of the arguments."""
    asked = arguments().parse_args()
    wanted = asked.names or NAMES
    if not asked.json:
        print(f"{platform.platform()}, {os.cpu_count()} cores, Python {platform.python_version()}")
    for names, settings in GROUPS:
        chosen = [name for name in names if name in wanted]
        if not chosen:
            continue
        if settings is None:
            for name in chosen:
                show(run(name), asked.json)
            continue
        with (
            tempfile.TemporaryDirectory() as folder,
            Standalone(Path(folder) / "stack", **settings) as stack,
        ):
            for name in chosen:
                show(run(name, stack), asked.json)
    if PLUGIN in wanted:
        # needs brokers' classes and the plugin's jar
        from bench.pulsar_plugin.__main__ import shown

        asyncio.run(shown(asked.json))


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description="All benchmarks, or some of them: ratios within one run.",
        epilog="\n".join(["benchmarks:", *(f"  {name:<16} {about(name)}" for name in NAMES)]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--json", action="store_true", help="a line of JSON for each figure")
    parser.add_argument("names", nargs="*", metavar="NAME", type=known, help="see below")
    return parser


def known(name: str) -> str:
    if name not in NAMES:
        raise argparse.ArgumentTypeError(f"no benchmark is called {name!r}: {', '.join(NAMES)}")
    return name


def about(name: str) -> str:
    """The beginning of its docstring, up to the first pause; nothing is imported."""
    here = Path(__file__).parent
    file = here / name / "__init__.py" if name == PLUGIN else here / f"{name}.py"
    said = ast.get_docstring(ast.parse(file.read_text())) or ""
    return " ".join(re.split(r"[.:;](?=\s)", said)[0].split())


if __name__ == "__main__":
    main()

"""`python -m tools.supply_chain.bills FOLDER`: puts our jars beside the wheels and sdists of a
folder, writes the bill of each file, and SHA256SUMS of them all.

Serves `make dist`. Invariant: every file of the folder is in SHA256SUMS, and every file that is
given out has a bill.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path

from tools.supply_chain import java_bill, python_bill
from tools.supply_chain.document import (
    SUFFIX,
    Document,
    SupplyChainError,
    beside,
    sha256,
    write,
)
from tools.supply_chain.java_bill import CLIENT, GATEWAY, JAVA, PLUGINS, RECEIPTS
from tools.supply_chain.python_bill import DISTRIBUTIONS

SUMS = "SHA256SUMS"


def jars(dist: Path) -> dict[str, Document]:
    """Copies our jars to the folder and writes their bills; returns these by the jar's name. Maven
    must have resolved them.
    """
    version = str(DISTRIBUTIONS["cursorkeeper"].project["version"])
    copies = {}
    for jar in (GATEWAY, CLIENT, *PLUGINS, RECEIPTS):
        file = JAVA / jar.file
        if not file.is_file():
            raise SupplyChainError(f"there is no {file}. What to do: make jar plugin-jar")
        copies[jar.name] = Path(shutil.copyfile(file, dist / file.name))
    made = {
        jar.name: java_bill.bill(module, jar, copies[jar.name], version)
        for module, jar in (("gateway", GATEWAY), ("keeper-client", CLIENT))
    }
    for plugin in PLUGINS:
        made[plugin.name] = java_bill.bill_with(
            made[CLIENT.name], plugin, copies[plugin.name], version
        )
    made[RECEIPTS.name] = java_bill.bill_of_own(RECEIPTS, copies[RECEIPTS.name], version)
    for name, document in made.items():
        write(document, beside(copies[name]))
    return made


def distributions(dist: Path, gateway: Document) -> list[Path]:
    """The bills of the wheels and sdists in the folder. `gateway`: the bill of the jar, which the
    daemon's have.
    """
    written = []
    for distribution in DISTRIBUTIONS.values():
        files = sorted(
            file
            for end in ("-*.whl", ".tar.gz")
            for file in dist.glob(f"{distribution.file_name}{end}")
        )
        if not files:
            raise SupplyChainError(
                f"{dist} has no {distribution.file_name}. What to do: make dist builds it first"
            )
        for file in files:
            has_jar = gateway if python_bill.has_jar(file) else None
            made = python_bill.bill(distribution, file, dist, has_jar)
            written.append(write(made, beside(file)))
    return written


def checksums(dist: Path) -> Path:
    """Of every file in the folder, as `sha256sum --check` reads them."""
    files = sorted(file for file in dist.iterdir() if file.is_file() and file.name != SUMS)
    (dist / SUMS).write_text("".join(f"{sha256(file)}  {file.name}\n" for file in files))
    return dist / SUMS


def main(arguments: list[str] | None = None) -> int:
    """The command. Returns its exit code."""
    parser = argparse.ArgumentParser(prog="python -m tools.supply_chain.bills")
    parser.add_argument("folder", type=Path, help="with wheels and sdists, as make dist has it")
    dist: Path = parser.parse_args(arguments).folder
    try:
        java_bill.resolve()
        distributions(dist, jars(dist)[GATEWAY.name])
        checksums(dist)
    except SupplyChainError as e:
        print(f"no bills of materials: {e}", file=sys.stderr)
        return 1
    print(f"{len(list(dist.glob('*' + SUFFIX)))} bills of materials and {SUMS} in {dist}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

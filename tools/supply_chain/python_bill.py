"""The bill of a wheel or an sdist: the libraries that its lock pins, our distributions that it
needs, and the gateway's jar in it.

cyclonedx-py makes the components of the pins; the lock says what asked for them. Serves `make
dist`.
"""

from __future__ import annotations

import functools
import json
import subprocess
import sys
import tarfile
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import ZipFile

from tools.supply_chain import locks
from tools.supply_chain.document import (
    Component,
    Document,
    SupplyChainError,
    component_of_file,
    document,
    needs_of,
    properties,
)

ROOT = Path(__file__).resolve().parents[2]
WHERE = "cursorkeeper:installed-where"
"""The property of a library that only some environments get: its marker."""
TOOL_MAX_S = 120
NOT_COVERED = (
    "What the wheels of others bring along is not listed: libraries in C (OpenSSL in cryptography, "
    "BoringSSL in grpcio, OpenBLAS in numpy), and the jars in PySpark.",
    "Libraries are those of the lock; who installs without it gets the newest that fit.",
)


@dataclass(frozen=True)
class Distribution:
    """One of ours. `lock` pins what it needs; `needs` are ours that it needs."""

    folder: str
    lock: str
    needs: tuple[str, ...] = ()

    @property
    def project(self) -> dict[str, Any]:
        """What it says of itself."""
        said: dict[str, Any] = tomllib.loads((ROOT / self.folder / "pyproject.toml").read_text())[
            "project"
        ]
        return said

    @property
    def name(self) -> str:
        """As an index would have it."""
        return str(self.project["name"])

    @property
    def file_name(self) -> str:
        """The begin of its files' names."""
        return f"{self.name.replace('-', '_')}-{self.project['version']}"

    @property
    def purl(self) -> str:
        """Its name everywhere."""
        return f"pkg:pypi/{self.name}@{self.project['version']}"


DISTRIBUTIONS = {
    "cursorkeeper-client": Distribution("clients", "requirements-client.lock"),
    "cursorkeeper": Distribution("daemon", "requirements.lock", ("cursorkeeper-client",)),
    "cursorkeeper-spark": Distribution(
        "pipeline", "requirements-spark.lock", ("cursorkeeper", "cursorkeeper-client")
    ),
}


def pins_of(distribution: Distribution) -> list[locks.Pin]:
    """What it needs of others, of its lock."""
    names = (distribution.name, *distribution.needs)
    return locks.asked_for_by(locks.read(ROOT / distribution.lock), names)


def bill(distribution: Distribution, file: Path, dist: Path, gateway: Document | None) -> Document:
    """Of `file`, a wheel or an sdist. Those of ours that it needs lie in `dist`, as wheels.
    `gateway`: the bill of the jar, if it is in the file.
    """
    pins = pins_of(distribution)
    if not pins:
        raise SupplyChainError(
            f"{distribution.lock} has nothing that {distribution.name} asks for. What to do: make "
            "the lock again as CONTRIBUTING.md says"
        )
    tool = _of_tool("\n".join(pin.line() for pin in pins))
    made = {part["purl"]: part for part in tool["components"]}
    parts = [_library(pin, made) for pin in pins]
    purls: dict[str, list[str]] = {}
    for pin in pins:
        purls.setdefault(pin.name, []).append(pin.purl)
    needs: dict[str, list[str]] = {}
    ours = {name: DISTRIBUTIONS[name] for name in (distribution.name, *distribution.needs)}
    for pin in pins:
        for asker in pin.askers:
            refs = [ours[asker].purl] if asker in ours else purls.get(asker, [])
            for ref in refs:
                needs.setdefault(ref, []).append(pin.purl)
    for name in distribution.needs:
        other = ours[name]
        (wheel,) = dist.glob(f"{other.file_name}-*.whl")
        parts.append(_of_ours(other, wheel))
        needs.setdefault(distribution.purl, []).append(other.purl)
        for deeper in other.needs:
            needs.setdefault(other.purl, []).append(ours[deeper].purl)
    if gateway is not None:
        jar = dict(gateway["metadata"]["component"], components=gateway["components"])
        parts.append(jar)
        needs |= needs_of(gateway)
        needs.setdefault(distribution.purl, []).append(str(jar["bom-ref"]))
    root = _of_ours(distribution, file)
    return document(root, parts, needs, tool["metadata"].get("tools"), NOT_COVERED)


def _of_ours(distribution: Distribution, file: Path) -> Component:
    said = distribution.project
    made = component_of_file(
        file, "application", distribution.name, str(said["version"]), distribution.purl
    )
    return made | {
        "description": said["description"],
        "properties": properties({"cursorkeeper:file": file.name}),
    }


def _library(pin: locks.Pin, made: dict[str, Component]) -> Component:
    part = made.get(pin.purl)
    if part is None:
        raise SupplyChainError(
            f"cyclonedx-py left {pin.purl} out. What to do: see what it says of the line "
            f"{pin.line()[:80]}"
        )
    # its description is the line of the lock once more, and its reference the line's number
    part = {name: value for name, value in part.items() if name != "description"}
    part["bom-ref"] = pin.purl
    if pin.where:
        part["properties"] = properties({WHERE: pin.where})
    return part


@functools.cache  # a wheel and its sdist need the same
def _of_tool(requirements: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "cyclonedx_py", "requirements", "--sv", "1.6", "--of", "JSON"]
    done = subprocess.run(
        [*command, "--output-reproducible", "--no-validate", "-o", "-", "-"],
        input=requirements,
        capture_output=True,
        text=True,
        timeout=TOOL_MAX_S,
        check=False,
    )
    if done.returncode != 0:
        raise SupplyChainError(
            f"cyclonedx-py ended with {done.returncode}: {done.stderr[-500:]}. What to do: make "
            "dist, which installs it from requirements-release.lock"
        )
    said: dict[str, Any] = json.loads(done.stdout)
    return said


def has_jar(file: Path) -> bool:
    """Whether a wheel or an sdist brings the gateway along."""
    if file.suffix == ".whl":
        with ZipFile(file) as wheel:
            names = wheel.namelist()
    else:
        with tarfile.open(file) as sdist:
            names = sdist.getnames()
    return any(name.endswith("/cursorkeeper-gateway.jar") for name in names)

"""The bill of a jar: which of the libraries that Maven resolved are really in it, and nothing else.

The CycloneDX plugin for Maven makes the components; the jar's own entries decide which stay. Serves
`make dist`. Invariant: every class of a jar is ours or of a component of its bill.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import ZipFile

from tools.supply_chain.document import (
    Component,
    Document,
    SupplyChainError,
    component_of_file,
    document,
    needs_of,
    sha256,
)

ROOT = Path(__file__).resolve().parents[2]
JAVA = ROOT / "java"
RELOCATED = "io/cursorkeeper/client/shaded/"
"""Where java/keeper-client/pom.xml puts libraries. What is behind it is a class's own path, or that
without its first folder.
"""
MAVEN_MAX_S = 600
_POM = re.compile(r"META-INF/maven/[^/]+/[^/]+/pom\.properties")
_SAID = re.compile(r"^(groupId|artifactId|version)\s*=\s*(\S+)", re.MULTILINE)
RESOLVED = ("gateway", "keeper-client")
"""Modules whose jars have libraries of others."""
NOT_COVERED = (
    "Native libraries in a jar (Netty's epoll, Snappy) are files of the component that brings "
    "them, and are not listed by themselves.",
    "The Java runtime, and what a broker has on its class path, are not in the jar and not listed.",
)


@dataclass(frozen=True)
class Jar:
    """One of ours. `file` and `own` (the jar before others were added) are paths in java/."""

    name: str
    file: str
    own: str

    def purl(self, version: str) -> str:
        """Its name everywhere."""
        return f"pkg:maven/io.cursorkeeper/{self.name}@{version}?type=jar"


GATEWAY = Jar(
    "cursorkeeper-gateway",
    "gateway/target/cursorkeeper-gateway.jar",
    "gateway/target/cursorkeeper-gateway-plain.jar",
)
CLIENT = Jar(
    "cursorkeeper-keeper-client",
    "keeper-client/target/cursorkeeper-keeper-client.jar",
    "keeper-client/target/original-cursorkeeper-keeper-client.jar",
)
PLUGINS = tuple(
    Jar(
        f"cursorkeeper-pulsar-plugin-{line}",
        f"pulsar-plugin/pulsar-{line}/target/cursorkeeper-pulsar-plugin-{line}.jar",
        f"pulsar-plugin/pulsar-{line}/target/original-cursorkeeper-pulsar-plugin-{line}.jar",
    )
    for line in ("4.0", "4.2")
)
RECEIPTS = Jar(
    "cursorkeeper-pulsar-receipts",
    "pulsar-receipts/target/cursorkeeper-pulsar-receipts.nar",
    "pulsar-receipts/target/cursorkeeper-pulsar-receipts.nar",
)


class Entries:
    """The files of a jar, and their checksums."""

    def __init__(self, jar: Path) -> None:
        with ZipFile(jar) as files:
            self.crc = {each.filename: each.CRC for each in files.infolist() if not each.is_dir()}

    @property
    def classes(self) -> list[str]:
        """Of its base; those of META-INF/versions are copies for newer Javas."""
        return [
            name
            for name in self.crc
            if name.endswith(".class")
            and not name.startswith("META-INF/")
            and not name.endswith(("module-info.class", "package-info.class"))
        ]

    @property
    def others(self) -> list[str]:
        """What tells a jar without classes from others."""
        return [
            name
            for name in self.crc
            if not name.endswith((".class", "MANIFEST.MF"))
            and not name.startswith(("META-INF/LICENSE", "META-INF/NOTICE"))
        ]

    def has(self, name: str, crc: int) -> bool:
        """This very file, or a class under the name that relocation gave it."""
        if self.crc.get(name) == crc:
            return True
        return name.endswith(".class") and bool(self.crc.keys() & set(relocated(name)))


def relocated(name: str) -> tuple[str, str]:
    """The names that a class may have in the client's jar."""
    return RELOCATED + name, RELOCATED + name.partition("/")[2]


def is_in(library: Entries, jar: Entries) -> bool:
    """Whether a jar has something of a library: a class of it, or, if it has none, another file."""
    names = library.classes or library.others
    return any(jar.has(name, library.crc[name]) for name in names)


def resolve() -> None:
    """Has Maven write what it resolved: for each module a document, and the files' paths."""
    goals = (
        "org.cyclonedx:cyclonedx-maven-plugin:makeBom",
        "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:build-classpath",
    )
    options = (
        "-Dmdep.outputFile=target/sbom.classpath",
        "-DincludeScope=runtime",
        "-Dmdep.regenerateFile=true",
    )
    command = ["mvn", "-q", "-B", "-f", str(JAVA / "pom.xml"), "-pl", ",".join(RESOLVED)]
    done = subprocess.run(
        [*command, *options, *goals],
        capture_output=True,
        text=True,
        timeout=MAVEN_MAX_S,
        check=False,
    )
    if done.returncode != 0:
        raise SupplyChainError(
            f"Maven ended with {done.returncode}: {done.stdout[-1000:]}. What to do: see whether "
            "`make jar` works; the CycloneDX plugin is fetched as any other of Maven"
        )


def _said_by_maven(module: str) -> dict[str, Any]:
    file = JAVA / module / "target/sbom.json"
    if not file.is_file():
        raise SupplyChainError(
            f"there is no {file}. What to do: make dist, in which Maven writes it"
        )
    said: dict[str, Any] = json.loads(file.read_text())
    return said


def embedded(part: Component, file: Path) -> list[Component]:
    """Libraries that a library has copied into itself, as Netty has JCTools: by what Maven left of
    them in its file. `part`: the library.
    """
    made = []
    with ZipFile(file) as files:
        for name in sorted(files.namelist()):
            if not _POM.fullmatch(name):
                continue
            said = dict(_SAID.findall(files.read(name).decode()))
            group, artifact, version = (
                said.get(key, "") for key in ("groupId", "artifactId", "version")
            )
            if (group, artifact) == (part.get("group"), part["name"]) or not version:
                continue
            purl = f"pkg:maven/{group}/{artifact}@{version}?type=jar"
            inner: Component = {"type": "library", "bom-ref": f"{part['bom-ref']}#{purl}"}
            made.append(
                inner | {"group": group, "name": artifact, "version": version, "purl": purl}
            )
    return made


def files_of(module: str) -> dict[str, Path]:
    """Every library that Maven resolved for a module, by its SHA-256."""
    paths = (JAVA / module / "target/sbom.classpath").read_text().strip().split(":")
    return {sha256(Path(path)): Path(path) for path in paths}


def libraries(module: str, jar: Path) -> tuple[list[Component], dict[str, Entries]]:
    """Those of a module that are in the jar, and the entries of each by its reference. Raises
    SupplyChainError for one whose file is not the one that Maven resolved.
    """
    files, inside = files_of(module), Entries(jar)
    parts: list[Component] = []
    found: dict[str, Entries] = {}
    for part in _said_by_maven(module)["components"]:
        hashes = {each["alg"]: each["content"] for each in part.get("hashes", ())}
        file = files.get(hashes.get("SHA-256", ""))
        if file is None:
            raise SupplyChainError(
                f"{part['purl']}: Maven's document and its class path name different files. What "
                f"to do: remove java/{module}/target, then make again"
            )
        entries = Entries(file)
        if is_in(entries, inside):
            part.pop("externalReferences", None)  # pages about it, of which there are hundreds
            part["hashes"] = [{"alg": "SHA-256", "content": hashes["SHA-256"]}]
            if inner := embedded(part, file):
                part["components"] = inner
            parts.append(part)
            found[part["bom-ref"]] = entries
    return parts, found


def strangers(jar: Path, own: Path, of_others: Iterable[Entries]) -> list[str]:
    """Classes of a jar that are neither ours nor of one of the others."""
    known = set(Entries(own).classes)
    for entries in of_others:
        for name in entries.classes:
            known.update((name, *relocated(name)))
    return sorted(set(Entries(jar).classes) - known)


def bill(module: str, jar: Jar, file: Path, version: str) -> Document:
    """Of a jar with libraries of others. `file` is the copy that is given out."""
    parts, found = libraries(module, file)
    _refuse_strangers(file, jar, found.values())
    said = _said_by_maven(module)
    root = component_of_file(file, "application", jar.name, version, jar.purl(version))
    needs = {
        root["bom-ref"] if ref == said["metadata"]["component"]["bom-ref"] else ref: needed
        for ref, needed in needs_of(said).items()
    }
    return document(root, parts, needs, said["metadata"].get("tools"), NOT_COVERED)


def bill_with(client: Document, jar: Jar, file: Path, version: str) -> Document:
    """Of a plugin's jar, which holds the client's jar and nothing else of others. `client`: that
    one's bill.
    """
    _refuse_strangers(file, jar, [Entries(JAVA / CLIENT.file)])
    inner = dict(client["metadata"]["component"], components=client["components"])
    inner["type"] = "library"
    root = component_of_file(file, "application", jar.name, version, jar.purl(version))
    needs: Mapping[str, Iterable[str]] = {root["bom-ref"]: [inner["bom-ref"]]} | needs_of(client)
    return document(root, [inner], needs, client["metadata"].get("tools"), NOT_COVERED)


def bill_of_own(jar: Jar, file: Path, version: str) -> Document:
    """Of a file that holds nothing of others."""
    _refuse_strangers(file, jar, [])
    root = component_of_file(file, "application", jar.name, version, jar.purl(version))
    return document(root, [], {}, None, NOT_COVERED)


def _refuse_strangers(file: Path, jar: Jar, of_others: Iterable[Entries]) -> None:
    if found := strangers(file, JAVA / jar.own, of_others):
        raise SupplyChainError(
            f"{file.name} has {len(found)} classes that no library of its bill has, as {found[0]}. "
            "What to do: build it again (make jar plugin-jar), and see which library the pom adds"
        )

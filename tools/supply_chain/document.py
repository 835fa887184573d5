"""A bill of materials as a document: its frame, and the one way it is written.

Serves all makers of bills. Invariant: what is written is valid CycloneDX 1.6, names every component
that it refers to, and is the same for the same contents; a date is in it only if SOURCE_DATE_EPOCH
says one.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

SPEC = "1.6"
SUFFIX = ".cdx.json"
NOT_COVERED = "cursorkeeper:not-covered"
"""The property that says in a sentence what a bill does not know."""
Component = dict[str, Any]
Document = dict[str, Any]


class SupplyChainError(Exception):
    """What is wrong, with the value and what to do."""


def sha256(file: Path) -> str:
    """Of a file's bytes, in hexadecimal digits."""
    with file.open("rb") as bytes_of:
        return hashlib.file_digest(bytes_of, "sha256").hexdigest()


def properties(of: Mapping[str, str]) -> list[dict[str, str]]:
    """In the document's form."""
    return [{"name": name, "value": value} for name, value in of.items()]


def component_of_file(file: Path, kind: str, name: str, version: str, purl: str) -> Component:
    """One of ours, whose bytes are known."""
    return {
        "type": kind,
        "bom-ref": purl,
        "name": name,
        "version": version,
        "purl": purl,
        "licenses": [{"license": {"id": "Apache-2.0"}}],
        "hashes": [{"alg": "SHA-256", "content": sha256(file)}],
    }


def document(
    root: Component,
    components: Iterable[Component],
    needs: Mapping[str, Iterable[str]],
    tools: Any,
    not_covered: Iterable[str] = (),
) -> Document:
    """`needs`: by the reference of a component those it needs. `tools`: as the tool's own document
    names itself. `not_covered`: sentences, each about what the bill does not know.
    """
    metadata: dict[str, Any] = {"component": root}
    if tools:
        parts_of = tools.get("components", ())
        metadata["tools"] = {"components": [_shortened(tool) for tool in parts_of]}
    if "SOURCE_DATE_EPOCH" in os.environ:
        metadata["timestamp"] = datetime.fromtimestamp(
            int(os.environ["SOURCE_DATE_EPOCH"]), UTC
        ).isoformat()
    metadata["properties"] = [{"name": NOT_COVERED, "value": said} for said in not_covered]
    parts = sorted(components, key=lambda part: str(part["bom-ref"]))
    made: Document = {
        "$schema": f"http://cyclonedx.org/schema/bom-{SPEC}.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": SPEC,
        "version": 1,
        "metadata": metadata,
        "components": parts,
    }
    known = {str(root["bom-ref"]), *(str(part["bom-ref"]) for part in all_components(made))}
    made["dependencies"] = [
        {"ref": ref, "dependsOn": sorted(known.intersection(needs.get(ref, ())))}
        for ref in sorted(known)
    ]
    return made


def _shortened(tool: Mapping[str, Any]) -> Component:
    """What it is, without the pages about it."""
    return {
        name: value
        for name, value in tool.items()
        if name in ("type", "group", "name", "version", "licenses")
    }


def all_components(of: Mapping[str, Any]) -> Iterator[Component]:
    """Of a document, with those that lie in others."""
    for part in of.get("components", ()):
        yield part
        yield from all_components(part)


def needs_of(made: Mapping[str, Any]) -> dict[str, list[str]]:
    """What a document says its components need."""
    return {said["ref"]: list(said.get("dependsOn", ())) for said in made.get("dependencies", ())}


def write(made: Document, to: Path) -> Path:
    """Raises SupplyChainError if it is not a valid document."""
    # audits do without what only makers of bills install
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    text = json.dumps(made, indent=1, sort_keys=True, ensure_ascii=False) + "\n"
    if wrong := JsonStrictValidator(SchemaVersion.V1_6).validate_str(text):
        raise SupplyChainError(
            f"{to.name} is no valid CycloneDX {SPEC}: {wrong}. What to do: correct what "
            "tools/supply_chain makes; nothing was written"
        )
    to.write_text(text)
    return to


def beside(file: Path) -> Path:
    """Where the bill of a file lies."""
    return file.with_name(file.name + SUFFIX)

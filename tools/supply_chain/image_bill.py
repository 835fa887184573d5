"""`python -m tools.supply_chain.image_bill FOLDER VERSION`: the bill of each image: Debian's
packages, as its Dockerfile had them listed while it was built, the Java that is linked into it, and
the wheels and jars of ours, whose bills lie in the folder.

Serves `make image-sboms`, after `make images` and `make dist`. Nothing is scanned: what no list of
the image names is not in the bill, and the bill says so.
"""

from __future__ import annotations

import argparse
import io
import json
import subprocess
import sys
import tarfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from tools.supply_chain.bills import checksums
from tools.supply_chain.document import (
    SUFFIX,
    Component,
    Document,
    SupplyChainError,
    document,
    needs_of,
    properties,
    write,
)

PACKAGES = "/usr/share/cursorkeeper/debian-packages.tsv"
"""In every image: a line with the distribution, then one for each package that is installed."""
RELEASE = "/opt/java/release"
"""What the linked Java says of itself."""
NOT_COVERED = (
    "Files that no Debian package and none of our files brings are not looked for.",
    "Of the base image only its packages are known; its digest is in the label base.name, if the "
    "image was built from a digest.",
    "Which modules of Java are in the image is not listed; its version is.",
)
DOCKER_MAX_S = 60
FILE_MAX_BYTES = 8 * 1024 * 1024


@dataclass(frozen=True)
class Image:
    """One of ours. `holds`: the begins of the names of our files whose contents are in it."""

    name: str
    holds: tuple[str, ...]
    has_java: bool = False


IMAGES = (
    Image("cursorkeeper", ("cursorkeeper-{version}-",)),
    Image("cursorkeeper-gateway", ("cursorkeeper-gateway.jar",), has_java=True),
    Image("cursorkeeper-node", ("cursorkeeper-gateway.jar",), has_java=True),
    Image(
        "cursorkeeper-pulsar-plugin",
        (
            "cursorkeeper-pulsar-plugin-4.0.jar",
            "cursorkeeper-pulsar-plugin-4.2.jar",
            "cursorkeeper-pulsar-receipts.nar",
        ),
    ),
)


def debian_packages(text: str) -> list[Component]:
    """Of the list in an image. Raises SupplyChainError if it is not one."""
    lines = text.splitlines()
    words = lines[0].split() if lines else []
    if len(words) != 3 or words[0] != "#":
        raise SupplyChainError(
            f"{PACKAGES} begins with {lines[:1]!r}, not with the distribution. What to do: build "
            "the image again"
        )
    parts = []
    for line in lines[1:]:
        try:
            status, name, version, architecture, source, of_source = line.split("\t")
        except ValueError:
            raise SupplyChainError(
                f"{PACKAGES} has the line {line[:80]!r}, which is no package. What to do: build "
                "the image again"
            ) from None
        if not status.startswith("ii"):
            continue
        purl = (
            f"pkg:deb/{words[1]}/{quote(name)}@{quote(version, safe='.~')}"
            f"?arch={architecture}&distro={words[1]}-{words[2]}"
        )
        part: Component = {"type": "library", "bom-ref": purl, "name": name, "version": version}
        part["purl"] = purl
        part["properties"] = properties({"cursorkeeper:source-package": f"{source} {of_source}"})
        parts.append(part)
    if not parts:
        raise SupplyChainError(f"{PACKAGES} names no package. What to do: build the image again")
    return parts


def java(text: str) -> Component:
    """Of the file `release` in it. Raises SupplyChainError."""
    said = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
    version = said.get("JAVA_RUNTIME_VERSION", said.get("JAVA_VERSION", "")).strip('"')
    if not version:
        raise SupplyChainError(f"{RELEASE} says no version. What to do: build the image again")
    purl = f"pkg:generic/openjdk@{quote(version)}"
    vendor = said.get("IMPLEMENTOR", "unknown").strip('"')
    return {
        "type": "framework",
        "bom-ref": purl,
        "name": "openjdk",
        "version": version,
        "publisher": vendor,
        "purl": purl,
    }


def bill(
    image: Image, version: str, identity: str, texts: Mapping[str, str], of_files: list[Document]
) -> Document:
    """`identity`: the image's digest. `texts`: what the files PACKAGES and RELEASE in it say.
    `of_files`: the bills of our files in it.
    """
    ref = f"pkg:oci/{image.name}@{quote(identity, safe='')}"
    root: Component = {
        "type": "container",
        "bom-ref": ref,
        "name": image.name,
        "version": version,
        "purl": ref,
    }
    parts = debian_packages(texts[PACKAGES])
    if image.has_java:
        parts.append(java(texts[RELEASE]))
    needs: dict[str, list[str]] = {ref: []}
    for of_file in of_files:
        inner = dict(of_file["metadata"]["component"], components=of_file["components"])
        parts.append(inner)
        for name, needed in needs_of(of_file).items():
            needs.setdefault(name, []).extend(needed)
        needs[ref].append(str(inner["bom-ref"]))
    missing = {each["value"] for file in of_files for each in file["metadata"]["properties"]}
    return document(root, without_doubles(parts), needs, None, [*NOT_COVERED, *sorted(missing)])


def without_doubles(parts: Iterable[Component]) -> list[Component]:
    """Two plugins have the same client in them: a reference may stand in a document once, so each
    component stays where it came first.
    """
    seen: set[str] = set()

    def kept(among: Iterable[Component]) -> list[Component]:
        made = []
        for part in among:
            if part["bom-ref"] not in seen:
                seen.add(part["bom-ref"])
                made.append({**part, "components": kept(part.get("components", ()))})
        return made

    return kept(parts)


def of_files(image: Image, version: str, dist: Path) -> list[Document]:
    """The bills of our files in an image. The daemon's image has what the daemon's wheel has, but
    for the gateway's jar. Raises SupplyChainError.
    """
    made = []
    for begin in image.holds:
        said = begin.format(version=version)
        end = f"*.whl{SUFFIX}" if said.endswith("-") else SUFFIX
        files = sorted(dist.glob(said + end))
        if not files:
            raise SupplyChainError(f"{dist} has no bill of {said}. What to do: make dist")
        document: Document = json.loads(files[0].read_text())
        if image.name == "cursorkeeper":
            # its wheel is built in the image, with machine code: other bytes of the same sources
            document["metadata"]["component"].pop("hashes")
            document["components"] = [
                part for part in document["components"] if part["name"] != "cursorkeeper-gateway"
            ]
        made.append(document)
    return made


def read_from(tag: str, files: Iterable[str]) -> tuple[str, dict[str, str]]:
    """The digest of an image, and what files in it say; nothing in it is run. Raises
    SupplyChainError.
    """
    identity = _docker("image", "inspect", "--format", "{{.Id}}", tag).decode().strip()
    container = _docker("create", tag).decode().strip()
    try:
        texts = {}
        for file in files:
            with tarfile.open(fileobj=io.BytesIO(_docker("cp", f"{container}:{file}", "-"))) as tar:
                (member,) = tar.getmembers()
                content = tar.extractfile(member)
                if content is None or member.size > FILE_MAX_BYTES:
                    raise SupplyChainError(
                        f"{file} of {tag} is no file of at most {FILE_MAX_BYTES} bytes. What to "
                        "do: build the image again"
                    )
                texts[file] = content.read().decode()
        return identity, texts
    finally:
        _docker("rm", container)


def _docker(*arguments: str) -> bytes:
    try:
        done = subprocess.run(
            ["docker", *arguments], capture_output=True, timeout=DOCKER_MAX_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as e:
        raise SupplyChainError(f"docker {arguments[0]}: {e}. What to do: start Docker") from e
    if done.returncode != 0:
        raise SupplyChainError(
            f"docker {' '.join(arguments)} ended with {done.returncode}: "
            f"{done.stderr.decode(errors='replace')[-300:]}. What to do: make images"
        )
    return done.stdout


def main(arguments: list[str] | None = None) -> int:
    """The command. Returns its exit code."""
    parser = argparse.ArgumentParser(prog="python -m tools.supply_chain.image_bill")
    parser.add_argument("folder", type=Path, help="with the bills that make dist wrote")
    parser.add_argument("version", help="the tag of the images")
    said = parser.parse_args(arguments)
    try:
        for image in IMAGES:
            inside = of_files(image, said.version, said.folder)
            files = (PACKAGES, RELEASE) if image.has_java else (PACKAGES,)
            identity, texts = read_from(f"{image.name}:{said.version}", files)
            made = bill(image, said.version, identity, texts, inside)
            print(write(made, said.folder / f"{image.name}-{said.version}.image{SUFFIX}"))
        checksums(said.folder)
    except SupplyChainError as e:
        print(f"no bills of images: {e}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Bills of materials list what wheels and jars really hold: what the metadata of a wheel asks for
is in its bill as the lock has it, and what a jar says it is made of is in the jar's bill.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
import zlib
from email.parser import Parser
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from daemon.tests.distribution.build import PACKAGES, ROOT, VERSION, built
from tools.supply_chain import bills, image_bill, java_bill, locks, python_bill
from tools.supply_chain.document import (
    SUFFIX,
    Document,
    SupplyChainError,
    all_components,
    beside,
    document,
    write,
)
from tools.supply_chain.java_bill import CLIENT, GATEWAY, JAVA, PLUGINS, RECEIPTS

pytestmark = pytest.mark.jvm  # jars must have been built, and Maven must have said what is in them
ALL_JARS = (GATEWAY, CLIENT, *PLUGINS, RECEIPTS)


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a release, with our wheels, jars and the bills of both."""
    folder = tmp_path_factory.mktemp("dist")
    gateway = bills.jars(folder)[GATEWAY.name]
    for distribution in PACKAGES:
        wheel = built(ROOT / distribution, "wheel", folder / distribution)
        wheel.rename(folder / wheel.name)
        (folder / distribution).rmdir()
    bills.distributions(folder, gateway)
    bills.checksums(folder)
    return folder


def said_by(file: Path) -> Document:
    made: Document = json.loads(beside(file).read_text())
    return made


def wheel_of(name: str, dist: Path) -> Path:
    (wheel,) = dist.glob(f"{python_bill.DISTRIBUTIONS[name].file_name}-*.whl")
    return wheel


@pytest.mark.parametrize("name", python_bill.DISTRIBUTIONS)
def test_what_a_wheel_asks_for_is_in_its_bill_as_the_lock_has_it(name: str, dist: Path) -> None:
    wheel = wheel_of(name, dist)
    with ZipFile(wheel) as files:
        (metadata,) = (each for each in files.namelist() if each.endswith(".dist-info/METADATA"))
        asked = Parser().parsestr(files.read(metadata).decode()).get_all("Requires-Dist", [])
    # an extra is in no lock: who wants it takes what there is
    needs = [need for need in map(Requirement, asked) if "extra" not in str(need.marker or "")]
    assert len(needs) >= 4
    made = said_by(wheel)
    listed: dict[str, set[str]] = {}
    for part in all_components(made):
        if part["purl"].startswith("pkg:pypi/"):
            listed.setdefault(canonicalize_name(part["name"]), set()).add(part["version"])
    pinned: dict[str, set[str]] = {}
    for pin in locks.read(ROOT / python_bill.DISTRIBUTIONS[name].lock):
        pinned.setdefault(pin.name, set()).add(pin.version)
    roots = {said["ref"]: said["dependsOn"] for said in made["dependencies"]}
    direct = roots[made["metadata"]["component"]["bom-ref"]]
    for need in needs:
        library = canonicalize_name(need.name)
        versions = listed[library]
        assert all(need.specifier.contains(version) for version in versions), need
        assert versions == pinned.get(library, {VERSION}), need
        assert any(ref.startswith(f"pkg:pypi/{library}@") for ref in direct), need


@pytest.mark.parametrize("name", python_bill.DISTRIBUTIONS)
def test_nothing_that_only_tests_need_is_in_a_wheels_bill(name: str, dist: Path) -> None:
    names = {part["name"] for part in all_components(said_by(wheel_of(name, dist)))}
    assert not names & {"pytest", "hypothesis", "mypy", "ruff", "testcontainers", "hatchling"}


def test_the_daemons_wheel_has_the_gateway_with_all_that_is_in_it(dist: Path) -> None:
    made, jar = said_by(wheel_of("cursorkeeper", dist)), said_by(dist / "cursorkeeper-gateway.jar")
    (inner,) = (p for p in made["components"] if p["name"] == "cursorkeeper-gateway")
    assert inner["components"] == jar["components"] != []
    assert inner["hashes"] == jar["metadata"]["component"]["hashes"]
    alone = said_by(wheel_of("cursorkeeper-client", dist))
    assert {part["purl"].partition("/")[0] for part in all_components(alone)} == {"pkg:pypi"}


@pytest.mark.parametrize("jar", ALL_JARS, ids=lambda jar: jar.name)
def test_every_artifact_that_a_jar_says_it_has_is_in_its_bill(
    jar: java_bill.Jar, dist: Path
) -> None:
    file = dist / Path(jar.file).name
    made = said_by(file)
    listed = {
        (part.get("group", "io.cursorkeeper"), part["name"], part["version"])
        for part in [made["metadata"]["component"], *all_components(made)]
    }
    with ZipFile(file) as files:
        said = [
            dict(re.findall(r"^(groupId|artifactId|version)\s*=\s*(\S+)", text, re.MULTILINE))
            for text in (
                files.read(name).decode()
                for name in files.namelist()
                if re.fullmatch(r"META-INF/maven/.*/pom\.properties", name)
            )
        ]
    assert jar is not GATEWAY or len(said) > 40
    for each in said:
        assert (each["groupId"], each["artifactId"], each["version"]) in listed


@pytest.mark.parametrize("jar", ALL_JARS, ids=lambda jar: jar.name)
def test_every_class_of_a_jar_is_ours_or_of_a_library_of_its_bill(
    jar: java_bill.Jar, dist: Path
) -> None:
    module = "gateway" if jar is GATEWAY else "keeper-client"
    files = {digest: java_bill.Entries(path) for digest, path in java_bill.files_of(module).items()}
    listed = [
        files[each["content"]]
        for part in all_components(said_by(dist / Path(jar.file).name))
        for each in part.get("hashes", ())
        if part["name"] != CLIENT.name
    ]
    own = [JAVA / jar.own] + ([JAVA / CLIENT.own] if jar in PLUGINS else [])
    inside = set(java_bill.Entries(dist / Path(jar.file).name).classes)
    for each in own:
        inside -= set(java_bill.Entries(each).classes)
    for library in listed:
        for name in library.classes:
            inside -= {name, *java_bill.relocated(name)}
    assert inside == set()


def test_what_a_library_has_copied_into_itself_is_listed_in_it(dist: Path) -> None:
    (netty,) = (
        part
        for part in said_by(dist / "cursorkeeper-gateway.jar")["components"]
        if part["name"] == "netty-common"
    )
    copied = {(part["group"], part["name"]) for part in netty["components"]}
    assert ("org.jctools", "jctools-core") in copied and ("io.netty", "netty-common") not in copied


def test_what_the_pom_keeps_out_of_a_jar_is_not_in_its_bill(dist: Path) -> None:
    listed = {
        part["name"] for part in all_components(said_by(dist / "cursorkeeper-keeper-client.jar"))
    }
    assert {"guava", "grpc-core", "okio-jvm", "protobuf-java", "RoaringBitmap"} <= listed
    assert not listed & {"jsr305", "error_prone_annotations", "jspecify", "j2objc-annotations"}


def test_a_jar_with_a_class_that_no_library_has_is_refused(tmp_path: Path) -> None:
    file = Path(shutil.copyfile(JAVA / RECEIPTS.file, tmp_path / "with-a-stranger.nar"))
    with ZipFile(file, "a", ZIP_DEFLATED) as files:
        files.writestr("com/example/Stranger.class", b"x")
    with pytest.raises(SupplyChainError, match=r"com/example/Stranger\.class"):
        java_bill.bill_of_own(RECEIPTS, file, VERSION)


def test_a_library_of_another_version_is_not_taken_for_the_one_in_a_jar(tmp_path: Path) -> None:
    for name, content in (("jar", b"one"), ("same", b"one"), ("other", b"another")):
        with ZipFile(tmp_path / name, "w") as files:
            files.writestr("org/example/A.class", content)
    jar, same, other = (java_bill.Entries(tmp_path / name) for name in ("jar", "same", "other"))
    assert jar.crc == {"org/example/A.class": zlib.crc32(b"one")}
    assert java_bill.is_in(same, jar) and not java_bill.is_in(other, jar)


def test_every_file_has_a_bill_of_its_own_bytes_and_a_checksum(dist: Path) -> None:
    sums = dict(reversed(line.split("  ")) for line in (dist / bills.SUMS).read_text().splitlines())
    files = {file.name: file for file in dist.iterdir() if file.name != bills.SUMS}
    assert sums.keys() == files.keys()
    for name, file in files.items():
        digest = hashlib.sha256(file.read_bytes()).hexdigest()
        assert sums[name] == digest
        if not name.endswith(SUFFIX):
            made = said_by(file)
            assert made["specVersion"] == "1.6" and "timestamp" not in made["metadata"]
            (of_root,) = made["metadata"]["component"]["hashes"]
            assert of_root == {"alg": "SHA-256", "content": digest}


def test_a_document_that_is_no_cyclonedx_is_not_written(tmp_path: Path) -> None:
    root = {"type": "no such type", "bom-ref": "a", "name": "a", "version": "1"}
    with pytest.raises(SupplyChainError, match="is no valid CycloneDX"):
        write(document(root, [], {}, None), tmp_path / "bill")
    assert not (tmp_path / "bill").exists()


def test_a_line_that_is_none_of_a_locks_is_named(tmp_path: Path) -> None:
    lock = tmp_path / "requirements.lock"
    lock.write_text("numpy>=2\n")
    with pytest.raises(SupplyChainError, match=r"line 1: 'numpy>=2'"):
        locks.read(lock)


def listing() -> str:
    """The command in the daemon's Dockerfile that lists the packages of an image."""
    text = (ROOT / "Dockerfile").read_text()
    (command,) = re.findall(
        rf"&& (\{{ \. /etc/os-release .*?; \}}) > {image_bill.PACKAGES}$", text, re.M
    )
    return str(command)


def test_an_images_bill_lists_what_dpkg_says_and_what_is_in_our_files(
    dist: Path, tmp_path: Path
) -> None:
    """By the command of the Dockerfile, on this machine if it is a Debian."""
    if shutil.which("dpkg-query") is None:
        pytest.skip("this machine has no dpkg-query")
    ran = subprocess.run(["sh", "-c", listing()], capture_output=True, text=True, check=True)
    installed = subprocess.run(
        ["dpkg-query", "-W", "-f=${db:Status-Abbrev}|${Package}|${Version}\\n"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    expected = {tuple(line.split("|")[1:]) for line in installed if line.startswith("ii")}
    texts = {image_bill.PACKAGES: ran.stdout, image_bill.RELEASE: 'JAVA_VERSION="17.0.15"\n'}
    for image in image_bill.IMAGES:
        inside = image_bill.of_files(image, VERSION, dist)
        made = image_bill.bill(image, VERSION, "sha256:" + "0" * 64, texts, inside)
        if image.has_java:
            write(made, tmp_path / "bill")
        parts = list(all_components(made))
        listed = {(p["name"], p["version"]) for p in parts if p["purl"].startswith("pkg:deb/")}
        assert listed == expected
        assert ("openjdk" in {part["name"] for part in parts}) is image.has_java
        names = {part["name"] for part in parts}
        assert {part["name"] for file in inside for part in all_components(file)} <= names
    daemon = image_bill.of_files(image_bill.IMAGES[0], VERSION, dist)
    assert "cursorkeeper-gateway" not in {
        p["name"] for file in daemon for p in all_components(file)
    }


@pytest.mark.parametrize(
    "text", ["", "# debian 12\n", "no distribution\n", "# debian 12\nii \ta\n"]
)
def test_a_list_of_packages_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(SupplyChainError, match="build the image again"):
        image_bill.debian_packages(text)


def dockerfiles() -> list[tuple[str, str]]:
    names = ("Dockerfile", "java/Dockerfile", "java/pulsar-plugin/Dockerfile")
    return [(each, (ROOT / each).read_text()) for each in (*names, "deploy/prometheus/Dockerfile")]


@pytest.mark.parametrize(("name", "text"), dockerfiles(), ids=[name for name, _ in dockerfiles()])
def test_every_image_begins_at_a_base_that_a_digest_can_pin(name: str, text: str) -> None:
    stages = set(re.findall(r"^FROM \S+ AS (\S+)$", text, re.MULTILINE))
    begins = set(re.findall(r"^FROM (\S+)", text, re.MULTILINE)) - stages - {"scratch"}
    assert begins == {"${BASE_IMAGE}${BASE_DIGEST}"}
    head: Any = text.partition("\nFROM ")[0]
    assert re.findall(r"^ARG (\S+)$", head, re.MULTILINE) == [
        "BASE_IMAGE=debian:bookworm-slim",
        "BASE_DIGEST=",
    ]


@pytest.mark.parametrize("name", ["java/Dockerfile", "java/pulsar-plugin/Dockerfile"])
def test_all_images_list_their_packages_by_the_same_command(name: str) -> None:
    text = (ROOT / name).read_text().replace("\\n' busybox-static;", "\\n' ;")
    assert f"{listing()} > {image_bill.PACKAGES}" in text

"""The images under test, built from this checkout, and the toolbox.

Owns: their names, build arguments and contexts. Invariant: images are kept after the run, so that the next build finds every
layer; a build is repeated at every run, so that what is tested is what is in the checkout.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tarfile
import time
import tomllib
from dataclasses import dataclass
from pathlib import Path

import docker.errors
from testcontainers.core.image import DockerImage

ROOT = Path(__file__).resolve().parents[2]
JAR = ROOT / "java/gateway/target/cursorkeeper-gateway.jar"
RELEASES = ROOT / "testdata/releases"
UNPACKED = ROOT / ".build/releases"
MAVEN_MAX_S = 600
BASE_IMAGE = os.environ.get("BASE_IMAGE", "debian:bookworm-slim")
VERSION = str(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"])
REVISION = "under-test"
"""Not the commit's: the images of two runs on the same sources are the same."""


class ImageError(Exception):
    """An image cannot be built; the message holds the end of the build's output."""


@dataclass(frozen=True)
class Images:
    """Names of the images."""

    daemon: str
    gateway: str
    node: str
    toolbox: str


def build(tag: str, context: Path, dockerfile: str, target: str | None = None, version: str = VERSION) -> str:
    """Build one image as `tag`; returns the tag. `dockerfile`: relative to the context. Raises ImageError."""
    arguments = {"BASE_IMAGE": BASE_IMAGE, "VERSION": version, "REVISION": REVISION}
    image = DockerImage(path=context, tag=tag, clean_up=False, dockerfile_path=dockerfile, target=target, buildargs=arguments, rm=True)
    try:
        image.build()
    except docker.errors.BuildError as e:
        tail = "".join(str(line.get("stream", "")) for line in e.build_log)[-3000:]
        raise ImageError(f"{tag} cannot be built from {dockerfile}: {e}\n{tail}") from e
    return tag


def build_all(suffix: str = "test") -> Images:
    """Every image, in the order in which they build on each other. Raises ImageError."""
    if not JAR.is_file():
        raise ImageError(f"no gateway jar at {JAR}. What to do: make jar (make test-containers does it)")
    began = time.monotonic()
    images = Images(
        daemon=build(f"cursorkeeper:{suffix}", ROOT, "Dockerfile"),
        gateway=build(f"cursorkeeper-gateway:{suffix}", ROOT, "java/Dockerfile", "gateway"),
        node=build(f"cursorkeeper-node:{suffix}", ROOT, "java/Dockerfile", "node"),
        toolbox=build(f"cursorkeeper-toolbox:{suffix}", ROOT / "testcontainers_tests/images", "toolbox.Dockerfile"),
    )
    print(f"images built in {time.monotonic() - began:.1f} s")
    return images


@dataclass(frozen=True)
class ReleaseImages:
    """Names of an earlier release's images."""

    version: str
    daemon: str
    gateway: str


def build_release(version: str) -> ReleaseImages:
    """The images of an earlier release: its sources, its locked libraries, its gateway jar; only the Dockerfiles are of today.

    The unpacked sources and the jar are kept under .build, so only the first run pays for Maven. Raises ImageError.
    """
    context = UNPACKED / f"cursorkeeper-{version}"
    if not context.is_dir():
        archive = RELEASES / f"cursorkeeper-{version}-sources.tar.xz"
        with tarfile.open(archive) as sources:
            sources.extractall(UNPACKED, filter="data")
    jar = context / JAR.relative_to(ROOT)
    if not jar.is_file():
        maven = ["mvn", "-q", "-B", "-f", "java/pom.xml", "-pl", "gateway", "-DskipTests", "package"]
        done = subprocess.run(maven, cwd=context, capture_output=True, text=True, timeout=MAVEN_MAX_S, check=False)
        if done.returncode or not jar.is_file():
            raise ImageError(f"the gateway of {version} cannot be built:\n{done.stdout[-2000:]}{done.stderr[-1000:]}")
    for name in ("Dockerfile", "java/Dockerfile", ".dockerignore", "requirements-build.lock"):
        shutil.copyfile(ROOT / name, context / name)
    return ReleaseImages(
        version,
        build(f"cursorkeeper:release-{version}", context, "Dockerfile", version=version),
        build(f"cursorkeeper-gateway:release-{version}", context, "java/Dockerfile", "gateway", version),
    )

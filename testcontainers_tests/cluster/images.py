"""The images under test, built from this checkout, and the toolbox.

Owns: their names, build arguments and contexts. Invariants: images are kept after the run, so that
the next build finds every layer; a build is repeated at every run, so that what is tested is what
is in the checkout; of the workers of a run one builds, and the others wait for it, so that all of
them test the same.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tarfile
import time
import tomllib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import docker.errors
from testcontainers.core.image import DockerImage

from testcontainers_tests.cluster.host import RUN

ROOT = Path(__file__).resolve().parents[2]
JAR = ROOT / "java/gateway/target/cursorkeeper-gateway.jar"
PLUGIN = ROOT / "java/pulsar-plugin/pulsar-4.2/target/cursorkeeper-pulsar-plugin-4.2.jar"
RELEASES = ROOT / "testdata/releases"
ONE_DISTRIBUTION = ROOT / "testcontainers_tests/images/release.Dockerfile"
"""Of releases whose daemon and client were one distribution."""
UNPACKED = ROOT / ".build/releases"
LOCKS = ROOT / ".build/locks"
MAVEN_MAX_S = 600
LOCK_MAX_S, LOCK_POLL_S = 900.0, 0.2
BASE_IMAGE = os.environ.get("BASE_IMAGE", "debian:bookworm-slim")
VERSION = str(tomllib.loads((ROOT / "daemon/pyproject.toml").read_text())["project"]["version"])
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
    plugin: str
    toolbox: str


@contextmanager
def once_a_run(what: str) -> Iterator[bool]:
    """No other process on this checkout does the same meanwhile; a lock that ends with its process.
    Yields whether a worker of this run has done it already. ImageError if another process takes too
    long.
    """
    LOCKS.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    with (LOCKS / what).open("a+") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() - began > LOCK_MAX_S:
                    raise ImageError(
                        f"another process has been building {what} for {LOCK_MAX_S:.0f} s (it "
                        f"holds {file.name}). What to do: see whether it goes on (docker ps, top); "
                        "end it if not, then run again"
                    ) from None
                time.sleep(LOCK_POLL_S)
        file.seek(0)
        is_done = file.read() == RUN
        yield is_done
        if not is_done:
            file.truncate(0)
            file.write(RUN)


def build(
    tag: str,
    context: Path,
    dockerfile: str,
    target: str | None = None,
    version: str = VERSION,
    **more: str,
) -> str:
    """Build one image as `tag`; returns the tag. `dockerfile`: relative to the context. `more`:
    build arguments of this one alone. Raises ImageError.
    """
    arguments = {"BASE_IMAGE": BASE_IMAGE, "VERSION": version, "REVISION": REVISION, **more}
    image = DockerImage(
        path=context,
        tag=tag,
        clean_up=False,
        dockerfile_path=dockerfile,
        target=target,
        buildargs=arguments,
        rm=True,
    )
    try:
        image.build()
    except docker.errors.BuildError as e:
        tail = "".join(str(line.get("stream", "")) for line in e.build_log)[-3000:]
        raise ImageError(f"{tag} cannot be built from {dockerfile}: {e}\n{tail}") from e
    return tag


def build_all(suffix: str = "test") -> Images:
    """Every image. Raises ImageError."""
    for jar, target in ((JAR, "jar"), (PLUGIN, "plugin-jar")):
        if not jar.is_file():
            raise ImageError(
                f"there is no {jar}. What to do: make {target} (make test-containers does it)"
            )
    began = time.monotonic()
    names = (
        "cursorkeeper",
        "cursorkeeper-gateway",
        "cursorkeeper-node",
        "cursorkeeper-pulsar-plugin",
        "cursorkeeper-toolbox",
    )
    images = Images(*(f"{name}:{suffix}" for name in names))
    with once_a_run(f"images-{suffix}") as is_done:
        if not is_done:
            with ThreadPoolExecutor() as side_by_side:
                for built in [
                    side_by_side.submit(build, images.daemon, ROOT, "Dockerfile"),
                    side_by_side.submit(_build_others, images),
                ]:
                    built.result()
    print(f"images are there after {time.monotonic() - began:.1f} s")
    return images


def _build_others(images: Images) -> None:
    """All but the daemon's, which takes as long as these together."""
    build(images.gateway, ROOT, "java/Dockerfile", "gateway")
    build(images.node, ROOT, "java/Dockerfile", "node")
    build(images.plugin, ROOT, "java/pulsar-plugin/Dockerfile")
    build(images.toolbox, ROOT / "testcontainers_tests/images", "toolbox.Dockerfile")


@dataclass(frozen=True)
class ReleaseImages:
    """Names of an earlier release's images."""

    version: str
    daemon: str
    gateway: str


def build_release(version: str) -> ReleaseImages:
    """The images of an earlier release: its sources, its locked libraries, its gateway jar; only
    the Dockerfiles are of today.

    The unpacked sources and the jar are kept under .build, so only the first run pays for Maven.
    Raises ImageError.
    """
    images = ReleaseImages(
        version, f"cursorkeeper:release-{version}", f"cursorkeeper-gateway:release-{version}"
    )
    with once_a_run(f"release-{version}") as is_done:
        if not is_done:
            _build_release(images)
    return images


def _build_release(images: ReleaseImages) -> None:
    version = images.version
    context = UNPACKED / f"cursorkeeper-{version}"
    if not context.is_dir():
        archive = RELEASES / f"cursorkeeper-{version}-sources.tar.xz"
        with tarfile.open(archive) as sources:
            sources.extractall(UNPACKED, filter="data")
    jar = context / JAR.relative_to(ROOT)
    if not jar.is_file():
        maven = [
            "mvn",
            "-q",
            "-B",
            "-f",
            "java/pom.xml",
            "-pl",
            "gateway",
            "-DskipTests",
            "package",
        ]
        done = subprocess.run(
            maven, cwd=context, capture_output=True, text=True, timeout=MAVEN_MAX_S, check=False
        )
        if done.returncode or not jar.is_file():
            raise ImageError(
                f"the gateway of {version} cannot be "
                f"built:\n{done.stdout[-2000:]}{done.stderr[-1000:]}"
            )
    for name in ("java/Dockerfile", "requirements-build.lock"):
        shutil.copyfile(ROOT / name, context / name)
    shutil.copyfile(ONE_DISTRIBUTION, context / "Dockerfile")
    # the unpacked sources are kept, and had another one
    (context / ".dockerignore").unlink(missing_ok=True)
    build(images.daemon, context, "Dockerfile", version=version)
    build(images.gateway, context, "java/Dockerfile", "gateway", version)

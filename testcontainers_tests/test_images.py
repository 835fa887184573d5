"""The images as such: who they run as, what is in them and what is not, how they end, what they say
to bad settings and to Docker's health check, and that building again builds nothing. Sizes,
versions and seconds are printed.
"""

from __future__ import annotations

import io
import json
import re
import shutil
import tarfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import docker
import pytest
from packaging.requirements import Requirement

from testcontainers_tests.cluster import host, images
from testcontainers_tests.cluster.conditions import until
from testcontainers_tests.cluster.images import ROOT, VERSION, Images
from testcontainers_tests.cluster.node import Node
from testcontainers_tests.cluster.nodes import (
    CLIENT_PORT,
    GATEWAY_METRICS_PORT,
    GATEWAY_PORT,
    STREAM_PORT,
    DaemonNode,
)
from testcontainers_tests.cluster.stack import ContainerStack
from testcontainers_tests.cluster.truth import Verdict
from tools.supply_chain import image_bill

SECOND_NS = 1_000_000_000
OFTEN = {"interval": SECOND_NS}
"""Laid over an image's own health check: asked more often."""
SIZE_MAX_MB = {
    "cursorkeeper": 295,
    "cursorkeeper-gateway": 270,
    "cursorkeeper-node": 270,
    "cursorkeeper-pulsar-plugin": 26,
}
"""About a tenth above what they are: who makes one larger should know it."""
JVM_TERMINATED, JVM_OUT_OF_MEMORY = 143, 3
PYTHON = "/opt/cursorkeeper/bin/python3"
SHELLS = ("/usr/bin/dash", "/usr/bin/bash")
TOOLS = ("pip", "pip3", "gcc", "cc", "g++", "make", "ld", "strip", "javac", "curl", "wget", "git")
ASK = """
import importlib.metadata, json, os, platform, sys
here = [path for path in sys.path if "site-packages" in path]
print(json.dumps({
    "distributions": {
        d.name.lower().replace("_", "-"): d.version
        for d in importlib.metadata.distributions(path=here)
    },
    "environment": {
        "python_version": ".".join(platform.python_version_tuple()[:2]),
        "python_full_version": platform.python_version(),
        "sys_platform": sys.platform,
        "os_name": os.name,
        "platform_machine": platform.machine(),
        "platform_system": platform.system(),
        "implementation_name": sys.implementation.name,
        "platform_python_implementation": platform.python_implementation(),
    },
}))
"""
SEARCH = """
import json, os, shutil, sys
tools = [tool for tool in sys.argv[1:] if shutil.which(tool)]
found = {"tools": tools, "jars": [], "root_programs": [], "writable": []}
OTHERS = ("/proc", "/sys", "/dev", "/tmp", "/var/tmp", "/run/lock")
for folder, folders, files in os.walk("/"):
    there = {name: os.path.join(folder, name) for name in folders + files}
    folders[:] = [n for n in folders if there[n] not in OTHERS]
    for path in (there[name] for name in folders + files if not os.path.islink(there[name])):
        if path.endswith(".jar"):
            found["jars"].append(path)
        if os.path.isfile(path) and os.stat(path).st_mode & 0o6000:
            found["root_programs"].append(path)
        if os.access(path, os.W_OK):
            found["writable"].append(path)
print(json.dumps(found))
"""


@dataclass(frozen=True)
class Ended:
    """How a container that ran to its end ended."""

    code: int
    stdout: str
    stderr: str


def run(image: str, *command: str, **arguments: Any) -> Ended:
    """A container that ends by itself, confined as all are; removed afterwards."""
    confined = {
        "read_only": True,
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges"],
        "network_mode": "none",
        "mem_limit": "512m",
    }
    client = host.connect()
    container = client.containers.run(
        image, list(command), detach=True, labels=host.LABELS, **{**confined, **arguments}
    )
    try:
        code = container.wait(timeout=60)["StatusCode"]
        return Ended(
            code, container.logs(stderr=False).decode(), container.logs(stdout=False).decode()
        )
    finally:
        container.remove(force=True, v=True)


def health_of(node: Node) -> str:
    """Docker's own word."""
    return str(node.docker.attrs["State"]["Health"]["Status"])


# --- what they are


def test_what_the_images_say_of_themselves(built: Images) -> None:
    client = docker.from_env()
    for name in (built.daemon, built.gateway, built.node, built.plugin):
        image = client.images.get(name)
        config, size_mb = image.attrs["Config"], image.attrs["Size"] / 1e6
        short = name.partition(":")[0]
        layers = [
            f"{layer['Size'] / 1e6:.0f}"
            for layer in reversed(image.history())
            if layer["Size"] > 500_000
        ]
        print(f"{name}: {size_mb:.0f} MB, in layers of {' + '.join(layers)} MB")
        assert size_mb <= SIZE_MAX_MB[short], f"{name} has {size_mb:.0f} MB"
        labels = {
            key.rpartition(".")[2]: value
            for key, value in config["Labels"].items()
            if key.startswith("org.opencontainers.image.")
        }
        assert labels["title"] == short and labels["licenses"] == "Apache-2.0"
        assert (
            labels["version"] == VERSION
            and labels["revision"] == images.REVISION
            and labels["description"]
        )
        assert config["User"] == "10001:10001"
        assert isinstance(config["Entrypoint"], list) and config["Entrypoint"][0].startswith("/"), (
            "exec form, absolute path"
        )
    said = run(built.daemon, "--version").stdout.strip()
    java = run(built.gateway, "-version", entrypoint="/opt/java/bin/java").stderr.splitlines()[0]
    python = run(built.daemon, "--version", entrypoint=PYTHON).stdout.strip()
    print(f"{said}; {python}; {java}")
    assert said == f"cursorkeeper {VERSION}"


def test_the_daemons_image_holds_what_the_lock_says(built: Images) -> None:
    answer = json.loads(run(built.daemon, "-c", ASK, entrypoint=PYTHON).stdout)
    locked = {}
    for line in re.findall(
        r"^([A-Za-z0-9].*?)(?: \\)?$", (ROOT / "requirements.lock").read_text(), re.MULTILINE
    ):
        wanted = Requirement(line)
        if wanted.marker is None or wanted.marker.evaluate(answer["environment"]):
            (pin,) = wanted.specifier
            locked[wanted.name.lower().replace("_", "-")] = pin.version
    assert len(locked) > 15
    assert answer["distributions"] == {
        **locked,
        "cursorkeeper": VERSION,
        "cursorkeeper-client": VERSION,
    }


def test_there_is_nothing_in_them_for_an_intruder(built: Images) -> None:
    found = json.loads(
        run(built.daemon, "-c", SEARCH, *TOOLS, entrypoint=PYTHON, read_only=False).stdout
    )
    assert found == {"tools": [], "jars": [], "root_programs": [], "writable": []}
    missing = run(built.daemon, "-c", "import pip", entrypoint=PYTHON)
    assert "No module named 'pip'" in missing.stderr
    look = (
        f"for t in {' '.join(TOOLS)}; do command -v $t; done; find / -xdev -type f -perm "
        f"/6000; find /opt /usr /etc -writable -not -type l"
    )
    for image in (built.gateway, built.node):
        assert run(image, "-c", look, entrypoint="/bin/bash", read_only=False).stdout == "", image


def test_the_plugins_image_is_its_files_and_a_way_to_copy_them(built: Images) -> None:
    container = host.connect().containers.create(built.plugin, labels=host.LABELS)
    try:
        with tarfile.open(fileobj=io.BytesIO(b"".join(container.export()))) as root:
            sizes = {
                member.name: member.size
                for member in root.getmembers()
                if member.isfile() and member.size
            }
    finally:
        container.remove(force=True)
    jar, nar = f"plugin/{images.PLUGIN.name}", "plugin/cursorkeeper-pulsar-receipts.nar"
    assert sizes[jar] == images.PLUGIN.stat().st_size and sizes[nar]
    assert {name for name in sizes if not name.startswith("plugin/")} == {
        "bin/cp",
        "usr/share/cursorkeeper/debian-packages.tsv",
    }
    copied = run(
        built.plugin, f"/{jar}", f"/{nar}", "/cursorkeeper/", tmpfs={"/cursorkeeper": "mode=1777"}
    )
    assert (copied.code, copied.stdout, copied.stderr) == (0, "", "")


def test_every_image_lists_its_packages_for_its_bill_of_materials(built: Images) -> None:
    listed = {}
    for image in (built.daemon, built.gateway, built.plugin):
        identity, texts = image_bill.read_from(image, [image_bill.PACKAGES])
        assert identity.startswith("sha256:")
        parts = image_bill.debian_packages(texts[image_bill.PACKAGES])
        listed[image] = {part["name"] for part in parts}
    assert {"libc6", "python3-minimal"} <= listed[built.daemon] and "gcc" not in listed[
        built.daemon
    ]
    assert "libc6" in listed[built.gateway] and "python3" not in listed[built.gateway]
    assert listed[built.plugin] == {"busybox-static"}
    _, texts = image_bill.read_from(built.gateway, [image_bill.RELEASE])
    assert re.match(r"\d+\.\d+", image_bill.java(texts[image_bill.RELEASE])["version"])


def test_the_same_sources_give_the_same_layers(built: Images, tmp_path: Path) -> None:
    parts = ("Dockerfile", "java/Dockerfile", ".dockerignore", *_context())
    for copy in ("one", "two"):
        for part in parts:
            (tmp_path / copy / part).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(
                ROOT / part if copy == "one" else tmp_path / "one" / part, tmp_path / copy / part
            )
    client = docker.from_env()

    def build(copy: str, **arguments: str) -> Any:
        return client.images.get(
            images.build("cursorkeeper:test-again", tmp_path / copy, "Dockerfile", **arguments)
        )

    first, began = build("one"), time.monotonic()
    again = build("two")
    print(f"built again in {time.monotonic() - began:.1f} s")
    assert again.id == first.id
    other = build("two", version="0.0.0")
    assert (
        other.id != first.id and other.attrs["RootFS"]["Layers"] == first.attrs["RootFS"]["Layers"]
    ), "only a label differs"


def _context() -> list[str]:
    """What the daemon's image is made of, as files of the repository."""
    folders = [
        p
        for part in ("proto", "clients/cursorkeeper_client", "daemon/cursorkeeper")
        for p in (ROOT / part).rglob("*")
    ]
    files = [
        p
        for p in (*folders, *(ROOT / "tools").glob("*.py"))
        if p.is_file() and "__pycache__" not in p.parts and "_pb2" not in p.name
    ]
    ours = (
        f"{folder}/{name}"
        for folder in ("clients", "daemon")
        for name in ("pyproject.toml", "hatch_build.py", "README.md", "LICENSE")
    )
    return [
        "requirements.lock",
        "requirements-build.lock",
        *ours,
        *(str(p.relative_to(ROOT)) for p in files),
    ]


# --- how the daemon's behaves


def test_bad_settings_are_refused_with_the_name_and_a_remedy(built: Images) -> None:
    cases: dict[str, dict[str, str]] = {
        "ensemble": {"CURSORKEEPER_ENSEMBLE": "three"},
        "ack_quorum": {"CURSORKEEPER_ACK_QUORUM": "4"},
        "listen": {"CURSORKEEPER_LISTEN": "everywhere"},
        "source_token_file": {"CURSORKEEPER_SOURCE_TOKEN_FILE": "/run/secrets/none"},
        "codec": {"CURSORKEEPER_CODEC": "zip"},
    }
    with ThreadPoolExecutor(2) as two:
        ended = dict(
            zip(
                cases,
                two.map(lambda env: run(built.daemon, "run", environment=env), cases.values()),
                strict=True,
            )
        )
    for name, end in ended.items():
        print(end.stderr.strip())
        assert end.code == 2, f"{name}: {end}"
        assert "What to do:" in end.stderr and len(end.stderr.splitlines()) == 2, end.stderr
        (value,) = cases[name].values()
        assert name in end.stderr or value in end.stderr, f"{name} is not named: {end.stderr}"
    unknown = run(built.daemon, "run", "--no-such-flag")
    assert unknown.code == 2 and "--no-such-flag" in unknown.stderr


async def test_it_runs_confined_and_without_a_shell(stack: ContainerStack, tmp_path: Path) -> None:
    binds = {}
    for shell in SHELLS:  # an empty file that nobody may execute lies over each
        empty = tmp_path / Path(shell).name
        empty.touch(mode=0o644)
        binds[str(empty)] = {"bind": shell, "mode": "ro"}
    where = {
        "gateway": f"{stack.gateway.name}:{GATEWAY_PORT}",
        "zookeeper": stack.zookeeper_address,
    }
    node = DaemonNode(
        stack.images,
        stack.network,
        9,
        {**where, **stack.settings},
        volumes=binds,
        healthcheck=OFTEN,
    )
    stack.others.append(node)
    node.start()
    await node.ready()
    for shell in ("/bin/sh", "/bin/bash"):
        assert node.run(shell, "-c", "true")[0] != 0, (
            f"{shell} still works: this test would prove nothing"
        )
    assert node.run(PYTHON, "-c", "import os; print(os.getuid(), os.getgid())") == (
        0,
        "10001 10001\n",
    )
    assert "Read-only file system" in node.run(PYTHON, "-c", "open('/opt/new', 'w')")[1]
    status = node.run(PYTHON, "-c", "print(open('/proc/1/status').read())")[1]
    assert (
        "CapEff:\t0000000000000000" in status
        and "NoNewPrivs:\t1" in status
        and "CapBnd:\t0000000000000000" in status
    )
    code, said = node.run("cursorkeeper", "health")
    assert (code, said) == (0, f"127.0.0.1:{STREAM_PORT}: SERVING\n")
    await until(lambda: health_of(node) == "healthy", "Docker calls it healthy")
    assert node.stop() == 0
    node.remove()


async def test_sigterm_while_it_waits_ends_it_at_once_and_until_then_it_is_unhealthy(
    stack: ContainerStack,
) -> None:
    soon = {**OFTEN, "start_period": SECOND_NS, "retries": 1}
    node = DaemonNode(
        stack.images,
        stack.network,
        8,
        {"zookeeper": "nobody:2181", "gateway": "nobody:7651"},
        healthcheck=soon,
    )
    stack.others.append(node)
    node.start()
    await until(lambda: '"event":"waiting"' in node.log_tail(), "it says what it waits for")
    assert '"what":"ZooKeeper","where":"nobody:2181"' in node.log_tail()
    assert node.health() != 0
    await until(lambda: health_of(node) == "unhealthy", "Docker calls it unhealthy")
    assert node.stop() == 0, "else it was killed, long before it would have given up"
    assert '"event":"stopped before it was ready"' in node.log_tail()
    node.remove()


async def test_sigterm_with_acks_flowing_ends_it_within_its_deadline(
    stack: ContainerStack, accept: Callable[[Verdict], None]
) -> None:
    source = await stack.source("sigterm", flows=20, interval_ms=10)
    began = time.monotonic()
    code = stack.daemon.stop()
    print(
        f"exit code {code}, {time.monotonic() - began:.1f} s after SIGTERM, with 3 cursors open "
        f"and acks flowing"
    )
    stack.daemon.start_again()
    await stack.daemon.ready()
    await source.flows(20)
    await source.finish()
    accept(await stack.verdict(source))
    assert code == 0, f"1: its own deadline passed, 137: Docker's. {stack.daemon.log_tail()}"


# --- how the gateway's and the nodes' behave


async def test_gateway_and_nodes_run_confined_and_end_by_sigterm(stack: ContainerStack) -> None:
    gateway = Node(
        "gateway-9",
        stack.images.gateway,
        [
            "gateway",
            "--insecure",
            "--host",
            "0.0.0.0",
            "--port",
            str(GATEWAY_PORT),
            "--metrics-port",
            str(GATEWAY_METRICS_PORT),
            "--metadata-service-uri",
            stack.uri,
        ],
        stack.network,
        healthcheck=OFTEN,
    )
    alone = Node(
        "zk-9",
        stack.images.node,
        ["zookeeper", "--data-dir", "/data", "--port", str(CLIENT_PORT)],
        stack.network,
    )
    stack.others += [gateway, alone]
    for node in (gateway, alone):
        node.start()
    for node in (gateway, alone):
        await node.ready()
        assert node.run("id", "-u") == (0, "10001\n") and node.run("touch", "/new")[0] != 0
        assert "Read-only file system" in node.run("touch", "/opt/new")[1]
        assert "CapEff:\t0000000000000000" in node.run("cat", "/proc/1/status")[1]
    await until(lambda: health_of(gateway) == "healthy", "Docker calls the gateway healthy")
    for node in (gateway, stack.bookies[2], alone):
        began = time.monotonic()
        code = node.stop()
        print(f"{node.name}: exit code {code}, {time.monotonic() - began:.1f} s after SIGTERM")
        assert code == JVM_TERMINATED, node.log_tail()
    stack.bookies[2].start_again()
    await stack.bookies[2].ready()


@pytest.mark.parametrize("kind", ["gateway", "node"])
def test_a_jvm_without_memory_ends(built: Images, kind: str) -> None:
    small = {
        "environment": {"JAVA_TOOL_OPTIONS": "-Xmx4m"},
        "tmpfs": {"/tmp": "", "/data": "uid=10001"},
    }
    end = run(getattr(built, kind), "zookeeper", "--data-dir", "/data", "--port", "2181", **small)
    assert end.code == JVM_OUT_OF_MEMORY, end
    assert "Terminating due to java.lang.OutOfMemoryError" in end.stdout + end.stderr

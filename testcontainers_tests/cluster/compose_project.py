"""The user's own Compose file, run under a project name of this run: brought up, looked at, taken
down with its volumes.

Owns: the project's name, its free ports on 127.0.0.1, and the labels by which a killed run is
swept; these are laid over deploy/compose.yaml by one more file, which changes nothing else but what
makes a start quicker: how often health is asked, and JVMs without their second compiler. Secured,
deploy/compose.secured.yaml is part of that file. Blocks for as long as Compose takes.
"""

from __future__ import annotations

import json
import os
import ssl
import subprocess
import time
import urllib.request
from pathlib import Path
from typing import Any

import docker
import yaml
from docker.models.containers import Container

from testcontainers_tests.cluster.host import LABELS, PREFIX
from testcontainers_tests.cluster.images import BASE_IMAGE, ROOT
from testcontainers_tests.cluster.nodes import QUICK_JVM
from testcontainers_tests.cluster.workers import own_port

SCRIPT = ROOT / "deploy/compose.sh"
FILE = ROOT / "deploy/compose.yaml"
SECURED = ROOT / "deploy/compose.secured.yaml"
TAG = "compose-test"
PORTS = {
    "CURSORKEEPER_PORT": 7650,
    "CURSORKEEPER_METRICS_PORT": 7652,
    "CURSORKEEPER_GATEWAY_METRICS_PORT": 7653,
    "PROMETHEUS_PORT": 9090,
}
"""Variable of the Compose file -> the port in the container."""
COMMAND_MAX_S = 600
"""Also for images that must be built from nothing."""
JVM_IMAGES = ("cursorkeeper-node:", "cursorkeeper-gateway:")
NO_COMPOSE = 3
KILL = "import os; os.kill({pid}, 9)"


class ComposeProject:
    """See the module. `folder`: for the file that is laid over."""

    def __init__(self, client: docker.DockerClient, folder: Path) -> None:
        self.name = f"{PREFIX}-compose"
        self._docker = client
        self._ports = {name: own_port() for name in PORTS}
        self._extra_file = folder / "extra.yaml"
        self._tls: ssl.SSLContext | None = None
        self._lay_over({})
        self._environment = {
            **os.environ,
            **{name: str(port) for name, port in self._ports.items()},
            "COMPOSE_PROJECT_NAME": self.name,
            "COMPOSE_EXTRA": str(self._extra_file),
            "CURSORKEEPER_VERSION": TAG,
            "BASE_IMAGE": BASE_IMAGE,
        }

    def _lay_over(self, more: dict[str, Any]) -> None:
        """With `more`, another file to lay over."""
        file = yaml.safe_load(FILE.read_text())
        services: dict[str, dict[str, Any]] = {}
        for name in {*file["services"], *more.get("services", {})}:
            service = file["services"].get(name, {})
            over = {**more.get("services", {}).get(name, {}), "labels": LABELS}
            if service and not service.get("healthcheck", {}).get("disable"):
                over["healthcheck"] = {"interval": "1s" if name != "daemon" else "2s"}
            if service.get("image", "").startswith(JVM_IMAGES):
                over["environment"] = over.get("environment", {}) | QUICK_JVM
            services[name] = over
        parts = {
            part: {name: {"labels": LABELS} for name in (*file[part], *more.get(part, ()))}
            for part in ("networks", "volumes")
        }
        self._extra_file.write_text(yaml.safe_dump({"services": services, **parts}))

    def secure(self) -> None:
        """From the next `up` on, gateway, daemon, source and Prometheus speak TLS."""
        self._lay_over(yaml.safe_load(SECURED.read_text()))

    def trust_its_authority(self) -> None:
        """Pages are asked with TLS from now on."""
        text = self.inside("prometheus", "cat", "/certificates/authority.pem")
        self._tls = ssl.create_default_context(cadata=text)

    def run(self, *command: str, check: bool = True) -> str:
        """A command of deploy/compose.sh; its standard output. AssertionError with everything it
        said if it fails.
        """
        began = time.monotonic()
        done = subprocess.run(
            [str(SCRIPT), *command],
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=COMMAND_MAX_S,
        )
        if command[0] in ("up", "down"):
            print(f"{SCRIPT.name} {' '.join(command)}: {time.monotonic() - began:.1f} s")
        assert done.returncode == 0 or not check, (
            f"{SCRIPT.name} {' '.join(command)}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        )
        return done.stdout

    def inside(self, service: str, *command: str) -> str:
        """A command in a container; its output. AssertionError if it fails."""
        code, output = self.containers()[service].exec_run(list(command))
        assert code == 0, f"{' '.join(command)}: {code}\n{output.decode()}"
        return str(output.decode())

    def refused(self, service: str, *command: str) -> str:
        """What a command in a container says that fails. AssertionError if it does not."""
        code, output = self.containers()[service].exec_run(list(command))
        assert code != 0, f"{' '.join(command)}: 0\n{output.decode()}"
        return str(output.decode())

    # --- looking at it ---

    def containers(self) -> dict[str, Container]:
        """By service, as they are now; stopped ones, too."""
        mine = {"label": f"com.docker.compose.project={self.name}"}
        return {
            c.labels["com.docker.compose.service"]: c
            for c in self._docker.containers.list(all=True, filters=mine)
        }

    def leftovers(self) -> list[str]:
        """What of it Docker still knows: containers, networks, volumes."""
        mine = {"label": f"com.docker.compose.project={self.name}"}
        found = [
            *self._docker.containers.list(all=True, filters=mine),
            *self._docker.networks.list(filters=mine),
        ]
        return [str(thing.name) for thing in (*found, *self._docker.volumes.list(filters=mine))]

    def health(self) -> dict[str, str]:
        """Docker's own, by service; a container without a health check has its status instead."""
        states = {name: container.attrs["State"] for name, container in self.containers().items()}
        return {
            name: str(state["Health"]["Status"] if "Health" in state else state["Status"])
            for name, state in states.items()
        }

    def page(self, port: str, path: str) -> str:
        """What a published port answers to GET; `port`: its variable's name."""
        tls = None if port == "PROMETHEUS_PORT" else self._tls
        scheme = "http" if tls is None else "https"
        with urllib.request.urlopen(
            f"{scheme}://127.0.0.1:{self._ports[port]}{path}", timeout=10, context=tls
        ) as answer:
            return str(answer.read().decode())

    def prometheus(self, path: str) -> Any:
        """The data of an answer of Prometheus' HTTP API."""
        return json.loads(self.page("PROMETHEUS_PORT", f"/api/v1/{path}"))["data"]

    def metric(self, name: str) -> float:
        """The sum of a metric's samples on the daemon's page now."""
        lines = self.page("CURSORKEEPER_METRICS_PORT", "/metrics").splitlines()
        return sum(
            float(line.rpartition(" ")[2])
            for line in lines
            if line.partition(" ")[0].partition("{")[0] == name
        )

    # --- doing something to it ---

    def crash(self, service: str) -> None:
        """SIGKILL to the process, as the kernel would do it: `docker kill` would count as an
        operator's stop. Another container does it, which sees the host's processes, so that it
        works where Docker runs in a machine of its own.
        """
        pid = self.containers()[service].attrs["State"]["Pid"]
        self._docker.containers.run(
            f"cursorkeeper:{TAG}",
            ["-c", KILL.format(pid=pid)],
            entrypoint="/opt/cursorkeeper/bin/python3",
            user="0",
            pid_mode="host",
            cap_drop=["ALL"],
            cap_add=["KILL"],
            network_mode="none",
            labels=LABELS,
            remove=True,
        )

    def down(self) -> None:
        """Away with everything, whatever state it is in."""
        self.run("down", "--volumes", "--timeout", "5", check=False)

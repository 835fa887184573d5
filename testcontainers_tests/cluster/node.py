"""One container of the system: started, waited for, killed, paused, cut off, and removed.

Owns: the container's life and its log. Does not own: what runs in it (`nodes`), or when something
is done to it (`faults`). Invariants: a node keeps its name, its published ports (127.0.0.1 only)
and, but for tmpfs, its files over kills and restarts; it is removed by `remove`, also when its
start failed. Calls block for as long as Docker takes; what waits for a condition is a coroutine.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import docker.errors
from docker.models.containers import Container
from testcontainers.core.config import testcontainers_config
from testcontainers.core.container import DockerContainer
from testcontainers.core.exceptions import ContainerStartException
from testcontainers.core.network import Network

from testcontainers_tests.cluster.conditions import LIMIT_S, Hopeless, until
from testcontainers_tests.cluster.host import LABELS, PREFIX
from testcontainers_tests.cluster.workers import own_port

testcontainers_config.ryuk_disabled = True
"""`host.sweep` removes what is left, also of a run that was killed: no image from a registry is
needed for that.
"""
TAIL_LINES = 25


class Node:
    """See the module. `name` is its name in the network; `ports` are published on 127.0.0.1 at
    `address(port)`.
    """

    def __init__(
        self,
        name: str,
        image: str,
        command: Sequence[str],
        network: Network | None,
        *,
        env: Mapping[str, str] | None = None,
        ports: Sequence[int] = (),
        tmpfs: Mapping[str, str] | None = None,
        volumes: Mapping[str, Mapping[str, str]] | None = None,
        memory: str | None = "640m",
        read_only: bool = True,
        **docker_arguments: Any,
    ) -> None:
        self.name, self.image, self.network = name, image, network
        self._published = {port: own_port() for port in ports}
        self._ready_lines = 0
        arguments = {
            "hostname": name,
            "labels": LABELS,
            "mem_limit": memory,
            "memswap_limit": memory,
            "read_only": read_only,
            "cap_drop": ["ALL"],
            "security_opt": ["no-new-privileges"],
            **docker_arguments,
        }
        if network is None:
            arguments.setdefault("network_mode", "none")
        if arguments.get("network_mode"):
            arguments.pop("hostname")
        prefix = network.name[:8] if network is not None else "alone"
        self._container = DockerContainer(
            image,
            command=list(command),
            env=dict(env or {}),
            name=f"{PREFIX}-{prefix}-{name}",
            network=network,
            network_aliases=[name],
        ).with_kwargs(**arguments)
        self._container.tmpfs = {"/tmp": "mode=1777", **(tmpfs or {})}
        for host_path, where in (volumes or {}).items():
            self._container.with_volume_mapping(host_path, where["bind"], where["mode"])  # type: ignore[arg-type]
        for port, host_port in self._published.items():
            self._container.ports[f"{port}/tcp"] = ("127.0.0.1", host_port)  # type: ignore[assignment]

    def address(self, port: int) -> str:
        """host:port of a published port; the same over restarts."""
        return f"127.0.0.1:{self._published[port]}"

    @property
    def docker(self) -> Container:
        """The container, with attributes of now."""
        container = self._container.get_wrapped_container()
        container.reload()
        return container

    # --- life ---

    def start(self) -> None:
        """Create and start; does not wait for it to be ready."""
        self._container.start()

    async def ready(self, limit_s: float = LIMIT_S) -> Mapping[str, Any]:
        """The ready line of the newest start; AssertionError with the log's end if it does not
        come.
        """

        def look() -> Mapping[str, Any] | None:
            lines = self.json_lines("ready")
            if len(lines) > self._ready_lines:
                return lines[-1]
            if self.docker.status != "running":
                raise Hopeless(f"{self.name} ended with {self.exit_code} before it was ready")
            return None

        try:
            found = await until(look, f"{self.name} is ready", limit_s)
        except AssertionError as e:
            raise AssertionError(f"{e}\n{self.log_tail()}") from None
        return found

    def kill(self) -> None:
        """SIGKILL; nothing if it does not run."""
        with suppress(docker.errors.APIError):  # 409: it does not run
            self.docker.kill("SIGKILL")
        self.docker.wait(timeout=LIMIT_S)

    def start_again(self) -> None:
        """The same container, after its process ended."""
        self._ready_lines = len(self.json_lines("ready"))
        self.docker.start()

    def stop(self, limit_s: int = 30) -> int:
        """SIGTERM, SIGKILL after the limit; returns the exit code (137: it had to be killed)."""
        self.docker.stop(timeout=limit_s)
        return self.exit_code

    def pause(self) -> None:
        """Frozen: connections stay, nothing answers. Tried again for a while: a busy JVM may not
        hold still in time for runc.
        """
        began = time.monotonic()
        while True:
            try:
                self.docker.pause()
                return
            except docker.errors.APIError as e:
                if "unable to freeze" not in str(e) or time.monotonic() - began > LIMIT_S:
                    raise

    def unpause(self) -> None:
        """Go on; nothing if it is not paused."""
        if self.docker.status == "paused":
            self.docker.unpause()

    def disconnect(self) -> None:
        """Off the network: a black hole for whoever talks to it."""
        assert self.network is not None
        self.network._unwrap_network.disconnect(self.docker, force=True)

    def reconnect(self) -> None:
        """Back on the network under the same name (Docker forgets aliases)."""
        assert self.network is not None
        if self.network.name not in self.docker.attrs["NetworkSettings"]["Networks"]:
            self.network._unwrap_network.connect(self.docker, aliases=[self.name])

    def remove(self) -> None:
        """For good, with its volumes; nothing if there is none."""
        with suppress(docker.errors.APIError):
            self._container.stop(force=True, delete_volume=True)

    # --- looking at it ---

    @property
    def exit_code(self) -> int:
        """Of the newest life, once it ended."""
        return int(self.docker.attrs["State"]["ExitCode"])

    @property
    def status(self) -> str:
        """running, paused, exited ..."""
        return str(self.docker.status)

    @property
    def ip(self) -> str:
        """In its network, of now."""
        assert self.network is not None
        return str(self.docker.attrs["NetworkSettings"]["Networks"][self.network.name]["IPAddress"])

    def run(self, *command: str, user: str = "") -> tuple[int, str]:
        """A command inside; returns its exit code and output."""
        code, output = self.docker.exec_run(list(command), user=user)
        return int(code), output.decode(errors="replace")

    def json_lines(self, key: str = "", tail: int | str = "all") -> list[dict[str, Any]]:
        """The JSON lines of standard output that have this key, over all lives."""
        raw: bytes = self.docker.logs(stdout=True, stderr=False, tail=tail)
        found = []
        for line in raw.decode(errors="replace").splitlines():
            if line.startswith("{") and (not key or f'"{key}"' in line):
                with suppress(ValueError):  # a kill may cut the last line
                    found.append(json.loads(line))
        return found

    def log_tail(self, lines: int = TAIL_LINES) -> str:
        """The end of all output, with a headline."""
        try:
            container = self.docker
            text = container.logs(tail=lines).decode(errors="replace").rstrip()
            state = container.attrs["State"]
        except (docker.errors.APIError, ContainerStartException) as e:
            return f"--- {self.name}: no log: {e}"
        return (
            f"--- {self.name}: {state['Status']}, exit code "
            f"{state['ExitCode']}{', OUT OF MEMORY' * state['OOMKilled']}\n{text}"
        )

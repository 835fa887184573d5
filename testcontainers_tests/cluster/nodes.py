"""What runs in the containers: ZooKeeper, bookies, auto-recovery, gateway, daemon, source, proxy
and toolbox.

Owns: command lines and ports of each. Does not own: their life (`node`) or who is started when
(`stack`).
"""

from __future__ import annotations

import ipaddress
import re
import socket
import time
from collections.abc import Mapping, Sequence
from typing import Any

from testcontainers.core.network import Network

from cursorkeeper.demo.processes import scrape
from cursorkeeper.demo.workload import BadCase
from daemon.tests import source
from testcontainers_tests.cluster.conditions import LIMIT_S, until
from testcontainers_tests.cluster.disk import DATA, Disk
from testcontainers_tests.cluster.images import Images
from testcontainers_tests.cluster.node import Node
from testcontainers_tests.cluster.secrets import OPEN, SECURE_PORT, Credentials
from testcontainers_tests.cluster.truth import Truth

CLIENT_PORT, BOOKIE_PORT = 2181, 3181
GATEWAY_PORT, GATEWAY_METRICS_PORT = 7651, 7653
STREAM_PORT, METRICS_PORT = 7650, 7652
SESSION_MS = 5_000
"""Of bookies, gateway and daemons: a killed node is forgotten after that."""
QUICK_JVM = {"JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1"}
"""Of every JVM here: they live for seconds and are started often. The second compiler would take 40
% of a stack's start, on two cores.
"""
PYTHON = "/opt/cursorkeeper/bin/python3"
"""In the daemon's image."""
OF_TESTS: dict[str, Any] = {
    "volumes": {source.__path__[0]: {"bind": "/tests/daemon/tests/source", "mode": "ro"}},
    "env": {"PYTHONPATH": "/tests"},
}
"""Of a container of the daemon's image that runs a source of the tests."""
TAIL_OF_CURSOR = 450
"""Lines of one cursor's source in which its newest `durable` is, also when its window of 200
batches is full.
"""
NO_CONNECTION = "no connection"
"""What a source says for "paused" when there is no keeper that could ask."""


def jvm(credentials: Credentials) -> dict[str, str]:
    """The environment of a JVM that has these."""
    name = "JAVA_TOOL_OPTIONS"
    return {name: " ".join((QUICK_JVM[name], *credentials.java))}


class ZooKeeperNode(Node):
    """A server alone, or member `number` of `members`."""

    def __init__(
        self,
        images: Images,
        network: Network,
        number: int = 1,
        members: int = 1,
        credentials: Credentials = OPEN,
    ) -> None:
        command = [
            "zookeeper",
            "--host",
            "0.0.0.0",
            "--data-dir",
            DATA,
            "--port",
            str(CLIENT_PORT),
            "--tick-ms",
            "500",
        ]
        if members > 1:
            servers = ",".join(f"{n}=zk-{n}:2888:3888" for n in range(1, members + 1))
            command += ["--server-id", str(number), "--servers", servers]
        self._port = CLIENT_PORT if credentials is OPEN else SECURE_PORT
        super().__init__(
            f"zk-{number}",
            images.node,
            [*command, *credentials.arguments],
            network,
            env=jvm(credentials),
            ports=[self._port],
            volumes=credentials.volumes,
        )

    @property
    def client_address(self) -> str:
        """host:port for this machine."""
        return self.address(self._port)

    def server_words(self) -> dict[str, str]:
        """What it answers to `srvr`: Mode (leader, follower, standalone), Connections, and more.
        OSError if it does not answer.
        """
        pairs = [line.strip().partition(": ") for line in self._asked("srvr")]
        return {name: value for name, colon, value in pairs if colon}

    def connected_sessions(self) -> set[int]:
        """Those whose client is connected to this member now. OSError if it does not answer."""
        return {
            int(sid, 16)
            for line in self._asked("cons")
            for sid in re.findall(r"sid=(0x[0-9a-f]+)", line)
        }

    def owners(self) -> dict[str, int]:
        """The session that owns each ephemeral node, as this member knows it. OSError if it does
        not answer.
        """
        owners, session = dict[str, int](), 0
        for line in self._asked("dump"):
            # without the colon it is a session and its timeout
            if line.startswith("0x") and line.endswith(":\n"):
                session = int(line[:-2], 16)
            elif line.startswith("\t/"):
                owners[line.strip()] = session
        return owners

    def _asked(self, word: str) -> list[str]:
        host, _, port = self.client_address.rpartition(":")
        with socket.create_connection((host, int(port)), timeout=10) as asking:
            asking.sendall(word.encode())
            with asking.makefile(encoding="ascii", errors="replace") as answer:
                return list(answer)

    def talks_with(self, ip: str) -> bool:
        """Whether a client's connection from this address is open here."""
        found = self.run("cat", "/proc/net/tcp", "/proc/net/tcp6")[1].splitlines()
        peer, port, open_now = (
            ipaddress.ip_address(ip).packed[::-1].hex().upper(),
            f":{CLIENT_PORT:04X}",
            "01",
        )
        rows = [line.split()[1:4] for line in found if line.count(":") > 3]
        return any(
            local.endswith(port) and remote[:-5].endswith(peer) and state == open_now
            for local, remote, state in rows
        )

    async def forgets(self, *ips: str) -> None:
        """The sessions of clients at these addresses have expired, because they were silent: their
        connections are closed.
        """
        await until(
            lambda: not any(self.talks_with(ip) for ip in ips), f"{self.name} forgets {ips}"
        )


class BookieNode(Node):
    """A bookie whose identity is its name. `disk`: its data is there, instead of in a volume of its
    own.
    """

    def __init__(
        self,
        images: Images,
        network: Network,
        number: int,
        uri: str,
        extra: Sequence[str] = (),
        disk: Disk | None = None,
        credentials: Credentials = OPEN,
    ) -> None:
        name = f"bookie-{number}"
        where = ["--data-dir", DATA, "--port", str(BOOKIE_PORT), "--advertised-address", name]
        command = [
            "bookie",
            *where,
            "--metadata-service-uri",
            uri,
            "--zookeeper-timeout-ms",
            str(SESSION_MS),
            *extra,
            *credentials.arguments,
        ]
        super().__init__(
            name,
            images.node,
            command,
            network,
            env=jvm(credentials),
            volumes={**(disk.mount if disk else {}), **credentials.volumes},
        )
        self.disk = disk

    def remove(self) -> None:
        """With its disk."""
        super().remove()
        if self.disk is not None:
            self.disk.remove()


class AutoRecoveryNode(Node):
    """BookKeeper's auditor and replication worker, in a hurry."""

    def __init__(
        self, images: Images, network: Network, uri: str, *, open_ledger_grace_ms: int = 1_000
    ) -> None:
        limits = ["--lost-bookie-delay-s", "0", "--open-ledger-grace-ms", str(open_ledger_grace_ms)]
        command = [
            "autorecovery",
            "--metadata-service-uri",
            uri,
            "--zookeeper-timeout-ms",
            str(SESSION_MS),
            *limits,
        ]
        super().__init__("autorecovery", images.node, command, network, env=QUICK_JVM)


class GatewayNode(Node):
    """A ledger gateway with every role. The network is the tests' own, so that it asks nobody for a
    token; one of an earlier release has no flags for that. With `credentials` these say where
    ZooKeeper is and who may call.
    """

    def __init__(
        self,
        images: Images,
        network: Network,
        number: int,
        uri: str,
        extra: Sequence[str] = (),
        image: str = "",
        credentials: Credentials = OPEN,
    ) -> None:
        if credentials is not OPEN:
            extra = [*credentials.arguments, *extra]
        elif image in ("", images.gateway):
            extra = ["--metadata-service-uri", uri, "--insecure", "--migrator", *extra]
        else:
            extra = ["--metadata-service-uri", uri, *extra]
        command = [
            "gateway",
            "--host",
            "0.0.0.0",
            "--port",
            str(GATEWAY_PORT),
            "--metrics-port",
            str(GATEWAY_METRICS_PORT),
            "--zookeeper-timeout-ms",
            str(SESSION_MS),
            *extra,
        ]
        ports = [GATEWAY_PORT, GATEWAY_METRICS_PORT]
        super().__init__(
            f"gateway-{number}",
            image or images.gateway,
            command,
            network,
            env=jvm(credentials),
            ports=ports,
            volumes=credentials.volumes,
        )

    @property
    def client_address(self) -> str:
        """host:port for this machine."""
        return self.address(GATEWAY_PORT)

    def metrics(self) -> dict[str, float]:
        """By name and labels; empty while it does not answer."""
        return scrape(self.address(GATEWAY_METRICS_PORT))


class DaemonNode(Node):
    """A daemon; `settings` by their names in `cursorkeeper.settings`."""

    def __init__(
        self,
        images: Images,
        network: Network,
        number: int,
        settings: Mapping[str, object],
        image: str = "",
        **docker_arguments: Any,
    ) -> None:
        env = {f"CURSORKEEPER_{name.upper()}": str(value) for name, value in settings.items()}
        if image in ("", images.daemon):
            # the network is the tests' own; an earlier release does not ask
            env = {"CURSORKEEPER_INSECURE": "true", **env}
        super().__init__(
            f"daemon-{number}",
            image or images.daemon,
            ["run"],
            network,
            env=env,
            ports=[STREAM_PORT, METRICS_PORT],
            **docker_arguments,
        )

    @property
    def client_address(self) -> str:
        """host:port of its ack stream for this machine."""
        return self.address(STREAM_PORT)

    def metrics(self) -> dict[str, float]:
        """By name and labels; empty while it does not answer."""
        return scrape(self.address(METRICS_PORT))

    def health(self) -> int:
        """The exit code of the image's own health check."""
        return self.run("cursorkeeper", "health")[0]


class SourceNode(Node):
    """`daemon.tests.source` on topics of its own; what it says is the truth about its acks."""

    def __init__(
        self,
        images: Images,
        network: Network,
        name: str,
        daemon: str,
        topics: Sequence[str],
        *,
        seed: int = 1,
        interval_ms: float = 25,
        moves: bool = False,
        drain_s: float = 90,
        extra: Sequence[str] = (),
        credentials: Credentials = OPEN,
    ) -> None:
        self.topics, self.seed, self.moves = tuple(topics), seed, moves
        command = [
            "-m",
            "daemon.tests.source",
            "--daemon",
            daemon,
            "--seed",
            str(seed),
        ]
        command += [
            "--interval-ms",
            str(interval_ms),
            "--drain-s",
            str(drain_s),
            *(["--moves"] if moves else []),
        ]
        for topic in topics:
            command += ["--topic", topic]
        super().__init__(
            name,
            images.daemon,
            [*command, *extra, *credentials.arguments],
            network,
            entrypoint=[PYTHON],
            env=OF_TESTS["env"],
            volumes={**OF_TESTS["volumes"], **credentials.volumes},
        )
        self._drain_s = drain_s

    def truth(self) -> list[Truth]:
        """Of each topic, from everything it said in all its lives."""
        lines = self.json_lines()
        return [Truth.of(lines, at, self.seed + at, self.moves) for at in range(len(self.topics))]

    def durable_batches(self) -> list[int]:
        """Of each topic, the newest it said in this life."""
        return self._newest("durable")

    def unconfirmed_batches(self) -> list[int]:
        """Of each topic, how many are sent and not durable, in this life."""
        return [
            sent - durable
            for sent, durable in zip(self._newest("sent"), self.durable_batches(), strict=True)
        ]

    def _newest(self, what: str) -> list[int]:
        found = [0] * len(self.topics)
        for line in self.json_lines(tail=TAIL_OF_CURSOR * len(self.topics)):
            if "ready" in line:
                found = [0] * len(self.topics)
            elif what in line:
                at, number = line[what]
                found[at] = number
        return found

    def sent_batches(self) -> list[int]:
        """Of each topic, the newest it said, over all lives."""
        lines = [line["sent"] for line in self.json_lines("sent")]
        return [
            max((number for at, number in lines if at == topic), default=0)
            for topic in range(len(self.topics))
        ]

    def epochs(self) -> list[list[int]]:
        """Of each topic, those under which it had the cursor, in the order in which it got it."""
        return [
            [line["opened"][1] for line in self.json_lines("opened") if line["opened"][0] == at]
            for at in range(len(self.topics))
        ]

    async def flows(self, batches: int = 10, limit_s: float = LIMIT_S) -> None:
        """So many more batches of every cursor become durable: writes succeed."""
        before = self.durable_batches()

        def look() -> bool:
            return all(
                now >= then + batches
                for now, then in zip(self.durable_batches(), before, strict=True)
            )

        await until(
            look,
            f"{self.name}: {batches} more batches of every cursor are durable after {before}",
            limit_s,
        )

    async def flows_for(self, seconds: float, limit_s: float = 60.0) -> None:
        """For so long, writes succeed again and again, each time within the limit."""
        began = time.monotonic()
        while time.monotonic() - began < seconds:
            await self.flows(1, limit_s)

    async def waits_with(self, batches: int, limit_s: float = LIMIT_S) -> None:
        """So many batches of every cursor, and more, are sent and not confirmed: acks pile up."""
        await until(
            lambda: min(self.unconfirmed_batches()) >= batches,
            f"{self.name}: {batches} batches wait",
            limit_s,
        )

    def pauses(self) -> list[str]:
        """Why the keeper asked to pause a cursor, each time."""
        reasons = [str(line["paused"][1]) for line in self.json_lines("paused")]
        return [r for r in reasons if r and r != NO_CONNECTION]

    async def paused_by(self, words: str = "", limit_s: float = LIMIT_S, *, since: int = 0) -> str:
        """The keeper asks to pause a cursor, with these words in its reason; returns the reason.
        `since`: not counting the first so many `pauses`.
        """

        def look() -> str:
            return next((r for r in self.pauses()[since:][::-1] if words in r), "")

        return await until(
            look, f"{self.name} is asked to pause: {words or 'for any reason'}", limit_s
        )

    async def resumed(self, limit_s: float = LIMIT_S) -> None:
        """No cursor is asked to pause, or without a connection, any more."""

        def look() -> bool:
            newest = {line["paused"][0]: line["paused"][1] for line in self.json_lines("paused")}
            return not any(newest.values())

        await until(look, f"{self.name} may go on", limit_s)

    async def finish(self) -> None:
        """SIGTERM; everything that was sent becomes durable. AssertionError if it does not."""
        self.docker.kill("SIGTERM")

        def ended() -> bool:
            return self.status == "exited"

        await until(ended, f"{self.name} has ended", self._drain_s + 30)
        last = self.json_lines("done", tail=5)
        assert self.exit_code == 0 and last and last[-1]["done"], (
            f"{self.name} did not drain: {last}\n{self.log_tail(5)}"
        )


class BadCaseNode(Node):
    """`daemon.tests.source.bad_case`: the bad case at a chosen size, once; ends with 0 when all of
    it is durable. It says of every batch when it is sent and when it is durable, so that it may be
    killed at any time.
    """

    def __init__(self, images: Images, network: Network, daemon: str, case: BadCase) -> None:
        self.case = case
        arguments = [
            "--daemon",
            daemon,
            "--entries",
            str(case.entries),
            "--ledgers",
            str(case.ledgers),
        ]
        arguments += [
            "--seed",
            str(case.seed),
            "--hole-share",
            str(case.hole_share),
        ]
        super().__init__(
            "bad-case",
            images.daemon,
            ["-m", "daemon.tests.source.bad_case", *arguments],
            network,
            entrypoint=[PYTHON],
            memory="2g",
            **OF_TESTS,
        )

    def batches(self) -> tuple[int, int]:
        """(sent, durable): the newest it said."""
        lines = self.json_lines()
        sent, durable = (
            [line[key][1] for line in lines if key in line] for key in ("sent", "durable")
        )
        return max(sent, default=0), max(durable, default=0)

    async def finished(self, limit_s: float = LIMIT_S) -> None:
        """It has ended, and everything it sent is durable."""
        await until(lambda: self.status == "exited", "the bad case has been sent", limit_s)
        done = self.json_lines("done", tail=5)
        assert self.exit_code == 0 and done, f"the bad case was not finished\n{self.log_tail(5)}"


class ProxyNode(Node):
    """A TCP proxy named `name` that delays what goes to `target` (host:port), and what comes
    back.
    """

    def __init__(
        self,
        images: Images,
        network: Network,
        name: str,
        port: int,
        target: str,
        delay_ms: int,
        jitter_ms: int = 0,
    ) -> None:
        command = ["python3", "/toolbox/proxy.py", str(port), target, str(delay_ms), str(jitter_ms)]
        super().__init__(name, images.toolbox, command, network)


class NetworkToolbox(Node):
    """Lives in another node's network: iptables there. It ends with that network when the node is
    restarted.
    """

    def __init__(self, images: Images, node: Node) -> None:
        super().__init__(
            f"tools-of-{node.name}",
            images.toolbox,
            ["sleep", "600"],
            None,
            network_mode=f"container:{node.docker.id}",
            cap_drop=["ALL"],
            cap_add=["NET_ADMIN", "NET_RAW"],
            init=True,
            read_only=False,
        )

    def iptables(self, *rule: str) -> None:
        """One change. AssertionError with iptables' own words."""
        code, output = self.run("iptables", "-w", "5", *rule)
        assert code == 0, f"iptables {' '.join(rule)} in {self.name}: {output}"

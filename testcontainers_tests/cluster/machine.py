"""A machine with systemd in a container, and the units of deploy/systemd on it, installed as their
page says.

Owns: the image, what the container must be allowed so that systemd can run in it, installing, plain
or secured, asking systemd. Does not own: what the units must do (`test_systemd_units`,
`test_systemd_secured`). Invariant: of the units under test nothing is changed; only addresses are
set, in the files that are there for that.
"""

from __future__ import annotations

import asyncio
import io
import re
import tarfile
from collections.abc import Mapping
from pathlib import Path

import docker.errors
from testcontainers.core.image import DockerImage
from testcontainers.core.network import Network

from testcontainers_tests.cluster.conditions import until
from testcontainers_tests.cluster.images import BASE_IMAGE, ROOT, ImageError, Images
from testcontainers_tests.cluster.node import Node
from testcontainers_tests.cluster.nodes import GATEWAY_PORT, METRICS_PORT, STREAM_PORT
from testcontainers_tests.cluster.secrets import Secrets

UNITS = ROOT / "deploy/systemd"
SECURED = UNITS / "secured"
DAEMON, GATEWAY = "cursorkeeper.service", "cursorkeeper-gateway.service"
CREDENTIALS = "/run/credentials/cursorkeeper.service"
ASKED_WITH = (
    f"--tls --tls-server-name {{name}} --tls-trust-certs-file-path {CREDENTIALS}/ca.crt "
    f"--tls-certificate-file-path {CREDENTIALS}/tls.crt --tls-key-file-path {CREDENTIALS}/tls.key"
)
"""`cursorkeeper health` of the secured ones, as root with the daemon's own certificate."""
DAEMONS_NAME, GATEWAYS_NAME = "cursorkeeper-daemon", "gateway.example.com"
"""In their certificates, as the forms have them."""
TOKENS = {
    "writer-token": "a-writers-token",
    "reader-token": "a-readers-token",
    "source-token": "a-sources-token",
}


def build_machine(images: Images) -> str:
    """The image with systemd and both programs; returns its tag. Raises ImageError."""
    tag = f"cursorkeeper-systemd:{images.daemon.rpartition(':')[2]}"
    arguments = {
        "BASE_IMAGE": BASE_IMAGE,
        "DAEMON_IMAGE": images.daemon,
        "GATEWAY_IMAGE": images.gateway,
    }
    folder = ROOT / "testcontainers_tests/images"
    image = DockerImage(
        path=folder,
        tag=tag,
        clean_up=False,
        dockerfile_path="systemd.Dockerfile",
        buildargs=arguments,
        rm=True,
    )
    try:
        image.build()
    except docker.errors.BuildError as e:
        raise ImageError(
            f"{tag} cannot be built: "
            f"{e}\n{''.join(str(line.get('stream', '')) for line in e.build_log)[-3000:]}"
        ) from e
    return tag


class Machine(Node):
    """See the module."""

    def __init__(self, image: str, network: Network, zookeeper: str) -> None:
        super().__init__(
            "machine",
            image,
            ["sh", "/boot-systemd.sh"],
            network,
            ports=[STREAM_PORT],
            tmpfs={"/run": "", "/run/lock": ""},
            memory=None,
            read_only=False,
            cap_drop=[],
            # mounts for sandboxes, and a look at processes that ProtectProc= hides while
            # PrivateUsers= is set up
            cap_add=["SYS_ADMIN", "SYS_PTRACE"],
            # systemd sets filters of its own
            security_opt=["seccomp=unconfined", "apparmor=unconfined"],
            cgroupns="private",
        )
        self._zookeeper, self.is_secured = zookeeper, False

    # --- asking ---

    def must(self, command: str) -> str:
        """Output of a shell command that succeeds; AssertionError with it otherwise."""
        code, output = self.run("sh", "-c", command)
        assert code == 0, f"{command}: {code}\n{output}"
        return output

    def shows(self, unit: str) -> Mapping[str, str]:
        """What systemd knows of a unit."""
        return dict(
            line.split("=", 1)
            for line in self.must(f"systemctl show {unit}").splitlines()
            if "=" in line
        )

    def journal(self) -> str:
        """The end of what systemd and the units said."""
        return self.run("journalctl", "--no-pager", "-n", "60")[1]

    def said(self, text: str) -> int:
        """How many lines of the whole journal hold this text."""
        return self.must("journalctl --no-pager --output=cat").count(text)

    def log_tail(self, lines: int = 25) -> str:
        """systemd says nothing on the container's output: the journal instead."""
        return f"{super().log_tail(lines)}\n{self.journal()}"

    async def serves(self) -> None:
        """Daemon and gateway say SERVING."""

        def look() -> bool:
            asked = ("", f"--address 127.0.0.1:{GATEWAY_PORT}")
            if self.is_secured:
                names = (DAEMONS_NAME, GATEWAYS_NAME)
                asked = tuple(
                    f"{where} {ASKED_WITH.format(name=name)}"
                    for where, name in zip(asked, names, strict=True)
                )
            return all(
                self.run("sh", "-c", f"/opt/cursorkeeper/bin/cursorkeeper health {where}")[0] == 0
                for where in asked
            )

        try:
            await until(look, "daemon and gateway serve")
        except AssertionError as e:
            raise AssertionError(f"{e}\n{self.journal()}") from None

    # --- installing ---

    async def boot(self) -> None:
        """systemd is up; nothing of ours is installed."""
        await asyncio.to_thread(self.start)
        await until(
            lambda: self.run("systemctl", "is-system-running")[1].strip() == "running",
            "systemd runs",
        )

    def install(self) -> None:
        """The units and their examples where the page puts them; addresses of this network."""
        where = {
            ".service": "etc/systemd/system",
            ".toml": "etc/cursorkeeper",
            ".env": "etc/cursorkeeper",
            ".properties": "etc/cursorkeeper",
        }
        files = {
            f"{where[f.suffix]}/{f.name}": self._addressed(f.read_text())
            for f in UNITS.iterdir()
            if f.suffix in where
        }
        files |= {f"etc/cursorkeeper/tokens/{name}": token for name, token in TOKENS.items()}
        self.put(files)
        self.must("chmod 0700 /etc/cursorkeeper/tokens && systemctl daemon-reload")

    def install_secured(self, secrets: Secrets) -> None:
        """The drop-ins and settings of the secured form over the plain one, without its tokens;
        certificates of the cluster's authority, and its users.
        """
        self.install()
        self.must("rm -r /etc/cursorkeeper/tokens")
        where = {
            "cursorkeeper.conf": f"etc/systemd/system/{DAEMON}.d/secured.conf",
            "cursorkeeper-gateway.conf": f"etc/systemd/system/{GATEWAY}.d/secured.conf",
        }
        files = {
            where.get(f.name, f"etc/cursorkeeper/{f.name}"): self._addressed(f.read_text())
            for f in SECURED.iterdir()
        }
        for part, name in (("daemon", DAEMONS_NAME), ("gateway", GATEWAYS_NAME)):
            issued, folder = secrets.issued(name), f"etc/cursorkeeper/tls/{part}"
            files |= {
                f"{folder}/tls.crt": Path(issued.certificate).read_text(),
                f"{folder}/tls.key": Path(issued.key).read_text(),
                f"{folder}/ca.crt": Path(issued.trust_certs).read_text(),
            }
        users = secrets.users()
        files |= {f"etc/cursorkeeper/users/{name}": text for name, text in users.items()}
        self.put(files)
        self.must(
            f"chmod 0700 /etc/cursorkeeper/tls/* /etc/cursorkeeper/users; "
            f"grep -q {GATEWAYS_NAME} /etc/hosts || echo 127.0.0.1 {GATEWAYS_NAME} >> /etc/hosts; "
            "systemctl daemon-reload"
        )
        self.is_secured = True

    def put(self, files: Mapping[str, str]) -> None:
        """Files by their path from the root."""
        archive = io.BytesIO()
        with tarfile.open(fileobj=archive, mode="w") as tar:
            for name, text in files.items():
                entry = tarfile.TarInfo(name)
                entry.size, entry.mode = (
                    len(text.encode()),
                    0o600
                    if "/tokens/" in name or "/users/" in name or name.endswith((".env", ".key"))
                    else 0o644,
                )
                tar.addfile(entry, io.BytesIO(text.encode()))
        assert self.docker.put_archive("/", archive.getvalue())

    def _addressed(self, text: str) -> str:
        """With this network's ZooKeeper, and the stream where this machine's ports are
        published.
        """
        text = re.sub(r"[;,]zk[23]\.example\.com:\d+", "", text)
        text = re.sub(r"zk1\.example\.com:\d+", self._zookeeper, text)
        insecure = "" if "tls_enabled = true" in text else "\ninsecure = true"
        return text.replace(
            f'"127.0.0.1:{STREAM_PORT}"', f'"0.0.0.0:{STREAM_PORT}"{insecure}'
        ).replace(f'"127.0.0.1:{METRICS_PORT}"', '""')

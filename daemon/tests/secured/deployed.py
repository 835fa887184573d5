"""Gateway and daemon of a secured form of `deploy/`, run with its own files: Kubernetes, Helm and
systemd. Serves the story that all of them work.

Owns: what a kubelet or systemd would do with a form, on one machine: its files in folders of a
test, addresses of the test's cluster in the place of the example's. Does not own: ZooKeeper and the
bookies (`cluster`), what else must hold of a form (`daemon/tests/deployment`). Invariant: nothing
else of a form is changed, and what is to be replaced is there.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from cursorkeeper.demo.processes import LineProcess
from cursorkeeper.demo.stack.ports import free_port
from cursorkeeper_client import ClientSettings
from daemon.tests.deployment import cluster as rendered
from daemon.tests.deployment.kustomize import build
from daemon.tests.deployment.places import ROOT, SYSTEMD, documents
from daemon.tests.deployment.units import Unit
from tools.brokers.secured.cluster import CURSORS_USER, LEDGERS_USER, NAME, Secured
from tools.brokers.secured.system import PROGRAM

SECURED = "secured"
HELM = ROOT / "deploy/broker/helm/secured"
BEGINS = {"cursorkeeper-gateway": "gateway", "cursorkeeper": "run"}
"""The command, after what starts a JVM or Python in a unit's command line."""
USERS = {
    "daemon": {"zookeeper-user": f"{CURSORS_USER}\n"},
    "gateway": {"zookeeper-user": f"{LEDGERS_USER}\n", "bookkeeper-user": "sasl:broker:secret\n"},
}
TOOL_MAX_S = 120


@dataclass
class Form:
    """What a form gives to one of the two: `files` by their paths, flags, variables."""

    files: dict[str, str]
    flags: list[str]
    environment: dict[str, str] = field(default_factory=dict)

    def moved(self, change: Callable[[str], str], place: Callable[[str], str]) -> Form:
        """With every text changed; files at other places."""
        for path, text in self.files.items():
            file = Path(place(path))
            file.parent.mkdir(parents=True, exist_ok=True)
            file.touch(0o600)
            file.write_text(change(text))
        return Form(
            {},
            [change(flag) for flag in self.flags],
            {name: change(value) for name, value in self.environment.items()},
        )


def of_kubernetes() -> tuple[Form, Form]:
    """The gateway's and the daemon's, of the rendered overlay."""
    found = rendered.Cluster.of(SECURED)
    identities = found.content("ConfigMap", "cursorkeeper-identities")
    return (
        _gateway_of(found, identities),
        Form(
            _below("config", found.content("ConfigMap", "cursorkeeper-daemon"))
            | _below("identities", identities),
            list(found.daemon["args"]),
            rendered.environment(found.daemon),
        ),
    )


def of_helm() -> tuple[Form, Form]:
    identities = {file.name: file.read_text() for file in (HELM / "identities").iterdir()}
    (values,) = documents(HELM / "values.yaml")
    daemon = values["broker"]["initContainers"][1]
    return (
        _gateway_of(rendered.Cluster(build(HELM / "gateways")), identities),
        Form(_below("identities", identities), daemon["args"], rendered.environment(daemon)),
    )


def of_systemd() -> tuple[Form, Form]:
    forms = []
    for name, command in BEGINS.items():
        unit, here = Unit.of(name, SECURED), f"/run/credentials/{name}.service"
        words = [word.replace("%d", here) for word in unit.command()]
        environment = {
            variable: value.replace("%d", here)
            for variable, value in unit.environment().items()
            if variable.startswith("CURSORKEEPER_")
        }
        files = {
            f"/etc/cursorkeeper/{file.name}": file.read_text()
            for file in (SYSTEMD / SECURED).iterdir()
        }
        forms.append(Form(files, words[words.index(command) :], environment))
    return forms[0], forms[1]


PROBES = {
    "kubernetes": (),
    "helm": (),
    "systemd": ("--tls", "--tls-server-name", "cursorkeeper-daemon"),
}
"""What is said to `cursorkeeper health` beside the environment."""
FORMS: Mapping[str, Callable[[], tuple[Form, Form]]] = {
    "kubernetes": of_kubernetes,
    "helm": of_helm,
    "systemd": of_systemd,
}


def _gateway_of(found: rendered.Cluster, identities: Mapping[str, str]) -> Form:
    files = _below("config", found.content("ConfigMap", "cursorkeeper-gateway"))
    args = rendered.container(found.gateway, "gateway")["args"]
    return Form(files | _below("identities", identities), list(args))


def _below(folder: str, files: Mapping[str, str]) -> dict[str, str]:
    return {f"/etc/cursorkeeper/{folder}/{name}": text for name, text in files.items()}


class Deployed:
    """One form that runs. `daemon` and `gateway` are its processes."""

    def __init__(self, name: str, cluster: Secured) -> None:
        self._cluster, self._folder = cluster, cluster.folder / f"deployed-{name}"
        self._gateway_port, self._port = free_port(), free_port()
        self._metrics_ports = free_port(), free_port()
        of_gateway, of_daemon = FORMS[name]()
        gateway = self._placed("gateway", of_gateway)
        daemon = self._placed("daemon", of_daemon)
        _, *flags = gateway.flags
        self.gateway = cluster.gateway(f"gateway-{name}", *flags)
        self.variables = ["env", *(f"{key}={value}" for key, value in daemon.environment.items())]
        self.daemon = LineProcess(
            f"daemon-{name}",
            [*self.variables, *PROGRAM, *daemon.flags, "--parent-pid", str(os.getpid())],
            cluster.folder / f"daemon-{name}.log",
        )

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._port}"

    def client_settings(self) -> ClientSettings:
        """Of a source that shows what the form's brokers show."""
        shown = self._cluster.authority.issue("pulsar-broker")
        return ClientSettings(name="deployed", tls=shown, tls_server_name="cursorkeeper-daemon")

    def probed(self, *more: str) -> int:
        """The exit code of what the pod's probes run, in its environment."""
        command = [*self.variables, *PROGRAM, "health", "--address", self.address, *more]
        done = subprocess.run(command, capture_output=True, timeout=TOOL_MAX_S, check=False)
        return done.returncode

    def _placed(self, who: str, form: Form) -> Form:
        """Its files below a folder of its own, with what a Secret would hold."""
        folder = self._folder / who
        rendered.issued(folder / "tls", f"cursorkeeper-{who}", self._cluster.authority)
        credentials = Path(
            f"/run/credentials/cursorkeeper{'-gateway' * (who == 'gateway')}.service"
        )
        for name, text in USERS[who].items():
            file = folder / "users" / name
            file.parent.mkdir(exist_ok=True)
            file.touch(0o600)
            file.write_text(text)

        def place(path: str) -> str:
            if path.startswith(f"{credentials}/"):
                kept = "users" if path.endswith("-user") else "tls"
                return f"{folder}/{kept}/{Path(path).name}"
            return path.replace("/etc/cursorkeeper/", f"{folder}/")

        def change(text: str) -> str:
            for old, new in self._addresses().items():
                text = text.replace(old, new)
            for path in (
                f"{credentials}/{name}" for name in (*USERS[who], *rendered.CERTIFICATE_KEYS)
            ):
                text = text.replace(path, place(path))
            return text.replace("/etc/cursorkeeper/", f"{folder}/")

        return form.moved(change, place)

    def _addresses(self) -> dict[str, str]:
        """The examples' -> those of this machine. ZooKeeper's servers are one here."""
        one = f"{NAME}:{self._cluster.secure}"
        pulsar = [f"pulsar-zookeeper-{number}.pulsar-zookeeper:2281" for number in range(3)]
        machines = [f"zk{number}.example.com:2281" for number in (1, 2, 3)]
        gateway, metrics = self._metrics_ports
        return {
            **{by.join(servers): one for servers in (pulsar, machines) for by in ";,"},
            "pulsar-zookeeper:2281": one,
            "cursorkeeper-gateway:7651": f"127.0.0.1:{self._gateway_port}",
            "gateway.example.com:7651": f"127.0.0.1:{self._gateway_port}",
            "host=0.0.0.0": "host=127.0.0.1",
            "\nport=7651": f"\nport={self._gateway_port}",
            "metrics-port=7653": f"metrics-port={gateway}",
            "127.0.0.1:7650": self.address,
            "0.0.0.0:7652": f"127.0.0.1:{metrics}",
        }

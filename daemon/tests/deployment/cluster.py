"""What a rendered target holds, as questions: pods, containers, probes, what is mounted, what the
daemon's settings come to.

Owns: looking things up. Does not own: what must hold (the tests). A thing that is not there is a
KeyError or a ValueError, so that a test that asks for it fails.
"""

from __future__ import annotations

import base64
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cursorkeeper import settings
from cursorkeeper.demo.certificates import Authority
from cursorkeeper.settings import Settings
from daemon.tests.deployment.places import ROOT, Object, rendered

WITH_PODS = ("Deployment", "StatefulSet")
CERTIFICATES = "/etc/cursorkeeper/tls/"
"""Where the secured forms have the certificate of gateways and daemons."""
CERTIFICATE_KEYS = ("tls.crt", "tls.key", "ca.crt")
IMAGE_VARIABLE = re.compile(r"\b(CURSORKEEPER_\w+)=(\S+)")


@dataclass(frozen=True)
class Cluster:
    """All objects of one target."""

    objects: list[Object]

    @classmethod
    def of(cls, target: str) -> Cluster:
        """What was rendered of it."""
        return cls(rendered(target))

    def kind(self, kind: str) -> list[Object]:
        """All objects of a kind."""
        return [body for body in self.objects if body["kind"] == kind]

    def one(self, kind: str, name: str) -> Object:
        """The object of that name, or of that name and a hash."""
        (found,) = [
            o
            for o in self.kind(kind)
            if re.fullmatch(rf"{name}(-[0-9a-z]{{10}})?", o["metadata"]["name"])
        ]
        return found

    def workloads(self) -> list[Object]:
        """Everything that has pods."""
        return [body for kind in WITH_PODS for body in self.kind(kind)]

    def content(self, kind: str, name: str) -> dict[str, str]:
        """Of a ConfigMap or a Secret, decoded."""
        body = self.one(kind, name)
        plain = kind == "ConfigMap"
        return {
            key: value if plain else base64.b64decode(value).decode()
            for key, value in body["data"].items()
        }

    @property
    def gateway(self) -> Object:
        """The gateways' Deployment."""
        return self.one("Deployment", "cursorkeeper-gateway")

    @property
    def broker(self) -> Object:
        """The StatefulSet that the daemon was added to."""
        return self.one("StatefulSet", "pulsar-broker")

    @property
    def daemon(self) -> Object:
        """The daemon's container."""
        return container(self.broker, "cursorkeeper")

    def gateway_flags(self) -> dict[str, str]:
        """Of gateway.properties."""
        lines = self.content("ConfigMap", "cursorkeeper-gateway")["gateway.properties"].splitlines()
        return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))

    def daemon_file(self) -> dict[str, Any]:
        """Of cursorkeeper.toml."""
        return tomllib.loads(self.content("ConfigMap", "cursorkeeper-daemon")["cursorkeeper.toml"])


def pod(body: Object) -> Object:
    """The spec of an object's pods."""
    spec: Object = body["spec"]["template"]["spec"]
    return spec


def containers(body: Object) -> list[Object]:
    """All of them, init containers first."""
    return [*pod(body).get("initContainers", []), *pod(body)["containers"]]


def container(body: Object, name: str) -> Object:
    """The one of that name."""
    (found,) = [one for one in containers(body) if one["name"] == name]
    return found


def port(one: Object, name: str) -> int:
    """Number of a container's named port."""
    (number,) = [p["containerPort"] for p in one["ports"] if p["name"] == name]
    return int(number)


def probes(one: Object) -> dict[str, Object]:
    """startup, readiness, liveness."""
    return {
        kind: one[f"{kind}Probe"]
        for kind in ("startup", "readiness", "liveness")
        if f"{kind}Probe" in one
    }


def sleep_before_stop_s(one: Object) -> float:
    """Of preStop; 0 without one."""
    hook = one.get("lifecycle", {}).get("preStop")
    if hook is None:
        return 0.0
    program, seconds = hook["exec"]["command"]
    assert program == "sleep"
    return float(seconds)


def mounted_files(body: Object, name: str) -> Iterator[tuple[str, str, str, str]]:
    """(path in the container, ConfigMap or Secret, its name, key) of every file that is mounted by
    key; '' for all keys.
    """
    volumes = {v["name"]: v for v in pod(body).get("volumes", [])}
    for mount in container(body, name).get("volumeMounts", []):
        volume = volumes[mount["name"]]
        if "configMap" in volume:
            yield f"{mount['mountPath']}/", "ConfigMap", volume["configMap"]["name"], ""
        for item in volume.get("secret", {}).get("items", []):
            yield (
                f"{mount['mountPath']}/{item['path']}",
                "Secret",
                volume["secret"]["secretName"],
                item["key"],
            )


def image_environment() -> dict[str, str]:
    """The settings that the daemon's image brings in its environment: of the Dockerfile's last
    stage, not of its build.
    """
    last_stage = (ROOT / "Dockerfile").read_text().rpartition("\nFROM ")[2]
    return dict(IMAGE_VARIABLE.findall(last_stage))


def environment(one: Object) -> dict[str, str]:
    """Of a container: the image's, then the pod's own. What comes from elsewhere has the text of
    its place.
    """
    own = {}
    for variable in one.get("env", []):
        source = variable.get("valueFrom", {})
        if not source.get("secretKeyRef", {}).get("optional"):
            own[variable["name"]] = (
                variable["value"]
                if "value" in variable
                else f"of-{source['fieldRef']['fieldPath']}"
            )
    return image_environment() | own


def loaded(cluster: Cluster, tmp_path: Path) -> Settings:
    """What the daemon runs with, by its own loader. Raises SettingsError."""
    text = cluster.content("ConfigMap", "cursorkeeper-daemon")["cursorkeeper.toml"]
    return loaded_of(text, environment(cluster.daemon), tmp_path)


def loaded_of(text: str, variables: Mapping[str, str], tmp_path: Path) -> Settings:
    """The same, of a file's text and of an environment. Certificates that they name are made: a
    daemon looks at its own before anything else.
    """
    made = issued(tmp_path / "tls", "cursorkeeper-daemon")
    file = tmp_path / "cursorkeeper.toml"
    file.write_text(text.replace(CERTIFICATES, f"{made}/"))
    return settings.load(
        file=file,
        environment={
            name: value.replace(CERTIFICATES, f"{made}/") for name, value in variables.items()
        },
    )


def issued(folder: Path, name: str, authority: Authority | None = None) -> Path:
    """The folder, with tls.crt, tls.key and ca.crt, as cert-manager names them."""
    files = (authority or Authority(folder.with_suffix(".authority"))).issue(name)
    folder.mkdir(parents=True, exist_ok=True)
    for path, key in zip(
        (files.certificate, files.key, files.trust_certs), CERTIFICATE_KEYS, strict=True
    ):
        (folder / key).write_bytes(Path(path).read_bytes())
    return folder

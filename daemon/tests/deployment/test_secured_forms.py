"""The secured forms leave nothing in plain text and nobody unknown: of Kubernetes, of Helm and of
systemd alike. That they run is shown by `daemon/tests/secured`.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path

import pytest

from cursorkeeper.access import identities_file
from cursorkeeper.settings import ENVIRONMENT_PREFIX
from daemon.tests.deployment.cluster import Cluster, container, mounted_files, pod, probes
from daemon.tests.deployment.kustomize import build
from daemon.tests.deployment.places import ROOT, SECURED, documents
from daemon.tests.secured.deployed import FORMS, HELM, Form

DEPLOY = ROOT / "deploy"
IDENTITIES = {"gateway.json": {"reader", "writer"}, "daemon.json": {"source"}}
each_form = pytest.mark.parametrize("name", FORMS)


def flags_of(form: Form) -> dict[str, str]:
    """Of the command line, and of the file that it names."""
    words = {word[2:]: after for word, after in zip(form.flags, form.flags[1:], strict=False)}
    given = {key: value for key, value in words.items() if not value.startswith("--")}
    file = form.files[given.pop("config")]
    return given | lines_of(file)


def lines_of(text: str) -> dict[str, str]:
    rows = [line for line in text.splitlines() if line and not line.startswith("#")]
    return dict(line.split("=", 1) for line in rows)


def settings_of(form: Form) -> dict[str, str]:
    """Of the daemon's file and of its environment, as text."""
    words = form.flags
    file = form.files[words[words.index("--config") + 1]] if "--config" in words else ""
    said = {name: str(value).lower() for name, value in tomllib.loads(file).items()}
    return said | {
        name.removeprefix(ENVIRONMENT_PREFIX).lower(): value
        for name, value in form.environment.items()
    }


@each_form
def test_a_gateway_encrypts_and_knows_who_calls(name: str) -> None:
    form, _ = FORMS[name]()
    flags = flags_of(form)
    files = ("tls-certificate-file-path", "tls-key-file-path", "tls-trust-certs-file-path")
    assert all(flags[flag] for flag in (*files, "zookeeper-auth-file", "bookkeeper-auth-file"))
    assert flags["tls-require-trusted-client-cert-on-connect"] == "true"
    assert (flags["zookeeper-tls-enabled"], flags["zookeeper-acl"]) == ("true", "creator")
    assert not [flag for flag in flags if flag == "insecure" or flag.endswith("-token-file")]
    bookies = lines_of(form.files[flags["bookkeeper-conf"]])
    assert bookies["tlsClientAuthentication"] == "true"
    shown = (bookies["tlsCertificatePath"], bookies["tlsKeyStore"], bookies["tlsTrustStore"])
    assert shown == tuple(flags[flag] for flag in files)
    assert flags["identities-file"] in form.files


@each_form
def test_a_daemon_encrypts_and_knows_who_calls(name: str) -> None:
    _, form = FORMS[name]()
    said = settings_of(form)
    for switch in (
        "tls_enabled",
        "gateway_tls_enabled",
        "zookeeper_tls_enabled",
        "tls_require_trusted_client_cert_on_connect",
    ):
        assert said[switch] == "true", switch
    assert said["zookeeper_auth_file"] and said["zookeeper_acl"] == "creator"
    assert said["identities_file"] in form.files
    assert "insecure" not in said
    assert not [one for one in said if one.endswith("_token_file") and said[one]]


@each_form
def test_identities_are_the_same_in_every_form(name: str, tmp_path: Path) -> None:
    files = FORMS[name]()[1].files | FORMS[name]()[0].files
    others = FORMS["kubernetes"]()[0].files
    for file, roles in IDENTITIES.items():
        (text,) = [content for path, content in files.items() if Path(path).name == file]
        assert text == others[f"/etc/cursorkeeper/identities/{file}"]
        (tmp_path / file).write_text(text)
        known = identities_file.read(str(tmp_path / file))
        assert not known.subjects, "who has a token of somebody's examples is nobody"
        assert {role for one in known.certificates.values() for role in one.roles} == roles


def test_what_is_named_is_mounted() -> None:
    cluster = Cluster.of(SECURED)
    gateway, daemon = FORMS["kubernetes"]()
    texts: Mapping[str, Mapping[str, str]] = {
        "gateway": flags_of(gateway)
        | lines_of(gateway.files[flags_of(gateway)["bookkeeper-conf"]]),
        "cursorkeeper": settings_of(daemon),
    }
    for name, said in texts.items():
        body = cluster.gateway if name == "gateway" else cluster.broker
        mounted = {path for path, _, _, _ in mounted_files(body, name)}
        named = {value for value in said.values() if value.startswith("/etc/cursorkeeper/")}
        assert len(named) >= 5
        for path in named:
            assert path in mounted or f"{path.rpartition('/')[0]}/" in mounted, path


def test_a_daemon_and_a_gateway_are_two_users_of_zookeeper() -> None:
    """Helm's and systemd's: `test_broker_install`, `test_systemd_units`."""
    cluster = Cluster.of(SECURED)
    keys = {
        name: {key for path, _, _, key in mounted_files(body, name) if "/users/" in path}
        for name, body in (("gateway", cluster.gateway), ("cursorkeeper", cluster.broker))
    }
    assert keys["cursorkeeper"] == {"zookeeper-user-daemon"}
    assert keys["gateway"] == {"zookeeper-user-gateway", "bookkeeper-user"}


def test_who_shows_something_else_needs_no_secret_for_it() -> None:
    (values,) = documents(HELM / "values.yaml")
    for volumes in (pod(Cluster.of(SECURED).broker)["volumes"], values["broker"]["extraVolumes"]):
        optional = {
            volume["name"] for volume in volumes if volume.get("secret", {}).get("optional")
        }
        assert optional == {"cursorkeeper-source-tls"}


def test_probes_and_prometheus_ask_with_tls() -> None:
    cluster = Cluster.of(SECURED)
    for gateway in (cluster.gateway, Cluster(build(HELM / "gateways")).gateway):
        found = gateway["spec"]["template"]["metadata"]["annotations"]
        assert (found["prometheus.io/scrape"], found["prometheus.io/scheme"]) == ("true", "https")
    asked = probes(container(cluster.gateway, "gateway"))
    assert {probe["httpGet"]["scheme"] for probe in asked.values()} == {"HTTPS"}
    assert asked["readiness"]["httpGet"]["path"] == "/health"
    variables = {one["name"] for one in cluster.daemon["env"]}
    for each in ("ENABLED", "TRUST_CERTS_FILE_PATH", "SERVER_NAME"):
        assert f"{ENVIRONMENT_PREFIX}TLS_{each}" in variables, (
            "`cursorkeeper health` reads it there"
        )


def test_what_is_open_says_why() -> None:
    """A line that gives protection up follows one that says why."""
    open_lines = re.compile(r"""^\W*(CURSORKEEPER_INSECURE\b|insecure\b|command: .*--insecure)""")
    found = 0
    for file in sorted(path for path in DEPLOY.rglob("*") if path.is_file()):
        before = ""
        for line in file.read_text().splitlines():
            is_open = open_lines.match(line) and not line.endswith('"false"')
            if is_open and not line.lstrip().startswith("#"):
                found += 1
                assert before.lstrip().startswith("#"), f"{file}: {line}"
                assert SECURED not in file.parts
            before = line
    assert found == 5

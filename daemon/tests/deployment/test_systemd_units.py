"""The units and their examples say what is true of the software, and are as closed as they can be.

That systemd takes them and that both run under them is tested with a real systemd, in
testcontainers_tests/.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from cursorkeeper import settings
from cursorkeeper.settings import ENVIRONMENT_PREFIX, Settings
from daemon.tests.deployment import code_facts
from daemon.tests.deployment.cluster import CERTIFICATES, loaded_of
from daemon.tests.deployment.places import DOCS, ROOT, SYSTEMD
from daemon.tests.deployment.units import Unit, UnitError, _parse, environment_file, properties

JAVA = ROOT / "java/gateway/src/main/java/io/cursorkeeper/gateway"
NAMES = ("cursorkeeper", "cursorkeeper-gateway")
FORMS = ("", "secured")
"""Folders in deploy/systemd: the units as they are, and with the drop-ins of the secured form."""
CREDENTIALS = "/run/credentials"
SPARE_S = 5.0
CLOSED = {
    "AmbientCapabilities": "",
    "CapabilityBoundingSet": "",
    "DevicePolicy": "closed",
    "DynamicUser": "yes",
    "KeyringMode": "private",
    "LockPersonality": "yes",
    "NoNewPrivileges": "yes",
    "PrivateDevices": "yes",
    "PrivateIPC": "yes",
    "PrivateMounts": "yes",
    "PrivateTmp": "yes",
    "PrivateUsers": "yes",
    "ProtectClock": "yes",
    "ProtectControlGroups": "yes",
    "ProtectHome": "yes",
    "ProtectHostname": "yes",
    "ProtectKernelLogs": "yes",
    "ProtectKernelModules": "yes",
    "ProtectKernelTunables": "yes",
    "ProtectProc": "invisible",
    "ProtectSystem": "strict",
    "RemoveIPC": "yes",
    "RestrictAddressFamilies": "AF_INET AF_INET6 AF_UNIX",
    "RestrictNamespaces": "yes",
    "RestrictRealtime": "yes",
    "RestrictSUIDSGID": "yes",
    "SystemCallArchitectures": "native",
    "SystemCallErrorNumber": "EPERM",
    "UMask": "0077",
}
ONLY_THE_DAEMONS = {"MemoryDenyWriteExecute": "yes", "ProcSubset": "pid"}
"""A JVM compiles as it runs, and reads the machine's memory and cores from /proc."""


def java_default(flag: str) -> int:
    (value,) = re.findall(
        rf'Flag.number\("{flag}", ([\d_]+),', code_facts.java(JAVA / "service/GatewaySettings.java")
    )
    return int(value.replace("_", ""))


@pytest.fixture(params=FORMS)
def form(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def daemon_settings(form: str, tmp_path: Path) -> Settings:
    """What the daemon of these examples runs with, by its own loader: file, then the unit's
    environment, then cursorkeeper.env.
    """
    certificate = ("tls.crt", "tls.key", "ca.crt")
    place = f"{CREDENTIALS}/cursorkeeper.service/"
    environment = {
        name: value.replace("%d/", CERTIFICATES if value.endswith(certificate) else place)
        for name, value in Unit.of("cursorkeeper", form).environment().items()
    }
    text = (SYSTEMD / form / "cursorkeeper.toml").read_text()
    return loaded_of(text, environment | environment_file("cursorkeeper.env"), tmp_path)


@pytest.mark.parametrize("name", NAMES)
def test_the_unit_is_closed(name: str) -> None:
    unit = Unit.of(name)
    closed = CLOSED | (ONLY_THE_DAEMONS if name == "cursorkeeper" else {})
    assert {directive: unit.one(directive) for directive in closed} == closed
    assert unit.all("SystemCallFilter") == ["@system-service", "~@privileged @resources"]
    assert [directive for directive in ONLY_THE_DAEMONS if unit.all(directive)] == [
        d for d in ONLY_THE_DAEMONS if d in closed
    ]


@pytest.mark.parametrize("name", NAMES)
def test_nobody_starts_what_cannot_start(name: str) -> None:
    unit = Unit.of(name)
    assert unit.one("Restart") == "on-failure"
    assert unit.one("RestartPreventExitStatus") == "2", (
        "wrong settings or flags: a person must mend them"
    )
    assert "halt(2, command, wrong)" in code_facts.java(JAVA / "Main.java")
    assert "2 settings" in (ROOT / "daemon/cursorkeeper/cli/run.py").read_text()


@pytest.mark.parametrize("name", NAMES)
def test_waiting_for_neighbours_goes_on_for_ever_and_crashing_does_not(
    name: str, daemon_settings: Settings
) -> None:
    unit = Unit.of(name)
    every_s = unit.seconds("StartLimitIntervalSec", "Unit") / int(
        unit.one("StartLimitBurst", "Unit")
    )
    patient_s = (
        daemon_settings.limits.start_timeout_s
        if name == "cursorkeeper"
        else java_default("zookeeper-timeout-ms") / 1000
    )
    assert patient_s > 0
    assert unit.seconds("RestartSec") + patient_s > every_s, (
        "a start that waits for ZooKeeper never counts as too many"
    )
    assert unit.seconds("RestartSec") + 2 < every_s, "one that fails within two seconds does"


def test_the_daemon_has_time_to_close_its_cursors(daemon_settings: Settings) -> None:
    assert (
        Unit.of("cursorkeeper").seconds("TimeoutStopSec")
        >= daemon_settings.limits.close_timeout_s + SPARE_S
    )


def test_the_gateway_has_time_to_stop_and_ends_well() -> None:
    unit = Unit.of("cursorkeeper-gateway")
    (own_ms,) = re.findall(
        r"STOP_MAX_MS = ([\d_]+);", code_facts.java(JAVA / "process/Lifetime.java")
    )
    assert unit.seconds("TimeoutStopSec") >= int(own_ms.replace("_", "")) / 1000 + SPARE_S
    assert unit.one("SuccessExitStatus") == "143"


@pytest.mark.parametrize("name", NAMES)
def test_every_credential_that_is_used_is_loaded(name: str, form: str) -> None:
    unit = Unit.of(name, form)
    words = " ".join([unit.one("ExecStart"), *unit.environment().values()])
    used = re.findall(r"%d/([\w.-]+)", words)
    assert used and set(used) == set(unit.credentials())
    for credential, file in unit.credentials().items():
        folder = "tokens" if not form else "users"
        if credential.startswith(("tls.", "ca.")):
            folder = "tls/daemon" if name == "cursorkeeper" else "tls/gateway"
        # each is a user of its own in ZooKeeper
        whose = {"cursorkeeper": "-daemon", "cursorkeeper-gateway": "-gateway"}[name]
        own = whose if credential == "zookeeper-user" else ""
        assert file == f"/etc/cursorkeeper/{folder}/{credential}{own}"


def test_daemon_and_gateway_on_one_machine_share_the_writers_token() -> None:
    daemon, gateway = Unit.of("cursorkeeper"), Unit.of("cursorkeeper-gateway")
    assert daemon.credentials()["writer-token"] == gateway.credentials()["writer-token"]
    assert "reader-token" not in daemon.credentials()
    assert "source-token" not in gateway.credentials()


def test_the_daemons_examples_are_settings(daemon_settings: Settings, form: str) -> None:
    credentials = f"{CREDENTIALS}/cursorkeeper.service"
    systems, own = daemon_settings.systems, daemon_settings.daemon
    named = (systems.gateway_token_file, own.source_token_file, systems.zookeeper_auth_file)
    tokens = (f"{credentials}/writer-token", f"{credentials}/source-token", "")
    assert named == (("", "", f"{credentials}/zookeeper-user") if form else tokens)
    assert daemon_settings.ledgers.password, "the example names it, commented out"
    known = {ENVIRONMENT_PREFIX + name.upper() for name in settings.SETTINGS}
    own = {
        name
        for name in Unit.of("cursorkeeper", form).environment()
        if name.startswith(ENVIRONMENT_PREFIX)
    }
    assert own | set(environment_file("cursorkeeper.env")) <= known


def test_nothing_in_the_file_is_overruled_by_the_environment(form: str) -> None:
    there = {
        ENVIRONMENT_PREFIX + name.upper()
        for name in tomllib.loads((SYSTEMD / form / "cursorkeeper.toml").read_text())
    }
    assert not there & {
        *Unit.of("cursorkeeper", form).environment(),
        *environment_file("cursorkeeper.env"),
    }
    assert f"{ENVIRONMENT_PREFIX}PASSWORD" not in there, "everybody may read that file"


def test_daemon_and_gateway_of_the_examples_belong_together(
    daemon_settings: Settings, form: str
) -> None:
    flags = properties("gateway.properties", form)
    host = "gateway.example.com" if form else flags["host"]  # a name that its certificate has
    assert daemon_settings.systems.gateway == f"{host}:{flags['port']}"
    form = re.fullmatch(r"zk\+hierarchical://([^/]+)/ledgers", flags["metadata-service-uri"])
    assert form is not None and form[1].split(";") == daemon_settings.systems.zookeeper.split(",")
    assert int(flags["writable-bookies-min"]) <= daemon_settings.ledgers.ack_quorum


def test_the_gateways_flags_are_flags(form: str) -> None:
    command = Unit.of("cursorkeeper-gateway", form).command()
    at = command.index("gateway")
    given = [word.removeprefix("--") for word in command[at:] if word.startswith("--")]
    assert set(given) - {"config"} <= code_facts.gateway_flags()
    there = set(properties("gateway.properties", form))
    assert there <= code_facts.gateway_flags()
    assert not set(given) & there, "the command line would win"


def test_the_secured_form_changes_nothing_else() -> None:
    """A drop-in keeps how the JVM is started, and every line of the unit but for credentials."""
    for name in NAMES:
        plain, secured = Unit.of(name), Unit.of(name, "secured")
        changed = {key for key in secured.values if secured.values[key] != plain.values[key]}
        assert changed <= {
            ("Service", each) for each in ("LoadCredential", "ExecStart", "Environment")
        }
    plain, secured = (Unit.of("cursorkeeper-gateway", form).command() for form in FORMS)
    until = plain.index("--config") + 2
    assert secured[:until] == plain[:until]
    assert not any("token" in word for word in secured)
    place = f"{CREDENTIALS}/cursorkeeper-gateway.service/"
    used = {value for value in properties("bookkeeper.conf", "secured").values() if "/" in value}
    assert used == {f"{place}{key}" for key in ("tls.crt", "tls.key", "ca.crt")}


def test_the_paths_are_the_ones_that_the_page_installs(form: str) -> None:
    page = (DOCS / "run/systemd.md").read_text()
    units = [Unit.of(name, form) for name in NAMES]
    files = {value.lstrip("-") for unit in units for value in unit.all("EnvironmentFile")}
    files |= {
        word for unit in units for word in unit.command() if word.startswith(("/etc/", "/opt/"))
    }
    for file in files:
        assert file in page
    for name in (
        "cursorkeeper.toml",
        "cursorkeeper.env",
        "gateway.properties",
        "cursorkeeper-gateway.env",
    ):
        assert f"/etc/cursorkeeper/{name}" in files and (SYSTEMD / name).is_file()
    for file in (SYSTEMD / "secured").iterdir():
        assert f"deploy/systemd/secured/{file.name}" in page
    for unit in units:
        for credential in unit.credentials():
            assert credential in page


def test_heap_buffers_and_the_jvm_fit_the_memory_limit() -> None:
    unit = Unit.of("cursorkeeper-gateway")
    assert environment_file("cursorkeeper-gateway.env") == unit.environment(), (
        "the example is what the unit does without it"
    )
    sizes = [
        int(size)
        for size in re.findall(
            r"(?:-Xmx|MaxDirectMemorySize=)(\d+)m", unit.environment()["JAVA_OPTS"]
        )
    ]
    assert len(sizes) == 2
    assert sum(sizes) + 150 <= unit.mebibytes("MemoryMax")


def test_both_start_in_any_order() -> None:
    for name in NAMES:
        unit = Unit.of(name)
        assert not unit.all("Requires", "Unit") and not unit.all("BindsTo", "Unit"), (
            "each waits for the other, and outlives it"
        )
    assert "cursorkeeper-gateway.service" in Unit.of("cursorkeeper").one("After", "Unit").split()


@pytest.mark.parametrize("line", ["NoEquals", "[Servce]", "lower=1"])
def test_a_line_that_is_no_directive_is_an_error(tmp_path: Path, line: str) -> None:
    (tmp_path / "x.service").write_text(f"[Service]\nType=exec\n{line}\n")
    with pytest.raises(UnitError):
        _parse(tmp_path / "x.service")

"""deploy/compose.yaml without Docker: nothing is open to the network, nothing is privileged, and
every name in it is known to the code. What it does when it runs is shown by
testcontainers_tests/test_compose.py.
"""

from __future__ import annotations

import re
import tomllib
from typing import Any

import pytest
import yaml

from cursorkeeper.core.table import State
from cursorkeeper.settings import ENVIRONMENT_PREFIX, Settings
from daemon.tests.deployment import code_facts
from daemon.tests.deployment.places import ROOT

FILE = yaml.safe_load((ROOT / "deploy/compose.yaml").read_text())
SERVICES: dict[str, dict[str, Any]] = FILE["services"]
ALERTS = yaml.safe_load((ROOT / "deploy/prometheus/alerts.yaml").read_text())
RULES: list[dict[str, Any]] = [rule for group in ALERTS["groups"] for rule in group["rules"]]
KNOWN_TO_BOTH = {
    "build",
    "cap_drop",
    "command",
    "depends_on",
    "entrypoint",
    "environment",
    "healthcheck",
    "image",
    "logging",
    "mem_limit",
    "networks",
    "ports",
    "read_only",
    "restart",
    "security_opt",
    "stop_grace_period",
    "tmpfs",
    "volumes",
}
"""Keys of a service that Compose v2 and docker-compose 1.29 read alike."""
each_service = pytest.mark.parametrize("name", sorted(SERVICES))


def seconds(text: str) -> float:
    return float(text.removesuffix("s"))


def flag(service: str, name: str) -> str:
    command = SERVICES[service]["command"]
    return str(command[command.index(name) + 1])


@each_service
def test_a_service_is_confined(name: str) -> None:
    service = SERVICES[name]
    assert set(service) <= KNOWN_TO_BOTH
    assert (
        service["read_only"] is True
        and service["cap_drop"] == ["ALL"]
        and service["tmpfs"] == ["/tmp"]
    )
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert re.fullmatch(r"\d+m", service["mem_limit"])
    assert service["restart"] == ("no" if name == "init-cluster" else "unless-stopped")
    assert service["logging"]["options"].keys() == {"max-size", "max-file"}


@each_service
def test_a_service_is_open_on_loopback_only_and_keeps_its_data_in_named_volumes(name: str) -> None:
    for port in SERVICES[name].get("ports", []):
        assert re.fullmatch(r"127\.0\.0\.1:\$\{[A-Z_]+:-(\d+)\}:\1", port), (
            "a variable whose default is the port itself"
        )
    for volume in SERVICES[name].get("volumes", []):
        assert volume.partition(":")[0] in FILE["volumes"]
    assert set(SERVICES[name]["networks"]) <= set(FILE["networks"])


def test_every_volume_has_one_service() -> None:
    used = [
        volume.partition(":")[0]
        for service in SERVICES.values()
        for volume in service.get("volumes", [])
    ]
    assert sorted(used) == sorted(FILE["volumes"])


def test_a_source_reaches_the_daemon_and_nothing_behind_it() -> None:
    reached = {
        name
        for name, service in SERVICES.items()
        if set(service["networks"]) & set(SERVICES["source"]["networks"])
    }
    assert reached == {"source", "daemon"}


def test_images_are_of_this_version_and_built_from_this_repository() -> None:
    version = tomllib.loads((ROOT / "daemon/pyproject.toml").read_text())["project"]["version"]
    built = {service["image"] for service in SERVICES.values() if "build" in service}
    for name, service in SERVICES.items():
        assert service["image"].endswith(f":${{CURSORKEEPER_VERSION:-{version}}}"), name
        assert service["image"] in built, name
    for service in SERVICES.values():
        if "build" in service:
            folder = ROOT / "deploy" / service["build"]["context"]
            file = (folder / service["build"].get("dockerfile", "Dockerfile")).read_text()
            assert all(f"ARG {argument}" in file for argument in service["build"]["args"])
            assert (
                f"AS {service['build']['target']}\n" in file
                if "target" in service["build"]
                else True
            )


def test_who_waits_for_whom() -> None:
    waits = {
        name: {other: how["condition"] for other, how in s.get("depends_on", {}).items()}
        for name, s in SERVICES.items()
    }
    for others in waits.values():
        for other, condition in others.items():
            assert condition == (
                "service_completed_successfully" if other == "init-cluster" else "service_healthy"
            )
            assert (
                not SERVICES[other].get("healthcheck", {}).get("disable") or other == "init-cluster"
            )
    assert "init-cluster" in waits["bookie-1"], "else `up --wait` takes its end for a failure"
    assert waits["daemon"].keys() == {
        "zookeeper",
        "bookie-1",
        "bookie-2",
        "bookie-3",
        "gateway",
    } and waits["source"].keys() == {"daemon"}
    for name, service in SERVICES.items():
        calls = " ".join((*service.get("command", []), *service.get("environment", {}).values()))
        assert ("zookeeper:" in calls) == ("zookeeper" in waits[name]), (
            f"{name}: else ZooKeeper is stopped before it"
        )


def test_nobody_is_killed_before_its_own_deadline() -> None:
    assert seconds(SERVICES["daemon"]["stop_grace_period"]) > Settings.of().limits.close_timeout_s
    assert seconds(SERVICES["source"]["stop_grace_period"]) > 60
    assert (
        '"--drain-s", type=float, default=60'
        in (ROOT / "daemon/cursorkeeper/demo/steady.py").read_text()
    )


def test_settings_and_flags_are_the_codes() -> None:
    given = {
        key.removeprefix(ENVIRONMENT_PREFIX).lower()
        for service in SERVICES.values()
        for key in service.get("environment", {})
    }
    assert given and given <= code_facts.settings()
    flags = code_facts.jar_flags()
    for name in ("zookeeper", "init-cluster", "bookie-1", "bookie-2", "bookie-3", "gateway"):
        used = {word[2:] for word in SERVICES[name]["command"] if word.startswith("--")}
        assert used and used <= flags, name
    assert {
        word for word in SERVICES["source"]["command"] if word.startswith("--")
    } <= code_facts.module_flags("demo/steady.py")
    assert flag("gateway", "--writable-bookies-min") == str(Settings.of().ledgers.ack_quorum)


def test_bookies_differ_by_name_alone() -> None:
    for number in (1, 2, 3):
        service = f"bookie-{number}"
        assert flag(service, "--advertised-address") == service and SERVICES[service][
            "volumes"
        ] == [f"{service}:/data"]
        assert [word for word in SERVICES[service]["command"] if word != service] == [
            word for word in SERVICES["bookie-1"]["command"] if word != "bookie-1"
        ]


def test_nothing_of_the_tests_is_in_it() -> None:
    assert "cursorkeeper.test" not in (ROOT / "deploy/compose.yaml").read_text()


def test_the_alerts_of_brokers_are_played_when_prometheus_image_is_built() -> None:
    (brokers,) = [group for group in ALERTS["groups"] if group["name"] == "cursorkeeper-brokers"]
    played = yaml.safe_load((ROOT / "deploy/prometheus/alerts_test.yaml").read_text())["tests"]
    fire = {
        case["alertname"]
        for test in played
        for case in test["alert_rule_test"]
        if case["exp_alerts"]
    }
    assert fire == {rule["alert"] for rule in brokers["rules"]}
    assert (
        "promtool test rules /etc/prometheus/alerts_test.yaml"
        in (ROOT / "deploy/prometheus/Dockerfile").read_text()
    )


async def test_alerts_use_metrics_states_and_events_that_exist() -> None:
    known = await code_facts.daemon_metrics() | code_facts.gateway_metrics()
    jobs = {
        job["job_name"]
        for job in yaml.safe_load((ROOT / "deploy/prometheus/prometheus.yaml").read_text())[
            "scrape_configs"
        ]
    }
    for rule in RULES:
        used = set(re.findall(r"\b(?:cursorkeeper|process)_\w+", rule["expr"]))
        assert used <= known, f"{rule['alert']}: {used - known}"
        brokers = set(re.findall(r"\bpulsar_\w+", rule["expr"]))
        assert brokers <= code_facts.plugin_metrics(), (
            f"{rule['alert']}: {brokers - code_facts.plugin_metrics()}"
        )
        assert used or brokers or "up{" in rule["expr"], rule["alert"]
        for states in re.findall(r'state=~?"([A-Z_|]+)"', rule["expr"]):
            assert set(states.split("|")) <= {str(state) for state in State}
        assert set(re.findall(r'job="([^"]+)"', rule["expr"])) <= jobs
        for event in re.findall(r'event="(\w+)"', rule["expr"]):
            assert f'"{event}' in code_facts.python_source()
        assert (ROOT / rule["annotations"]["runbook"]).is_file(), rule["alert"]
        assert rule["labels"]["severity"] in ("warning", "critical") and rule["annotations"][
            "summary"
        ].endswith(".")

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

from cursorkeeper.access import identities_file
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


def laid_over(base: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    """As Compose does it: what is a mapping is merged, volumes are added, the rest is replaced."""
    out = dict(base)
    for key, value in more.items():
        if isinstance(value, dict) and key in base:
            out[key] = laid_over(base[key] or {}, value)
        else:
            out[key] = [*base.get(key, []), *value] if key == "volumes" and value else value
    return out


OVER = yaml.safe_load((ROOT / "deploy/compose.secured.yaml").read_text())
SECURED: dict[str, dict[str, Any]] = {
    name: laid_over(SERVICES.get(name, {}), OVER["services"].get(name, {}))
    for name in {*SERVICES, *OVER["services"]}
}
VOLUMES = {**FILE["volumes"], **OVER["volumes"]}
OF_THE_REPOSITORY = "./secured-compose"
each_service = pytest.mark.parametrize(
    ("form", "name"),
    [
        *(("", name) for name in sorted(SERVICES)),
        *(("secured", name) for name in sorted(SECURED)),
    ],
)
ONCE = ("init-cluster", "certificates")
"""They end when they have done their part."""


def service_of(form: str, name: str) -> dict[str, Any]:
    return (SECURED if form else SERVICES)[name]


def seconds(text: str) -> float:
    return float(text.removesuffix("s"))


def flag(service: str, name: str) -> str:
    command = SERVICES[service]["command"]
    return str(command[command.index(name) + 1])


@each_service
def test_a_service_is_confined(form: str, name: str) -> None:
    service = service_of(form, name)
    # a volume of certificates is root's at first: who writes there has no capability, either
    more = {"user", "network_mode"} if name == "certificates" else set()
    assert set(service) <= KNOWN_TO_BOTH | more
    assert (
        service["read_only"] is True
        and service["cap_drop"] == ["ALL"]
        and service["tmpfs"] == ["/tmp"]
    )
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert re.fullmatch(r"\d+m", service["mem_limit"])
    assert service["restart"] == ("no" if name in ONCE else "unless-stopped")
    assert service["logging"]["options"].keys() == {"max-size", "max-file"}


@each_service
def test_a_service_is_open_on_loopback_only_and_keeps_its_data_in_named_volumes(
    form: str, name: str
) -> None:
    service = service_of(form, name)
    for port in service.get("ports", []):
        assert re.fullmatch(r"127\.0\.0\.1:\$\{[A-Z_]+:-(\d+)\}:\1", port), (
            "a variable whose default is the port itself"
        )
    for volume in service.get("volumes", []):
        source, _, place = volume.partition(":")
        if source in VOLUMES:
            assert place.endswith(":ro") or source not in OVER["volumes"] or name in ONCE
        else:
            assert source.startswith(OF_THE_REPOSITORY) and place.endswith(":ro")
            assert (ROOT / "deploy" / source).exists()
    if name == "certificates":
        assert service["network_mode"] == "none" and "networks" not in service
    else:
        assert set(service["networks"]) <= set(FILE["networks"])


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


def test_the_secured_form_encrypts_and_knows_who_calls() -> None:
    gateway, daemon, source = (SECURED[name] for name in ("gateway", "daemon", "source"))
    flags = {word[2:] for word in gateway["command"] if word.startswith("--")}
    assert flags <= code_facts.gateway_flags() and "insecure" not in flags
    assert {"tls-require-trusted-client-cert-on-connect", "identities-file"} <= flags
    plain = [word for word in SERVICES["gateway"]["command"] if word != "--insecure"]
    assert gateway["command"][: len(plain)] == plain
    settings = {
        key.removeprefix(ENVIRONMENT_PREFIX).lower(): value
        for key, value in daemon["environment"].items()
    }
    assert set(settings) <= code_facts.settings()
    switches = ("tls_enabled", "gateway_tls_enabled", "tls_require_trusted_client_cert_on_connect")
    assert [settings[name] for name in (*switches, "insecure")] == ["true"] * 3 + ["false"]
    begin = SERVICES["source"]["command"]
    assert source["command"][: len(begin)] == begin
    words = {word for word in source["command"] if word.startswith("--")}
    assert words <= code_facts.module_flags("demo/steady.py")
    _, _, *names = SECURED["certificates"]["command"]
    assert names == ["gateway", "daemon", "source"]
    for name in names:
        words = [*SECURED[name]["command"]] if name != "daemon" else []
        words += SECURED[name].get("environment", {}).values()
        shown = {word for word in words if word.startswith("/certificates/")}
        assert shown == {f"/certificates/{file}.pem" for file in ("authority", name, f"{name}-key")}
    for name, caller in (("gateway", "daemon"), ("daemon", "source")):
        file = ROOT / f"deploy/secured-compose/{name}.json"
        assert len(identities_file.read(str(file)).certificates) == 1
        assert f'"CN={caller}"' in file.read_text()
    for waiting in ("gateway", "daemon", "source", "prometheus"):
        condition = SECURED[waiting]["depends_on"]["certificates"]["condition"]
        assert condition == "service_completed_successfully"


def test_nobody_is_given_the_key_of_somebody_else() -> None:
    """Who makes them puts each into the volume that its owner alone mounts."""
    mounted = {
        name: dict(volume.split(":")[:2] for volume in service.get("volumes", []))
        for name, service in SECURED.items()
    }
    made = {place: volume for volume, place in mounted.pop("certificates").items()}
    assert set(made.values()) == set(OVER["volumes"])
    got = {
        name: {made_of: place for made_of, place in of.items() if made_of in OVER["volumes"]}
        for name, of in mounted.items()
    }
    owners = {"gateway": "gateway", "daemon": "daemon", "source": "source"}
    assert {name: of for name, of in got.items() if of} == {
        name: {made[f"/certificates/{folder}"]: "/certificates"}
        for name, folder in (owners | {"prometheus": "authority"}).items()
    }


def test_prometheus_asks_the_same_in_both_forms() -> None:
    files = ("prometheus/prometheus.yaml", "secured-compose/prometheus.yaml")
    plain, secured = (yaml.safe_load((ROOT / "deploy" / file).read_text()) for file in files)
    for job in secured["scrape_configs"]:
        assert job.pop("scheme") == "https"
        assert job.pop("tls_config") == {"ca_file": "/certificates/authority.pem"}
    assert secured == plain


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

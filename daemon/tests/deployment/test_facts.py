"""What the objects say is true of the software: settings, flags, addresses, tokens, times,
versions.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from cursorkeeper.settings import ENVIRONMENT_PREFIX, SETTINGS
from daemon.tests.deployment import code_facts
from daemon.tests.deployment.cluster import (
    Cluster,
    container,
    containers,
    environment,
    image_environment,
    loaded,
    mounted_files,
    pod,
    port,
    probes,
    sleep_before_stop_s,
)
from daemon.tests.deployment.places import OVERLAYS, PLAIN, ROOT, SECURED, TARGETS, version

JAVA = ROOT / "java/gateway/src/main/java/io/cursorkeeper/gateway"
JAR = ROOT / "java/gateway/target/cursorkeeper-gateway.jar"
SPARE_S = 5.0
"""Between the end of a process's own limits and the kubelet's SIGKILL."""


def java_number(file: str, name: str) -> int:
    """A constant of the gateway's sources."""
    (value,) = re.findall(rf"\b{name} = ([\d_]+);", code_facts.java(JAVA / file))
    return int(value.replace("_", ""))


# ---- the daemon


@pytest.mark.parametrize("target", OVERLAYS)
def test_the_daemon_takes_its_settings(target: str, tmp_path: Path) -> None:
    settings = loaded(Cluster.of(target), tmp_path)
    assert settings.daemon.name == "of-metadata.name"
    assert settings.daemon.listen.startswith("127.0.0.1:"), (
        "the broker is in the same pod; nobody else is to reach it"
    )


def test_the_settings_of_base_are_settings(tmp_path: Path) -> None:
    cluster = Cluster.of("base")
    known = set(SETTINGS)
    assert set(cluster.daemon_file()) <= known
    example = Cluster.of("example").daemon_file()
    assert set(cluster.daemon_file()) <= set(example), (
        "the overlay replaces the whole file: it must say what base says, too"
    )


@pytest.mark.parametrize("target", OVERLAYS)
def test_nothing_in_the_file_is_overruled_by_the_environment(target: str) -> None:
    cluster = Cluster.of(target)
    overruled = {
        name.removeprefix(ENVIRONMENT_PREFIX).lower() for name in environment(cluster.daemon)
    }
    assert overruled >= {"listen", "metrics_listen", "start_timeout_s"}, "the image sets them"
    assert set(image_environment()) <= {v["name"] for v in cluster.daemon["env"]}, (
        "what the image sets, the pod says itself"
    )
    assert not overruled & set(cluster.daemon_file())


@pytest.mark.parametrize("target", OVERLAYS)
def test_the_daemon_finds_the_gateways(target: str, tmp_path: Path) -> None:
    cluster = Cluster.of(target)
    host, _, number = loaded(cluster, tmp_path).systems.gateway.rpartition(":")
    assert int(number) in [p["port"] for p in cluster.one("Service", host)["spec"]["ports"]]


@pytest.mark.parametrize("target", OVERLAYS)
def test_daemon_and_gateway_use_the_same_zookeepers(target: str, tmp_path: Path) -> None:
    cluster = Cluster.of(target)
    form = re.fullmatch(
        r"zk\+hierarchical://([^/]+)/ledgers", cluster.gateway_flags()["metadata-service-uri"]
    )
    assert form is not None
    assert form[1].split(";") == loaded(cluster, tmp_path).systems.zookeeper.split(",")


@pytest.mark.parametrize("target", OVERLAYS)
def test_metrics_are_where_the_port_says(target: str, tmp_path: Path) -> None:
    cluster = Cluster.of(target)
    assert (
        loaded(cluster, tmp_path).daemon.metrics_listen
        == f"0.0.0.0:{port(cluster.daemon, 'keeper-metrics')}"
    )


@pytest.mark.parametrize("target", OVERLAYS)
def test_probes_of_the_daemon_ask_the_daemon_itself(target: str) -> None:
    for probe in probes(Cluster.of(target).daemon).values():
        assert probe["exec"]["command"] == ["cursorkeeper", "health"]
        assert probe["timeoutSeconds"] > 3.0, "the command has a limit of its own, of three seconds"


@pytest.mark.parametrize("target", OVERLAYS)
def test_the_daemon_may_wait_as_long_as_it_is_told_to(target: str, tmp_path: Path) -> None:
    cluster = Cluster.of(target)
    startup = cluster.daemon["startupProbe"]
    assert (
        startup["periodSeconds"] * startup["failureThreshold"]
        > loaded(cluster, tmp_path).limits.start_timeout_s + SPARE_S
    )


@pytest.mark.parametrize("target", OVERLAYS)
def test_the_pod_gives_broker_and_daemon_time_to_stop(target: str, tmp_path: Path) -> None:
    cluster = Cluster.of(target)
    broker_s = int(cluster.content("ConfigMap", "pulsar-broker")["brokerShutdownTimeoutMs"]) / 1000
    daemon_s = (
        sleep_before_stop_s(cluster.daemon) + loaded(cluster, tmp_path).limits.close_timeout_s
    )
    native = cluster.daemon in pod(cluster.broker).get("initContainers", [])
    # a native sidecar is stopped when the broker has ended
    needed_s = broker_s + daemon_s if native else max(broker_s, daemon_s)
    assert pod(cluster.broker)["terminationGracePeriodSeconds"] >= needed_s + SPARE_S


def test_one_is_a_native_sidecar_and_the_other_is_not() -> None:
    native, second = Cluster.of("example"), Cluster.of("example-second-container")
    assert [one["name"] for one in pod(native.broker)["initContainers"]] == ["cursorkeeper"]
    assert native.daemon["restartPolicy"] == "Always"
    assert "initContainers" not in pod(second.broker)
    assert sleep_before_stop_s(second.daemon) >= 10, (
        "both are told to stop at once: the broker's last acks must still find it"
    )


def test_both_variants_are_the_same_daemon() -> None:
    native, second = Cluster.of("example"), Cluster.of("example-second-container")
    one = {key: value for key, value in native.daemon.items() if key != "restartPolicy"}
    other = {key: value for key, value in second.daemon.items() if key != "lifecycle"}
    assert one == other
    assert pod(native.broker)["volumes"] == pod(second.broker)["volumes"]


@pytest.mark.parametrize("target", PLAIN)
def test_the_component_adds_to_the_broker_and_changes_nothing(target: str) -> None:
    from daemon.tests.deployment.places import KUBERNETES, documents

    mine = documents(KUBERNETES / "overlays/pulsar/broker.yaml")[0]
    theirs = Cluster.of(target).broker
    assert theirs["metadata"].pop("namespace")
    template = theirs["spec"]["template"]
    assert template["metadata"]["labels"].pop("cursorkeeper.io/uses-gateway") == "true"
    template["spec"].pop("initContainers", None)
    template["spec"].pop("volumes")
    template["spec"]["containers"] = [
        one for one in template["spec"]["containers"] if one["name"] != "cursorkeeper"
    ]
    assert theirs == mine


@pytest.mark.parametrize("target", OVERLAYS)
def test_variables_that_kubernetes_makes_of_services_are_no_settings(target: str) -> None:
    made = set()
    for service in Cluster.of(target).kind("Service"):
        name = service["metadata"]["name"].upper().replace("-", "_")
        made |= {f"{name}_SERVICE_HOST", f"{name}_SERVICE_PORT", f"{name}_PORT"}
        for p in service["spec"]["ports"]:
            stem = f"{name}_PORT_{p['port']}_TCP"
            made |= {f"{name}_SERVICE_PORT_{p['name'].upper().replace('-', '_')}", stem}
            made |= {f"{stem}_{part}" for part in ("PROTO", "PORT", "ADDR")}
    assert made
    assert not made & {ENVIRONMENT_PREFIX + name.upper() for name in SETTINGS}


# ---- the gateway


@pytest.mark.parametrize("target", TARGETS)
def test_the_gateway_listens_where_its_ports_are(target: str) -> None:
    cluster = Cluster.of(target)
    flags, one = cluster.gateway_flags(), container(cluster.gateway, "gateway")
    assert flags["host"] == "0.0.0.0"
    assert int(flags["port"]) == port(one, "tcp-ledgers")
    assert int(flags["metrics-port"]) == port(one, "http-metrics")
    annotations = cluster.gateway["spec"]["template"]["metadata"]["annotations"]
    assert annotations["prometheus.io/port"] == flags["metrics-port"]
    assert annotations["config.linkerd.io/opaque-ports"] == flags["port"]


@pytest.mark.parametrize("target", TARGETS)
def test_the_flags_of_the_gateway_are_flags(target: str) -> None:
    known = code_facts.gateway_flags()
    assert len(known) > 20
    assert set(Cluster.of(target).gateway_flags()) <= known


@pytest.mark.jvm
@pytest.mark.parametrize("target", TARGETS)
def test_the_jar_knows_every_flag(target: str) -> None:
    page = subprocess.run(
        ["java", "-jar", str(JAR), "gateway", "--help"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    ).stdout
    known = re.findall(r"^  --([a-z-]+) ", page, re.MULTILINE)
    cluster = Cluster.of(target)
    assert set(cluster.gateway_flags()) <= set(known)
    assert container(cluster.gateway, "gateway")["args"][:2] == ["gateway", "--config"]
    assert "config" in known


@pytest.mark.parametrize("target", TARGETS)
def test_liveness_of_the_gateway_does_not_ask_for_its_neighbours(target: str) -> None:
    """A gateway without ZooKeeper or bookies is not ready, and lives: its metrics page says nothing
    about health.
    """
    asked = probes(container(Cluster.of(target).gateway, "gateway"))
    assert asked["liveness"]["httpGet"]["path"] == asked["startup"]["httpGet"]["path"] == "/metrics"
    # the kubelet's own gRPC probe knows no TLS
    (readiness,) = set(asked["readiness"]) & {"grpc", "httpGet", "exec"}
    assert readiness == ("httpGet" if target == SECURED else "grpc")
    assert 'path.equals("/metrics")' in code_facts.java(JAVA / "service/MetricsServer.java")


@pytest.mark.parametrize("target", TARGETS)
def test_the_gateway_has_time_to_stop(target: str) -> None:
    cluster = Cluster.of(target)
    own_s = java_number("process/Lifetime.java", "STOP_MAX_MS") / 1000
    before_s = sleep_before_stop_s(container(cluster.gateway, "gateway"))
    assert before_s >= 5, "endpoints must forget it before it goes"
    assert pod(cluster.gateway)["terminationGracePeriodSeconds"] >= before_s + own_s + SPARE_S


@pytest.mark.parametrize("target", TARGETS)
def test_there_is_always_a_gateway(target: str) -> None:
    cluster = Cluster.of(target)
    assert cluster.gateway["spec"]["replicas"] >= 2
    assert cluster.gateway["spec"]["strategy"]["rollingUpdate"] == {
        "maxSurge": 1,
        "maxUnavailable": 0,
    }
    (budget,) = cluster.kind("PodDisruptionBudget")
    assert budget["spec"]["maxUnavailable"] < cluster.gateway["spec"]["replicas"]
    spread = {
        c["topologyKey"]: c["whenUnsatisfiable"]
        for c in pod(cluster.gateway)["topologySpreadConstraints"]
    }
    assert spread["kubernetes.io/hostname"] == "DoNotSchedule"


@pytest.mark.parametrize("target", TARGETS)
def test_a_connection_is_balanced_and_never_its_calls(target: str) -> None:
    cluster = Cluster.of(target)
    spec = cluster.one("Service", "cursorkeeper-gateway")["spec"]
    assert (
        spec["type"] == "ClusterIP"
        and spec.get("clusterIP") != "None"
        and spec["sessionAffinity"] == "None"
    )
    (ledgers,) = spec["ports"]
    assert ledgers["name"].startswith("tcp-") and ledgers["appProtocol"] == "tcp"


def test_the_memory_fits_what_the_image_gives_the_jvm() -> None:
    """Heap and Netty's buffers take a share each; beside them the JVM needs some 150 MiB."""
    limit = container(Cluster.of("base").gateway, "gateway")["resources"]["limits"]["memory"]
    (share,) = re.findall(r"-XX:MaxRAMPercentage=(\d+)", (ROOT / "java/Dockerfile").read_text())
    assert limit.endswith("Mi")
    assert int(limit[:-2]) * (1 - 2 * int(share) / 100) >= 150


# ---- tokens, versions, names


@pytest.mark.parametrize("target", PLAIN)
def test_token_files_are_mounted_where_they_are_looked_for(target: str, tmp_path: Path) -> None:
    cluster = Cluster.of(target)
    settings, flags = loaded(cluster, tmp_path), cluster.gateway_flags()
    daemons = {
        path: (name, key) for path, _, name, key in mounted_files(cluster.broker, "cursorkeeper")
    }
    gateways = {
        path: (name, key) for path, _, name, key in mounted_files(cluster.gateway, "gateway")
    }
    sources = {path: (name, key) for path, _, name, key in mounted_files(cluster.broker, "broker")}
    assert daemons[settings.systems.gateway_token_file] == gateways[flags["writer-token-file"]], (
        "the daemon writes"
    )
    assert gateways[flags["reader-token-file"]][1] == "reader-token"
    assert daemons[settings.daemon.source_token_file] == sources[settings.daemon.source_token_file]
    for one, path in ((cluster.daemon, daemons), (container(cluster.gateway, "gateway"), gateways)):
        folder, _, _ = one["args"][-1].rpartition("/")
        assert f"{folder}/" in path, "the settings' folder"


def test_the_daemon_does_not_get_the_readers_token() -> None:
    cluster = Cluster.of("example")
    assert "reader-token" not in {
        key for _, _, _, key in mounted_files(cluster.broker, "cursorkeeper")
    }
    assert {
        key for _, kind, _, key in mounted_files(cluster.broker, "broker") if kind == "Secret"
    } == {"source-token"}


@pytest.mark.parametrize("target", PLAIN)
def test_example_tokens_differ_and_say_what_they_are(target: str) -> None:
    cluster = Cluster.of(target)
    tokens = [
        t
        for body in cluster.kind("Secret")
        for t in cluster.content("Secret", body["metadata"]["name"]).values()
    ]
    assert len(tokens) == len(set(tokens)) == 3
    assert all("example" in token and "change-me" in token for token in tokens)


@pytest.mark.parametrize("target", TARGETS)
def test_images_are_of_this_release(target: str) -> None:
    cluster = Cluster.of(target)
    ours = [
        one["image"]
        for body in cluster.workloads()
        for one in containers(body)
        if "cursorkeeper" in one["image"]
    ]
    assert len(ours) == (1 if target == "base" else 2)
    for image in ours:
        assert image.rpartition(":")[2] == version(), (
            "tags of deploy/kubernetes follow daemon/pyproject.toml"
        )
        assert image.startswith("registry.example.com/") == (target != "base")


@pytest.mark.parametrize("target", TARGETS)
def test_what_is_ours_says_so(target: str) -> None:
    cluster = Cluster.of(target)
    for body in cluster.objects:
        labels = body["metadata"].get("labels", {})
        name = body["metadata"]["name"]
        is_of_the_overlay = body["kind"] == "Secret" or name.startswith("cursorkeeper-identities-")
        if name.startswith("cursorkeeper-") and not is_of_the_overlay:
            assert labels["app.kubernetes.io/part-of"] == "cursorkeeper"
            assert labels["app.kubernetes.io/version"] == version()
            assert (
                body["kind"] == "ConfigMap"
                or labels["app.kubernetes.io/name"] == "cursorkeeper-gateway"
            )

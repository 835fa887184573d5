"""Whatever one object names, exists in another: ConfigMaps, Secrets and their keys, ports, labels,
accounts, volumes.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from daemon.tests.deployment.cluster import Cluster, containers, pod, probes
from daemon.tests.deployment.places import OVERLAYS, TARGETS, Object

LEFT = {
    "base": {"cursorkeeper-gateway-tokens"},
    "secured": {
        "cursorkeeper-gateway-tls",
        "cursorkeeper-daemon-tls",
        "cursorkeeper-users",
    },
}
"""Secrets that base/ leaves to its overlays, and the secured one to its user."""


def labels_match(selector: Object, labels: Object) -> bool:
    return bool(selector) and all(labels.get(key) == value for key, value in selector.items())


def selected(cluster: Cluster, selector: Object) -> list[Object]:
    return [
        body
        for body in cluster.workloads()
        if labels_match(selector, body["spec"]["template"]["metadata"]["labels"])
    ]


def named(body: Object) -> Iterator[tuple[str, str, list[str], bool]]:
    """(kind, name, keys, optional) of every ConfigMap and Secret that an object's pods name."""
    for volume in pod(body).get("volumes", []):
        if "configMap" in volume:
            yield "ConfigMap", volume["configMap"]["name"], [], False
        if "secret" in volume:
            yield (
                "Secret",
                volume["secret"]["secretName"],
                [item["key"] for item in volume["secret"]["items"]],
                volume["secret"].get("optional", False),
            )
    for one in containers(body):
        for source in one.get("envFrom", []):
            yield "ConfigMap", source["configMapRef"]["name"], [], False
        for variable in one.get("env", []):
            if secret := variable.get("valueFrom", {}).get("secretKeyRef"):
                yield "Secret", secret["name"], [secret["key"]], secret.get("optional", False)


@pytest.mark.parametrize("target", TARGETS)
def test_configmaps_and_secrets_exist_with_their_keys(target: str) -> None:
    cluster = Cluster.of(target)
    there = {
        (o["kind"], o["metadata"]["name"]): set(o["data"])
        for kind in ("ConfigMap", "Secret")
        for o in cluster.kind(kind)
    }
    asked = [reference for body in cluster.workloads() for reference in named(body)]
    assert asked
    missing = {
        (kind, name)
        for kind, name, keys, optional in asked
        if not optional and not set(keys) <= there.get((kind, name), set())
    }
    missing |= {
        (kind, name)
        for kind, name, _, optional in asked
        if not optional and (kind, name) not in there
    }
    assert missing == {("Secret", name) for name in LEFT.get(target, set())}
    unused = set(there) - {(kind, name) for kind, name, _, _ in asked}
    assert {name.rsplit("-", 1)[0] for _, name in unused} == (
        {"cursorkeeper-daemon"} if target == "base" else set()
    )


@pytest.mark.parametrize("target", TARGETS)
def test_services_lead_to_pods_and_ports(target: str) -> None:
    cluster = Cluster.of(target)
    for service in cluster.kind("Service"):
        (body,) = selected(cluster, service["spec"]["selector"])
        ports = {
            p["name"]: p["containerPort"] for one in containers(body) for p in one.get("ports", [])
        }
        for port in service["spec"]["ports"]:
            assert ports[port["targetPort"]] == port["port"]


@pytest.mark.parametrize("target", TARGETS)
def test_the_policies_and_the_budget_mean_the_gateways(target: str) -> None:
    cluster = Cluster.of(target)
    (budget,), (policy,) = cluster.kind("PodDisruptionBudget"), cluster.kind("NetworkPolicy")
    for selector in (
        budget["spec"]["selector"],
        policy["spec"]["podSelector"],
        cluster.gateway["spec"]["selector"],
    ):
        assert selected(cluster, selector["matchLabels"]) == [cluster.gateway]
    for constraint in pod(cluster.gateway)["topologySpreadConstraints"]:
        assert selected(cluster, constraint["labelSelector"]["matchLabels"]) == [cluster.gateway]
    ports = {p["name"] for one in containers(cluster.gateway) for p in one["ports"]}
    opened = [port["port"] for rule in policy["spec"]["ingress"] for port in rule["ports"]]
    assert sorted(opened) == sorted(ports), (
        "every port is opened to somebody, and only ports that exist"
    )
    assert set(policy["spec"]["policyTypes"]) == {"Ingress", "Egress"}


@pytest.mark.parametrize("target", OVERLAYS)
def test_daemons_and_nobody_else_of_the_namespace_reach_the_ledgers(target: str) -> None:
    cluster = Cluster.of(target)
    (policy,) = cluster.kind("NetworkPolicy")
    (rule,) = [r for r in policy["spec"]["ingress"] if r["ports"][0]["port"] == "tcp-ledgers"]
    for peer in rule["from"]:
        assert set(peer) == {"podSelector"}, "without a namespaceSelector: the same namespace"
        assert selected(cluster, peer["podSelector"]["matchLabels"]) == [cluster.broker]


@pytest.mark.parametrize("target", TARGETS)
def test_no_rule_of_the_policy_lets_everybody_in_or_out(target: str) -> None:
    (policy,) = Cluster.of(target).kind("NetworkPolicy")
    for rules, peers in (("ingress", "from"), ("egress", "to")):
        for rule in policy["spec"][rules]:
            assert rule["ports"]
            assert rule[peers] and all(
                peer.get("podSelector", {}).get("matchLabels") for peer in rule[peers]
            )


@pytest.mark.parametrize("target", TARGETS)
def test_probes_ask_ports_that_exist(target: str) -> None:
    asked = 0
    for body in Cluster.of(target).workloads():
        for one in containers(body):
            ports = {p["name"] for p in one["ports"]} | {p["containerPort"] for p in one["ports"]}
            assert set(probes(one)) == {"startup", "readiness", "liveness"}
            for probe in probes(one).values():
                place = probe.get("httpGet") or probe.get("grpc") or {}
                assert "exec" in probe or place["port"] in ports
                asked += 1
    assert asked


@pytest.mark.parametrize("target", TARGETS)
def test_volumes_and_mounts_belong_together(target: str) -> None:
    for body in Cluster.of(target).workloads():
        volumes = [v["name"] for v in pod(body).get("volumes", [])]
        mounts = [m["name"] for one in containers(body) for m in one.get("volumeMounts", [])]
        assert len(volumes) == len(set(volumes))
        assert set(volumes) == set(mounts)
        for one in containers(body):
            paths = [m["mountPath"] for m in one.get("volumeMounts", [])]
            assert len(paths) == len(set(paths))


@pytest.mark.parametrize("target", TARGETS)
def test_the_account_exists_and_carries_no_token(target: str) -> None:
    cluster = Cluster.of(target)
    for body in cluster.workloads():
        assert pod(body)["automountServiceAccountToken"] is False
    account = cluster.one("ServiceAccount", pod(cluster.gateway)["serviceAccountName"])
    assert account["automountServiceAccountToken"] is False


@pytest.mark.parametrize("target", OVERLAYS)
def test_everything_is_in_one_namespace(target: str) -> None:
    cluster = Cluster.of(target)
    (namespace,) = cluster.kind("Namespace")
    names = {body["metadata"].get("namespace") for body in cluster.objects if body is not namespace}
    assert names == {namespace["metadata"]["name"]}

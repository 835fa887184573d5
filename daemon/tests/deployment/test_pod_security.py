"""Nothing is privileged: every pod keeps to Kubernetes' restricted pod security standard, and ours
to more.

The rules are those of the standard (kubernetes.io, "Pod Security Standards", restricted) as far as
a pod can break them.
"""

from __future__ import annotations

import pytest

from daemon.tests.deployment.cluster import Cluster, containers, pod
from daemon.tests.deployment.places import OVERLAYS, TARGETS, Object

VOLUMES = {
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "persistentVolumeClaim",
    "projected",
    "secret",
}
HOST = ("hostNetwork", "hostPID", "hostIPC", "hostUsers", "shareProcessNamespace")
OURS = ("cursorkeeper", "gateway")


def broken(body: Object) -> list[str]:
    """What a pod does that the restricted standard forbids."""
    spec = pod(body)
    found = [f"{name} of the host" for name in HOST if spec.get(name)]
    found += [
        f"volume {v['name']}" for v in spec.get("volumes", []) if not set(v) - {"name"} <= VOLUMES
    ]
    for one in containers(body):
        both = spec.get("securityContext", {}) | one.get("securityContext", {})
        rules = {
            "runs as root": both.get("runAsNonRoot") is True and both.get("runAsUser", 0) > 0,
            "seccomp": both.get("seccompProfile", {}).get("type")
            in ("RuntimeDefault", "Localhost"),
            "privilege escalation": both.get("allowPrivilegeEscalation") is False,
            "privileged": not both.get("privileged"),
            "capabilities": both.get("capabilities") == {"drop": ["ALL"]},
            "host ports": not any("hostPort" in p for p in one.get("ports", [])),
            "proc mount": "procMount" not in both,
            "sysctls": "sysctls" not in both,
        }
        found += [f"{one['name']}: {rule}" for rule, kept in rules.items() if not kept]
    return found


@pytest.mark.parametrize("target", TARGETS)
def test_every_pod_is_restricted(target: str) -> None:
    assert [problem for body in Cluster.of(target).workloads() for problem in broken(body)] == []


@pytest.mark.parametrize("target", OVERLAYS)
def test_the_namespace_asks_for_it(target: str) -> None:
    (namespace,) = Cluster.of(target).kind("Namespace")
    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"


@pytest.mark.parametrize("target", TARGETS)
def test_ours_write_nothing_but_tmp(target: str) -> None:
    seen = 0
    for body in Cluster.of(target).workloads():
        volumes = {v["name"]: v for v in pod(body).get("volumes", [])}
        for one in (one for one in containers(body) if one["name"] in OURS):
            seen += 1
            assert one["securityContext"]["readOnlyRootFilesystem"] is True
            writable = [m for m in one["volumeMounts"] if not m.get("readOnly")]
            assert [m["mountPath"] for m in writable] == (
                ["/tmp"] if one["name"] == "gateway" else []
            )
            assert all(volumes[m["name"]]["emptyDir"]["sizeLimit"] for m in writable), (
                "a volume without a limit fills the node"
            )
    assert seen == (1 if target == "base" else 2)


@pytest.mark.parametrize("target", TARGETS)
def test_ours_run_as_the_images_user(target: str) -> None:
    for body in Cluster.of(target).workloads():
        for one in (one for one in containers(body) if one["name"] in OURS):
            both = pod(body)["securityContext"] | one["securityContext"]
            assert (both["runAsUser"], both["runAsGroup"]) == (10001, 10001)


@pytest.mark.parametrize("target", TARGETS)
def test_ours_have_limits_and_requests(target: str) -> None:
    for body in Cluster.of(target).workloads():
        for one in (one for one in containers(body) if one["name"] in OURS):
            assert set(one["resources"]["requests"]) >= {"cpu", "memory", "ephemeral-storage"}
            assert set(one["resources"]["limits"]) == {"memory", "ephemeral-storage"}, (
                "a limit on CPU would delay acks"
            )


def test_a_privileged_pod_would_be_found() -> None:
    body = Cluster.of("base").gateway
    pod(body)["hostNetwork"] = True
    pod(body)["volumes"].append({"name": "root", "hostPath": {"path": "/"}})
    containers(body)[0]["securityContext"] = {"privileged": True, "runAsUser": 0}
    assert set(broken(body)) == {
        "hostNetwork of the host",
        "volume root",
        *(
            f"gateway: {rule}"
            for rule in ("runs as root", "privilege escalation", "privileged", "capabilities")
        ),
    }

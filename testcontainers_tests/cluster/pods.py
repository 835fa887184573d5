"""Containers made from what kustomize rendered: image, arguments, environment, files, user, limits
as the pod's spec has them.

Owns: what the kubelet would do with a container's spec, as far as Docker can: downward values,
ConfigMaps and Secrets as files, emptyDir, security context, one network namespace for a pod. Does
not own: what the pods hold (`deploy/kubernetes`). Docker cannot give a Secret's files to a group
(fsGroup): they are readable by everybody here. Invariant: nothing of a spec is changed but the
registry of our images and the tokens, whose placeholders no part takes; a field that is not known
here is an error.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from testcontainers.core.network import Network

from daemon.tests.deployment.cluster import Cluster, container, mounted_files, pod
from testcontainers_tests.cluster.images import Images
from testcontainers_tests.cluster.node import Node

DONE = {"args", "env", "image", "name", "resources", "securityContext", "volumeMounts"}
ASKED = {"startupProbe", "livenessProbe", "readinessProbe", "lifecycle"}
"""What the kubelet does later; the tests do it."""
ELSEWHERE = {"imagePullPolicy", "ports", "restartPolicy"}
SECURITY = {
    "allowPrivilegeEscalation",
    "capabilities",
    "readOnlyRootFilesystem",
    "runAsGroup",
    "runAsNonRoot",
    "runAsUser",
    "seccompProfile",
}
OF_THE_VOLUMES = {"fsGroup", "fsGroupChangePolicy"}


def node_of(
    cluster: Cluster,
    body: dict[str, Any],
    container_name: str,
    name: str,
    images: Images,
    network: Network,
    folder: Path,
    **more: Any,
) -> Node:
    """A container of an object's pods, not started. `name`: of the pod or its Service; `folder`:
    for the files that are mounted.
    """
    spec = container(body, container_name)
    both = pod(body).get("securityContext", {}) | spec["securityContext"]
    unknown = (set(spec) - DONE - ASKED - ELSEWHERE) | (set(both) - SECURITY - OF_THE_VOLUMES)
    assert not unknown, f"{container_name}: {unknown}"
    assert both["seccompProfile"] == {"type": "RuntimeDefault"}, "what Docker does, too"
    assert both["allowPrivilegeEscalation"] is False, "what Node does"
    node = Node(
        name,
        images.gateway
        if spec["image"].rpartition(":")[0].endswith("/cursorkeeper-gateway")
        else images.daemon,
        spec["args"],
        network,
        env={v["name"]: _value(v) for v in spec.get("env", []) if _value(v)},
        volumes={
            str(path): {"bind": where, "mode": "ro"}
            for path, where in _files(cluster, body, container_name, folder).items()
        },
        memory=_bytes(spec["resources"]["limits"]["memory"]),
        read_only=both["readOnlyRootFilesystem"],
        cap_drop=both["capabilities"]["drop"],
        user=f"{both['runAsUser']}:{both['runAsGroup']}",
        **more,
    )
    # and no /tmp where the pod has none
    node._container.tmpfs = _empty_folders(body, container_name)
    return node


def _empty_folders(body: dict[str, Any], container_name: str) -> dict[str, str]:
    """Every emptyDir: path -> options of a tmpfs."""
    volumes = {v["name"]: v for v in pod(body)["volumes"] if "emptyDir" in v}
    mounts = [m for m in container(body, container_name)["volumeMounts"] if m["name"] in volumes]
    return {
        m["mountPath"]: f"mode=1777,size={_bytes(volumes[m['name']]['emptyDir']['sizeLimit'])}"
        for m in mounts
    }


def _value(variable: dict[str, Any]) -> str:
    """As a pod of that name would have it; an optional Secret that is not there gives nothing."""
    source = variable.get("valueFrom", {})
    if source.get("secretKeyRef", {}).get("optional"):
        return ""
    return str(
        variable["value"]
        if "value" in variable
        else {"metadata.name": "pulsar-broker-0"}[source["fieldRef"]["fieldPath"]]
    )


def _files(cluster: Cluster, body: dict[str, Any], name: str, folder: Path) -> dict[Path, str]:
    """Every mounted file: path on this machine -> path in the container."""
    found = {}
    for where, kind, source, key in mounted_files(body, name):
        content = cluster.content(kind, source)
        for file in [key] if key else list(content):
            path = folder / f"{source}-{file}"
            path.write_text(_real(content[file]) if kind == "Secret" else content[file])
            path.chmod(0o444)
            found[path] = where if key else f"{where}{file}"
    return found


def _real(placeholder: str) -> str:
    """A token as somebody would make in place of the example's, which nobody takes; the same for
    all who share it.
    """
    return hashlib.sha256(placeholder.encode()).hexdigest()


def _bytes(text: str) -> str:
    """Kubernetes' Mi and Gi as Docker writes them."""
    assert text.endswith(("Mi", "Gi"))
    return text[:-1].lower()

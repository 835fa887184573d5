"""Builds a kustomization, as far as deploy/kubernetes uses kustomize; anything else is refused,
never ignored.

There is no kustomize on PyPI, npm or in Debian that is new enough for components. What a cluster
gets is therefore kept as the real tool rendered it (`rendered/`), all other tests look at that, and
this interpreter only proves that it is still what the sources say. So it and the real tool check
each other.

Owns: resources, components, patches by target, images, namespace, labels, generators and the hashes
in their names. Invariant: every key of a kustomization is either done or refused (`Unsupported`).
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from daemon.tests.deployment.places import Object, documents
from daemon.tests.deployment.strategic_merge import Unsupported, merge

NAMESPACED = {
    "ConfigMap",
    "Deployment",
    "NetworkPolicy",
    "PodDisruptionBudget",
    "Secret",
    "Service",
    "ServiceAccount",
    "StatefulSet",
}
WITH_PODS = ("Deployment", "StatefulSet")
FIELDS = {
    "apiVersion",
    "kind",
    "resources",
    "components",
    "patches",
    "images",
    "namespace",
    "labels",
    "configMapGenerator",
    "secretGenerator",
}
HASH_ALPHABET = str.maketrans("013ae", "ghkmt")
"""kustomize writes these hexadecimal digits as letters, so that no word can come of them."""


@dataclass
class _Made:
    """A resource on its way; `hashed`: its name gets a hash of its content."""

    body: Object
    hashed: bool = False

    @property
    def key(self) -> tuple[str, str]:
        return self.body["kind"], self.body["metadata"]["name"]


def build(folder: Path) -> list[Object]:
    """The resources of a kustomization, in no particular order. Raises Unsupported."""
    made = _accumulate(folder, [], "Kustomization")
    names: dict[tuple[str, str], str] = {}
    for one in made:
        if one.hashed:
            names[one.key] = f"{one.key[1]}-{content_hash(one.body)}"
    for one in made:
        for kind, reference, field in _references(one.body):
            reference[field] = names.get((kind, reference[field]), reference[field])
    for one in made:
        one.body["metadata"]["name"] = names.get(one.key, one.key[1])
    return [one.body for one in made]


def content_hash(body: Object) -> str:
    """Ten characters of the SHA-256 of what a ConfigMap or a Secret holds. kustomize leaves the
    name empty there.
    """
    content = {"kind": body["kind"], "name": "", "data": body["data"]}
    if body["kind"] == "Secret":
        content["type"] = body["type"]
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    for character in "<>&":  # as Go writes JSON
        text = text.replace(character, f"\\u{ord(character):04x}")
    return hashlib.sha256(text.encode()).hexdigest()[:10].translate(HASH_ALPHABET)


def _accumulate(folder: Path, made: list[_Made], kind: str) -> list[_Made]:
    """What a folder makes of what was there before it: resources, components, generators, then the
    changes.
    """
    (settings,) = documents(folder / "kustomization.yaml")
    _only(settings, FIELDS, f"{folder}/kustomization.yaml")
    if settings["kind"] != kind:
        raise Unsupported(f"{folder}: a {settings['kind']} where a {kind} is named")
    for name in settings.get("resources", []):
        found = (
            _accumulate(folder / name, [], "Kustomization")
            if (folder / name).is_dir()
            else _read(folder / name)
        )
        for one in found:
            if one.key in {other.key for other in made}:
                raise Unsupported(f"{folder / name}: {one.key} is there already")
            made.append(one)
    for name in settings.get("components", []):
        made = _accumulate((folder / name).resolve(), made, "Component")
    for field, generated in (("configMapGenerator", "ConfigMap"), ("secretGenerator", "Secret")):
        for generator in settings.get(field, []):
            _generate(folder, generated, generator, made)
    for patch in settings.get("patches", []):
        _patch(folder, patch, made)
    if "namespace" in settings:
        _set_namespace(settings["namespace"], made)
    for labels in settings.get("labels", []):
        _label(labels, made)
    for image in settings.get("images", []):
        _set_image(image, made)
    return made


def _read(file: Path) -> list[_Made]:
    return [_Made(body) for body in documents(file)]


def _generate(folder: Path, kind: str, generator: Object, made: list[_Made]) -> None:
    _only(generator, {"name", "files", "behavior"}, f"{folder}: generator")
    data = {}
    for file in generator["files"]:
        if "=" in file or ".." in file:
            raise Unsupported(f"{folder}: {file}: keys of files, and files of other folders")
        content = (folder / file).read_bytes()
        data[Path(file).name] = (
            content.decode() if kind == "ConfigMap" else base64.b64encode(content).decode()
        )
    body: Object = {
        "apiVersion": "v1",
        "kind": kind,
        "metadata": {"name": generator["name"]},
        "data": data,
    }
    if kind == "Secret":
        body["type"] = "Opaque"
    there = [one for one in made if one.key == (kind, generator["name"])]
    if generator.get("behavior", "create") == "replace":
        (old,) = there
        old.body["data"] = data
    elif generator.get("behavior", "create") == "create" and not there:
        made.append(_Made(body, hashed=True))
    else:
        raise Unsupported(
            f"{folder}: {generator['name']}: behavior {generator.get('behavior')}, of "
            f"{len(there)} there"
        )


def _patch(folder: Path, patch: Object, made: list[_Made]) -> None:
    _only(patch, {"path", "target"}, f"{folder}: patch")
    target = patch["target"]
    _only(target, {"group", "version", "kind", "labelSelector"}, f"{folder}: target")
    label, equals, value = target["labelSelector"].partition("=")
    if not equals or set("!,()= ") & set(label + value):
        raise Unsupported(f"{folder}: labelSelector {target['labelSelector']}")
    (change,) = documents(folder / patch["path"])
    change = {key: value for key, value in change.items() if key not in ("apiVersion", "kind")}
    change["metadata"] = {key: value for key, value in change["metadata"].items() if key != "name"}
    for one in made:
        meant = (
            one.body["apiVersion"] == f"{target['group']}/{target['version']}"
            and one.body["kind"] == target["kind"]
        )
        if meant and one.body["metadata"].get("labels", {}).get(label) == value:
            one.body = merge(one.body, change)


def _set_namespace(namespace: str, made: list[_Made]) -> None:
    for one in made:
        kind = one.body["kind"]
        if kind == "Namespace":
            one.body["metadata"]["name"] = namespace
        elif kind in NAMESPACED:
            one.body["metadata"]["namespace"] = namespace
        else:
            raise Unsupported(f"{kind}: has it a namespace?")


def _label(labels: Object, made: list[_Made]) -> None:
    _only(labels, {"pairs", "includeTemplates"}, "labels")
    for one in made:
        places = [one.body["metadata"]]
        if labels.get("includeTemplates") and one.body["kind"] in WITH_PODS:
            if "volumeClaimTemplates" in one.body["spec"]:
                raise Unsupported("labels of volumeClaimTemplates")
            places.append(one.body["spec"]["template"]["metadata"])
        for metadata in places:
            metadata.setdefault("labels", {}).update(labels["pairs"])


def _set_image(image: Object, made: list[_Made]) -> None:
    _only(image, {"name", "newName", "newTag"}, "images")
    for one in made:
        for container in containers(one.body):
            name, _, _ = container["image"].rpartition(":")
            if name == image["name"]:
                container["image"] = f"{image['newName']}:{image['newTag']}"


def containers(body: Object) -> list[Object]:
    """All containers of an object with pods, init containers first; of other objects none."""
    if body["kind"] not in WITH_PODS:
        return []
    pod = body["spec"]["template"]["spec"]
    return [*pod.get("initContainers", []), *pod["containers"]]


def _references(body: Object) -> Iterator[tuple[str, dict[str, Any], str]]:
    """(kind, object that names it, field) of every ConfigMap and Secret that a pod's spec names."""
    if body["kind"] not in WITH_PODS:
        return
    for volume in body["spec"]["template"]["spec"].get("volumes", []):
        _only(volume, {"name", "configMap", "secret", "emptyDir"}, "volume")
        if "configMap" in volume:
            yield "ConfigMap", volume["configMap"], "name"
        if "secret" in volume:
            yield "Secret", volume["secret"], "secretName"
    for container in containers(body):
        for source in container.get("envFrom", []):
            _only(source, {"configMapRef"}, "envFrom")
            yield "ConfigMap", source["configMapRef"], "name"
        for variable in container.get("env", []):
            source = variable.get("valueFrom", {})
            _only(source, {"fieldRef", "secretKeyRef"}, "valueFrom")
            if "secretKeyRef" in source:
                yield "Secret", source["secretKeyRef"], "name"


def _only(value: Object, known: set[str], where: str) -> None:
    if unknown := set(value) - known:
        raise Unsupported(f"{where}: {sorted(unknown)}")

"""Kubernetes' strategic merge, as far as the patches of deploy/kubernetes need it.

Owns: by which key the items of a list are the same, and where new ones go (in front, as kustomize
puts them). Invariant: a list of objects that is not known here is refused where both sides have it:
guessing would hide what a cluster gets.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any

KEYS = {
    "containers": "name",
    "initContainers": "name",
    "volumes": "name",
    "env": "name",
    "ports": "containerPort",
    "volumeMounts": "mountPath",
}
"""List -> the field by which Kubernetes tells its items apart."""


PATCH = "$patch"
"""What a patch does with an item other than merging it: only `delete` is known here."""


class Unsupported(Exception):
    """Something that this interpreter of kustomize does not know; the real one may do it."""


def merge(base: Any, patch: Any, where: str = "") -> Any:
    """`base` with `patch` applied; neither is changed. Raises Unsupported."""
    if isinstance(base, dict) and isinstance(patch, dict):
        return _merged_object(base, patch, where)
    if isinstance(base, list) and isinstance(patch, list):
        return _merged_list(base, patch, where)
    return deepcopy(patch)


def _merged_object(base: dict[str, Any], patch: dict[str, Any], where: str) -> dict[str, Any]:
    out = deepcopy(base)
    for key, value in patch.items():
        if key.startswith("$"):
            raise Unsupported(f"{where}.{key}: directives that are no deletion of a list's item")
        if value is None:
            if key not in out:
                raise Unsupported(f"{where}.{key}: nothing is there to be removed")
            del out[key]
            continue
        out[key] = merge(base[key], value, f"{where}.{key}") if key in base else deepcopy(value)
    return out


def _merged_list(base: list[Any], patch: list[Any], where: str) -> list[Any]:
    if not any(isinstance(item, dict) for item in (*base, *patch)):
        return list(patch)
    key = KEYS.get(where.rpartition(".")[2])
    if key is None or not all(isinstance(item, dict) and key in item for item in (*base, *patch)):
        raise Unsupported(f"{where}: a list of objects whose merge key is not known")
    there = {item[key] for item in base}
    gone = {item[key] for item in patch if PATCH in item}
    for item in patch:
        if PATCH in item and (item != {key: item[key], PATCH: "delete"} or item[key] not in there):
            raise Unsupported(f"{where}: {item}: only what is there is deleted, by its key")
    base = [item for item in base if item[key] not in gone]
    patch = [item for item in patch if item[key] not in gone]
    named = {item[key]: item for item in patch}
    new = [deepcopy(item) for item in patch if item[key] not in {old[key] for old in base}]
    return new + [
        merge(old, named[old[key]], where) if old[key] in named else deepcopy(old) for old in base
    ]

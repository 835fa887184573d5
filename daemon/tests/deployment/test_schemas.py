"""Every object is valid for Kubernetes, strictly: a field that its version does not know is an
error.

The published schemas of all versions come with kubernetes-validate. Native sidecars need 1.29;
everything else needs 1.27.
"""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Any

import kubernetes_validate
import pytest
from jsonschema import Draft202012Validator
from referencing import Registry, Resource

from daemon.tests.deployment.places import Object, rendered

OLDEST, OLDEST_WITH_SIDECARS = "1.27", "1.29"
NEWEST = ".".join(kubernetes_validate.latest_version().split("-")[0].split(".")[:2])
CASES = [
    ("base", OLDEST),
    ("base", NEWEST),
    ("example", OLDEST_WITH_SIDECARS),
    ("example", "1.33"),
    ("example", NEWEST),
    ("secured", OLDEST_WITH_SIDECARS),
    ("secured", "1.33"),
    ("secured", NEWEST),
    ("example-second-container", OLDEST),
    ("example-second-container", NEWEST),
]


def _schema(version: str, name: str) -> Resource[Any]:
    folder = files("kubernetes_validate").joinpath(
        "kubernetes-json-schema", f"v{version}.0-local-strict"
    )
    return Resource.from_contents(json.loads(folder.joinpath(f"{name}.json").read_text()))


@cache
def _definitions(version: str) -> Resource[Any]:
    return _schema(version, "_definitions")


def problems(body: Object, version: str) -> list[str]:
    """What is wrong with an object, place by place, as kubernetes-validate finds it; it would read
    its files each time again.
    """
    group, _, api = body["apiVersion"].rpartition("/")
    short = f"{group.split('.')[0]}-{api}" if group else api
    schema = _schema(version, f"{body['kind'].lower()}-{short}")
    registry: Registry[Any] = _definitions(version) @ (schema @ Registry())
    found = Draft202012Validator(schema.contents, registry=registry).iter_errors(body)
    return [
        f"{body['kind']} {body['metadata']['name']}: {e.json_path}: {e.message[:200]}"
        for e in found
    ]


@pytest.mark.parametrize(("target", "version"), CASES)
def test_every_object_is_what_this_kubernetes_takes(target: str, version: str) -> None:
    assert [line for body in rendered(target) for line in problems(body, version)] == []


def test_a_native_sidecar_needs_its_version() -> None:
    broker = next(body for body in rendered("example") if body["kind"] == "StatefulSet")
    (problem,) = problems(broker, "1.27")
    assert "restartPolicy" in problem


def test_the_validator_itself_says_the_same() -> None:
    deployment = next(body for body in rendered("base") if body["kind"] == "Deployment")
    assert kubernetes_validate.validate(deployment, OLDEST, strict=True) == OLDEST
    deployment["spec"]["template"]["spec"]["containers"][0]["livenesProbe"] = {}
    assert "livenesProbe" in problems(deployment, OLDEST)[0]
    with pytest.raises(kubernetes_validate.ValidationError, match="livenesProbe"):
        kubernetes_validate.validate(deployment, OLDEST, strict=True)

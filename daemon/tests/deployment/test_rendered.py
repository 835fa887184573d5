"""What lies in `rendered/` is what the sources of deploy/kubernetes say today.

It was made by the real kustomize; here it is made again by the tests' own interpreter and compared,
object by object, lists in their order. Both must agree. Also: the interpreter refuses what it does
not know.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from daemon.tests.deployment.kustomize import build, content_hash
from daemon.tests.deployment.places import (
    KUBERNETES,
    ROOT,
    TARGETS,
    DuplicateKey,
    Object,
    documents,
    rendered,
)
from daemon.tests.deployment.strategic_merge import Unsupported, merge


def keyed(objects: list[Object]) -> dict[tuple[str, str], Object]:
    """By kind and name."""
    found = {(one["kind"], one["metadata"]["name"]): one for one in objects}
    assert len(found) == len(objects)
    return found


@pytest.mark.parametrize("target", TARGETS)
def test_what_was_rendered_is_what_the_sources_say(target: str) -> None:
    folder = TARGETS[target].relative_to(ROOT)
    again = f"kubectl kustomize {folder} > daemon/tests/deployment/rendered/{target}.yaml"
    built, there = keyed(build(TARGETS[target])), keyed(rendered(target))
    assert set(built) == set(there), f"after a change in {folder}: {again}"
    for key, body in built.items():
        assert body == there[key], f"{key}: after a change in {folder}: {again}"


def test_every_folder_of_sources_is_rendered() -> None:
    used: set[Path] = set()

    def walk(folder: Path) -> None:
        used.add(folder)
        (settings,) = documents(folder / "kustomization.yaml")
        for name in [*settings.get("resources", []), *settings.get("components", [])]:
            if (folder / name).is_dir():
                walk((folder / name).resolve())

    for folder in TARGETS.values():
        walk(folder)
    assert used == {file.parent for file in KUBERNETES.rglob("kustomization.yaml")}


def test_every_file_of_sources_is_named_by_its_kustomization() -> None:
    for folder in (file.parent for file in KUBERNETES.rglob("kustomization.yaml")):
        text = (folder / "kustomization.yaml").read_text()
        files = [
            f.relative_to(folder)
            for f in folder.rglob("*")
            if f.is_file() and f.name != "kustomization.yaml"
        ]
        mine = [
            f
            for f in files
            if not any(
                (folder / p / "kustomization.yaml").exists() for p in f.parents if p != Path()
            )
        ]
        assert [f for f in mine if f"- {f}\n" not in text and f"path: {f}\n" not in text] == []


def test_the_hash_is_kustomizes() -> None:
    secret = {"kind": "Secret", "type": "Opaque", "metadata": {"name": "s"}, "data": {"a": "Yg=="}}
    assert content_hash(secret) == "k695gkmbtk"  # as `kubectl kustomize` names it


@pytest.mark.parametrize(
    ("addition", "refused"),
    [
        ("namePrefix: x-", "namePrefix"),
        ("images: [{name: a, digest: b}]", "digest"),
        ("labels: [{pairs: {a: b}, includeSelectors: true}]", "includeSelectors"),
        ("patches: [{patch: x, target: {kind: Deployment}}]", "patch"),
        ("configMapGenerator: [{name: a, literals: [b=c]}]", "literals"),
        ("configMapGenerator: [{name: a, files: [k=kustomization.yaml]}]", "keys of files"),
        ("configMapGenerator: [{name: a, files: [kustomization.yaml], behavior: merge}]", "merge"),
        ("components: [.]", "a Kustomization where a Component"),
    ],
)
def test_the_interpreter_refuses_what_it_does_not_know(
    tmp_path: Path, addition: str, refused: str
) -> None:
    (tmp_path / "kustomization.yaml").write_text(
        f"apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\n{addition}\n"
    )
    with pytest.raises(Unsupported, match=refused):
        build(tmp_path)


def test_merging_puts_new_items_first_and_changes_named_ones() -> None:
    base = {"containers": [{"name": "a", "args": ["1"], "ports": [{"containerPort": 1}]}], "x": 1}
    patch = {
        "containers": [{"name": "b"}, {"name": "a", "args": ["2"], "ports": [{"containerPort": 2}]}]
    }
    assert merge(base, patch) == {
        "containers": [
            {"name": "b"},
            {"name": "a", "args": ["2"], "ports": [{"containerPort": 2}, {"containerPort": 1}]},
        ],
        "x": 1,
    }


def test_merging_takes_away_what_the_patch_says() -> None:
    base = {"volumes": [{"name": "a"}, {"name": "b"}], "probe": {"grpc": {"port": 1}, "x": 1}}
    patch = {
        "volumes": [{"name": "a", "$patch": "delete"}, {"name": "c"}],
        "probe": {"grpc": None, "httpGet": {}},
    }
    assert merge(base, patch) == {
        "volumes": [{"name": "c"}, {"name": "b"}],
        "probe": {"x": 1, "httpGet": {}},
    }


def test_merging_refuses_to_guess() -> None:
    for base, patch in (
        ({"tolerations": [{"key": "a"}]}, {"tolerations": [{"key": "b"}]}),
        ({"a": 1}, {"b": None}),
        ({}, {"$patch": "x"}),
        ({"env": [{"name": "a"}]}, {"env": [{"name": "b", "$patch": "delete"}]}),
        ({"env": [{"name": "a"}]}, {"env": [{"name": "a", "$patch": "replace"}]}),
    ):
        with pytest.raises(Unsupported):
            merge(base, patch)


def test_a_key_that_is_given_twice_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "twice.yaml").write_text("a: {b: 1}\nc: {b: 1, b: 2}\n")
    with pytest.raises(DuplicateKey):
        documents(tmp_path / "twice.yaml")
    assert issubclass(DuplicateKey, yaml.YAMLError)

"""Where the deployment files and their pages are, and how they are read: strictly, so that what a
cluster would refuse is refused here.

Owns: folders, the strict YAML loader, what was rendered. Does not own: what the files must say (the
tests).
"""

from __future__ import annotations

import tomllib
from collections.abc import Hashable
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[3]
DOCS = ROOT / "docs"
KUBERNETES = ROOT / "deploy/kubernetes"
SYSTEMD = ROOT / "deploy/systemd"
RENDERED = Path(__file__).resolve().parent / "rendered"
TARGETS = {
    "base": KUBERNETES / "base",
    "example": KUBERNETES / "overlays/example",
    "example-second-container": KUBERNETES / "overlays/example-second-container",
    "secured": KUBERNETES / "overlays/secured",
}
"""What is rendered: name of the file in `rendered/` -> folder given to kustomize."""
PLAIN = ("example", "example-second-container")
"""In plain text inside of the cluster, with tokens."""
SECURED = "secured"
OVERLAYS = (*PLAIN, SECURED)

Object = dict[str, Any]


class DuplicateKey(yaml.YAMLError):
    """A mapping names a key twice: PyYAML would take the last one, kubectl refuses."""


class _Loader(yaml.SafeLoader):
    pass


def _mapping(loader: _Loader, node: yaml.MappingNode) -> dict[Hashable, Any]:
    keys = [loader.construct_object(key, deep=True) for key, _ in node.value]
    if len(keys) != len(set(keys)):
        raise DuplicateKey(f"a key is given twice among {keys}{node.start_mark}")
    return loader.construct_mapping(node, deep=True)


_Loader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping)


def documents(file: Path) -> list[Object]:
    """The objects of a YAML file, in its order. Raises yaml.YAMLError."""
    return [
        document
        for document in yaml.load_all(file.read_text(), Loader=_Loader)
        if document is not None
    ]


def rendered(target: str) -> list[Object]:
    """What the real kustomize made of a target."""
    return documents(RENDERED / f"{target}.yaml")


def version() -> str:
    """Of the release, from daemon/pyproject.toml."""
    project: Object = tomllib.loads((ROOT / "daemon/pyproject.toml").read_text())["project"]
    return str(project["version"])

"""The pages about Kubernetes and systemd cite what exists, name what the files name, and the
release of today.
"""

from __future__ import annotations

import re

import pytest

from daemon.tests.deployment.cluster import Cluster, port
from daemon.tests.deployment.places import DOCS, KUBERNETES, RENDERED, ROOT, SYSTEMD, version

PAGES = {
    "kubernetes": (
        DOCS / "run/kubernetes.md",
        (ROOT, KUBERNETES, KUBERNETES / "overlays/example", KUBERNETES / "overlays/secured"),
    ),
    "systemd": (DOCS / "run/systemd.md", (ROOT, SYSTEMD)),
}
NAMES = (
    "keeper-metrics",
    "http-metrics",
    "cursorkeeper-ledger-password",
    "cursorkeeper.io/sidecar",
    "cursorkeeper.io/uses-gateway",
)
CITED = re.compile(
    r"`((?:[\w.-]+/)+[\w.-]*)`|(?:^| )((?:deploy|daemon|testcontainers_tests)/[\w./-]+)",
    re.MULTILINE,
)


@pytest.mark.parametrize("name", PAGES)
def test_cited_files_exist(name: str) -> None:
    page, places = PAGES[name]
    cited = [a or b.rstrip(".") for a, b in CITED.findall(page.read_text())]
    assert len(cited) > 3
    assert [path for path in cited if not any((place / path).exists() for place in places)] == []


def test_the_kubernetes_page_names_this_release() -> None:
    tags = re.findall(r"cursorkeeper(?:-gateway)?:(\d[\w.]+)", PAGES["kubernetes"][0].read_text())
    assert tags and set(tags) == {version()}


def test_the_kubernetes_page_names_what_the_files_name() -> None:
    page, cluster = PAGES["kubernetes"][0].read_text(), Cluster.of("example")
    for secret in cluster.kind("Secret"):
        assert f"`{secret['metadata']['name'].rsplit('-', 1)[0]}`" in page
        for key in secret["data"]:
            assert f"`{key}`" in page
    files = (RENDERED / "example.yaml").read_text()
    assert [name for name in NAMES if name not in page or name not in files] == []
    assert port(cluster.daemon, "keeper-metrics") == 7652 and "(7652)" in page


def test_the_kubernetes_page_tells_the_resources_that_are_asked_for() -> None:
    page, cluster = PAGES["kubernetes"][0].read_text(), Cluster.of("example")
    for name, one in (
        ("gateway", cluster.gateway["spec"]["template"]["spec"]["containers"][0]),
        ("daemon", cluster.daemon),
    ):
        asked, limit = one["resources"]["requests"], one["resources"]["limits"]["memory"]
        assert f"| {name} | {asked['cpu']}, {asked['memory']} | {limit} |" in page

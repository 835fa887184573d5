"""What lies in the plugin's jars: in a broker's class path nothing of it may be taken for the
broker's own.
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterator

import pytest

from daemon.tests.pulsar_plugin.jar import JARS
from tools.brokers.play import RECEIPTS

pytestmark = pytest.mark.jvm
OWN = ("io/cursorkeeper/", "org/apache/bookkeeper/mledger/impl/")
IN_PULSARS_PACKAGE = ("Kept", "Keeping", "Line", "Members", "Shadowed", "Topics")
"""How the names of our classes in Pulsar's package begin; none of Pulsar's does."""


@pytest.fixture(params=JARS.values(), ids=JARS.keys())
def jar(request: pytest.FixtureRequest) -> Iterator[zipfile.ZipFile]:
    with zipfile.ZipFile(request.param) as opened:
        yield opened


def _names(jar: zipfile.ZipFile) -> list[str]:
    return [name for name in jar.namelist() if not name.endswith("/")]


def _class_of(name: str) -> str:
    """Without the folder of a version of Java."""
    return name.split("/", 3)[3] if name.startswith("META-INF/versions/") else name


def test_every_class_is_ours_or_has_been_given_a_name_of_ours(jar: zipfile.ZipFile) -> None:
    foreign = [
        name
        for name in _names(jar)
        if name.endswith(".class") and not _class_of(name).startswith(OWN)
    ]
    assert not foreign


def test_in_pulsars_package_lie_our_few_classes(jar: zipfile.ZipFile) -> None:
    there = [
        name.rsplit("/", 1)[1]
        for name in _names(jar)
        if name.startswith(OWN[1]) and name.endswith(".class")
    ]
    assert there and all(name.startswith(IN_PULSARS_PACKAGE) for name in there)


def test_services_have_names_of_ours(jar: zipfile.ZipFile) -> None:
    for name in _names(jar):
        if name.startswith("META-INF/services/"):
            providers = [
                line
                for line in jar.read(name).decode().splitlines()
                if line and not line.startswith("#")
            ]
            assert all(
                line.startswith("io.cursorkeeper.") for line in [name.rsplit("/", 1)[1], *providers]
            ), name


def test_the_table_of_members_is_in_it(jar: zipfile.ZipFile) -> None:
    assert len(jar.read("org/apache/bookkeeper/mledger/impl/members.txt").splitlines()) > 50


def test_the_gate_of_receipts_that_the_nar_names_is_in_it(jar: zipfile.ZipFile) -> None:
    with zipfile.ZipFile(RECEIPTS) as nar:
        files = [name for name in nar.namelist() if not name.endswith("/")]
        assert sorted(files) == ["META-INF/MANIFEST.MF", "META-INF/services/broker_interceptor.yml"]
        lines = dict(
            line.split(": ", 1)
            for line in nar.read("META-INF/services/broker_interceptor.yml").decode().splitlines()
        )
    assert lines["name"] == "cursorkeeper-receipts"
    assert lines["interceptorClass"].replace(".", "/") + ".class" in _names(jar)

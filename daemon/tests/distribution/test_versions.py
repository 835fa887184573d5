"""The distributions are released together: one version, one licence, and each asks for the others
of its own version.
"""

from __future__ import annotations

from daemon.tests.distribution.build import PACKAGES, ROOT, VERSION, project


def test_all_are_of_one_version_and_ask_for_one_another_by_it() -> None:
    projects = {folder: project(folder) for folder in PACKAGES}
    assert {said["version"] for said in projects.values()} == {VERSION}
    assert {folder: said["name"] for folder, said in projects.items()} == {
        "clients": "cursorkeeper-client",
        "daemon": "cursorkeeper",
        "pipeline": "cursorkeeper-spark",
    }
    asked = {
        folder: [need for need in said["dependencies"] if need.startswith("cursorkeeper")]
        for folder, said in projects.items()
    }
    assert asked == {
        "clients": [],
        "daemon": [f"cursorkeeper-client=={VERSION}"],
        "pipeline": [f"cursorkeeper=={VERSION}"],
    }
    assert len({said["requires-python"] for said in projects.values()}) == 1


def test_a_source_in_python_needs_four_libraries() -> None:
    assert {need.partition(">=")[0] for need in project("clients")["dependencies"]} == {
        "grpcio",
        "numpy",
        "protobuf",
        "pyroaring",
    }


def test_what_two_ask_for_they_ask_for_alike() -> None:
    seen: dict[str, set[str]] = {}
    for folder in PACKAGES:
        for need in project(folder)["dependencies"]:
            seen.setdefault(need.partition(">=")[0], set()).add(need)
    assert [needs for needs in seen.values() if len(needs) > 1] == []


def test_each_has_the_licence_of_the_repository() -> None:
    for folder in PACKAGES:
        assert (ROOT / folder / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()

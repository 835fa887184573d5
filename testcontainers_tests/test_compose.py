"""deploy/compose.yaml as a user runs it: one command brings it up healthy, acks flow, Prometheus
sees both, a crash heals, data outlives the containers, the same with TLS goes on with it, and in
the end nothing is left. The tests are one story, in this order, on one project.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from testcontainers_tests.cluster import host
from testcontainers_tests.cluster.compose_project import NO_COMPOSE, SCRIPT, ComposeProject
from testcontainers_tests.cluster.conditions import until
from testcontainers_tests.cluster.images import ROOT, Images

CURSORS = {
    f"persistent://demo/compose/{name}|steady" for name in ("orders", "payments", "shipments")
}
CHECK_TOPIC = "persistent://check/installation/one"
"""Of the check that docs/run/index.md tells."""
ONCE, WITHOUT_CHECK = "init-cluster", "source"
ACCEPTED, OLDEST = "cursorkeeper_accepted_acks_total", "cursorkeeper_oldest_unconfirmed_seconds"
WAIT_MAX_S = 2.0
JVM_TERMINATED = 143
"""A JVM that SIGTERM ended."""


@pytest.fixture(scope="module")
def project(built: Images, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ComposeProject]:
    """Up and healthy, by the one command; gone with its volumes in the end."""
    asked = subprocess.run([str(SCRIPT), "version"], capture_output=True, text=True, check=False)
    if asked.returncode == NO_COMPOSE:
        pytest.fail(asked.stderr.strip())
    compose = ComposeProject(host.connect(), tmp_path_factory.mktemp("compose"))
    print(asked.stdout.splitlines()[0])
    try:
        compose.run("up")
        yield compose
    finally:
        compose.down()


async def progress(project: ComposeProject) -> None:
    """More acks come, and none waits. A daemon that was started again counts from 0, and a source
    sends again what it had sent.
    """
    seen: list[float] = []

    def grows() -> bool:
        seen.append(project.metric(ACCEPTED))
        return len(seen) > 1 and seen[-1] > seen[-2] > 0 and project.metric(OLDEST) < WAIT_MAX_S

    await until(grows, "acks come and are confirmed")


def epochs(project: ComposeProject) -> dict[str, int]:
    """Cursor -> its owner's epoch, from ZooKeeper."""
    rows = [
        json.loads(line)
        for line in project.inside("daemon", "cursorkeeper", "ls", "--json").splitlines()
    ]
    return {row["cursor"]: row["epoch"] for row in rows}


async def test_one_command_brings_it_up_healthy_and_acks_flow(project: ComposeProject) -> None:
    health = project.health()
    assert (
        health.pop(ONCE) == "exited" and project.containers()[ONCE].attrs["State"]["ExitCode"] == 0
    )
    assert health.pop(WITHOUT_CHECK) == "running"
    assert set(health.values()) == {"healthy"} and len(health) == 7, health
    await progress(project)


def test_every_container_is_confined(project: ComposeProject) -> None:
    for name, container in project.containers().items():
        limits = container.attrs["HostConfig"]
        assert container.attrs["Config"]["User"] == "10001:10001", name
        assert (
            limits["ReadonlyRootfs"] and limits["CapDrop"] == ["ALL"] and not limits["Privileged"]
        ), name
        assert limits["SecurityOpt"] == ["no-new-privileges:true"] and limits["Memory"] > 0, name
        bound = [
            b["HostIp"] for bindings in (limits["PortBindings"] or {}).values() for b in bindings
        ]
        assert set(bound) <= {"127.0.0.1"}, name
        assert {mount["Type"] for mount in container.attrs["Mounts"]} <= {"volume", "tmpfs"}, name


def test_the_tools_answer_in_the_daemons_container(project: ComposeProject) -> None:
    assert set(epochs(project)) == CURSORS
    assert "named as" in project.inside("daemon", "cursorkeeper", "inspect", min(CURSORS))
    assert "3 cursor(s), 0 damaged" in project.run(
        "exec", "-T", "daemon", "cursorkeeper", "verify", "--all"
    )
    assert "SERVING" in project.inside(
        "daemon", "cursorkeeper", "health", "--timeout-s", "60", "--address", "gateway:7651"
    )
    check = ("--daemon", "127.0.0.1:7650", "--topic", CHECK_TOPIC, "--batches", "20")
    assert '"done":true' in project.inside(
        "daemon", "/opt/cursorkeeper/bin/python3", "-m", "cursorkeeper.demo.steady", *check
    )


async def test_prometheus_sees_both_and_its_rules_use_metrics_that_exist(
    project: ComposeProject,
) -> None:
    def up() -> bool:
        targets = {
            t["labels"]["job"]: t["health"] for t in project.prometheus("targets")["activeTargets"]
        }
        return targets == {"cursorkeeper-daemon": "up", "cursorkeeper-gateway": "up"}

    await until(up, "Prometheus reaches daemon and gateway")
    assert "SUCCESS" in project.inside(
        "prometheus", "promtool", "check", "rules", "/etc/prometheus/alerts.yaml"
    )
    rules = [
        rule
        for group in yaml.safe_load((ROOT / "deploy/prometheus/alerts.yaml").read_text())["groups"]
        for rule in group["rules"]
    ]
    loaded = [rule for group in project.prometheus("rules")["groups"] for rule in group["rules"]]
    assert [rule["name"] for rule in loaded] == [rule["alert"] for rule in rules]
    live = {
        p: project.page(p, "/metrics")
        for p in ("CURSORKEEPER_METRICS_PORT", "CURSORKEEPER_GATEWAY_METRICS_PORT")
    }
    there = {
        name for page in live.values() for name in re.findall(r"^# TYPE (\S+)", page, re.MULTILINE)
    }
    used = {
        name
        for rule in rules
        for name in re.findall(r"\b(?:cursorkeeper|process)_\w+", rule["expr"])
    }
    assert used and used <= there, f"not on any page: {sorted(used - there)}"
    assert all((ROOT / rule["annotations"]["runbook"]).is_file() for rule in rules)


async def test_what_crashes_comes_back_and_acks_flow_again(project: ComposeProject) -> None:
    crashed = ("daemon", "gateway", "bookie-2")
    for service in crashed:
        project.crash(service)

    def back() -> bool:
        now = project.containers()
        return all(
            now[name].attrs["RestartCount"] == 1
            and now[name].attrs["State"]["Health"]["Status"] == "healthy"
            for name in crashed
        )

    await until(back, f"{crashed} are healthy again")
    await progress(project)


async def test_everything_stops_in_order_and_the_data_stays(project: ComposeProject) -> None:
    before = epochs(project)
    project.run("stop")
    ended = {
        name: container.attrs["State"]["ExitCode"]
        for name, container in project.containers().items()
    }
    assert {name: code for name, code in ended.items() if code != JVM_TERMINATED} == dict.fromkeys(
        ("source", "daemon", "prometheus", ONCE), 0
    )
    said = re.findall(r'"durable_batches":(\d+)', project.run("logs", "source"))
    assert said and int(said[-1]) > 0
    project.run("down")
    assert not project.containers()
    project.run("up")
    await progress(project)
    after = epochs(project)
    assert set(after) == {*CURSORS, f"{CHECK_TOPIC}|steady"} and all(
        after[name] > before[name] for name in CURSORS
    ), (before, after)


async def test_the_secured_one_goes_on_where_the_plain_one_was(project: ComposeProject) -> None:
    before = epochs(project)
    project.run("down")
    project.secure()
    project.run("up")
    made = project.containers()["certificates"].attrs["State"]
    assert (made["Status"], made["ExitCode"]) == ("exited", 0)
    project.trust_its_authority()
    await progress(project)
    after = epochs(project)
    assert all(after[name] > before[name] for name in CURSORS), (before, after)

    def up() -> bool:
        targets = project.prometheus("targets")["activeTargets"]
        return len(targets) == 2 and all(
            one["health"] == "up" and one["scrapeUrl"].startswith("https://") for one in targets
        )

    await until(up, "Prometheus reaches daemon and gateway with TLS")


def certificates_of(project: ComposeProject, name: str) -> list[str]:
    """On a busy machine Docker may lose what a short command says: it is asked again."""
    for _ in range(5):
        if files := project.inside(name, "ls", "/certificates").split():
            return files
    return []


def test_in_the_secured_one_nobody_has_the_key_of_another(project: ComposeProject) -> None:
    found = {
        name: certificates_of(project, name)
        for name in ("gateway", "daemon", "source", "prometheus")
    }
    assert found.pop("prometheus") == ["authority.pem"]
    for name, files in found.items():
        assert set(files) == {"authority.pem", f"{name}.pem", f"{name}-key.pem"}


def test_in_the_secured_one_a_source_has_its_own_topics_only(project: ComposeProject) -> None:
    shown = [
        *("--trust-certs", "/certificates/authority.pem"),
        *("--certificate", "/certificates/source.pem", "--key", "/certificates/source-key.pem"),
    ]
    said = project.refused(
        *("source", "/opt/cursorkeeper/bin/python3", "-m", "cursorkeeper.demo.steady"),
        *("--daemon", "daemon:7650", "--topic", CHECK_TOPIC, "--batches", "1", *shown),
    )
    assert "sources" in said and "topic" in said


def test_down_with_volumes_leaves_nothing(project: ComposeProject) -> None:
    assert project.leftovers()
    project.run("down", "--volumes", "--timeout", "5")
    assert not project.leftovers()


def test_without_compose_the_script_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "dirname").symlink_to("/usr/bin/dirname")
    done = subprocess.run(
        ["/bin/sh", str(SCRIPT), "up"],
        env={"PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == NO_COMPOSE
    assert "What to do: install Docker's compose plugin" in done.stderr

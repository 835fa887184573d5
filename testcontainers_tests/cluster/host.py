"""The Docker host: that it answers, what is ours on it, and the sweep of what is left.

Owns: the label that everything of these tests carries. Invariants: only what carries the label of
this run is removed, and what carries the label of a run whose process is gone (a killed run cannot
sweep after itself); nothing else on the host is touched. All workers of a run carry the label of
the process that leads them: only that one sweeps, before the first and after the last of them
lives, and so takes what a killed worker left.
"""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from typing import Any

import docker
import docker.errors
import pytest

from testcontainers_tests.cluster.workers import WORKER

LABEL = "cursorkeeper.test"
_RUN_IN_ENVIRONMENT = "CURSORKEEPER_TEST_RUN"
"""From the process that leads to its workers, which inherit its environment."""
if not WORKER or _RUN_IN_ENVIRONMENT not in os.environ:
    os.environ[_RUN_IN_ENVIRONMENT] = f"{os.getpid()}-{secrets.token_hex(3)}"
RUN = os.environ[_RUN_IN_ENVIRONMENT]
"""This run: the id of its (leading) process, and chance, because ids come again."""
LABELS = {LABEL: RUN}
PREFIX = f"ck-{RUN}{WORKER and '-'}{WORKER}"
"""Of the names of containers, volumes and projects: no other worker has it."""
SWEEPS_MAX = 5
HOW_TO_GET_DOCKER = (
    "These tests need a Docker daemon (20.10 or newer) that answers to this user. What to do: "
    "start Docker Desktop or `dockerd`, "
    "or set DOCKER_HOST; check with `docker version`; then run `make test-containers` again"
)


def connect() -> docker.DockerClient:
    """A client of the daemon that DOCKER_HOST or the default socket names. Ends the whole run if
    none answers.
    """
    try:
        client = docker.from_env(timeout=120)
        client.ping()
    except (docker.errors.DockerException, OSError) as e:
        pytest.exit(f"no Docker: {e}\n{HOW_TO_GET_DOCKER}", returncode=3)
    return client


def sweep(client: docker.DockerClient) -> list[str]:
    """Remove the containers, networks and volumes of this run, and of runs whose process is gone;
    returns their names. Looks again
    afterwards: what the last thread of a killed run had asked for may come late, and a network goes
    only after its containers.
    """
    gone = dict[str, None]()
    for _ in range(SWEEPS_MAX):
        found = _ours(client)
        if not found:
            break
        for thing, options in found:
            # it is going already, or something is attached to it yet
            with suppress(docker.errors.APIError):
                thing.remove(**options)
                gone[str(thing.name)] = None
    return list(gone)


def _ours(client: docker.DockerClient) -> list[tuple[Any, dict[str, bool]]]:
    """What is to go, in this order, each with the options of its removal."""
    mine = {"label": LABEL}
    containers = client.containers.list(all=True, filters=mine, ignore_removed=True)
    return [
        *((c, {"force": True, "v": True}) for c in containers if _is_ours(c.labels)),
        *(
            (n, {})
            for n in client.networks.list(filters=mine)
            if _is_ours(n.attrs.get("Labels") or {})
        ),
        *(
            (v, {"force": True})
            for v in client.volumes.list(filters=mine)
            if _is_ours(v.attrs.get("Labels") or {})
        ),
    ]


def _is_ours(labels: dict[str, Any]) -> bool:
    run = str(labels.get(LABEL, ""))
    pid = run.partition("-")[0]
    return run == RUN or (pid.isdecimal() and not _is_running(int(pid)))


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True

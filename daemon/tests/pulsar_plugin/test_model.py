"""Real cursors with the plugin: stories, and random changes with crashes at any point."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cursorkeeper.demo.processes import DaemonProcess
from cursorkeeper.demo.stack import Standalone
from daemon.tests.pulsar_plugin.jar import ENDS, LINES
from daemon.tests.pulsar_plugin.mains import RUN_MAX_S, run

pytestmark = pytest.mark.jvm
SEED = "851127131"
"""The same for everybody: who looks for more gives MODEL_SEED and MODEL_ROUNDS."""
ROUNDS = int(os.environ.get("MODEL_ROUNDS", "3"))


@pytest.mark.parametrize("line", LINES)
@pytest.mark.parametrize("daemon", [1, 2], indirect=True)
@pytest.mark.timeout(RUN_MAX_S + 60)
async def test_what_was_confirmed_is_there_after_any_crash_and_nothing_else(
    stack: Standalone, daemon: DaemonProcess, line: str, tmp_path: Path
) -> None:
    seed = os.environ.get("MODEL_SEED", SEED)
    said = await run(
        line, "ModelMain", tmp_path, stack.zookeeper, daemon.address, seed, str(ROUNDS)
    )
    assert said.startswith(f"rounds {ROUNDS} ")


@pytest.mark.parametrize("daemon", [0], indirect=True)
@pytest.mark.timeout(RUN_MAX_S + 60)
async def test_the_same_holds_of_a_daemon_at_a_socket_of_the_file_system(
    stack: Standalone, daemon: DaemonProcess, tmp_path: Path
) -> None:
    assert daemon.address.startswith("unix:/")
    said = await run("4.2", "ModelMain", tmp_path, stack.zookeeper, daemon.address, SEED, "1")
    assert said.startswith("rounds 1 ")


@pytest.mark.parametrize("line", ENDS)
@pytest.mark.timeout(RUN_MAX_S + 60)
async def test_a_copy_of_what_pulsar_keeps_is_equal_after_anything(
    stack: Standalone, daemon: DaemonProcess, line: str, tmp_path: Path
) -> None:
    seed = os.environ.get("MODEL_SEED", SEED)
    said = await run(
        line, "ModelMain", tmp_path, stack.zookeeper, daemon.address, seed, str(ROUNDS), "shadow"
    )
    assert said.startswith(f"rounds {ROUNDS} ")
    assert "bug: " not in (tmp_path / "java.log").read_text()


@pytest.mark.parametrize("line", ENDS)
@pytest.mark.timeout(RUN_MAX_S + 60)
async def test_stories_of_cursors_that_pulsar_keeps_and_the_keeper_copies(
    stack: Standalone, daemon: DaemonProcess, line: str, tmp_path: Path
) -> None:
    assert (await run(line, "ShadowMain", tmp_path, stack.zookeeper, daemon.address)).startswith(
        "stories "
    )
    log = (tmp_path / "java.log").read_text()
    assert "differs from Pulsar's cursor: 1 entries are acked at the keeper only (first at " in log
    assert "bug: " not in log


@pytest.mark.parametrize("line", ENDS)
@pytest.mark.timeout(RUN_MAX_S + 60)
async def test_stories_of_a_topic_between_pulsars_own_cursors_the_keeper_and_two_brokers(
    stack: Standalone, daemon: DaemonProcess, line: str, tmp_path: Path
) -> None:
    assert (await run(line, "StoriesMain", tmp_path, stack.zookeeper, daemon.address)).startswith(
        "stories "
    )


@pytest.mark.parametrize("line", ENDS)
@pytest.mark.timeout(RUN_MAX_S + 60)
async def test_kept_cursors_behave_as_pulsars_own_tests_of_cursors_say(
    stack: Standalone, daemon: DaemonProcess, line: str, tmp_path: Path
) -> None:
    assert (await run(line, "UpstreamMain", tmp_path, stack.zookeeper, daemon.address)).startswith(
        "stories "
    )

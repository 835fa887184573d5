"""Random changes of real cursors with crashes at any point: the memory, the keeper's state and plain sets agree."""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
from pathlib import Path

import pytest
from cursorkeeper.demo.processes import DaemonProcess
from cursorkeeper_clients.stack import Standalone

from daemon.tests.pulsar_plugin.jar import LINES, class_path

pytestmark = pytest.mark.jvm
ROUNDS = int(os.environ.get("MODEL_ROUNDS", "6"))
RUN_MAX_S = 400


@pytest.mark.parametrize("line", LINES)
@pytest.mark.timeout(RUN_MAX_S + 60)
async def test_what_was_confirmed_is_there_after_any_crash_and_nothing_else(
    stack: Standalone, daemon: DaemonProcess, line: str, tmp_path: Path
) -> None:
    seed = int(os.environ.get("MODEL_SEED", random.randrange(1 << 30)))
    command = [
        "java", "-Xmx384m", "-XX:+UseSerialGC", "-Djava.net.preferIPv4Stack=true", f"-Djava.io.tmpdir={tmp_path}",
        "--add-opens", "java.base/java.nio=ALL-UNNAMED", "--add-opens", "java.base/jdk.internal.misc=ALL-UNNAMED",
        "--add-opens", "java.base/java.io=ALL-UNNAMED", "-cp", class_path(line),
        "org.apache.bookkeeper.mledger.impl.ModelMain", stack.zookeeper, daemon.address, str(seed), str(ROUNDS),
    ]  # fmt: skip
    log = tmp_path / "model.log"
    with log.open("wb") as errors:
        done = await asyncio.to_thread(subprocess.run, command, stdout=subprocess.PIPE, stderr=errors, timeout=RUN_MAX_S, check=False)
    said = done.stdout.decode()
    assert done.returncode == 0, f"MODEL_SEED={seed}\n{said[-6_000:]}\n{log.read_text()[-6_000:]}"
    assert said.startswith(f"rounds {ROUNDS} ")

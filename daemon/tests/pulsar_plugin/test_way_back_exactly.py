"""The way back after a crash, to the bit: what `export-pulsar` writes of a cursor that the keeper
held is what Pulsar's own classes find of it; and a copy of Pulsar's own cursor is never exported.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from cursorkeeper.demo.processes import DaemonProcess
from cursorkeeper.demo.stack import Standalone
from daemon.tests.pulsar_plugin.jar import LINES
from daemon.tests.pulsar_plugin.mains import run

pytestmark = pytest.mark.jvm
LINE = "4.2"
EXPORT_MAX_S = 120
LEDGER = "public/default/persistent/{}"


def export(stack: Standalone, folder: Path, topic: str) -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable,
        "-m",
        "cursorkeeper.cli.main",
        "export-pulsar",
        f"persistent://public/default/{topic}",
    ]
    command += [
        "--replace",
        "--broker-is-stopped",
        "--zookeeper",
        stack.zookeeper,
        "--gateway",
        stack.gateway,
    ]
    command += ["--target-version", LINES[LINE]]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=EXPORT_MAX_S, check=False, cwd=folder
    )


@pytest.mark.timeout(300)
async def test_after_a_crash_and_an_export_pulsars_own_classes_find_the_same_state(
    tmp_path: Path,
) -> None:
    with Standalone(tmp_path / "stack", bookies=2, arguments=["--migrator"]) as stack:
        (tmp_path / "daemon").mkdir()
        daemon = DaemonProcess(tmp_path / "daemon", stack.gateway, stack.zookeeper)
        await daemon.start()
        try:
            kept = await run(
                LINE,
                "LeavingMain",
                tmp_path,
                stack.zookeeper,
                daemon.address,
                LEDGER.format("kept"),
                "keep",
            )
            await run(
                LINE,
                "LeavingMain",
                tmp_path,
                stack.zookeeper,
                daemon.address,
                LEDGER.format("shadowed"),
                "shadow",
            )
            await daemon.stop()
            exported = await asyncio.to_thread(export, stack, tmp_path, "kept")
            refused = await asyncio.to_thread(export, stack, tmp_path, "shadowed")
            stock = await run(
                LINE,
                "LeavingMain",
                tmp_path,
                stack.zookeeper,
                daemon.address,
                LEDGER.format("kept"),
                "stock",
            )
        finally:
            await daemon.kill()
    assert exported.returncode == 0, exported.stdout + exported.stderr
    assert stock == kept
    assert "a=b" in kept and "n=7" in kept and "={1, 2, 3}" in kept
    assert refused.returncode != 0 and "copy of Pulsar's own" in refused.stdout + refused.stderr, (
        refused.stdout + refused.stderr
    )

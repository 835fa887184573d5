"""The mains of the plugin's Java tests, run on a real stack and daemon. Serves the tests of cursors
without a whole broker.
"""

from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path

from cursorkeeper.demo.stack import QUICK
from daemon.tests.pulsar_plugin.jar import class_path

RUN_MAX_S = 400


async def run(line: str, main: str, folder: Path, *arguments: str) -> str:
    """What a main says. Raises AssertionError with all of it if it fails."""
    command = [
        "java",
        *QUICK,
        "-Xmx384m",
        "-XX:+UseSerialGC",
        "-Djava.net.preferIPv4Stack=true",
        f"-Djava.io.tmpdir={folder}",
        "--add-opens",
        "java.base/java.nio=ALL-UNNAMED",
        "--add-opens",
        "java.base/jdk.internal.misc=ALL-UNNAMED",
        "--add-opens",
        "java.base/java.io=ALL-UNNAMED",
        "-cp",
        class_path(line),
        f"org.apache.bookkeeper.mledger.impl.{main}",
        *arguments,
    ]
    log = folder / "java.log"
    with log.open("wb") as errors:
        done = await asyncio.to_thread(
            subprocess.run,
            command,
            stdout=subprocess.PIPE,
            stderr=errors,
            timeout=RUN_MAX_S,
            check=False,
        )
    said = done.stdout.decode()
    assert done.returncode == 0, (
        f"{' '.join(arguments)}\n{said[:3_000]}\n...\n{said[-3_000:]}\n{log.read_text()[-3_000:]}"
    )
    return said

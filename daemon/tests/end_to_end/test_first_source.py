"""The page "Your first source", as written: its commands in one shell, from the stack to the end of
all. Only where things listen and lie is this test's own, and that nobody types: the program runs
when the daemon is ready, however long a busy machine takes to start the stack.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import time
from pathlib import Path

import pytest

from cursorkeeper.demo.stack.ports import free_port
from daemon.tests.support.first_source import PAGE, blocks, outputs, program

pytestmark = [pytest.mark.jvm, pytest.mark.slow]
ROOT = PAGE.parents[2]
LIMIT_S = 600.0
READY = (
    'until .venv/bin/cursorkeeper health --address "$CURSORKEEPER_LISTEN" > /dev/null 2>&1; '
    "do kill -0 $daemon; sleep 0.5; done"
)


def commands(folder: Path) -> str:
    """Without the reader's environment for the client, which `test_installed` makes."""
    text = "\n".join(blocks("sh"))
    for port in ("7650", "7651", "2181"):
        text = text.replace(port, str(free_port()))
    lines = [
        f"{READY}\n{line}" if "first_source.py" in line else line
        for line in text.splitlines()
        if "-m venv" not in line and "pip install" not in line
    ]
    text = "\n".join(lines).replace("/tmp/first-venv/bin/python", sys.executable)
    return text.replace("/tmp/first-source", str(folder / "first-source")).replace(
        " first_source.py", f" {folder}/first_source.py"
    )


async def test_the_page_is_true(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "first_source.py").write_text(program())
    script = commands(tmp_path)
    listen = script.rsplit("first_source.py ", 1)[1].split()[0]
    began = time.monotonic()
    shell = await asyncio.create_subprocess_exec(
        "bash",
        "-ec",
        script,
        cwd=ROOT,
        env={
            **os.environ,
            "CURSORKEEPER_LISTEN": listen,
            "CURSORKEEPER_METRICS_LISTEN": f"127.0.0.1:{free_port()}",
        },
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    try:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LIMIT_S):
                await shell.wait()
    finally:
        # whatever it has started, where it ended before its last line, too
        with contextlib.suppress(ProcessLookupError):
            os.killpg(shell.pid, signal.SIGKILL)
    said, problems = await shell.communicate()
    lines = [line for line in said.decode().splitlines(keepends=True) if not line.startswith("{")]
    assert "".join(lines) == "".join(outputs()), problems.decode()
    assert shell.returncode == 0, problems.decode()
    with capsys.disabled():
        print(f"\nthe page's commands take {time.monotonic() - began:.0f} s")

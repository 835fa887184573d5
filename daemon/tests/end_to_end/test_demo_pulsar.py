"""The demo on real brokers is a test: a small one shows what a broker alone loses and the plugin
keeps, and leaves nothing behind.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]

pytestmark = [pytest.mark.jvm, pytest.mark.slow]


def processes_of(folder: Path) -> list[str]:
    """Command lines that name the folder."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = entry.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:  # it ended in between
            continue
        if str(folder) in line:
            found.append(line)
    return found


def demo(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tools.brokers", "--json", *arguments],
        capture_output=True,
        text=True,
        timeout=800,
        check=False,
        cwd=ROOT,
        env={**os.environ, **environment},
    )


def test_a_stock_broker_delivers_confirmed_messages_again_after_a_kill_and_one_with_the_plugin_none(
    tmp_path: Path,
) -> None:
    """4.2.4 compares a limit of 10,000 ranges with acked entries: what is in the later of six
    ledgers of 5,000 is not kept.
    """
    done = demo("--messages", "30000", "--entries-per-ledger", "5000", TMPDIR=str(tmp_path))
    assert done.returncode == 0, done.stderr[-3000:] + done.stdout
    report = json.loads(done.stdout.splitlines()[-1])
    assert report["acked"] == 30_000 - 1 - 30 - 600
    assert report["data_ledgers"] >= 6
    assert report["redelivered_without"] > 8_000
    assert report["redelivered_with"] == 0
    assert report["unacked_not_delivered"] == 0
    assert report["throughput_ratio"] > 0
    for broker in ("", "stock_"):
        assert 0 < report[f"{broker}receipt_ms_p50"] <= report[f"{broker}receipt_ms_p99"]
    assert not list(tmp_path.iterdir())
    assert not processes_of(tmp_path)


def test_a_broker_that_does_not_start_is_named_with_the_end_of_its_log_and_nothing_is_left_behind(
    tmp_path: Path,
) -> None:
    programs, work = tmp_path / "bin", tmp_path / "work"
    programs.mkdir()
    work.mkdir()
    java = programs / "java"
    java.write_text(
        f"""#!/bin/sh
case "$*" in *PulsarBrokerStarter*) echo 'no room for a broker'; exit 1;; esac
exec {shutil.which("java")} "$@"
"""
    )
    java.chmod(0o755)
    done = demo(TMPDIR=str(work), PATH=f"{programs}:{os.environ['PATH']}")
    assert done.returncode == 3, done.stderr
    assert "stock ended with status 1" in done.stderr
    assert "no room for a broker" in done.stderr
    assert not list(work.iterdir())
    assert not processes_of(work)

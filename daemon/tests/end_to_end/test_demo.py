"""The demo is a test: the bad case at a smaller size, and every recorded ack of real Pulsar
consumers.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]
pytestmark = [pytest.mark.jvm, pytest.mark.slow]


def demo(*arguments: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "cursorkeeper.cli.main", "demo", "--json", *arguments],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:] + done.stdout
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_the_bad_case_loses_nothing_and_skips_nothing() -> None:
    report = demo("--entries", "3000000")
    assert report["confirmed_but_lost"] == 0
    assert report["unacked_but_skipped"] == 0
    assert report["confirmed"] == report["acked"] > 2_900_000
    assert report["kills"] == ["daemon", "the whole stack", "daemon again"]
    assert 0 < report["bytes_per_ack"] < 3
    assert report["pulsar_long_array_bytes"] > 100 * report["snapshot_bytes"] / 10


def test_recorded_acks_end_in_pulsars_own_cursor() -> None:
    report = demo("--trace", str(ROOT / "testdata" / "pulsar-trace"))
    assert report["acks"] == report["confirmed"] == 551_902
    assert report["entries_equal"] == {"plain": 275_761, "batched": 93, "cumulative": 0}
    assert report["partial_batches_equal"] == {"plain": 0, "batched": 5_909, "cumulative": 1}
    assert list(report)[-1] == "trace_equal"
    assert report["trace_equal"] is True

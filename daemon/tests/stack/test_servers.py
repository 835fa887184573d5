"""The jar's servers as processes: one that can no longer serve ends, where something can start it
again. Real BookKeeper.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from cursorkeeper.demo.stack import JavaProcess, LocalCluster
from cursorkeeper.demo.stack.ports import free_port

pytestmark = pytest.mark.jvm


def test_a_bookie_that_lost_its_disk_ends_and_says_why(tmp_path: Path) -> None:
    with LocalCluster(tmp_path, bookies=0, gateways=0) as cluster:
        data = tmp_path / "bookie"
        flags = [
            "--data-dir",
            str(data),
            "--port",
            str(free_port()),
            "--metadata-service-uri",
            cluster.metadata_service_uri,
        ]
        bookie = JavaProcess(
            "bookie",
            [*flags, "--disk-check-interval-ms", "100"],
            tmp_path / "bookie.log",
            heap_mib=128,
        )
        try:
            bookie.start()
            (data / "ledgers" / "current").rename(data / "gone")
            (data / "ledgers" / "current").write_text("no folder")
            until = time.monotonic() + 120
            while bookie.running:
                assert time.monotonic() < until, (
                    f"it lives on without its disk: {bookie.log_tail()}"
                )
                time.sleep(0.05)
            assert "ended: its disk cannot be written or read" in bookie.log_tail()
        finally:
            bookie.kill()

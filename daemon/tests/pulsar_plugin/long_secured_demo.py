"""The demo on brokers of a secured cluster, as a user plays it. `make test-brokers`.

Serves whoever wants to see the promise kept where everybody asks who calls. Owns: the numbers that
it must end with. Does not own: the demo (`tools.brokers`).
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from daemon.tests.end_to_end.test_demo_pulsar import demo, processes_of

pytestmark = pytest.mark.jvm


@pytest.mark.parametrize("version", ["4.2.4", "5.0.0-M1"])
@pytest.mark.timeout(900)
def test_the_demo_keeps_its_promise_on_a_secured_cluster(version: str, tmp_path: Path) -> None:
    words = ["--secured", "--version", version, "--messages", "20000"]
    done = demo(*words, "--entries-per-ledger", "4000", TMPDIR=str(tmp_path))
    assert done.returncode == 0, done.stderr[-3000:] + done.stdout
    report = json.loads(done.stdout.splitlines()[-1])
    assert report["acked"] == 20_000 - 1 - 20 - 400
    assert report["redelivered_with"] == report["unacked_not_delivered"] == 0
    assert not list(tmp_path.iterdir())
    assert not processes_of(tmp_path)

"""Brokers as processes: they start, come back after a kill, say why they cannot, and end with the
process that started them.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import pytest

from cursorkeeper.demo.stack import StackError, Standalone
from tools.brokers.cluster import VERSIONS, PulsarBroker, PulsarCluster, class_path, spawn_tied

ROOT = Path(__file__).resolve().parents[3]
GONE_MAX_S = 60
CHILD = "import time; print('it runs', flush=True); time.sleep(90)"
ONE_BOOKIE = {
    f"managedLedgerDefault{name}": "1" for name in ("EnsembleSize", "WriteQuorum", "AckQuorum")
}


def test_an_unknown_version_and_one_that_was_not_resolved(tmp_path: Path) -> None:
    with pytest.raises(StackError, match=r"Pulsar 1\.0 is none of those"):
        class_path("1.0")
    with pytest.raises(StackError, match="make broker-classes"):
        class_path(VERSIONS[0], tmp_path / "tools/brokers/cluster.py")


class Scripted(PulsarBroker):
    """Plays one shell script at each start; healthy while that runs."""

    def __init__(self, folder: Path, *scripts: str) -> None:
        super().__init__(PulsarCluster(folder, "127.0.0.1:1"))
        self.scripts = list(scripts)

    def _spawn(self, log: BinaryIO) -> subprocess.Popen[bytes]:
        return spawn_tied(["sh", "-c", self.scripts.pop(0)], log, self.folder)

    def _is_healthy(self) -> bool:
        return not self.scripts


FOUND_NOTHING = r"""
echo '2026-11-24T10:59:58,001 INFO  PulsarService - it starts'
echo '2026-11-24T10:59:58,002 ERROR PulsarService - Failed to start Pulsar service: gone'
echo 'org.apache.pulsar.metadata.api.MetadataStoreException$NotFoundException: gone'
echo '2026-11-24T10:59:59,003 INFO  PulsarService - Closed'
exit 1
"""


def test_a_broker_that_met_its_predecessor_is_started_once_more(tmp_path: Path) -> None:
    broker = Scripted(tmp_path, FOUND_NOTHING, "sleep 90")
    with pytest.warns(UserWarning, match=r"(?s)started once more: .*Failed to start"):
        broker.start()
    assert broker.running
    broker.kill()
    broker = Scripted(tmp_path, FOUND_NOTHING, FOUND_NOTHING, "sleep 90")
    with pytest.warns(UserWarning), pytest.raises(StackError, match="NotFoundException: gone\n"):
        broker.start()
    other = FOUND_NOTHING.replace("NotFoundException", "NotHere").replace("Metadata", "Other")
    with pytest.raises(StackError, match=r"(?s)after these errors:\n2026-.*OtherStoreException"):
        Scripted(tmp_path, other, "sleep 90").start()


def test_a_child_ends_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    """Also one that was started from a thread that has ended since."""
    log = tmp_path / "log"
    program = f"""
import sys, threading, time
from pathlib import Path
from tools.brokers.cluster import {spawn_tied.__name__}
log, children = Path({str(log)!r}), []
def start():
    with log.open("wb") as out:
        children.append({spawn_tied.__name__}([sys.executable, "-c", {CHILD!r}], out, log.parent))
thread = threading.Thread(target=start)
thread.start()
thread.join()
while not log.stat().st_size:
    time.sleep(0.01)
print(children[0].pid if children[0].poll() is None else 0, flush=True)
time.sleep(600)
"""
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, cwd=ROOT
    ) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        assert child, "it ended with the thread that asked for it"
        os.kill(child, 0)
        parent.kill()
        wait_gone(child)


def wait_gone(pid: int) -> None:
    until = time.monotonic() + GONE_MAX_S
    while is_there(pid):
        assert time.monotonic() < until, f"{pid} lives on without its parent"
        time.sleep(0.02)


def is_there(pid: int) -> bool:
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    with Standalone(tmp_path_factory.mktemp("stack"), bookies=1) as running:
        yield running


def listens(port: int) -> list[str]:
    """The local addresses, as /proc has them, on which anybody listens with this port."""
    lines = [
        line.split()
        for name in ("tcp", "tcp6")
        for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]
    ]
    return [
        words[1].split(":")[0]
        for words in lines
        if words[3] == "0A" and int(words[1].split(":")[1], 16) == port
    ]


@pytest.mark.jvm
@pytest.mark.slow
def test_a_broker_that_cannot_start_says_why_and_one_that_can_comes_back_after_a_kill(
    stack: Standalone, tmp_path: Path
) -> None:
    with PulsarCluster(tmp_path, stack.zookeeper) as cluster:
        broker = PulsarBroker(
            cluster, conf={**ONE_BOOKIE, "managedLedgerStorageClassName": "no.such.Storage"}
        )
        with pytest.raises(StackError, match=r"ended with status(.|\n)*no\.such\.Storage"):
            broker.start()
        assert not broker.running

        del broker.conf["managedLedgerStorageClassName"]
        broker.start()
        first = broker.pid
        for url in (broker.service_url, broker.admin_url):
            assert listens(int(url.rsplit(":")[-1])) == ["0100007F"], url
        broker.kill()
        wait_gone(first)
        assert broker.restart()["service_url"] == broker.service_url
        assert b"pulsar_" in broker.get("/metrics/")
        last = broker.pid
    wait_gone(last)
    assert not broker.running
    assert broker.log.stat().st_size > 0

"""The worker processes of one run (`pytest -n`): who this one is, which ports are its own, which
work it gets and when.

Owns: what workers must agree on without asking each other. Does not own: labels and the sweep
(`host`), the lock around builds (`images`). Invariants: tests of a unit (a file, or a folder whose
files share a stack) run in one worker, one after the other; every worker sees them in the same
order, longest unit first, so that the workers end together. A run without workers sees that order,
too.
"""

from __future__ import annotations

import os
import threading
import time
from typing import TYPE_CHECKING, Any

from cursorkeeper.demo.stack.ports import free_port

if TYPE_CHECKING:
    from xdist.scheduler import LoadScopeScheduling

WORKER = os.environ.get("PYTEST_XDIST_WORKER", "")
"""gw0, gw1 ...; empty in the process that leads them, and where there are none."""
FOLDER = "testcontainers_tests/"
SHARED = ("contracts", "cursors")
"""Folders whose files share a stack."""
SECONDS = {
    "test_faults_processes.py": 160,
    "test_secured_cluster.py": 155,
    "test_faults_network.py": 150,
    "cursors": 125,
    "test_compose.py": 150,
    "test_faults_storage.py": 85,
    "test_systemd_units.py": 80,
    "test_faults_zookeeper.py": 80,
    "test_upgrade.py": 70,
    "test_faults_memory_and_snapshots.py": 65,
    "test_images.py": 60,
    "contracts": 40,
    "test_systemd_secured.py": 60,
    "test_kubernetes_pods.py": 35,
    "test_kerberos.py": 45,
    "test_main_job.py": 20,
    "test_truth.py": 1,
}
"""About as long as each unit takes while another one runs beside it, on two cores. For the order
only: nothing fails if it is wrong.
"""
SECONDS_UNKNOWN = 60
LEADER_LOOK_S = 0.5


def unit_of(nodeid: str) -> str:
    """The unit of a test of this suite; of any other test, its file."""
    file = nodeid.partition("::")[0]
    folder, inside, name = file.rpartition(FOLDER)
    if not inside:
        return file
    first = name.partition("/")[0]
    return first if first in SHARED else name if not folder else file


def seconds_of(nodeid: str) -> float:
    """What its unit is expected to take."""
    return SECONDS.get(unit_of(nodeid), SECONDS_UNKNOWN)


def order_of(nodeid: str) -> tuple[float, str]:
    """Sorted by this, units are together and the longest comes first; within a unit the order stays
    what it was.
    """
    return -seconds_of(nodeid), unit_of(nodeid)


def end_with(leader: int) -> None:
    """This process ends soon after that one, its parent, has ended, whatever it is doing: nobody
    would hear of it, and what it still made would stay behind.
    """

    def watch() -> None:
        while os.getppid() == leader:
            time.sleep(LEADER_LOOK_S)
        os._exit(1)

    threading.Thread(target=watch, name="leader", daemon=True).start()


def own_port() -> int:
    """A free port on 127.0.0.1 that no other worker of this run is given. OSError if there is
    none.
    """
    count = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    mine = int(WORKER.removeprefix("gw") or 0) % count
    while (port := free_port()) % count != mine:
        pass
    return port


def scheduler(config: Any, log: Any) -> LoadScopeScheduling:
    """Hands out units in the order of the collection, each to whoever is free next."""
    from xdist.scheduler import LoadScopeScheduling

    class ByUnit(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return unit_of(nodeid)

    config.option.loadscopereorder = False  # it would sort by the number of tests
    return ByUnit(config, log)

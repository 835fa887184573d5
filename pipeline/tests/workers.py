"""The worker processes of one run (`pytest -n`): what stays together, and in which order it is
handed out.

Owns: units and their order. Does not own: what is shared within a worker (`conftest`). Invariants:
tests of a unit run in one worker, one after the other; all files that need Spark are one unit, so
that one session is started; every worker sees the same order, longest unit first, so that the
workers end together. `--dist loadgroup` would do, but pytest 9.2 no longer lets xdist 3.8 write
groups into names, and nothing says that they are ignored.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from xdist.scheduler import LoadScopeScheduling

FOLDER = "pipeline/tests/"
SPARK = "spark"
WITH_SPARK = frozenset(
    {
        "test_archive.py",
        "test_audit.py",
        "test_compact.py",
        "test_export_job.py",
        "test_import_job.py",
        "test_pulsar_cursors.py",
        "test_report.py",
        "test_report_stack.py",
        "test_secured.py",
        "test_secured_cluster.py",
        "test_source_spark.py",
        "test_tables_spark.py",
        "test_transforms.py",
    }
)
"""Files whose tests share one Spark session. `conftest` says if one is missing."""
SECONDS = {
    SPARK: 225,
    "test_cluster.py": 50,
    "test_export_attempts.py": 20,
    "test_submit.py": 15,
    "test_states_real.py": 12,
    "test_import_late.py": 11,
    "test_states.py": 11,
    "test_import_attempts.py": 9,
    "test_pieces_model.py": 6,
}
"""About as long as each unit takes while another one runs beside it, on two cores. For the order
only: nothing fails if it is wrong.
"""
SECONDS_UNKNOWN = 3


def unit_of(nodeid: str) -> str:
    """The unit of a test of this suite; of any other test, its file."""
    file = nodeid.partition("::")[0]
    name = file.rpartition(FOLDER)[2]
    return SPARK if name in WITH_SPARK else name


def order_of(nodeid: str) -> tuple[float, str]:
    """Sorted by this, units are together and the longest comes first; within a unit the order stays
    what it was.
    """
    unit = unit_of(nodeid)
    return -SECONDS.get(unit, SECONDS_UNKNOWN), unit


def only_session(folder: Path) -> None:
    """Raises AssertionError if another worker of this run has a Spark session. `folder`: the one
    that this worker's own are in.
    """
    if "PYTEST_XDIST_WORKER" not in os.environ:
        return
    mark = folder / "worker-with-spark"
    with suppress(FileNotFoundError, ProcessLookupError):
        other = int(mark.read_text())
        os.kill(other, 0)
        raise AssertionError(
            f"the worker with process id {other} has a Spark session, too: files were not handed "
            f"out in units"
        )
    mark.write_text(str(os.getpid()))


def scheduler(config: Any, log: Any) -> LoadScopeScheduling:
    """Hands out units in the order of the collection, each to whoever is free next."""
    from xdist.scheduler import LoadScopeScheduling

    class ByUnit(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return unit_of(nodeid)

    config.option.loadscopereorder = False  # it would sort by the number of tests
    return ByUnit(config, log)

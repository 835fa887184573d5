"""Names of the results of `import` and `export`, and what their arguments may be. No Spark, no
systems.
"""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType

import pytest

from cursorkeeper.settings import Settings
from cursorkeeper_pipeline import job_file
from cursorkeeper_pipeline.failures import OptionError
from cursorkeeper_pipeline.jobs import export, import_
from cursorkeeper_pipeline.jobs.frame import CLEAN, Reporter
from cursorkeeper_pipeline.sinks.record import Record, State
from cursorkeeper_pipeline.source.options import Options

SOURCE = Options.parse({"zookeeper": "z:1", "gateway": "g:1", "table": "pulsar_cursors"})
SETTINGS = Settings.of(zookeeper="z:1", gateway="g:1")
KINDS = pytest.mark.parametrize(("kind", "job"), [("import", import_), ("export", export)])


@KINDS
def test_what_writes_nothing_has_results_of_its_own(kind: str, job: ModuleType) -> None:
    runs = [
        job.run_of(SOURCE, job.Arguments(settings=SETTINGS, **asked))
        for asked in ({}, {"verify": True}, {"dry_run": True})
    ]
    assert [run.table for run in runs] == ["cursors", "cursors-verify", "cursors-dry-run"]
    assert [run.report() for run in runs] == [
        f"{kind}.json",
        f"{kind}-verify.json",
        f"{kind}-dry-run.json",
    ]
    assert [run.recorded for run in runs] == [True, False, False]


@KINDS
def test_a_run_that_is_done_keeps_its_report(kind: str, job: ModuleType, tmp_path: Path) -> None:
    first = tmp_path / f"{kind}.json"
    first.write_text("what became of each")
    run = job.run_of(SOURCE, job.Arguments(settings=SETTINGS))
    record = Record(id=run.name, kind=kind, about={}, state=State.DONE, counts={"imported": 7})
    assert run._done_before(record, Reporter(kind, str(tmp_path))) == CLEAN
    assert first.read_text() == "what became of each"
    said = json.loads((tmp_path / f"{kind}-again.json").read_text())
    assert (
        said["before"]
        and said["statuses"] == {"imported": 7}
        and sorted(path.name for path in tmp_path.iterdir())[1:] == [first.name]
    )


@KINDS
def test_cursors_at_once_have_a_limit(kind: str, job: ModuleType) -> None:
    for jobs in ("0", "-1", "65"):
        with pytest.raises(
            OptionError, match=rf"^{kind}: jobs = {jobs} is not between 1 and 64.*What to do: see "
        ):
            job_file.convert(kind, job.Arguments, {"jobs": jobs})
    assert [job_file.convert(kind, job.Arguments, {"jobs": jobs}).jobs for jobs in (1, "64")] == [
        1,
        64,
    ]

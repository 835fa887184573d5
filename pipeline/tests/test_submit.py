"""A job as people run it, by spark-submit: the report, on a real ZooKeeper. No gateway answers."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from cursorkeeper.core.footer import Stats
from cursorkeeper.core.names import CursorName
from cursorkeeper.demo.stack import Standalone
from cursorkeeper_pipeline.jobs.frame import FINDINGS

from .fleet_maker import add_footers, footer_of, name_of
from .spark_jvm import QUICK_JVM

pytestmark = pytest.mark.jvm
BIG = CursorName("persistent://big/ns/topic", "sub")
SUBMIT_MAX_S = 900.0
"""A session on a busy machine."""


@pytest.mark.slow
@pytest.mark.timeout(SUBMIT_MAX_S + 60)
def test_the_line_of_print_submit_works_as_it_is(
    stack: Standalone, root: str, tmp_path: Path
) -> None:
    asyncio.run(
        add_footers(
            stack,
            root,
            replace(footer_of(BIG, 1), stats=Stats(100, 5_000_000, 1, 1, 0, 0)),
            (name_of(5), b"{}"),
        )
    )
    told = [
        "report",
        "--zookeeper",
        stack.zookeeper,
        "--root",
        root,
        "--gateway",
        "127.0.0.1:1",
        "--master",
        "local[2]",
        "--conf",
        "spark.driver.memory=768m",
        "--conf",
        f"spark.driver.extraJavaOptions={QUICK_JVM}",
        "--conf",
        "spark.sql.shuffle.partitions=2",
        "--conf",
        "spark.sql.codegen.wholeStage=false",
        "--conf",
        "spark.sql.codegen.factoryMode=NO_CODEGEN",
        "--out",
        str(tmp_path / "out"),
        "--json",
    ]
    ours = [sys.executable, "-m", "cursorkeeper_pipeline", *told]
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    environment.pop("PYSPARK_PYTHON", None)
    environment.pop("PYSPARK_DRIVER_PYTHON", None)
    line = subprocess.run(
        [*ours, "--print-submit"],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=240,
    ).stdout
    done = subprocess.run(
        line,
        shell=True,
        env=environment,
        capture_output=True,
        text=True,
        timeout=SUBMIT_MAX_S,
        cwd=tmp_path,
    )
    assert done.returncode == FINDINGS, done.stderr[-3000:]
    facts = json.loads(done.stdout)
    assert facts == json.loads((tmp_path / "out/report.json").read_text())
    assert (facts["cursors"]["total"], facts["cursors"]["unreadable"]) == (2, 1)
    assert facts["forecast"]["pulsarAlone"]["redeliveredAtMost"] == 4_989_998

"""One Spark session and one real stack for the whole suite: each costs seconds to start, and
neither keeps what a test did to it.

Tests keep apart by roots of their own (`root` is a new one for each test). What needs neither Spark
nor the stack does not ask for them. Of several workers (`pytest -n`) one has all modules that need
Spark, the others have the rest: `workers`.
"""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cursorkeeper.demo.stack import QUICK, Standalone
from pipeline.tests import workers
from pipeline.tests.spark_jvm import LONG_JVM, QUICK_JVM
from pipeline.tests.warm_workers import warm_python

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_roots = itertools.count(1)
SLOTS = 2


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """In the order in which workers get them. All of one file must be known to need Spark if one
    does.
    """
    for item in items:
        if (
            "spark" in getattr(item, "fixturenames", ())
            and workers.unit_of(item.nodeid) != workers.SPARK
        ):
            raise pytest.UsageError(
                f"{item.nodeid} needs Spark. What to do: name its file in WITH_SPARK of "
                f"pipeline/tests/workers.py"
            )
    items.sort(key=lambda item: workers.order_of(item.nodeid))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Whole units to each worker, whatever --dist says."""
    return workers.scheduler(config, log)


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    """ZooKeeper, three bookies and the gateway."""
    with Standalone(
        tmp_path_factory.mktemp("stack"), arguments=["--migrator"], java_options=QUICK
    ) as running:
        yield running


@pytest.fixture
def root() -> str:
    """A place in ZooKeeper that no other test uses."""
    return f"/pipeline-{os.getpid()}-{next(_roots)}/cursors"


def started(builder: SparkSession.Builder) -> SparkSession:
    """A JVM that ends before it has said its port, which a machine without free memory does to one,
    gets a second chance.
    """
    from pyspark.errors import PySparkRuntimeError

    try:
        return builder.getOrCreate()
    except PySparkRuntimeError as error:
        if error.getCondition() != "JAVA_GATEWAY_EXITED":
            raise
    return builder.getOrCreate()


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """local[2], as small and as quick to start as it goes. For so few rows compiling a plan takes
    longer than interpreting it: Spark interprets here, and compiles in the sessions that tests of
    commands and of the cluster begin.
    """
    from pyspark.sql import SparkSession

    from cursorkeeper_pipeline.session import DEFAULTS

    workers.only_session(tmp_path_factory.getbasetemp().parent)
    folder: Path = tmp_path_factory.mktemp("spark")
    python = warm_python(folder)
    os.environ.update(
        PYSPARK_PYTHON=python, PYSPARK_DRIVER_PYTHON=python, SPARK_LOCAL_IP="127.0.0.1"
    )
    conf = {
        **DEFAULTS,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": str(SLOTS),
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": f"{QUICK_JVM} {LONG_JVM} -Dderby.system.home={folder}",
        "spark.local.dir": str(folder / "local"),
    }
    builder = SparkSession.builder.master(f"local[{SLOTS},3]").appName("cursorkeeper-tests")
    for key, value in conf.items():
        builder = builder.config(key, value)
    session = started(builder)
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()
    asyncio.set_event_loop(None)

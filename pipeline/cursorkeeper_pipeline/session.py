"""A Spark session as our jobs need it, and what Python the workers run.

Owns: the settings that every job wants, which anybody may overrule. Does not own: where the job
runs (`master`, `remote` and further settings are the caller's; under spark-submit they are
spark-submit's).
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from pyspark.sql import SparkSession

from cursorkeeper_pipeline.failures import OptionError
from cursorkeeper_pipeline.jobs.frame import LOCAL
from cursorkeeper_pipeline.redaction import masked

DEFAULTS: Mapping[str, str] = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.shuffle.partitions": "16",
    "spark.ui.enabled": "false",
    "spark.log.level": "ERROR",
    # Both only say where in a program a column came from. Each asks the JVM several times for every
    # column: half of what a report costs.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    "spark.sql.dataFrameQueryContext.enabled": "false",
}
QUIET: Mapping[str, str] = {"spark.log.level": "FATAL"}
"""Where driver and tasks are one process: each error that is logged there is also raised here, and
told in a line.
"""
BAR_WIDTH = 40
CLEAR = "\r\x1b[K"
"""To the line's begin; nothing from there on."""
REMOTE_PORT = 15_002
"""The port of Spark Connect, where none is given."""
REMOTE_WAIT_S = 10.0
"""Spark's own client tries for ten minutes before it says that nobody is there."""


def session(
    app: str,
    *,
    master: str = LOCAL,
    remote: str = "",
    conf: Mapping[str, str] | None = None,
    wanted: Mapping[str, str] | None = None,
    progress: bool = False,
) -> SparkSession:
    """A new one, or the one that there is. `remote`: sc://host:port of a Spark Connect server,
    instead of a master. `wanted`: what counts where nobody gave another value; `progress`: bars on
    standard error.

    Under spark-submit the master that it names wins, and so do its settings over our defaults. On a
    local master the workers run this very Python. Raises OptionError if nobody answers at `remote`.
    """
    given: dict[str, Any] = dict(conf or {})
    if remote:
        _must_answer(remote)
        builder = SparkSession.builder.remote(remote).config(map=given)
        connected = builder.appName(app).getOrCreate()
        if progress:
            connected.registerProgressHandler(show)  # type: ignore[arg-type]  # a class of Spark's, of which only the call is used
        return connected
    said = _submitted()
    is_local = said.get("spark.master", master).startswith("local")
    if is_local:
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder.appName(app)
    if "spark.master" not in said:
        builder = builder.master(master)
    ours = {
        **DEFAULTS,
        **(QUIET if is_local else {}),
        "spark.ui.showConsoleProgress": str(progress).lower(),
        **(wanted or {}),
    }
    unsaid: dict[str, Any] = {key: value for key, value in ours.items() if key not in said}
    return builder.config(map={**unsaid, **given}).getOrCreate()


def slots_of(spark: SparkSession) -> int:
    """How many tasks run at once; 0 where that is not known: behind Spark Connect, and where
    executors come and go.
    """
    from pyspark.errors import PySparkException

    try:
        if str(spark.conf.get("spark.dynamicAllocation.enabled", "false")).lower() == "true":
            return 0
        return int(spark.sparkContext.defaultParallelism)
    except PySparkException:
        return 0


@contextmanager
def bars(shown: bool) -> Iterator[None]:
    """Around a session with `progress`. Spark leaves the last bar where it is when a job fails, in
    front of what is said then.
    """
    try:
        yield
    finally:
        if shown:
            sys.stderr.write(CLEAR)
            sys.stderr.flush()


def show(
    stages: Iterable[Any] | None, inflight_tasks: int, operation_id: str | None, done: bool
) -> None:
    """How far a query by Spark Connect is, as Spark itself shows it without: on standard error, a
    line that is written over. The names of the arguments are Spark's: it calls by them.
    """
    counted = [(stage.num_tasks, stage.num_completed_tasks) for stage in stages or ()]
    total, completed = sum(tasks for tasks, _ in counted), sum(ended for _, ended in counted)
    line = ""
    if total and not done:
        bar = "=" * (BAR_WIDTH * completed // total)
        line = f"[{bar:<{BAR_WIDTH}}] {completed:,} of {total:,} tasks, {inflight_tasks:,} running"
    sys.stderr.write(f"\r{line}{CLEAR[1:]}")
    sys.stderr.flush()


def _submitted() -> dict[str, str]:
    """What spark-submit was told; nothing where there was none."""
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        return {}
    from pyspark import SparkConf

    return dict(SparkConf().getAll())


def _must_answer(remote: str) -> None:
    said = masked(remote)
    try:
        found = urlsplit(remote.partition(";")[0])
        host, port = found.hostname or "", found.port or REMOTE_PORT
    except ValueError:  # a port that is none
        found, host, port = None, "", 0
    if found is None or found.scheme != "sc" or not host:
        raise OptionError(f"remote = {said!r} is no Spark Connect server", "write sc://host:port")
    try:
        socket.create_connection((host, port), REMOTE_WAIT_S).close()
    except OSError as error:
        raise OptionError(
            f"remote = {said}: {error}", "start it (sbin/start-connect-server.sh), or name another"
        ) from None

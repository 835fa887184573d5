"""A Spark session as our jobs need it, and what Python the workers run.

Owns: the settings that every job wants, which anybody may overrule. Does not own: where the job runs (`master`, `remote` and further
settings are the caller's; under spark-submit they are spark-submit's).
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Mapping

from pyspark.sql import SparkSession

from cursorkeeper_pipeline.jobs.frame import LOCAL
from cursorkeeper_pipeline.source.options import OptionError

DEFAULTS: Mapping[str, str] = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.shuffle.partitions": "16",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    # Both only say where in a program a column came from. Each asks the JVM several times for every column: half of what a report costs.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    "spark.sql.dataFrameQueryContext.enabled": "false",
}
REMOTE_PORT = 15_002
"""Of Spark Connect, where none is given."""
REMOTE_WAIT_S = 10.0
"""Spark's own client tries for ten minutes before it says that nobody is there."""


def session(
    app: str, *, master: str = LOCAL, remote: str = "", conf: Mapping[str, str] | None = None, wanted: Mapping[str, str] | None = None
) -> SparkSession:
    """A new one, or the one that there is. `remote`: sc://host:port of a Spark Connect server, instead of a master.
    `wanted`: what counts where nobody gave another value.

    Under spark-submit the master that it names wins, and so do its settings over our defaults. On a local master the workers run this
    very Python. Raises OptionError if nobody answers at `remote`.
    """
    given = dict(conf or {})
    if remote:
        _must_answer(remote)
        builder = SparkSession.builder.remote(remote)
        for key, value in given.items():
            builder = builder.config(key, value)
        return builder.appName(app).getOrCreate()
    said = _submitted()
    if said.get("spark.master", master).startswith("local"):
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder.appName(app)
    if "spark.master" not in said:
        builder = builder.master(master)
    ours = {**DEFAULTS, **(wanted or {})}
    for key, value in {**{k: v for k, v in ours.items() if k not in said}, **given}.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def _submitted() -> dict[str, str]:
    """What spark-submit was told; nothing where there was none."""
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        return {}
    from pyspark import SparkConf

    return dict(SparkConf().getAll())


def _must_answer(remote: str) -> None:
    scheme, _, rest = remote.partition("://")
    host, _, port = rest.partition("/")[0].partition(";")[0].partition(":")
    if scheme != "sc" or not host or not (port or "0").isdecimal():
        raise OptionError(f"remote = {remote!r} is no Spark Connect server. What to do: write sc://host:port")
    try:
        socket.create_connection((host, int(port or REMOTE_PORT)), REMOTE_WAIT_S).close()
    except OSError as error:
        raise OptionError(f"remote = {remote}: {error}. What to do: start it (sbin/start-connect-server.sh), or name another") from None

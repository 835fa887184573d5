"""A Spark session as our jobs need it, and what Python the workers run.

Owns: the settings that every job wants. Does not own: where the job runs (`master`, `remote` and further settings are the caller's).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

from pyspark.sql import SparkSession

LOCAL = "local[*]"
DEFAULTS: Mapping[str, str] = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "16",
}


def session(app: str, *, master: str = LOCAL, remote: str = "", conf: Mapping[str, str] | None = None) -> SparkSession:
    """A new one, or the one that there is. `remote`: sc://host:port of a Spark Connect server, instead of a master.

    Under spark-submit the master that it names wins. On a local master the workers run this very Python.
    """
    given = dict(conf or {})
    if remote:
        builder = SparkSession.builder.remote(remote)
        for key, value in given.items():
            builder = builder.config(key, value)
        return builder.appName(app).getOrCreate()
    if master.startswith("local"):
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder.appName(app)
    if "PYSPARK_GATEWAY_PORT" not in os.environ:  # spark-submit has named the master
        builder = builder.master(master)
    for key, value in {**DEFAULTS, **given}.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()

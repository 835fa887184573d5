"""How JVMs of Spark begin in the suite, each for a few queries: without the second compiler, and
with Spark's classes from an archive.

As a program it makes that archive (`make` does, once): half of what a new JVM of Spark computes is
loading the same 20,000 classes.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

END_MAX_S = 600.0
"""Writing the archive takes 5 s of a quiet machine."""
ARCHIVE = Path(__file__).parents[2] / ".build" / "spark-classes.jsa"
PLAIN_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
QUICK_JVM = (
    f"{PLAIN_JVM} -XX:SharedArchiveFile={ARCHIVE} -Xlog:disable" if ARCHIVE.is_file() else PLAIN_JVM
)
"""A JVM that cannot use the archive, another class path or another Java, says nothing and loads its
classes itself.
"""
LONG_JVM = "-XX:ReservedCodeCacheSize=160m -XX:MetaspaceSize=200m -Xmn320m"
"""For the one whose session all tests share. The first compiler alone may keep 48 MB of what it
made, less than such a session needs: the rest would be thrown away and compiled again. A larger
young generation is collected less often.
"""


def make_archive(archive: Path) -> None:
    """Of the classes that small queries need."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    os.environ.update(
        PYSPARK_PYTHON=sys.executable,
        PYSPARK_DRIVER_PYTHON=sys.executable,
        SPARK_LOCAL_IP="127.0.0.1",
    )
    with tempfile.TemporaryDirectory() as folder:
        conf = {
            "spark.driver.extraJavaOptions": f"{PLAIN_JVM} -XX:ArchiveClassesAtExit={archive} "
            f"-Xlog:disable",
            "spark.driver.memory": "768m",
            "spark.local.dir": f"{folder}/local",
            "spark.log.level": "OFF",
            "spark.sql.catalogImplementation": "in-memory",
            "spark.sql.codegen.factoryMode": "NO_CODEGEN",
            "spark.sql.codegen.wholeStage": "false",
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.warehouse.dir": f"{folder}/warehouse",
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
        }
        builder = SparkSession.builder.master("local[2]").appName("classes")
        for key, value in conf.items():
            builder = builder.config(key, value)
        spark = builder.getOrCreate()
        rows = spark.range(100).selectExpr("id", "id % 7 AS k", "date '2026-11-01' AS day")
        rows.write.partitionBy("day").parquet(f"{folder}/rows")
        read = spark.read.parquet(f"{folder}/rows")
        joined = read.join(rows.groupBy("k").count(), "k").orderBy("id")
        joined.mapInArrow(lambda batches: batches, joined.schema).collect()
        gateway = SparkContext._gateway
        spark.stop()
        gateway.shutdown()
        gateway.proc.stdin.close()  # it lives as long as this
        gateway.proc.wait(END_MAX_S)


if __name__ == "__main__":
    make_archive(Path(sys.argv[1]))

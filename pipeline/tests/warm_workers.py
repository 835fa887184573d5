"""The daemon that Spark forks its Python workers from, with our code imported: for the suite, whose many small queries each begin one.

Spark's own daemon imports nothing, lest a library's threads be lost in the fork; those of pyarrow and numpy are idle here.
"""

from __future__ import annotations

import gc

import cursorkeeper_pipeline.source.reader
import cursorkeeper_pipeline.source.table  # noqa: F401
import pyspark.sql.worker.create_data_source
import pyspark.sql.worker.data_source_pushdown_filters
import pyspark.sql.worker.lookup_data_sources
import pyspark.sql.worker.plan_data_source_read
import pyspark.worker  # noqa: F401
from pyspark.daemon import manager

if __name__ == "__main__":
    gc.freeze()
    manager()

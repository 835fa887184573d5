"""The daemons that Spark forks its Python workers from, with our code imported: for the suite,
whose many small queries each begin some.

Spark's own daemon imports nothing, lest a library's threads be lost in the fork; those of pyarrow
and numpy are idle here. A setting of Spark's names another daemon for workers of tasks only; those
who find, make and plan a source come from a Python's `pyspark.daemon` whatever it says, so
`warm_python` is a Python that runs this file in its place.
"""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]


def warm_python(folder: Path) -> str:
    """A program to be named in PYSPARK_PYTHON and in PYSPARK_DRIVER_PYTHON, which a JVM takes for
    sources that it finds by name. Written into the folder. All but daemons it runs as this Python
    does.
    """
    python, program = shlex.quote(sys.executable), folder / "warm-python"
    path = f"PYTHONPATH={shlex.quote(str(REPOSITORY))}${{PYTHONPATH:+:$PYTHONPATH}}"
    daemon = f'{path} exec {python} -m pipeline.tests.warm_workers "$3"'
    program.write_text(
        f'#!/bin/sh\n[ "$1 $2" = "-m pyspark.daemon" ] && {daemon}\nexec {python} "$@"\n'
    )
    program.chmod(0o755)
    return str(program)


def main() -> None:
    import gc

    import pyspark.sql.worker.create_data_source
    import pyspark.sql.worker.data_source_pushdown_filters
    import pyspark.sql.worker.lookup_data_sources
    import pyspark.sql.worker.plan_data_source_read
    import pyspark.worker  # noqa: F401
    from pyspark.daemon import manager

    import cursorkeeper_pipeline.source.reader
    import cursorkeeper_pipeline.source.table  # noqa: F401

    gc.freeze()
    manager()


if __name__ == "__main__":
    main()

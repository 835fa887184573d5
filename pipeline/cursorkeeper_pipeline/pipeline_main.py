"""What spark-submit runs: `spark-submit ... pipeline_main.py JOB ...`. The same as `python -m
cursorkeeper_pipeline JOB ...`.
"""

from __future__ import annotations

from cursorkeeper_pipeline.cli import main

if __name__ == "__main__":
    main()

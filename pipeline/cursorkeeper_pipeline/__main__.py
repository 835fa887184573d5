"""`python -m cursorkeeper_pipeline JOB ...`: the same as `cursorkeeper pipeline JOB ...`."""

from __future__ import annotations

from cursorkeeper_pipeline.cli import main

if __name__ == "__main__":
    main()

"""Serves tests, which start the gateway jar hundreds of times: an archive of the classes that such
a start loads, beside the jar. `make test` makes it.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from cursorkeeper.demo.stack import Standalone, class_archive, find_jar


def make() -> Path:
    """Of the classes of a whole stack that starts and stops. The jar may not be touched after
    it.
    """
    archive = class_archive(find_jar())
    archive.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / archive.name
        options = [f"-XX:ArchiveClassesAtExit={made}", "-Xlog:disable"]
        with Standalone(Path(folder) / "stack", java_options=options):
            pass
        beside = archive.with_suffix(".new")
        beside.write_bytes(made.read_bytes())
        beside.replace(archive)
    return archive


if __name__ == "__main__":
    print(f"classes of a start: {make()}")

"""The program `cursorkeeper` with an eye on the file system: a line on standard error for whatever
Python code opens to write, or makes.
"""

from __future__ import annotations

import os
import sys

WROTE = "WROTE: "
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
MAKING = (
    "os.mkdir",
    "os.rename",
    "os.remove",
    "os.link",
    "os.symlink",
    "os.truncate",
    "shutil.",
    "tempfile.",
)


def watch(event: str, arguments: tuple[object, ...]) -> None:
    """An audit hook."""
    if event.startswith(MAKING) or (
        event == "open" and isinstance(arguments[2], int) and arguments[2] & WRITING
    ):
        sys.stderr.write(f"{WROTE}{event} {arguments}\n")


if __name__ == "__main__":
    sys.addaudithook(watch)
    from cursorkeeper.cli.main import main

    main()

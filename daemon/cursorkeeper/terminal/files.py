"""Serves whoever tells a command to write a file: it is there whole or not at all."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO


@contextmanager
def whole_file(file: Path) -> Iterator[BinaryIO]:
    """What is written appears under its name when all of it is on the disk, with the rights that
    `open` would give it: those of the file that was there, or the usual ones. Raises OSError.
    """
    part = file.with_name(f"{file.name[:200]}.{secrets.token_hex(4)}.part")
    try:
        with part.open("xb") as out:
            yield out
            out.flush()
            os.fsync(out.fileno())
        with suppress(FileNotFoundError):
            shutil.copymode(file, part)
        part.replace(file)
    except BaseException:
        part.unlink(missing_ok=True)
        raise

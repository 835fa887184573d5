"""Serves whoever tells a command to write a file, which is there whole or not at all, or to read
one.
"""

from __future__ import annotations

import os
import secrets
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from cursorkeeper.inspection.progress import Progress
from cursorkeeper.problems import Kind, ProblemError
from cursorkeeper.terminal.printable import printable_json
from cursorkeeper.terminal.prompt import ended_at_once


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


def write_lines(lines: Iterable[bytes], output: Path | None, progress: Progress) -> int:
    """JSON lines into a file, which appears only when it is complete, or to standard output.
    Returns the bytes.
    """
    size = 0
    if output is None:
        for line in lines:
            sys.stdout.write(printable_json(line.decode().rstrip("\n")) + "\n")
            size += len(line)
        return size
    with whole_file(output) as out:
        for line in lines:
            size += out.write(line)
            progress.advance(0)
    return size


@contextmanager
def readable(file: Path) -> Iterator[Path]:
    """The file; standard input is kept in a temporary one, because it is read twice."""
    if str(file) != "-":
        yield file
        return
    with tempfile.NamedTemporaryFile(prefix="cursorkeeper-import-") as spool:
        with ended_at_once():
            shutil.copyfileobj(sys.stdin.buffer, spool)
        spool.flush()
        yield Path(spool.name)


def check_new_file(option: str, file: Path) -> None:
    """Before the work whose result is written into it. Raises ProblemError."""
    if file.is_dir():
        raise ProblemError(f"{option} {file}: it is a folder", "name a file in it", Kind.USAGE)
    if not file.parent.is_dir():
        raise ProblemError(
            f"{option} {file}: there is no folder {file.parent}",
            "name a file in a folder that exists",
            Kind.USAGE,
        )


def bytes_of(file: Path) -> bytes:
    """Of a file, or of standard input; without the line end that an editor or a log adds."""
    data = sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
    return data.rstrip(b"\r\n")

"""What a run over many cursors has done so far: JSON lines, each on disk before the next cursor's
is written.

Owns the file: a header that says which run it is, then one line per cursor. A line that a crash cut
off is dropped. A journal never decides what is true, only what need not be looked at again.

Its header holds a random token, which marks the ledgers that its runs make: a ledger number alone
says nothing (the same address may be another cluster today), so none is deleted that does not carry
the token. Journals of earlier releases have none.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Final

import msgspec

from cursorkeeper.problems import Kind, ProblemError

FORMAT = 1
TOKEN: Final = "token"


class JournalError(ProblemError):
    """The file is not this run's journal."""

    def __init__(self, message: str) -> None:
        super().__init__(
            message, "give the journal that the interrupted run named, or none", Kind.USAGE
        )


class Journal:
    """One file, written by one process. `done`: the cursors that need not be done again;
    `is_resumed`: an earlier run wrote in it; `token`: on every ledger that its runs make, empty in
    a journal of an earlier release.
    """

    def __init__(self, path: Path, token: str, file: BinaryIO, is_resumed: bool) -> None:
        self.path, self.token, self.is_resumed, self._file = path, token, is_resumed, file
        self.done: set[str] = set()

    @classmethod
    def open(cls, path: Path, command: str, target: Mapping[str, Any]) -> Journal:
        """A new one, or that of an earlier run of the same command with the same target. Raises
        JournalError, OSError.
        """
        header = {"journal": command, "format": FORMAT, **target}
        lines: list[tuple[int, bytes]] = []
        file = path.open("a+b")
        try:
            file.seek(0)
            whole = number = 0
            token = ""
            for number, line in enumerate(file, start=1):
                if not line.endswith(b"\n"):
                    break
                whole += len(line)
                if number == 1:
                    token = _token_of(line, header, path)
                else:
                    lines.append((number, line))
            journal = cls(
                path, token or ("" if whole else secrets.token_hex(16)), file, is_resumed=whole > 0
            )
            for number, line in lines:
                journal._take(line, number)
            file.truncate(whole)
            if whole == 0:
                journal.record({**header, TOKEN: journal.token})
            return journal
        except BaseException:
            file.close()
            raise

    def record(self, line: Mapping[str, Any]) -> None:
        """One line, on disk when this returns."""
        self._file.write(msgspec.json.encode(line, enc_hook=str) + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())

    def finished(self, cursor: str, status: str, *, ok: bool, **more: Any) -> None:
        """One cursor's end; `ok`: it need not be done again."""
        self.record({"cursor": cursor, "status": status, "ok": ok, **more})
        if ok:
            self.done.add(cursor)

    def _take(self, line: bytes, number: int) -> None:
        read = _read(line, number, self.path)
        cursor = read.get("cursor")
        if not isinstance(cursor, str):
            raise JournalError(
                f"{self.path}, line {number}: names no cursor: this is not a journal"
            )
        if read.get("ok") is True:
            self.done.add(cursor)
        else:
            self.done.discard(cursor)

    def close(self) -> None:
        """Closes the file, which stays on disk."""
        self._file.close()


@contextmanager
def journal_of(
    resume: Path | None,
    command: str,
    target: Mapping[str, Any],
    named: Callable[[Path], None],
) -> Iterator[Journal]:
    """The given one, or a new one in this folder. Raises JournalError, OSError.

    `named` hears of a new one at once: a run that is interrupted has no last line that could tell
    it.
    """
    now = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    path = resume or Path(f"cursorkeeper-{command}-{now}-{os.getpid()}.jsonl")
    with closing(Journal.open(path, command, target)) as journal:
        if resume is None:
            named(path)
        yield journal


def _read(line: bytes, number: int, path: Path) -> dict[str, Any]:
    try:
        read = msgspec.json.decode(line)
    except msgspec.DecodeError as e:
        raise JournalError(
            f"{path}, line {number}: {e}: this is not a journal, or it was changed"
        ) from None
    if not isinstance(read, dict):
        raise JournalError(f"{path}, line {number}: not an object: this is not a journal")
    return read


def _token_of(line: bytes, header: Mapping[str, Any], path: Path) -> str:
    """Of the first line, which says which run it is. Raises JournalError: another one."""
    read = _read(line, 1, path)
    token = read.pop(TOKEN, "")
    if read != header:
        odd = sorted(k for k in read.keys() | header.keys() if read.get(k) != header.get(k))
        differ = [f"{k} is {read.get(k)!r} there and {header.get(k)!r} now" for k in odd]
        raise JournalError(f"{path} is the journal of another run: {'; '.join(differ)}")
    return token if isinstance(token, str) else ""

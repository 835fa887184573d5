"""Serves a daemon that listens at a socket of the file system (`listen = "unix:/PATH"`), and who
asks one there.

Owns: what such an address may be, who listens at it, and the socket's mode. Does not own: the
socket, which gRPC makes and removes. Invariant: of the daemons of one path one listens. gRPC by
itself would remove the socket of who still listens, and at its end that of its successor; so a
daemon holds a lock beside the socket from before it listens until after it has stopped. The lock
ends with its process, however that ends, and its file stays: to remove it would let two in.
"""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cursorkeeper.core.errors import ExplainedError

UNIX = "unix:"
PATH_BYTES_MAX = 107
"""What the kernel has room for."""
MODE = 0o660
"""Who may write to the socket may connect: the daemon's user and group."""
LOCK_MODE = 0o600
ASK_MAX_S = 2.0
"""For somebody who listens already, to be found."""


class SocketFileError(ExplainedError):
    """Nobody can listen there, or ask there."""


def is_unix(address: str) -> bool:
    """Whether it names a socket of the file system, rightly or not."""
    return address.startswith(UNIX)


def path_of(address: str) -> str:
    """Of `unix:/path`, or `unix:///path`, which is the same. Raises SocketFileError."""
    rest = address.removeprefix(UNIX)
    path = rest.removeprefix("//") if rest.startswith("///") else rest
    remedy = "write unix: and an absolute path, as unix:/run/cursorkeeper/acks.sock"
    if not path.startswith("/"):
        raise SocketFileError(f"{address!r}: the path {path!r} is not absolute", remedy)
    if path.startswith("//"):
        raise SocketFileError(f"{address!r}: a socket has no host", remedy)
    if (size := len(os.fsencode(path))) > PATH_BYTES_MAX:
        raise SocketFileError(
            f"{address!r}: the path has {size} bytes, a socket's has at most {PATH_BYTES_MAX}",
            "choose a shorter one",
        )
    if "\0" in path or path.endswith("/"):
        raise SocketFileError(f"{address!r}: the path names no file", remedy)
    return path


class SocketFile:
    """One daemon's right to listen at `address`."""

    def __init__(self, address: str) -> None:
        """Raises SocketFileError for an address that cannot be one."""
        self.address, self.path = address, Path(path_of(address))
        self._lock: int | None = None

    def take(self) -> None:
        """Nobody else listens there from now on; what a killed daemon left is removed. Raises
        SocketFileError.
        """
        lock = self._locked()
        try:
            self._remove_what_was_left()
        except BaseException:
            os.close(lock)
            raise
        self._lock = lock

    def let_go(self) -> None:
        """Another daemon may listen there. May be called twice, and without `take`."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    @contextmanager
    def mode(self) -> Iterator[None]:
        """A socket that is made within has its mode from the first moment. For all threads: so it
        is for the start, where no other makes files.
        """
        before = os.umask(0o777 & ~MODE)
        try:
            yield
        finally:
            os.umask(before)

    def _locked(self) -> int:
        path = f"{self.path}.lock"
        try:
            lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, LOCK_MODE)
        except OSError as e:
            raise self._unusable(path, e) from e
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            raise self._taken() from None
        except OSError as e:
            os.close(lock)
            raise SocketFileError(
                f"{path}: {e.strerror}", "use a folder of this machine whose files can be locked"
            ) from e
        return lock

    def _remove_what_was_left(self) -> None:
        try:
            found = self.path.stat()
        except FileNotFoundError:
            return
        except OSError as e:
            raise self._unusable(self.path, e) from e
        if not stat.S_ISSOCK(found.st_mode):
            raise SocketFileError(
                f"{self.path} is there, and no socket",
                "remove it if nobody needs it, or name another path with --listen",
            )
        with socket.socket(socket.AF_UNIX) as asking:
            asking.settimeout(ASK_MAX_S)
            try:
                asking.connect(str(self.path))
            except OSError as e:
                if e.errno != errno.ECONNREFUSED:
                    raise self._taken() if _is_busy(e) else self._unusable(self.path, e) from e
            else:
                raise self._taken()
        try:
            self.path.unlink(missing_ok=True)
        except OSError as e:
            raise self._unusable(self.path, e) from e

    def _taken(self) -> SocketFileError:
        return SocketFileError(
            f"cannot listen on {self.address}: another process listens there",
            "stop it, or name another path with --listen",
        )

    def _unusable(self, path: object, error: OSError) -> SocketFileError:
        return SocketFileError(
            f"cannot listen on {self.address}: {path}: {error.strerror or error}",
            "its folder must exist, and be writable for this user; a socket and its lock that "
            "another user left must be removed while no daemon runs there",
        )


def _is_busy(error: OSError) -> bool:
    """Somebody listens, and does not take more for now."""
    return isinstance(error, TimeoutError | BlockingIOError)

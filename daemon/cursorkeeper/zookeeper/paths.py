"""Paths of znodes, and the chroot in front of them.

Owns what a legal path is (ZooKeeper's PathUtils) and the mapping between a caller's path and the
server's. Pure. Invariant: `Chroot.outside(Chroot.inside(p)) == p` for every legal p.
"""

from __future__ import annotations


def check_path(path: str) -> str:
    """The path itself, if ZooKeeper would take it. ValueError otherwise: a bad path is a bug, not
    an event.
    """
    if not path.startswith("/"):
        raise ValueError(f"path {path!r} must start with /")
    if path == "/":
        return path
    if path.endswith("/"):
        raise ValueError(f"path {path!r} must not end with /")
    for name in path[1:].split("/"):
        if name in ("", ".", ".."):
            raise ValueError(f"path {path!r} has an empty, '.' or '..' name")
    if not path.isprintable():
        # PathUtils names ranges; what Python calls printable leaves all of them out, the private
        # use area included.
        raise ValueError(f"path {path!r} has a character ZooKeeper does not take")
    return path


def parent(path: str) -> str:
    """The path above; / for / itself."""
    return path.rpartition("/")[0] or "/"


class Chroot:
    """A prefix that callers never see."""

    def __init__(self, chroot: str = "/") -> None:
        check_path(chroot)
        self.prefix = "" if chroot == "/" else chroot

    def inside(self, path: str) -> str:
        """Caller's path to server's path. ValueError for an illegal one."""
        check_path(path)
        if not self.prefix:
            return path
        return self.prefix if path == "/" else self.prefix + path

    def outside(self, path: str) -> str:
        """Server's path to caller's path. ValueError if it is not below the chroot: the server
        answered for somebody else.
        """
        if not self.prefix:
            return path
        if path == self.prefix:
            return "/"
        if not path.startswith(self.prefix + "/"):
            raise ValueError(f"path {path!r} is not below the chroot {self.prefix!r}")
        return path[len(self.prefix) :]

"""Small disks that can be filled, for bookies.

Owns: a volume in memory and the container that holds it. Invariant: what is on it outlives the
bookie that uses it, as a disk does; a plain tmpfs mount would lose it with the container's end.
"""

from __future__ import annotations

import itertools
from contextlib import suppress

import docker.errors

from testcontainers_tests.cluster.host import LABELS, PREFIX, connect
from testcontainers_tests.cluster.images import Images
from testcontainers_tests.cluster.node import Node

DATA = "/data"
"""Where nodes keep their files."""
_disks = itertools.count(1)


class Disk:
    """A small disk in memory that outlives the container which uses it: a volume, and a container
    that holds it.
    """

    def __init__(self, images: Images, name: str, size_bytes: int) -> None:
        options = {
            "type": "tmpfs",
            "device": "tmpfs",
            "o": f"size={size_bytes},uid=10001,gid=10001,mode=0755",
        }
        self.volume = connect().volumes.create(
            f"{PREFIX}-{name}-{next(_disks)}", driver="local", driver_opts=options, labels=LABELS
        )
        self.mount = {str(self.volume.name): {"bind": DATA, "mode": "rw"}}
        holding = f"disk-{self.volume.name}"
        self.holder = Node(
            holding,
            images.toolbox,
            ["sleep", "infinity"],
            None,
            volumes=self.mount,
            init=True,
            memory=None,
            user="10001",
        )
        self.holder.start()

    def fill(self, leave_bytes: int = 0) -> None:
        """Until only so much is free; 0: not a byte."""
        free = self.free_bytes()
        _, said = self.holder.run(
            "dd",
            "if=/dev/zero",
            f"of={DATA}/filler",
            "bs=64K",
            *([f"count={(free - leave_bytes) >> 16}"] if leave_bytes else []),
        )
        if leave_bytes:
            free = self.free_bytes()
            assert free <= leave_bytes + (1 << 16), f"{free} bytes are free"
        else:
            # a bookie may have ended by it already, and given back what it had reserved
            assert "No space left on device" in said, said

    def empty(self) -> None:
        """What filled it goes."""
        self.holder.run("rm", "-f", f"{DATA}/filler")

    def free_bytes(self) -> int:
        """Of now."""
        return int(self.holder.run("df", "--output=avail", "-B1", DATA)[1].split()[-1])

    def remove(self) -> None:
        """For good; whoever uses it is gone already."""
        self.holder.remove()
        with suppress(docker.errors.APIError):
            self.volume.remove(force=True)

"""Everything in one process: `gateway standalone`, over one data folder that outlives it.

Owns: its arguments and addresses. Invariant: the ports stay the same over restarts, so that clients
find it again, and no other process is given them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from cursorkeeper.demo.stack.java_process import JavaProcess
from cursorkeeper.demo.stack.ports import free_port


class Standalone(JavaProcess):
    """A ZooKeeper, one to three bookies and the gateway."""

    def __init__(
        self,
        data_dir: Path,
        *,
        bookies: int = 3,
        heap_mib: int = 256,
        arguments: Sequence[str] = (),
        java_options: Sequence[str] = (),
    ) -> None:
        self.data_dir, self.bookies = data_dir, bookies
        where = ["--data-dir", str(data_dir), "--bookies", str(bookies)]
        super().__init__(
            "standalone",
            [*where, "--port", str(free_port()), *arguments],
            data_dir / "standalone.log",
            heap_mib=heap_mib,
            java_options=java_options,
        )

    @property
    def gateway(self) -> str:
        """host:port of the gateway."""
        return str(self.ready["gateway"])

    @property
    def zookeeper(self) -> str:
        """host:port of ZooKeeper."""
        return str(self.ready["zookeeper"])

    @property
    def metadata_service_uri(self) -> str:
        """What another gateway of the same cluster needs."""
        return str(self.ready["metadata_service_uri"])

    def start(self) -> Mapping[str, object]:
        """Returns when all of it is ready."""
        # else it chooses by itself, at the same time as others do
        known = self.data_dir / "ports.properties"
        if not known.exists():
            known.parent.mkdir(parents=True, exist_ok=True)
            bookies = [f"bookie-{number}" for number in range(1, self.bookies + 1)]
            known.write_text(
                "".join(
                    f"{server}={free_port()}\n" for server in ["zookeeper", "metrics", *bookies]
                )
            )
        return super().start()

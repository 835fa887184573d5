"""Everything in one process: `gateway standalone`, over one data folder that outlives it.

Owns: its arguments and addresses. Does not own: the process (`java_process`). Invariant: the ports
stay the same over restarts, so that clients find it again, and no other process is given them.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from cursorkeeper.demo.stack.java_process import JavaProcess
from cursorkeeper.demo.stack.ports import free_port


class Standalone:
    """A ZooKeeper, one to three bookies and the gateway. A context manager: starts, and stops at
    the end.
    """

    def __init__(
        self,
        data_dir: Path,
        *,
        bookies: int = 3,
        jar: Path | None = None,
        heap_mib: int = 256,
        start_max_s: float = 180.0,
        gateway_port: int = 0,
        arguments: Sequence[str] = (),
        java_options: Sequence[str] = (),
    ) -> None:
        port = gateway_port or free_port()
        self.data_dir, self.bookies = data_dir, bookies
        self.process = JavaProcess(
            "standalone",
            [
                "--data-dir",
                str(data_dir),
                "--bookies",
                str(bookies),
                "--port",
                str(port),
                *arguments,
            ],
            data_dir / "standalone.log",
            jar=jar,
            heap_mib=heap_mib,
            start_max_s=start_max_s,
            java_options=java_options,
        )

    @property
    def gateway(self) -> str:
        """host:port of the gateway."""
        return str(self.process.ready["gateway"])

    @property
    def zookeeper(self) -> str:
        """host:port of ZooKeeper."""
        return str(self.process.ready["zookeeper"])

    @property
    def metadata_service_uri(self) -> str:
        """What another gateway of the same cluster needs."""
        return str(self.process.ready["metadata_service_uri"])

    def start(self) -> Standalone:
        """Returns when all of it is ready."""
        # else it chooses by itself, at the same time as others do
        known = self.data_dir / "ports.properties"
        if not known.exists():
            known.parent.mkdir(parents=True, exist_ok=True)
            servers = [
                "zookeeper",
                "metrics",
                *(f"bookie-{number}" for number in range(1, self.bookies + 1)),
            ]
            known.write_text("".join(f"{server}={free_port()}\n" for server in servers))
        self.process.start()
        return self

    def stop(self) -> None:
        """SIGTERM, orderly."""
        self.process.stop()

    def kill(self) -> None:
        """SIGKILL: everything at once, as a power switch for processes."""
        self.process.kill()

    def restart(self) -> None:
        """SIGKILL if it runs, then start on the same folder and ports."""
        self.process.restart()

    def __enter__(self) -> Standalone:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

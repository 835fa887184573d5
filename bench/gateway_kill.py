"""`python -m bench.gateway_kill [--json] [CURSORS ...]`: the gateway killed under many cursors.

Messages of acks are sent by the clock, one of each cursor after the other, also while there is no
gateway: one a second of each, and 3,000 a second at most. 10,000 cursors are on a daemon of two
workers, and their bookies are processes of their own. All write handles go with the gateway's
process, so that every cursor leaves its ledger, small ones for their footers, and continues in a
new one: what that costs, and how long sources wait. ZooKeeper, the bookies, the daemon and the
source keep running on the same cores.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import socket
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bench.many_cursors import DRAIN_MAX_S, ONE_PROCESS_MAX, OPEN_MAX_S, Cursor, Load, cpu_s
from bench.rows import Row, quantile, show
from cursorkeeper.demo.processes import DaemonProcess
from cursorkeeper.demo.stack import BOTH_COMPILERS, JavaProcess, LocalCluster, Standalone
from cursorkeeper.demo.stack.ports import free_port

CASES = (1_000, 3_000, 10_000)
RATE_MAX = 3_000
HEAP_MIB = 1536
LOAD_S = 10.0
"""So long the load runs before the kill."""
DEAD_S = 2.0
AFTER_S = 20.0
"""So long it runs after the kill at least: cursors whose first acks went into their footers need
ledgers again for those that follow.
"""
POLL_S = 1.0
GAUGES = ("oldest_unconfirmed_seconds", "appends_in_flight", "cursors_paused")
COUNTERS = (
    "flushes_total",
    "rolls_total",
    "inline_backstops_total",
    "lost_handle_states_total",
)


@dataclass(frozen=True)
class Systems:
    """What stays, and its processes."""

    zookeeper: str
    metadata_service_uri: str
    pids: tuple[int, ...]
    workers: int = 1


@contextlib.contextmanager
def systems_for(cursors: int, folder: Path) -> Iterator[Systems]:
    if cursors <= ONE_PROCESS_MAX:
        with Standalone(folder / "stack", heap_mib=HEAP_MIB, java_options=BOTH_COMPILERS) as stack:
            yield Systems(stack.zookeeper, stack.metadata_service_uri, (stack.pid,))
        return
    with LocalCluster(
        folder / "cluster",
        gateways=0,
        session_ms=30_000,
        heap_mib=HEAP_MIB,
        java_options=BOTH_COMPILERS,
    ) as apart:
        pids = tuple(one.pid for one in (apart.zookeeper, *apart.bookies))
        yield Systems(apart.zookeeper_address, apart.metadata_service_uri, pids, workers=2)


def gateway_of(stack: Systems, folder: Path) -> JavaProcess:
    """A process of its own beside the stack's, which nobody uses."""
    return JavaProcess(
        "gateway",
        ["--port", str(free_port()), "--metadata-service-uri", stack.metadata_service_uri],
        folder / "gateway.log",
        heap_mib=HEAP_MIB,
        java_options=BOTH_COMPILERS,
    )


def zookeeper_writes(address: str) -> int:
    """How many transactions this ZooKeeper server has seen since its start."""
    host, port = address.split(":")
    with socket.create_connection((host, int(port))) as asked:
        asked.sendall(b"srvr")
        lines = asked.makefile().read().splitlines()
    (zxid,) = (line.split()[1] for line in lines if line.startswith("Zxid"))
    return int(zxid, 16) & 0xFFFF_FFFF


class AfterKill(Load):
    """Knows of each cursor when a message that was sent after the kill was first durable."""

    def __init__(self, cursors: int) -> None:
        super().__init__("window", cursors, f"persistent://bench/ns/gateway-{cursors}")
        self._sent: dict[int, int] = {}
        """The last seq before the kill, of each cursor that is not back."""
        self.back_at: list[float] = []

    def killed(self) -> None:
        """What was sent until now is what has to become durable again."""
        self._sent = {cursor.number: cursor.seq for cursor in self.cursors}

    def _durable(self, cursor: Cursor, seq: int) -> None:
        super()._durable(cursor, seq)
        if seq > self._sent.get(cursor.number, seq):
            del self._sent[cursor.number]
            self.back_at.append(self.now())

    def is_back(self) -> bool:
        """Whether everything sent before the kill is durable."""
        return not self._sent


class Watch:
    """What the daemon says of itself while it is watched."""

    def __init__(self, daemon: DaemonProcess) -> None:
        self._daemon = daemon
        self.peaks = dict.fromkeys(GAUGES, 0.0)

    async def run(self) -> None:
        while True:
            now = await self._daemon.scrape()
            for name in GAUGES:
                self.peaks[name] = max(self.peaks[name], now.get(f"cursorkeeper_{name}", 0))
            await asyncio.sleep(POLL_S)


async def case(stack: Systems, folder: Path, cursors: int) -> list[Row]:
    """One kill, on a daemon and a gateway of its own."""
    several = ("--workers", str(stack.workers), "--worker-port", "0")
    flags = [*several, "--cursors-max", str(2 * cursors)] if stack.workers > 1 else []
    with gateway_of(stack, folder) as gateway:
        daemon = DaemonProcess(folder, str(gateway.ready["gateway"]), stack.zookeeper, flags)
        await daemon.start()
        load = AfterKill(cursors)
        try:
            return await _killed(stack, gateway, daemon, load)
        finally:
            load.leave()
            await daemon.stop(60)


async def _killed(
    stack: Systems, gateway: JavaProcess, daemon: DaemonProcess, load: AfterKill
) -> list[Row]:
    cursors = len(load.cursors)
    await load.connect(daemon.address)
    if await load.open_all() >= OPEN_MAX_S:
        raise RuntimeError(f"not all of {cursors:,} cursors were opened and durable in time")
    rate = min(cursors, RATE_MAX)
    await load.at_a_rate(rate, LOAD_S)
    if any(len(cursor.waiting) > max(1.0, DEAD_S * rate / cursors) for cursor in load.cursors):
        raise RuntimeError(f"{rate:,} messages a second are too many for this machine already")

    watch = Watch(daemon)
    watching = asyncio.ensure_future(watch.run())
    before = await daemon.scrape()
    writes = zookeeper_writes(stack.zookeeper)
    pids = {"daemon": (daemon.pid,), "stack": stack.pids}
    spent = {name: -sum(map(cpu_s, those)) for name, those in pids.items()}
    pauses, killed_at = load.pauses, load.now()
    load.killed()
    gateway.kill()
    back = asyncio.ensure_future(_again(gateway))

    await load.at_a_rate(
        rate, DRAIN_MAX_S, lambda: load.is_back() and load.now() >= killed_at + AFTER_S
    )
    if not load.is_back():
        raise RuntimeError(f"only {len(load.back_at):,} cursors were durable again in time")
    ready_s = await back - killed_at
    await load.until(lambda: not any(cursor.waiting for cursor in load.cursors), DRAIN_MAX_S)
    settled_s = load.now() - killed_at
    for name, those in pids.items():
        spent[name] += sum(map(cpu_s, those))
    watching.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await watching
    after = await daemon.scrape()
    writes = zookeeper_writes(stack.zookeeper) - writes
    did = {
        name: after[f"cursorkeeper_{name}"] - before[f"cursorkeeper_{name}"] for name in COUNTERS
    }

    def row(figure: str, value: float, unit: str, aim: str = "", *, per: bool = False) -> Row:
        ratio, against = (value / cursors, "the cursors") if per else (None, "")
        of = f"{cursors} cursors, {rate} messages a second"
        return Row("gateway_kill", of, figure, value, unit, ratio, against, aim)

    times = [at - killed_at for at in load.back_at]
    waits = [wait for at, wait in load.waits if at + wait >= killed_at]
    return [
        row("the new gateway is ready", ready_s, "s"),
        row("half durable again", quantile(times, 0.5), "s"),
        row("all durable again", max(times), "s", "30 s"),
        row("nothing waits any more", settled_s, "s"),
        row("message to durable p50", quantile(waits, 0.5), "s"),
        row("message to durable p99", quantile(waits, 0.99), "s"),
        row("ZooKeeper writes", writes, "", "6x", per=True),
        row("ledgers named", did["rolls_total"], "", "1x", per=True),
        row("states into footers at the loss", did["lost_handle_states_total"], "", per=True),
        row("states into footers later", did["inline_backstops_total"], "", "0x", per=True),
        row("flushes", did["flushes_total"], "", per=True),
        row("pauses told", load.pauses - pauses, "", per=True),
        row("most cursors paused at once", watch.peaks["cursors_paused"], ""),
        row("most records in flight", watch.peaks["appends_in_flight"], ""),
        row("oldest unconfirmed", watch.peaks["oldest_unconfirmed_seconds"], "s"),
        row("daemon's CPU", spent["daemon"] / settled_s, "cores"),
        row("ZooKeeper's and bookies' CPU", spent["stack"] / settled_s, "cores"),
        row("the new gateway's CPU", cpu_s(gateway.pid), "s"),
    ]


async def _again(gateway: JavaProcess) -> float:
    """Starts the gateway again a while after the kill; returns when it was ready."""
    await asyncio.sleep(DEAD_S)
    await asyncio.to_thread(gateway.start)
    return asyncio.get_running_loop().time()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--json", action="store_true", help="a line of JSON for each figure")
    parser.add_argument("cursors", nargs="*", type=int, default=CASES)
    asked = parser.parse_args()
    for count in asked.cursors:
        with (
            tempfile.TemporaryDirectory() as name,
            systems_for(count, Path(name)) as stack,
        ):
            show(asyncio.run(case(stack, Path(name), count)), asked.json)

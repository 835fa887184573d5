"""The stage both plays share: folder, stack, daemon, source process, kills, live progress."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from cursorkeeper.demo.processes import DaemonProcess, LineProcess
from cursorkeeper.demo.stack import Standalone
from cursorkeeper.demo.totals import Totals

KILLS_AT = (0.3, 0.6)
"""Shares of the acks that are confirmed when the daemon is killed, and the stack."""
SCRAPE_EVERY_S = 0.5
SILENCE_MAX_S = 120.0
UP = "a real ZooKeeper, {bookies} real bookies, gateway and daemon are up after {seconds:.1f} s"
STACK = "the whole stack"
TO_LOOK_AT = ("--inline-state-max-bytes", "0")
"""Of a daemon whose data are kept: a state that would fit its footer stays in ledgers, so that
there are some to look into.
"""


@dataclass(slots=True)
class Stage:
    """See the module. Use `open_stage`."""

    folder: Path
    console: Console
    progress: Progress
    stack: Standalone
    daemon: DaemonProcess
    totals: Totals = field(default_factory=Totals)
    kills: list[str] = field(default_factory=list)

    async def play(self, arguments: Sequence[object], total: int, label: str) -> dict[str, Any]:
        """Runs the source with these arguments to its end, and kills the daemon and the stack
        meanwhile; returns its last line. Raises ProcessFailed.
        """
        command = [sys.executable, "-m", "cursorkeeper.demo.source", "--daemon"]
        command += [self.daemon.address, *map(str, arguments)]
        for at in KILLS_AT:
            command += ["--gate", str(at)]
        source = LineProcess("source", command, self.folder / "source.log")
        await source.start()
        try:
            return await self._watch(source, total, label)
        finally:
            await source.stop(5)

    async def new_owner(self, of: str) -> None:
        """The last owner is killed without a close; a new one claims, fences, reads."""
        self.say(f"kill -9: the daemon, once more; a new owner opens {of}")
        await self.daemon.kill()
        self.kills.append("daemon again")
        await self.daemon.restart_elsewhere()

    async def _kill_daemon(self, dead: Callable[[], None]) -> None:
        """SIGKILL the daemon and start it again. `dead`: to be called once it is."""
        self.say("kill -9: the daemon")
        self.totals.scraped(await self.daemon.scrape())
        await self.daemon.kill()
        dead()
        self.totals.process_ended()
        self.kills.append("daemon")
        await self.daemon.start()
        self.say("the daemon is back")

    async def _kill_stack(self, dead: Callable[[], None]) -> None:
        """SIGKILL the JVM with ZooKeeper, the bookies and the gateway in it, and start it again on
        the same folder.
        """
        self.say("kill -9: ZooKeeper, bookies and gateway")
        await asyncio.to_thread(self.stack.kill)
        dead()
        self.kills.append(STACK)
        began = time.monotonic()
        await asyncio.to_thread(self.stack.start)
        self.say(f"the stack is back after {time.monotonic() - began:.1f} s, on the same folder")

    def say(self, text: str) -> None:
        self.progress.console.print(f"  [dim]{text}[/dim]")

    async def _watch(self, source: LineProcess, total: int, label: str) -> dict[str, Any]:
        bar = self.progress.add_task(label, total=total, rate="")
        kills = list(zip(KILLS_AT, (self._kill_daemon, self._kill_stack), strict=True))
        killing: asyncio.Task[None] | None = None
        scraper = asyncio.create_task(self._scrape())
        began, confirmed = time.monotonic(), 0
        try:
            while True:
                line = await source.line(SILENCE_MAX_S)
                confirmed = line.get("confirmed", confirmed)
                rate = confirmed / max(0.1, time.monotonic() - began)
                paused = line.get("paused")
                note = f"paused: {paused}" if paused else f"{rate / 1e6:.2f} M acks/s"
                self.progress.update(bar, completed=confirmed, rate=note)
                if killing is not None and killing.done():
                    await killing
                    killing = None
                if kills and killing is None and confirmed >= kills[0][0] * total:
                    killing = asyncio.create_task(kills.pop(0)[1](lambda: source.tell("go")))
                if line.get("done"):
                    if killing is not None:
                        await killing
                    self.totals.scraped(await self.daemon.scrape())
                    return line
        finally:
            scraper.cancel()
            self.progress.remove_task(bar)

    async def _scrape(self) -> None:
        while True:
            await asyncio.sleep(SCRAPE_EVERY_S)
            if self.daemon.running:
                self.totals.scraped(await self.daemon.scrape())


@contextlib.asynccontextmanager
async def open_stage(
    *, data_dir: Path | None, keep: bool, console: Console, bookies: int = 3
) -> AsyncIterator[Stage]:
    """Stack and daemon, started; everything is stopped and (unless kept) deleted at the end,
    whatever happens.
    """
    folder = data_dir or Path(tempfile.mkdtemp(prefix="cursorkeeper-demo-"))
    folder.mkdir(parents=True, exist_ok=True)
    stack = Standalone(folder / "stack", bookies=bookies, heap_mib=384)
    progress = Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f}%"),
        TextColumn("{task.fields[rate]}"),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=console.quiet,
    )
    daemon: DaemonProcess | None = None
    try:
        with progress:
            began = time.monotonic()
            await asyncio.to_thread(stack.start)
            daemon = DaemonProcess(
                folder, stack.gateway, stack.zookeeper, TO_LOOK_AT if keep or data_dir else ()
            )
            await daemon.start()
            stage = Stage(folder, console, progress, stack, daemon)
            stage.say(UP.format(bookies=bookies, seconds=time.monotonic() - began))
            yield stage
    finally:
        if daemon is not None:
            await daemon.stop()
        await asyncio.to_thread(stack.stop)
        if keep or data_dir is not None:
            console.print(f"  kept: {folder}", markup=False)
        else:
            shutil.rmtree(folder, ignore_errors=True)

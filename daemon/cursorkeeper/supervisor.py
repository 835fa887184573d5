"""A daemon of several processes (`workers`): starts them, starts one again that has ended, answers
for all of them, and ends them.

Owns: the workers' processes and ports, whether all are ready, the one page of metrics. Does not
own: cursors, or who holds them (footers decide, as between daemons), and no port of gRPC: the first
worker listens at `listen`. Invariants: before all were ready once, a worker that ends ends the
daemon with the same error, as if it were one process; later it is started again, for ever, with a
pause that grows to a bound, on the same port; no worker outlasts the supervisor, because the pipe
that it reads ends with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import secrets
import signal
import socket
import sys
import urllib.request
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPException
from typing import Any

import msgspec
import structlog
from prometheus_client import CollectorRegistry

from cursorkeeper import app
from cursorkeeper.app import Place
from cursorkeeper.probe import ANY_HOST
from cursorkeeper.readiness import StartError
from cursorkeeper.settings import Settings, SettingsError
from cursorkeeper.telemetry import logs, pages
from cursorkeeper.telemetry.merged import MergedPages, Page
from cursorkeeper.worker import ENDED_AT_SETTINGS, Told, Work
from cursorkeeper_client.back_off import BackOff

log = structlog.get_logger("cursorkeeper")

RESTART_MIN_S, RESTART_MAX_S, STEADY_S = 0.5, 30.0, 60.0
"""From one start of a worker to the next, which doubles, until one has run for so long; and the
least pause between them.
"""
ASK_S, SILENT_MAX_S = 1.0, 10.0
"""How often a worker is asked whether it is there, and without how long an answer it counts as not
ready.
"""
KILL_AFTER_S = 5.0
"""Beyond `close_timeout_s`: then workers that have not ended are killed."""
SCRAPE_MAX_S = 2.0


class WorkerProcess:
    """One worker, over all its processes. `changed` is called when it is ready, or is no more."""

    def __init__(self, work: Work, changed: Callable[[], None]) -> None:
        self.number, self._work, self._changed = work.place.number, work, changed
        self.process: asyncio.subprocess.Process | None = None
        self.ready: dict[str, Any] = {}
        """What its process said when it was; empty: it is not."""
        self.says_serving = False
        """What its health service answers."""
        self.restarts = 0
        self._heard_at_s = self._told_at_s = 0.0

    async def start(self) -> None:
        self.process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-P",  # nothing of the folder where it was started
            "-m",
            "cursorkeeper.worker",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            process_group=0,  # a terminal's interrupt is the supervisor's to pass on
        )
        self._write(msgspec.json.encode(self._work))

    async def hear(self) -> dict[str, Any]:
        """What it says, until its end; returns its last line that was no answer."""
        assert self.process is not None and self.process.stdout is not None
        said: dict[str, Any] = {}
        try:
            while line := await self.process.stdout.readline():
                if not line.startswith(b"{"):
                    continue  # not ours: a library's
                try:
                    told = json.loads(line)
                except ValueError:
                    continue  # cut off by its end, or a library's after all
                self._heard_at_s = asyncio.get_running_loop().time()
                if "serving" in told:
                    self.says_serving = told["serving"]
                else:
                    said = told
                    self.ready = told if "ready" in told else {}
                self._changed()
            await self.process.wait()
        finally:
            self.ready, self.says_serving = {}, False
            self._changed()
        return said

    @property
    def status(self) -> int | None:
        """With which its last process ended."""
        return self.process.returncode if self.process is not None else None

    @property
    def is_due(self) -> bool:
        """It is to be asked whether it is there."""
        return asyncio.get_running_loop().time() >= self._told_at_s + ASK_S

    @property
    def is_ready(self) -> bool:
        silent_s = asyncio.get_running_loop().time() - self._heard_at_s
        return bool(self.ready) and silent_s <= SILENT_MAX_S

    def tell(self, told: Told) -> None:
        if self.ready:
            self._told_at_s = asyncio.get_running_loop().time()
            self._write(msgspec.json.encode(told))

    def _write(self, line: bytes) -> None:
        assert self.process is not None and self.process.stdin is not None
        pipe = self.process.stdin
        # one that reads no more has ended, or stands still: nothing gathers for it
        if not (pipe.is_closing() or pipe.transport.get_write_buffer_size()):
            pipe.write(line + b"\n")

    def send(self, number: signal.Signals) -> None:
        """A signal, if it runs."""
        if self.process is not None and self.process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self.process.send_signal(number)

    def page(self) -> Page:
        """Its metrics. In the thread of who asks."""
        pid = self.process.pid if self.process is not None else 0
        address = self.ready.get("metrics")
        text = None
        if address:
            opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
            with (
                contextlib.suppress(OSError, HTTPException),
                opener.open(f"http://{address}/metrics", timeout=SCRAPE_MAX_S) as answer,
            ):
                text = answer.read().decode()
        return Page(pid, self.restarts, text)


class Supervisor:
    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._ports = contextlib.ExitStack()
        """Those that the system chose stay taken as long as the daemon lives."""
        self._workers: list[WorkerProcess] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._stopping, self._changed = asyncio.Event(), asyncio.Event()
        self._up = asyncio.Event()
        """Set as soon as all workers have served at the same time, and never taken back."""
        self.failed: StartError | SettingsError | None = None
        """Why it does not come up."""

    async def run(self, parent_pid: int) -> int:
        """The whole life; returns the exit code. Raises StartError, SettingsError."""
        stopping = self._stopping
        app.stop_at_signals(stopping)
        loop = asyncio.get_running_loop()
        with self._ports:
            addresses, secret = self._addresses(), secrets.token_hex()
            self._workers = [
                WorkerProcess(_work(self._settings, number, addresses, secret), self._changed.set)
                for number in range(len(addresses))
            ]
            others = [
                loop.create_task(app.watch_parent(parent_pid, stopping)),
                loop.create_task(self._tell_health()),
            ]
            self._tasks = [loop.create_task(self._keep(worker)) for worker in self._workers]
            stop_metrics = None
            try:
                if await self._wait_up():
                    metrics, stop_metrics = self._serve_metrics()
                    self._say_ready(addresses[0], metrics)
                    await stopping.wait()
                    log.info("stopping", workers=len(self._workers))
                elif self.failed is None:
                    log.info("stopped before it was ready")
            except StartError as e:
                self.failed = e
                stopping.set()
            try:
                code = await self._end()
                if self.failed is not None:
                    raise self.failed
                return code
            finally:
                for task in others:
                    task.cancel()
                if stop_metrics is not None:
                    stop_metrics()
                for worker in self._workers:
                    worker.send(signal.SIGKILL)

    def _addresses(self) -> list[str]:
        """Where each worker listens. Raises StartError."""
        host, _, port = self._settings.daemon.listen.rpartition(":")
        first = self._settings.daemon.worker_port
        ports = [int(port)] + [
            first + number if first else 0 for number in range(self._settings.daemon.workers - 1)
        ]
        return [f"{host}:{port or self._free_port(host)}" for port in ports]

    def _free_port(self, host: str) -> int:
        """One that nobody else gets while this supervisor lives, and that its worker may listen
        at, again and again: bound, and not listened at.
        """
        try:
            family, kind, _, _, where = socket.getaddrinfo(
                host.strip("[]"), 0, type=socket.SOCK_STREAM
            )[0]
            taken = self._ports.enter_context(socket.socket(family, kind))
            taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            taken.bind(where)
        except OSError as e:
            raise StartError(f"cannot listen on {host}: {e.strerror or e}; use --listen") from e
        return int(taken.getsockname()[1])

    async def _keep(self, worker: WorkerProcess) -> None:
        """One worker, started again and again until the daemon stops."""
        loop = asyncio.get_running_loop()
        back_off = BackOff(RESTART_MIN_S, RESTART_MAX_S, random.Random())
        while not self._stopping.is_set():
            began_s = loop.time()
            try:
                await worker.start()
                if self._stopping.is_set():
                    worker.send(signal.SIGTERM)
                said = await worker.hear()
            except OSError as e:  # no process is to be had
                said = {"failed": str(e)}
            if self._stopping.is_set():
                return
            if not self._up.is_set():
                self._fail(worker, said)
                return
            if loop.time() - began_s > STEADY_S:
                back_off.reset()
            pause_s = rest_s(back_off.next_s(), loop.time() - began_s)
            log.warning(
                "worker ended; it is started again",
                worker=worker.number,
                status=worker.status,
                pause_s=round(pause_s, 1),
                problem=said.get("failed", ""),
            )
            worker.restarts += 1
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self._stopping.wait()

    def _fail(self, worker: WorkerProcess, said: dict[str, Any]) -> None:
        """It ended before all were ready: so does the daemon."""
        kind = SettingsError if worker.status == ENDED_AT_SETTINGS else StartError
        ended = f"worker {worker.number} ended with status {worker.status}: its log says why"
        why = said.get("failed", ended)
        self.failed = self.failed or kind(why, said.get("remedy", ""))
        self._stopping.set()

    async def _wait_up(self) -> bool:
        """Whether all serve; no: it was told to stop before, or one failed."""
        loop = asyncio.get_running_loop()
        waiting = [loop.create_task(event.wait()) for event in (self._stopping, self._up)]
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            return not self._stopping.is_set()
        finally:
            for task in waiting:
                task.cancel()

    def _serve_metrics(self) -> tuple[str, Any]:
        """Where, and how it is stopped. Raises StartError."""
        wanted = self._settings.daemon.metrics_listen
        if not wanted:
            return "", None
        registry, readers = CollectorRegistry(), ThreadPoolExecutor(len(self._workers))

        def read() -> dict[int, Page]:
            found = readers.map(WorkerProcess.page, self._workers)
            return dict(enumerate(found))

        registry.register(MergedPages(read))
        try:
            address, stop = pages.serve_at(registry, wanted, app.contexts_of(self._settings.tls))
        except StartError:
            readers.shutdown()
            raise

        def stop_all() -> None:
            stop()
            readers.shutdown(wait=False)

        return address, stop_all

    def _say_ready(self, address: str, metrics: str) -> None:
        ready = {
            "ready": "cursorkeeper",
            "listen": address,
            "metrics": metrics,
            "pid": os.getpid(),
            "workers": [
                {"listen": worker.ready.get("listen"), "pid": worker.ready.get("pid")}
                for worker in self._workers
            ],
        }
        print(msgspec.json.encode(ready).decode(), flush=True)
        log.info("ready", listen=address, workers=len(self._workers))

    async def _tell_health(self) -> None:
        """Tells every worker, at each change and now and then, whether all are ready."""
        was = False
        while True:
            self._changed.clear()
            serving = all(worker.is_ready for worker in self._workers)
            if serving != was:
                log.info("health", serving=serving)
            for worker in self._workers:
                if serving != was or worker.is_due:
                    worker.tell(Told(serving))
            was = serving
            if all(worker.says_serving for worker in self._workers):
                self._up.set()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(ASK_S):
                    await self._changed.wait()

    async def _end(self) -> int:
        """Every worker stops; returns the exit code."""
        for worker in self._workers:
            worker.send(signal.SIGTERM)
        limit_s = self._settings.limits.close_timeout_s + KILL_AFTER_S
        _, left = await asyncio.wait(self._tasks, timeout=limit_s)
        for task, worker in zip(self._tasks, self._workers, strict=True):
            if task in left:
                log.warning("worker did not end in time; it is killed", worker=worker.number)
                worker.send(signal.SIGKILL)
        await asyncio.wait(self._tasks)
        for task in self._tasks:
            task.result()
        statuses = [worker.status for worker in self._workers]
        log.info("stopped", statuses=statuses)
        # by the signal itself: one that had not begun
        return int(any(status not in (0, -signal.SIGTERM) for status in statuses))


def rest_s(pause_s: float, ran_s: float) -> float:
    """What is left of a pause for a worker that ran for so long: one that has tried for a while to
    reach a system that is away has waited already, and health of all waits for it.
    """
    return max(RESTART_MIN_S, pause_s - ran_s)


def _work(settings: Settings, number: int, addresses: Sequence[str], secret: str) -> Work:
    host, _, _ = addresses[0].rpartition(":")
    here = host if host not in ANY_HOST else "[::1]" if ":" in host else "127.0.0.1"
    ports = [address.rpartition(":")[2] for address in addresses]
    place = Place(
        number,
        tuple(f":{port}" for port in ports),
        tuple(f"{here}:{port}" for port in ports),
        secret,
    )
    return Work(settings.of_worker(number, addresses[number]), place)


def serve(settings: Settings, parent_pid: int) -> int:
    """Runs the daemon, this process and its workers; returns its exit code. Raises SettingsError,
    StartError.
    """
    app.check(settings)
    logs.configure(settings.limits.log_level)
    return asyncio.run(Supervisor(settings).run(parent_pid))

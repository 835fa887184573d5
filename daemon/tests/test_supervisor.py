"""A daemon of several processes with nothing behind it: how it starts, gives up and ends. What its
workers do with real systems is in `end_to_end/test_workers.py`.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from cursorkeeper.settings import Settings
from cursorkeeper.supervisor import WorkerProcess, _work, rest_s
from daemon.tests.test_readiness import QUICK_S, Run, runs  # noqa: F401

TWO = ("--workers", "2", "--worker-port", "0")


def workers_of(pid: int) -> list[int]:
    """The processes that this one has started and that run."""
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = status.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == pid and fields[0] != "Z":
            found.append(int(status.parent.name))
    return found


def lines_until(run: Run, text: str, count: int) -> None:
    """Reads the log until so many lines have this text."""
    assert run.process.stderr is not None
    while count:
        line = run.process.stderr.readline()
        assert line, "the log ended"
        count -= text in line


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_told_to_stop_while_its_workers_wait_it_stops_at_once(
    runs: list[Run],  # noqa: F811
    number: int,
) -> None:
    runs.append(Run(*TWO, "--start-timeout-s", "250"))
    lines_until(runs[0], '"event":"waiting"', 2)
    code, out, log, took_s = runs[0].end(number)
    assert (code, out) == (0, "")
    assert log.count("stopped before it was ready") == 3, "both workers and the supervisor"
    assert '"worker":0' in log and '"worker":1' in log
    assert took_s < QUICK_S


def test_it_gives_up_with_the_reason_of_its_workers(runs: list[Run]) -> None:  # noqa: F811
    runs.append(Run(*TWO, "--start-timeout-s", "2"))
    code, out, log, _ = runs[0].end()
    assert (code, out) == (3, "")
    said = log.splitlines()
    assert said[-2].startswith("cursorkeeper: gave up after start_timeout_s = 2: ZooKeeper at ")
    assert said[-1].startswith("What to do: no ZooKeeper server answers")


def test_a_setting_that_a_worker_cannot_use_is_told_as_one(
    runs: list[Run],  # noqa: F811
    tmp_path: Path,
) -> None:
    runs.append(Run(*TWO, "--source-token-file", str(tmp_path / "none")))
    code, out, log, _ = runs[0].end()
    assert (code, out) == (2, "")
    assert "cursorkeeper: source_token_file = " in log


def left_alone(runs: list[Run]) -> list[int]:  # noqa: F811
    """The workers of a daemon that waits for ZooKeeper."""
    runs.append(Run(*TWO, "--start-timeout-s", "250"))
    lines_until(runs[0], '"event":"waiting"', 2)
    workers = workers_of(runs[0].process.pid)
    assert len(workers) == 2
    return workers


def ended(workers: list[int]) -> None:
    deadline_s = time.monotonic() + 60
    while any(Path(f"/proc/{pid}/fd/0").exists() for pid in workers):
        assert time.monotonic() < deadline_s, "a worker outlasts the supervisor"
        time.sleep(0.01)


def test_workers_end_when_the_supervisor_is_gone(runs: list[Run]) -> None:  # noqa: F811
    workers = left_alone(runs)
    runs[0].process.kill()
    ended(workers)
    lines_until(runs[0], '"event":"the supervisor is gone"', 2)


def test_they_end_where_nobody_reads_their_log(runs: list[Run]) -> None:  # noqa: F811
    workers = left_alone(runs)
    log = os.open(f"/proc/{workers[0]}/fd/2", os.O_WRONLY | os.O_NONBLOCK)
    with pytest.raises(BlockingIOError):
        while True:
            os.write(log, bytes(1))
    os.close(log)
    runs[0].process.kill()
    ended(workers)


def test_they_end_though_the_last_line_was_cut_off(runs: list[Run]) -> None:  # noqa: F811
    workers = left_alone(runs)
    pipes = [os.open(f"/proc/{pid}/fd/0", os.O_WRONLY) for pid in workers]
    runs[0].process.kill()
    for pipe in pipes:
        os.write(pipe, b'{"serving":tr')
        os.close(pipe)
    ended(workers)
    lines_until(runs[0], '"event":"the supervisor is gone"', 2)


def test_a_line_that_was_cut_off_is_passed_over() -> None:
    """A worker that is killed while it writes must be started again like any other."""

    async def heard() -> dict[str, Any]:
        worker = WorkerProcess(_work(Settings.of(workers=2), 0, ["127.0.0.1:1"], ""), lambda: None)
        worker.process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            """print('a library: {'), print('{"reason": 3}'), print('{"ready": {"por')""",
            stdout=asyncio.subprocess.PIPE,
        )
        return await worker.hear()

    assert asyncio.run(heard()) == {"reason": 3}


@pytest.mark.parametrize(
    ("pause_s", "ran_s", "left_s"), [(16, 0, 16), (16, 1, 15), (30, 30, 0.5), (0.5, 3_600, 0.5)]
)
def test_a_worker_that_tried_for_long_is_started_again_soon(
    pause_s: float, ran_s: float, left_s: float
) -> None:
    assert rest_s(pause_s, ran_s) == left_s


@pytest.mark.parametrize(
    ("listen", "dialled"),
    [
        ("127.0.0.1:1", "127.0.0.1"),
        ("0.0.0.0:1", "127.0.0.1"),
        ("[::]:1", "[::1]"),
        ("keeper-0:1", "keeper-0"),
    ],
)
def test_workers_are_told_where_all_are(listen: str, dialled: str) -> None:
    host = listen.rpartition(":")[0]
    made = _work(Settings.of(workers=2, name="n"), 1, [listen, f"{host}:7660"], "known")
    assert made.place.secret == "known"
    assert (made.place.number, made.settings.daemon.listen) == (1, f"{host}:7660")
    assert made.place.told == (":1", ":7660")
    assert made.place.dialled == (f"{dialled}:1", f"{dialled}:7660")
    assert made.settings.daemon.identity.startswith("n#1/")

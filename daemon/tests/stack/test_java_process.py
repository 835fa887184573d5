"""Processes of the jar, with a small script in the place of `java`: ready lines, limits, ends."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cursorkeeper.demo.stack import JavaProcess, StackError
from cursorkeeper.demo.stack.jar import JAR_VARIABLE

Launch = Callable[..., JavaProcess]


@pytest.fixture
def launch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Launch]:
    """A process whose program is the given Python text."""
    made: list[JavaProcess] = []
    jar = tmp_path / "gateway.jar"
    jar.touch()
    monkeypatch.setenv(JAR_VARIABLE, str(jar))
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")

    def build(program: str, *, start_max_s: float = 60.0) -> JavaProcess:
        script = tmp_path / "java"
        script.write_text(f"#!{sys.executable}\nimport os, signal, sys, time\n{program}\n")
        script.chmod(script.stat().st_mode | stat.S_IXUSR)
        made.append(
            JavaProcess(
                "gateway",
                ["--port", "1"],
                tmp_path / "gateway.log",
                start_max_s=start_max_s,
            )
        )
        return made[-1]

    yield build
    for process in made:
        process.kill()


START_MAX_S = 10.0
READY = """print('{"ready":"gateway","gateway":"127.0.0.1:1"}', flush=True); time.sleep(60)"""


def test_the_ready_line_is_given_back_and_a_restart_is_another_process(launch: Launch) -> None:
    process = launch(READY)
    assert process.start()["gateway"] == "127.0.0.1:1"
    first = process.pid
    process.restart()
    assert process.running and process.pid != first
    process.stop()
    assert not process.running


def test_it_is_told_its_parent(launch: Launch, tmp_path: Path) -> None:
    process = launch(
        f"open({str(tmp_path / 'argv')!r}, 'w').write(' '.join(sys.argv[1:]))\n{READY}"
    )
    process.start()
    assert (tmp_path / "argv").read_text().endswith(f"gateway --port 1 --parent-pid {os.getpid()}")


def test_temporary_files_are_beside_the_log_and_a_killed_process_leaves_none_for_ever(
    launch: Launch, tmp_path: Path
) -> None:
    """BookKeeper's client unpacks native libraries into the temp folder and a killed JVM never
    deletes them.
    """
    program = f"""
temp = next(a for a in sys.argv if a.startswith('-Djava.io.tmpdir=')).partition('=')[2]
open(os.path.join(temp, 'native' + str(os.getpid())), 'w').close()
{READY}"""
    process = launch(program)
    process.start()
    assert [p.name for p in process.temp.iterdir()] == [f"native{process.pid}"]
    assert process.temp.parent == tmp_path and process.temp.is_absolute()
    process.restart()
    assert [p.name for p in process.temp.iterdir()] == [f"native{process.pid}"]


def test_an_early_end_shows_the_log(launch: Launch) -> None:
    process = launch("sys.stderr.write('the port is taken'); sys.exit(3)")
    with pytest.raises(StackError, match=r"status 3(.|\n)*the port is taken"):
        process.start()
    assert not process.running


def test_waiting_for_readiness_has_a_limit_and_leaves_nothing_behind(
    launch: Launch, tmp_path: Path
) -> None:
    process = launch(
        f"open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid())); time.sleep(60)",
        start_max_s=START_MAX_S,
    )
    with pytest.raises(StackError, match="not ready within"):
        process.start()
    assert (tmp_path / "pid").exists(), (
        f"Python did not start within {START_MAX_S} s: this test would prove nothing"
    )
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


def test_another_line_than_the_ready_line_is_an_error(launch: Launch) -> None:
    with pytest.raises(StackError, match="instead of its ready line"):
        launch("print('hello', flush=True); time.sleep(60)").start()


def test_a_process_that_ignores_sigterm_is_killed(launch: Launch) -> None:
    process = launch(f"signal.signal(signal.SIGTERM, signal.SIG_IGN)\n{READY}")
    process.start()
    process.stop(max_s=0.2)
    assert not process.running

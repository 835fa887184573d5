"""A port is given to one process only, also while nobody listens on it."""

from __future__ import annotations

import subprocess
import sys

import pytest
from cursorkeeper_clients.stack import ports


def test_a_port_that_another_process_was_given_is_taken_though_nobody_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    program = "from cursorkeeper_clients.stack.ports import free_port; print(free_port(), flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdin is not None and other.stdout is not None
        given = int(other.stdout.readline())
        monkeypatch.setattr(ports, "_FROM", given)
        monkeypatch.setattr(ports, "_TO", given + 1)
        with pytest.raises(OSError, match="no free port"):
            ports.free_port()
        other.stdin.close()
        assert other.wait(60) != 0  # it read the end of its input
        assert ports.free_port() == given
    with pytest.raises(OSError, match="no free port"):
        ports.free_port()

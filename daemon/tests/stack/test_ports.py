"""A port is given to one process only, also while nobody listens on it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from cursorkeeper.demo.stack.ports import free_port


def test_a_port_that_another_process_was_given_is_taken_though_nobody_listens() -> None:
    program = (
        "from cursorkeeper.demo.stack.ports import free_port; print(free_port(), "
        "flush=True); input()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdin is not None and other.stdout is not None
        given = int(other.stdout.readline())
        with pytest.raises(OSError, match="no free port"):
            free_port(given, given + 1)
        other.stdin.close()
        assert other.wait(60) != 0  # it read the end of its input
        assert free_port(given, given + 1) == given
    with pytest.raises(OSError, match="no free port"):
        free_port(given, given + 1)

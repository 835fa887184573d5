"""Processes of ours that stand still: they are there and do not answer."""

from __future__ import annotations

import os
import signal
import time

FREEZE_MAX_S = 60.0


def freeze(pid: int) -> None:
    """SIGSTOP to a child of ours. Returns when every thread of it stands still: the signal alone
    returns before, and on a busy machine a thread on the other core still answers for some
    milliseconds. Fails if it ended, or moves after a minute: one that waits for a disk does not
    stop before that.
    """
    os.kill(pid, signal.SIGSTOP)
    until_s = time.monotonic() + FREEZE_MAX_S
    while (
        state := os.waitid(os.P_PID, pid, os.WSTOPPED | os.WEXITED | os.WNOHANG | os.WNOWAIT)
    ) is None:
        assert time.monotonic() < until_s, f"process {pid} still moves after SIGSTOP"
        time.sleep(0.001)
    assert state.si_code == os.CLD_STOPPED, f"process {pid} ended before it could be stopped"


def thaw(pid: int) -> None:
    """SIGCONT: what was sent meanwhile is read now."""
    os.kill(pid, signal.SIGCONT)

"""Free ports on 127.0.0.1.

Owns: picking one that nobody listens on and that no process of this machine was given before.
Invariants: a port is ours while this process lives, also before somebody listens on it and while a
server is restarted; it is below the range that the kernel hands to outgoing connections.
"""

from __future__ import annotations

import random
import socket

_FROM, _TO, _TRIES_MAX = 12_000, 32_000, 200
_kept: list[socket.socket] = []


def free_port(first: int = _FROM, end: int = _TO) -> int:
    """One of those from `first` to before `end`. Raises OSError if none is found. Ports are a
    matter of this machine, not of a test's seed.
    """
    for _ in range(_TRIES_MAX):
        port = random.SystemRandom().randrange(first, end)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        if _keep(port):
            return port
    raise OSError(f"no free port between {first} and {end} on 127.0.0.1")


def _keep(port: int) -> bool:
    """Whether nobody else was given it: a name in the kernel says so, of the same network as the
    port, which goes with the process.
    """
    mark = socket.socket(socket.AF_UNIX)
    try:
        mark.bind(f"\0cursorkeeper-port-{port}")
    except OSError:
        mark.close()
        return False
    _kept.append(mark)
    return True

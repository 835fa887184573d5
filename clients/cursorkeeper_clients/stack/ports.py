"""Free ports on 127.0.0.1.

Owns: picking one that nobody listens on and that this process did not give out before. Invariant: below the range that
the kernel hands to outgoing connections, so that a restarted server finds its port free again.
"""

from __future__ import annotations

import random
import socket

_FROM, _TO, _TRIES_MAX = 12_000, 32_000, 200
_given: set[int] = set()


def free_port() -> int:
    """Raises OSError if none is found. Ports are a matter of this machine, not of a test's seed."""
    for _ in range(_TRIES_MAX):
        port = random.SystemRandom().randrange(_FROM, _TO)
        if port in _given:
            continue
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        _given.add(port)
        return port
    raise OSError(f"no free port between {_FROM} and {_TO} on 127.0.0.1")

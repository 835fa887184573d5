"""Creating a path with its ancestors.

Owns the order of the creates, for the client and the fake alike. From the bottom up: a server
checks the right to create before it says that a node exists, so a walk from the top would need
rights on every ancestor. Invariant: any outcome may be followed by running it again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from cursorkeeper.zookeeper.errors import NodeExists, NoNode, Retry
from cursorkeeper.zookeeper.paths import parent

_ROUNDS_MAX = 3  # per path: somebody may delete an ancestor while we create; not for ever


async def ensure_path(
    path: str, exists: Callable[[str], Awaitable[bool]], create: Callable[[str], Awaitable[object]]
) -> None:
    """Make `path` exist. Raises what `exists` and `create` raise, and Retry if somebody deletes
    faster than we create.
    """
    if path == "/" or await exists(path):
        return
    missing = [path]
    creates_max = _ROUNDS_MAX * path.count("/") + 1
    for _ in range(creates_max * 2):
        try:
            await create(missing[-1])
        except NodeExists:
            pass
        except NoNode:
            if missing[-1].count("/") == 1:
                raise
            missing.append(parent(missing[-1]))
            continue
        missing.pop()
        if not missing:
            return
    raise Retry("ancestors vanish while it is created", path=path)

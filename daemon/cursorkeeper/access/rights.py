"""What a caller of the daemon may: one table, of every call. Serves operators and auditors, who
read it in `docs/run/rights.md`. Pure.

Invariant: a call that the table does not name is nobody's.
"""

from __future__ import annotations

from typing import Any

from cursorkeeper.access.identity import Identity, Role

PUBLISH = "/cursorkeeper.acks.v1.AckSink/Publish"
STORE = "/cursorkeeper.acks.v1.CursorStore/"
_ASKING = frozenset({Role.SOURCE, Role.READER, Role.OPERATOR})
RIGHTS: dict[str, frozenset[Role]] = {
    PUBLISH: frozenset({Role.SOURCE}),
    f"{STORE}Get": _ASKING,
    f"{STORE}List": _ASKING,
    f"{STORE}AckState": _ASKING,
    f"{STORE}Export": _ASKING,
    f"{STORE}DeleteTopic": frozenset({Role.SOURCE, Role.OPERATOR}),
}
"""Of each call, who may make it: for the topics of their identity."""
OPEN = ("/grpc.health.v1.Health/", "/grpc.reflection.")
"""Services for everybody: a probe has no token, and they tell nothing of cursors. Reflection is
there only if `reflection` is set.
"""
CHANGING = frozenset({f"{STORE}DeleteTopic"})
"""What they begin goes on when the caller has left."""
WALKS = frozenset({f"{STORE}List", f"{STORE}DeleteTopic"})
"""They go through all that is stored."""


class Denied(Exception):
    """The caller is known, and may not do this. The message says what it may."""


def is_open(method: str) -> bool:
    return method.startswith(OPEN)


def check_role(identity: Identity, method: str) -> None:
    """Raises Denied."""
    roles = RIGHTS.get(method, frozenset())
    if not identity.has(roles):
        needed = " or ".join(sorted(roles)) or "which nobody has"
        has = ", ".join(sorted(identity.roles))
        raise Denied(
            f"{identity.name} may not call {method.rpartition('/')[2]}: it needs the role "
            f"{needed}, and has {has}: add the role in identities_file, or use another identity"
        )


def check_topic(identity: Identity, topic: str) -> None:
    """Raises Denied. It says nothing of what there is of the topic."""
    if not identity.topics.hold(topic):
        raise Denied(
            f"{identity.name} may not touch cursors of {topic[:512]}: its topics are "
            f"{identity.topics}: add it to `topics` in identities_file, or use another identity"
        )


def topics_of(method: str, request: Any) -> list[str]:
    """The topics that a request of `CursorStore` names; of List none: what it may not see is left
    out of the answer.
    """
    match method.removeprefix(STORE):
        case "Get" | "AckState" | "Export":
            return [request.cursor.topic]
        case "DeleteTopic":
            return [request.topic]
        case _:
            return []

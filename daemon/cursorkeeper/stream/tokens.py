"""Who may ask: tokens of the daemon's services. The stream's own is in its Hello; every other call
proves itself in its metadata.

Owns: comparing tokens in a time that says nothing, and what a call without one is told. Does not
own: where tokens come from (`connections.read_token`). gRPC health and reflection are open: a probe
has no token, and they tell nothing of cursors.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable, Sequence

AUTHORIZATION, BEARER = "authorization", b"bearer "
GUARDED = "/cursorkeeper.acks.v1.CursorStore/"
CHANGING = frozenset({"DeleteTopic"})
"""Methods of it for sources, and not for those who only ask."""
DENIED = (
    "the token is missing or wrong: send the content of the daemon's source_token_file or "
    "reader_token_file in the metadata "
    "`authorization: Bearer TOKEN`; what deletes needs that of source_token_file"
)


def same(wanted: bytes, given: bytes) -> bool:
    """Whether they are equal; how long it takes does not say how much of them is."""
    return hmac.compare_digest(wanted, given)


def proves(tokens: Sequence[bytes], given: str | bytes) -> bool:
    """Whether `given`, the value of `authorization`, carries one of them. All are compared."""
    value = given.encode(errors="replace") if isinstance(given, str) else given
    if value[: len(BEARER)].lower() != BEARER:
        return False
    return sum([same(token, value[len(BEARER) :].strip()) for token in tokens]) > 0


class CallTokens:
    """Lets `CursorStore` be asked only with the token of sources, or with that of readers, who
    change nothing; without any, by everybody who reaches the port.
    """

    def __init__(self, source: bytes, readers: bytes = b"") -> None:
        self._source = [source] if source else []
        self._tokens = [token for token in (source, readers) if token]

    def let_in(self, method: str, metadata: Iterable[tuple[str, str | bytes]]) -> bool:
        """Whether a call with this metadata may be answered."""
        if not self._tokens or not method.startswith(GUARDED):
            return True
        given = [value for key, value in metadata if key == AUTHORIZATION]
        tokens = self._source if method.removeprefix(GUARDED) in CHANGING else self._tokens
        return len(given) == 1 and proves(tokens, given[0])

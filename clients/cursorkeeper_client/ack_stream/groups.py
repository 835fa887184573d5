"""Several messages of the ack stream in one, for both sides of it: a message costs its sender and
its receiver about 100 us, whatever it holds. Put together from messages that are serialised
already. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence

from cursorkeeper_client.ack_stream.columns import varint

GROUP_MESSAGES_MAX = 256
"""What we take, and what we send to whoever takes as many."""
GROUP_BYTES = 64 << 10
"""Of one group: what a large message costs, it costs by its bytes."""
_OF_SOURCE, _OF_KEEPER = b"\x4a", b"\x72"
"""SourceMessage.group = 9, KeeperMessage.group = 14"""


def source_group(messages: Sequence[bytes]) -> bytes:
    """Serialised `SourceMessage`s as one; a lone one stays as it is."""
    return messages[0] if len(messages) == 1 else _group(_OF_SOURCE, messages)


def keeper_group(messages: Sequence[bytes]) -> bytes:
    """Serialised `KeeperMessage`s as one; a lone one stays as it is."""
    return messages[0] if len(messages) == 1 else _group(_OF_KEEPER, messages)


def _group(tag: bytes, messages: Sequence[bytes]) -> bytes:
    # messages = 1
    body = b"".join(
        [part for message in messages for part in (b"\x0a", varint(len(message)), message)]
    )
    return b"".join((tag, varint(len(body)), body))

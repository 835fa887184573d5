"""What leaves an outbox, for tests that read it without a stream."""

from __future__ import annotations

from cursorkeeper.stream.outbox import Outbox
from cursorkeeper_client._proto import acks_pb2 as pb


async def next_message(outbox: Outbox) -> pb.KeeperMessage | None:
    """The next message of a source that takes no groups; None: the outbox is closed and empty."""
    sent = await outbox.next()
    return None if sent is None else pb.KeeperMessage.FromString(sent)

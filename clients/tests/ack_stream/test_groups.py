"""Several messages in one: made by hand as protobuf would, as many as the other side takes, in
order.
"""

from __future__ import annotations

import asyncio

import pytest

from clients.tests.ack_stream.conftest import SETTINGS
from cursorkeeper_client import ConnectionRefused
from cursorkeeper_client._proto import acks_pb2 as pb
from cursorkeeper_client.ack_stream.groups import GROUP_BYTES, keeper_group, source_group
from cursorkeeper_client.ack_stream.outbox import Outbox
from cursorkeeper_client.ack_stream.session import SourceSession
from cursorkeeper_client.gap import Gap

HOURS_MS = 1e7


def close(handle: int) -> bytes:
    return pb.SourceMessage(close_cursor=pb.CloseCursor(handle=handle)).SerializeToString()


def handles(message: bytes) -> list[int]:
    return [
        part.close_cursor.handle for part in pb.SourceMessage.FromString(message).group.messages
    ]


def test_a_group_made_by_hand_is_what_protobuf_writes() -> None:
    sent = [
        pb.SourceMessage(delete_cursor=pb.DeleteCursor(handle=1, topic="t" * size))
        for size in (0, 1, 127, 128, 70_000)
    ]
    made = source_group([message.SerializeToString() for message in sent])
    assert made == pb.SourceMessage(group=pb.SourceGroup(messages=sent)).SerializeToString()
    heard = [pb.KeeperMessage(durable=pb.Durable(handle=n, seq=n << 20)) for n in range(300)]
    made = keeper_group([message.SerializeToString() for message in heard])
    assert made == pb.KeeperMessage(group=pb.KeeperGroup(messages=heard)).SerializeToString()


async def test_what_waits_leaves_in_groups_if_the_keeper_takes_them() -> None:
    waiting = Outbox(1 << 20)
    for handle in range(1, 9):
        waiting.put(close(handle))
    assert await waiting.take() == close(1)
    waiting.group_messages_max = 3
    assert handles(await waiting.take()) == [2, 3, 4]
    assert handles(await waiting.take()) == [5, 6, 7]
    assert await waiting.take() == close(8)


async def test_a_large_message_leaves_alone() -> None:
    waiting = Outbox(1 << 20)
    waiting.group_messages_max = 100
    large = b"x" * GROUP_BYTES
    for message in (close(1), close(2), large, close(3)):
        waiting.put(message)
    assert handles(await waiting.take()) == [1, 2]
    assert [await waiting.take(), await waiting.take()] == [large, close(3)]


async def test_what_comes_in_the_pause_after_a_message_goes_together() -> None:
    began, over = asyncio.Event(), asyncio.Event()

    class Pause(Gap):
        async def wait(self) -> None:
            began.set()
            await over.wait()

    waiting = Outbox(1 << 20, Pause())
    waiting.group_messages_max = 100
    taking = asyncio.ensure_future(waiting.take())
    for handle in range(1, 4):
        waiting.put(close(handle))
        await began.wait()
    assert not taking.done()
    over.set()
    assert handles(await taking) == [1, 2, 3]


async def test_what_nobody_else_waits_with_leaves_at_once() -> None:
    """The first message whose confirmation is waited for needs no pause; the next one waits for
    company while it is not confirmed.
    """
    waiting = Outbox(1 << 20, Gap(HOURS_MS))
    waiting.group_messages_max = 100
    for _ in range(3):
        waiting.expect()
        waiting.put(close(1))
        assert await waiting.take() == close(1)
        waiting.answered()
    waiting.expect()
    waiting.put(close(1))
    await waiting.take()
    waiting.expect()
    waiting.put(close(2))
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(waiting.take(), 0.01)


async def test_a_source_takes_no_group_within_a_group() -> None:
    session = SourceSession(SETTINGS)
    inner = pb.KeeperMessage(group=pb.KeeperGroup())
    with pytest.raises(ConnectionRefused, match="within"):
        session.receive(pb.KeeperMessage(group=pb.KeeperGroup(messages=[inner])))

"""Small translations between values and messages of the ack stream. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from cursorkeeper_client._proto import acks_pb2 as pb
from cursorkeeper_client.ack_stream.groups import GROUP_MESSAGES_MAX
from cursorkeeper_client.values import LayoutItem, LayoutState, Position

PROTOCOL_VERSION = 1


def hello(name: str, incarnation: str, credentials: bytes = b"") -> pb.Hello:
    """The first message of either side."""
    return pb.Hello(
        name=name,
        incarnation=incarnation,
        protocol_versions=[PROTOCOL_VERSION],
        credentials=credentials,
        group_messages_max=GROUP_MESSAGES_MAX,
    )


def position(value: Position) -> pb.Position:
    return pb.Position(ledger=value.ledger, entry=value.entry)


def position_of(message: pb.Position) -> Position:
    return Position(message.ledger, message.entry)


def layout_run(items: Sequence[LayoutItem]) -> pb.LayoutRun:
    return pb.LayoutRun(
        ids=[item.ledger for item in items],
        states=[pb.LedgerLayoutState.Name(int(item.state)) for item in items],
        entries=[item.entries for item in items],
    )


def layout_runs(items: Sequence[LayoutItem], ledgers_max: int) -> list[Sequence[LayoutItem]]:
    """Runs that a keeper takes, one at least; each begins with the last ledger of the one before,
    so none is shorter than two. 0: it takes any.
    """
    if not ledgers_max or len(items) <= ledgers_max:
        return [items]
    length = max(2, ledgers_max)
    return [items[at : at + length] for at in range(0, len(items) - 1, length - 1)]


def layout_of(run: pb.LayoutRun) -> tuple[LayoutItem, ...]:
    """A run of data ledgers as values. ValueError if its columns differ in length."""
    return tuple(
        LayoutItem(i, LayoutState(int(s)), n)
        for i, s, n in zip(run.ids, run.states, run.entries, strict=True)
    )

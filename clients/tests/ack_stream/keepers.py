"""The keepers that the contract of the source side is checked against. A real daemon is added as
another class.
"""

from __future__ import annotations

from typing import Protocol

from clients.tests.ack_stream.fake_keeper import FakeKeeper


class Keeper(Protocol):
    """A keeper that may be killed."""

    @property
    def address(self) -> str:
        """host:port of its `AckSink`; the same over restarts."""
        ...

    async def kill(self) -> None:
        """kill -9."""
        ...

    async def start(self) -> object:
        """Up (again), with what was durable."""
        ...


def fake(*, groups: bool = True) -> FakeKeeper:
    """In memory. Things take a little time, so that they overlap. Release 0.1 knows no groups."""
    keeper = FakeKeeper()
    if not groups:
        keeper.faults.group_messages_max = 0
    keeper.faults.durable_delay_s = 0.002
    return keeper

"""Creating cursor ledgers: a smaller ensemble is for missing bookies alone, and only where it is
wanted and smaller.
"""

from __future__ import annotations

import asyncio
import random

import pytest

from cursorkeeper.bookkeeper.errors import GatewayRetry, Outcome
from cursorkeeper.runtime.ledgers import (
    ASKED_AGAIN_MAX_S,
    TOLD_MAX_S,
    LedgerPolicy,
    Scarcity,
    create,
    custom_metadata,
)
from daemon.tests.fakes.bookkeeper.fake import FakeBookKeeper, FakeGateway
from daemon.tests.fakes.bookkeeper.operation import Operation
from daemon.tests.runtime.virtual import virtual
from daemon.tests.support.world import NAME

METADATA = custom_metadata(NAME, 1, 1, "writer", "deployment")


async def gateway_of(bookkeeper: FakeBookKeeper) -> FakeGateway:
    gateway = bookkeeper.gateway()
    await gateway.start()
    gateway.act_for("deployment")
    return gateway


def missing_bookies() -> GatewayRetry:
    return GatewayRetry("NOT_ENOUGH_BOOKIES", Outcome.NOT_DONE)


@virtual
async def test_with_a_bookie_missing_the_ensemble_is_the_ack_quorum() -> None:
    bookkeeper = FakeBookKeeper(random.Random(1))
    gateway = await gateway_of(bookkeeper)
    ledger, is_shrunk = await create(gateway, LedgerPolicy(), METADATA)
    assert not is_shrunk and bookkeeper.ledgers[ledger].spec == LedgerPolicy().full
    bookkeeper.bookies_up = 2
    ledger, is_shrunk = await create(gateway, LedgerPolicy(), METADATA)
    assert is_shrunk and bookkeeper.ledgers[ledger].spec == LedgerPolicy().smallest


@pytest.mark.parametrize(
    ("policy", "error"),
    [
        (LedgerPolicy(shrink=False), missing_bookies()),
        (LedgerPolicy(ensemble=2, write_quorum=2), missing_bookies()),
        (LedgerPolicy(), GatewayRetry("OVERLOADED", Outcome.NOT_DONE)),
    ],
    ids=["not wanted", "not smaller", "another reason"],
)
@virtual
async def test_otherwise_nothing_is_created(policy: LedgerPolicy, error: GatewayRetry) -> None:
    bookkeeper = FakeBookKeeper(random.Random(1))
    gateway = await gateway_of(bookkeeper)
    bookkeeper.faults.refuse(Operation.CREATE, error)
    with pytest.raises(GatewayRetry, match=error.reason):
        await create(gateway, policy, METADATA)
    assert not bookkeeper.ledgers


@virtual
async def test_where_bookies_are_missing_one_asks_and_the_others_are_told() -> None:
    """Of a thousand who try again every two seconds: what is asked in half a minute, and how soon
    it is noticed that there are enough again.
    """
    scarcity, asked, told = Scarcity(), 0, 0
    for _ in range(15):
        for _ in range(1_000):
            why_not = scarcity.told()
            if why_not is None:
                asked += 1
                scarcity.failed(missing_bookies())
            else:
                assert "NOT_ENOUGH_BOOKIES" in why_not
                told += 1
            await asyncio.sleep(0.002)
    assert told == 15_000 - asked and asked <= 30 / ASKED_AGAIN_MAX_S + 6
    await asyncio.sleep(ASKED_AGAIN_MAX_S)
    assert scarcity.told() is None and scarcity.told() is not None
    scarcity.created()
    assert scarcity.told() is None and scarcity.told() is None


@virtual
async def test_who_asked_and_never_answers_is_asked_again_by_another() -> None:
    scarcity = Scarcity()
    scarcity.failed(missing_bookies())
    await asyncio.sleep(ASKED_AGAIN_MAX_S)
    assert scarcity.told() is None and scarcity.told() is not None
    await asyncio.sleep(ASKED_AGAIN_MAX_S)
    assert scarcity.told() is None


@virtual
async def test_a_gateway_that_is_away_is_asked_by_one_too() -> None:
    scarcity = Scarcity()
    scarcity.failed(GatewayRetry("CONNECTION_LOST", Outcome.UNKNOWN))
    assert "CONNECTION_LOST" in (scarcity.told() or "")
    await asyncio.sleep(ASKED_AGAIN_MAX_S)
    assert scarcity.told() is None and scarcity.told() is not None
    scarcity.created()
    assert scarcity.told() is None


@virtual
async def test_another_failure_is_of_one_request_alone() -> None:
    scarcity = Scarcity()
    scarcity.failed(GatewayRetry("TIMEOUT", Outcome.UNKNOWN))
    assert scarcity.told() is None


@virtual
async def test_failures_on_their_way_at_once_count_as_one() -> None:
    scarcity = Scarcity()
    for _ in range(64):
        scarcity.failed(missing_bookies())
    await asyncio.sleep(0.06)
    assert scarcity.told() is None


@virtual
async def test_what_was_said_long_ago_is_told_to_nobody() -> None:
    """Whoever asked last has ended meanwhile: nothing said that there are enough again."""
    scarcity = Scarcity()
    scarcity.failed(missing_bookies())
    await asyncio.sleep(TOLD_MAX_S + 0.1)
    assert [scarcity.told() for _ in range(3)] == [None] * 3
    scarcity.failed(missing_bookies())
    assert scarcity.told() is not None, "and it begins anew"


@virtual
async def test_where_the_answer_does_not_come_all_ask_again() -> None:
    scarcity = Scarcity()
    scarcity.failed(missing_bookies())
    for _ in range(60):
        await asyncio.sleep(0.1)
        if scarcity.told() is None:
            scarcity.failed(GatewayRetry("TIMEOUT", Outcome.UNKNOWN))
    assert scarcity.told() is None and scarcity.told() is None

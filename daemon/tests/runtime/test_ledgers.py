"""Creating cursor ledgers: a smaller ensemble is for missing bookies alone, and only where it is
wanted and smaller.
"""

from __future__ import annotations

import random

import pytest

from cursorkeeper.bookkeeper.errors import GatewayRetry, Outcome
from cursorkeeper.runtime.ledgers import LedgerPolicy, create, custom_metadata
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

"""The table of failures is complete, and what is lost is never called certain."""

from __future__ import annotations

import grpc
import pytest

from cursorkeeper.bookkeeper._proto import ledgers_pb2 as pb
from cursorkeeper.bookkeeper.errors import (
    BY_REACTION,
    BY_STATUS,
    GatewayRetry,
    GatewayRoll,
    NoSuchLedger,
    Outcome,
    from_status,
)
from cursorkeeper.bookkeeper.transport import of_failure
from daemon.tests.fakes.bookkeeper.operation import Operation


def test_every_status_and_every_reaction_has_a_row() -> None:
    assert {code.name for code in grpc.StatusCode} == set(BY_STATUS)
    assert set(pb.Reaction.keys()) - {"REACTION_UNSPECIFIED"} == set(BY_REACTION)


@pytest.mark.parametrize(
    "status", ["UNAVAILABLE", "DEADLINE_EXCEEDED", "CANCELLED", "INTERNAL", "UNKNOWN", "OK"]
)
@pytest.mark.parametrize("operation", Operation)
def test_a_lost_answer_is_unknown_and_an_append_rolls(operation: Operation, status: str) -> None:
    error = from_status(status, ledger=7, of_append=operation is Operation.APPEND)
    assert error.outcome is Outcome.UNKNOWN and error.ledger == 7 and error.remedy
    assert type(error) is (GatewayRoll if operation is Operation.APPEND else GatewayRetry)


@pytest.mark.parametrize("status", sorted(BY_STATUS))
def test_no_status_makes_an_append_certain(status: str) -> None:
    assert from_status(status, of_append=True).outcome is Outcome.UNKNOWN


def test_a_failure_of_the_gateway_keeps_its_words() -> None:
    failure = pb.Failure(
        bookkeeper_code=-6,
        reaction="RETRY",
        outcome="NOT_DONE",
        reason="NOT_ENOUGH_BOOKIES",
        message="2 of 3",
    )
    error = of_failure(failure, 4)
    assert (type(error), error.outcome, error.reason, error.bookkeeper_code, error.ledger) == (
        GatewayRetry,
        Outcome.NOT_DONE,
        "NOT_ENOUGH_BOOKIES",
        -6,
        4,
    )
    assert "2 of 3" in str(error) and "ensemble" in error.remedy
    gone = pb.Failure(reaction="REFUSED", outcome="NOT_DONE", reason="NO_SUCH_LEDGER")
    assert isinstance(of_failure(gone, 4), NoSuchLedger)


def test_what_a_newer_gateway_says_is_read_carefully() -> None:
    error = of_failure(pb.Failure(reaction=99, outcome=9, reason="NEW"), 1)
    assert type(error) is GatewayRoll and error.outcome is Outcome.UNKNOWN

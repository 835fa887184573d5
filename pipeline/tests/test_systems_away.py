"""Tables whose systems do not answer say which one, where, and what to do; they give no rows and no
empty answer.
"""

from __future__ import annotations

import pytest

from cursorkeeper.demo.stack.ports import free_port
from cursorkeeper.problems import Kind, ProblemError
from cursorkeeper_pipeline.source.checks import Checks
from cursorkeeper_pipeline.source.history import Deltas
from cursorkeeper_pipeline.source.ledgers import Ledgers
from cursorkeeper_pipeline.source.options import Options
from cursorkeeper_pipeline.source.plan import BucketsPart
from cursorkeeper_pipeline.source.pulsar import PulsarCursors, Span, SpansPart
from cursorkeeper_pipeline.source.table import Part, Table

PARTS = [
    (Deltas(), BucketsPart(("000",))),
    (Checks(), BucketsPart(("000",))),
    (Ledgers(), Part()),
    (PulsarCursors(), SpansPart((Span("/x"),))),
]


@pytest.fixture
def nowhere() -> Options:
    address = f"127.0.0.1:{free_port()}"
    return Options.parse(
        {"zookeeper": address, "gateway": address, "table": "ledgers", "waitS": "0.2"}
    )


@pytest.mark.parametrize(("table", "part"), PARTS, ids=lambda x: type(x).__name__)
def test_reading(table: Table, part: Part, nowhere: Options) -> None:
    with pytest.raises(
        ProblemError, match=rf"{nowhere.zookeeper} does not answer.*What to do: "
    ) as told:
        list(table.read(nowhere, part))
    assert told.value.kind is Kind.AWAY


@pytest.mark.parametrize(
    "table", [Deltas(), Checks(), PulsarCursors()], ids=lambda x: type(x).__name__
)
def test_planning(table: Table, nowhere: Options) -> None:
    with pytest.raises(
        ProblemError, match=rf"ZooKeeper at {nowhere.zookeeper} does not answer.*What to do: "
    ):
        table.plan(nowhere)

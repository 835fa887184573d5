"""The report of the demo on real brokers: what its JSON line says and when it is good."""

from __future__ import annotations

import io
import json
from dataclasses import replace

import pytest
from rich.console import Console

from tools.brokers.report import Half, Report, large
from tools.brokers.traffic import Consumed, Counted

STOCK = Half(4, 9, Consumed(195_800, 19.58, 1.5, 9.5), Counted(149_853, 4_200, 0))
OURS = Half(4, 10, Consumed(195_800, 21.756, 12.5, 30.5), Counted(0, 4_200, 0))


def counted(half: Half, **changed: int) -> Half:
    return replace(half, counted=replace(half.counted, **changed))


def test_the_json_line_of_both() -> None:
    line = json.loads(Report("4.2.4", 200_000, STOCK, OURS).json_line())
    assert line["acked"] == 195_800
    assert (
        line["redelivered_without"],
        line["redelivered_with"],
        line["unacked_not_delivered"],
    ) == (149_853, 0, 0)
    assert line["throughput_ratio"] == 0.9
    assert (line["receipt_ms_p50"], line["receipt_ms_p99"]) == (12.5, 30.5)
    assert (line["stock_receipt_ms_p50"], line["stock_receipt_ms_p99"]) == (1.5, 9.5)


def test_what_is_not_known_without_the_plugin_is_null() -> None:
    line = json.loads(Report("4.2.4", 200_000, STOCK).json_line())
    assert [name for name, value in line.items() if value is None] == [
        "redelivered_with",
        "throughput_ratio",
        "receipt_ms_p50",
        "receipt_ms_p99",
    ]


@pytest.mark.parametrize(
    ("broker", "field", "good"),
    [
        ("without", "confirmed_again", True),
        ("plugin", "confirmed_again", False),
        ("without", "unacked_not_delivered", False),
        ("plugin", "unacked_not_delivered", False),
    ],
)
def test_when_it_is_good(broker: str, field: str, good: bool) -> None:
    """A broker alone may deliver confirmed messages again: that is what is shown. Nothing un-acked
    may be missing.
    """
    halves = {"without": STOCK, "plugin": OURS}
    halves[broker] = counted(halves[broker], **{field: 1})
    assert Report("4.2.4", 200_000, **halves).is_good is good


def page(report: Report) -> str:
    out = io.StringIO()
    report.show(Console(file=out, width=80))
    return out.getvalue()


def test_the_page_has_both_numbers_large_beside_each_other_in_80_columns() -> None:
    lines = page(Report("4.2.4", 200_000, STOCK, OURS, 171.0)).splitlines()
    assert max(map(len, lines)) <= 80
    for stock, ours in zip(large("149,853"), large("0"), strict=True):
        assert any(stock in line and ours in line.split(stock)[1] for line in lines)


def test_a_row_of_the_page_is_one_line() -> None:
    lines = page(Report("4.2.4", 200_000, STOCK, OURS, 171.0)).splitlines()
    assert len([line for line in lines if line.count("4,200 of 4,200") == 2]) == 1
    assert (
        len(
            [line for line in lines if "Pulsar 4.2.4, 200,000 messages" in line and "171 s" in line]
        )
        == 1
    )


def test_the_page_says_what_went_wrong() -> None:
    assert "Every confirmed ack survived" in page(Report("4.2.4", 200_000, STOCK, OURS))
    assert "CONFIRMED MESSAGES WERE DELIVERED AGAIN" in page(
        Report("4.2.4", 200_000, STOCK, counted(OURS, confirmed_again=1))
    )
    assert "UN-ACKED MESSAGES WERE NOT DELIVERED" in page(
        Report("4.2.4", 200_000, counted(STOCK, unacked_not_delivered=1), OURS)
    )


def test_what_is_not_delivered_is_counted_of_both() -> None:
    stock, ours = counted(STOCK, unacked_not_delivered=2), counted(OURS, unacked_not_delivered=3)
    assert (
        json.loads(Report("4.2.4", 200_000, stock, ours).json_line())["unacked_not_delivered"] == 5
    )


def test_the_page_of_the_broker_as_it_is_alone() -> None:
    assert large("149,853")[0] in page(Report("4.2.4", 200_000, STOCK))

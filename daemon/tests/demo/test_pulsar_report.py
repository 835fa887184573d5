"""The report of the demo on real brokers: what its JSON line says and when it is good."""

from __future__ import annotations

import io
import json
from dataclasses import replace

import pytest
from cursorkeeper.demo.pulsar.report import Half, Report, large
from rich.console import Console

STOCK = Half(data_ledgers=4, acked=195_800, acks_per_second=10_000, receipt_ms_p50=1.5, receipt_ms_p99=9.5, restart_seconds=9,
             redelivered=149_853, unacked=4_200, unacked_not_delivered=0)  # fmt: skip
OURS = Half(data_ledgers=4, acked=195_800, acks_per_second=9_000, receipt_ms_p50=12.5, receipt_ms_p99=30.5, restart_seconds=10,
            redelivered=0, unacked=4_200, unacked_not_delivered=0)  # fmt: skip


def test_the_json_line_of_both() -> None:
    line = json.loads(Report("4.2.4", 200_000, STOCK, OURS).json_line())
    assert line["acked"] == 195_800
    assert (line["redelivered_without"], line["redelivered_with"], line["unacked_not_delivered"]) == (149_853, 0, 0)
    assert line["throughput_ratio"] == 0.9
    assert (line["receipt_ms_p50"], line["receipt_ms_p99"]) == (12.5, 30.5)
    assert (line["stock_receipt_ms_p50"], line["stock_receipt_ms_p99"]) == (1.5, 9.5)


def test_what_is_not_known_without_the_plugin_is_null() -> None:
    line = json.loads(Report("4.2.4", 200_000, STOCK).json_line())
    assert [name for name, value in line.items() if value is None] == [
        "redelivered_with", "throughput_ratio", "receipt_ms_p50", "receipt_ms_p99",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("broker", "field", "good"),
    [("without", "redelivered", True), ("plugin", "redelivered", False), ("without", "unacked_not_delivered", False),
     ("plugin", "unacked_not_delivered", False)],
)  # fmt: skip
def test_when_it_is_good(broker: str, field: str, good: bool) -> None:
    """A broker alone may deliver confirmed messages again: that is what is shown. Nothing un-acked may be missing."""
    halves = {"without": replace(STOCK), "plugin": replace(OURS)}
    halves[broker] = replace(halves[broker], **{field: 1})
    assert Report("4.2.4", 200_000, **halves).is_good is good


def test_the_page_has_both_numbers_large() -> None:
    out = io.StringIO()
    Report("4.2.4", 200_000, STOCK, OURS).show(Console(file=out, width=120))
    page = out.getvalue()
    for number in ("149,853", "0"):
        assert all(line in page for line in large(number))

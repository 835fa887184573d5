"""What the play found: one value, a page with two large numbers, and one JSON line.

Words: a *redelivery* is of a message whose ack was not confirmed, and is right; a *duplicate* is of
one whose ack was.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
from rich.columns import Columns
from rich.console import Console, Group
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from tools.brokers.traffic import Consumed, Counted

DIGITS = (
    "███  █  ███ ███ █ █ ███ ███ ███ ███ ███",
    "█ █ ██    █   █ █ █ █   █     █ █ █ █ █",
    "█ █  █  ███ ███ ███ ███ ███   █ ███ ███",
    "█ █  █  █     █   █   █ █ █   █ █ █   █",
    "███ ███ ███ ███   █ ███ ███   █ ███ ███",
)
COMMA = "    ▞"


@dataclass(frozen=True, slots=True)
class Half:
    """One broker. Counts are of messages."""

    data_ledgers: int
    restart_seconds: float
    consumed: Consumed
    counted: Counted

    @property
    def acks_per_second(self) -> float:
        return self.consumed.acked / self.consumed.seconds


@dataclass(slots=True)
class Report:
    """`without` is always there when the play has ended; `plugin` only if its jar was."""

    version: str
    messages: int
    without: Half | None = None
    plugin: Half | None = None
    seconds: float = 0.0

    @property
    def is_good(self) -> bool:
        """Nothing un-acked is missing anywhere, and with the plugin nothing confirmed came
        again.
        """
        return (
            self.without is not None
            and not self.unacked_not_delivered
            and not (self.plugin and self.plugin.counted.confirmed_again)
        )

    @property
    def unacked_not_delivered(self) -> int:
        return sum(
            half.counted.unacked_not_delivered
            for half in (self.without, self.plugin)
            if half is not None
        )

    @property
    def throughput_ratio(self) -> float | None:
        """With the plugin to without, in messages received and acked a second. Of two short runs on
        a machine that does all else, too.
        """
        if self.without is None or self.plugin is None:
            return None
        return self.plugin.acks_per_second / self.without.acks_per_second

    def json_line(self) -> str:
        """Without the plugin, what is only known with it is null."""
        stock, ours = self.without, self.plugin
        assert stock is not None
        last = ours or stock
        ratio = self.throughput_ratio
        return msgspec.json.encode(
            {
                "version": self.version,
                "messages": self.messages,
                "data_ledgers": last.data_ledgers,
                "seconds": round(self.seconds, 1),
                "acked": last.consumed.acked,
                "redelivered_without": stock.counted.confirmed_again,
                "redelivered_with": ours and ours.counted.confirmed_again,
                "unacked_not_delivered": self.unacked_not_delivered,
                "throughput_ratio": ratio and round(ratio, 3),
                "receipt_ms_p50": ours and ours.consumed.receipt_ms_p50,
                "receipt_ms_p99": ours and ours.consumed.receipt_ms_p99,
                "stock_receipt_ms_p50": stock.consumed.receipt_ms_p50,
                "stock_receipt_ms_p99": stock.consumed.receipt_ms_p99,
            }
        ).decode()

    def show(self, console: Console) -> None:
        """Prints the page, which fits into 80 columns."""
        halves = [("Pulsar as it is", self.without), ("with CursorKeeper", self.plugin)]
        shown = [(title, half) for title, half in halves if half is not None]
        numbers = [_number(title, half.counted.confirmed_again) for title, half in shown]
        question = Text(
            f"{shown[0][1].consumed.acked:,} acks confirmed, then kill -9 of the broker. "
            f"Delivered again:",
            style="bold",
        )
        table = Table(box=None, padding=(0, 2, 0, 0))
        table.add_column("", style="dim")
        for title, _ in shown:
            table.add_column(title, justify="right")
        for name, values in _lines([half for _, half in shown]):
            table.add_row(name, *values)
        note = Text(
            f"Pulsar {self.version}, {self.messages:,} messages, real ZooKeeper and bookies; "
            f"{self.seconds:.0f} s",
            style="dim",
        )
        page = Group(
            question, Text(""), Columns(numbers, padding=(0, 6)), Text(""), table, Text(""), note
        )
        border = "green" if self.is_good and self.plugin else "red"
        console.print(
            Panel(page, title=self._title(), border_style=border, expand=False, padding=(1, 2))
        )

    def _title(self) -> str | None:
        if self.unacked_not_delivered:
            return "UN-ACKED MESSAGES WERE NOT DELIVERED"
        if self.plugin is None:
            return None
        return (
            "CONFIRMED MESSAGES WERE DELIVERED AGAIN"
            if self.plugin.counted.confirmed_again
            else "Every confirmed ack survived"
        )


def _number(title: str, count: int) -> Group:
    style = "bold green" if count == 0 else "bold red"
    return Group(Text(title), *(Text(line, style=style) for line in large(f"{count:,}")))


def large(text: str) -> list[str]:
    """Five lines for digits and commas."""
    return [
        " ".join(
            comma if letter == "," else row[4 * int(letter) : 4 * int(letter) + 3]
            for letter in text
        )
        for row, comma in zip(DIGITS, COMMA, strict=True)
    ]


def _lines(halves: list[Half]) -> list[tuple[str, list[str]]]:
    return [
        (
            "un-acked, and delivered again",
            [
                f"{h.counted.unacked - h.counted.unacked_not_delivered:,} of {h.counted.unacked:,}"
                for h in halves
            ],
        ),
        ("messages acked a second", [f"{h.acks_per_second:,.0f}" for h in halves]),
        ("receipt of an ack, p50", [f"{h.consumed.receipt_ms_p50:.1f} ms" for h in halves]),
        ("receipt of an ack, p99", [f"{h.consumed.receipt_ms_p99:.1f} ms" for h in halves]),
        ("data ledgers of the topic", [f"{h.data_ledgers}" for h in halves]),
        ("broker back after", [f"{h.restart_seconds:.1f} s" for h in halves]),
    ]

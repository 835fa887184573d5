"""What the demo found: one value, a page a person enjoys reading, and one JSON line."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec
from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text


@dataclass(slots=True)
class Report:
    """Of the bad case. Times in the unit of the name; bytes are stored bytes in BookKeeper, one
    copy.
    """

    entries: int = 0
    data_ledgers: int = 0
    acked: int = 0
    confirmed: int = 0
    confirmed_but_lost: int = 0
    unacked_but_skipped: int = 0
    kills: list[str] = field(default_factory=list)
    flushes: int = 0
    flush_bytes_p50: int = 0
    flush_bytes_p99: int = 0
    bytes_per_ack: float = 0.0
    ack_to_durable_ms_p50: float = 0.0
    ack_to_durable_ms_p99: float = 0.0
    longest_outage_s: float = 0.0
    acks_per_second: float = 0.0
    acks_per_second_without_outages: float = 0.0
    snapshots: int = 0
    snapshot_bytes: int = 0
    recovery_seconds: float = 0.0
    pulsar_long_array_bytes: int = 0
    seconds: float = 0.0

    @property
    def is_good(self) -> bool:
        """Nothing confirmed is lost, nothing un-acked is skipped."""
        return self.confirmed_but_lost == 0 and self.unacked_but_skipped == 0 and self.confirmed > 0

    def json_line(self) -> str:
        return msgspec.json.encode(self).decode()

    def show(self, console: Console) -> None:
        verdict = Text()
        for name, count in (
            ("confirmed but lost", self.confirmed_but_lost),
            ("un-acked but skipped", self.unacked_but_skipped),
        ):
            style = "bold red" if count else "bold green"
            verdict.append(f"  {name:<26}").append(f"{count:>12,}\n", style)
        table = Table.grid(padding=(0, 2))
        table.add_column(style="dim")
        table.add_column(justify="right")
        table.add_column(style="dim")
        for name, value, note in self._lines():
            table.add_row(name, value, note)
        title = "Every confirmed ack survived" if self.is_good else "ACKS WERE LOST OR SKIPPED"
        console.print(_panel(self.is_good, title, verdict, table))

    def _lines(self) -> list[tuple[str, str, str]]:
        per_flush = max(1, self.flush_bytes_p50)
        return [
            ("backlog", f"{self.entries:,}", f"entries in {self.data_ledgers:,} data ledgers"),
            (
                "acked, confirmed",
                f"{self.acked:,}",
                f"{self.confirmed:,} confirmed before the last kill",
            ),
            ("killed with SIGKILL", str(len(self.kills)), ", ".join(self.kills)),
            (
                "acks a second",
                f"{self.acks_per_second_without_outages:,.0f}",
                f"{self.acks_per_second:,.0f} with the outages counted",
            ),
            (
                "ack to durable",
                f"{self.ack_to_durable_ms_p50:.1f} ms",
                f"p99 {self.ack_to_durable_ms_p99:.1f} ms; longest outage "
                f"{self.longest_outage_s:.1f} s",
            ),
            (
                "flushes",
                f"{self.flushes:,}",
                f"{size(self.flush_bytes_p50)} each, p99 {size(self.flush_bytes_p99)}",
            ),
            ("bytes per ack", f"{self.bytes_per_ack:.3f}", "deltas and snapshots, one copy"),
            ("snapshot", size(self.snapshot_bytes), f"{self.snapshots} taken while acks flowed"),
            (
                "recovery",
                f"{self.recovery_seconds:.2f} s",
                "claim, fence, read and check everything",
            ),
            (
                "Pulsar's long array",
                size(self.pulsar_long_array_bytes),
                f"rewritten at every flush, {self.pulsar_long_array_bytes / per_flush:,.0f} "
                f"times ours",
            ),
        ]


@dataclass(slots=True)
class TraceReport:
    acks: int = 0
    topics: int = 0
    confirmed: int = 0
    kills: list[str] = field(default_factory=list)
    entries_equal: dict[str, int] = field(default_factory=dict)
    """Topic -> acked entries, equal to Pulsar's own cursor."""
    partial_batches_equal: dict[str, int] = field(default_factory=dict)
    differences: list[str] = field(default_factory=list)
    recovery_seconds: float = 0.0
    seconds: float = 0.0
    trace_equal: bool = False

    @property
    def is_good(self) -> bool:
        return self.trace_equal

    def json_line(self) -> str:
        """One line; ends with `trace_equal`."""
        return msgspec.json.encode(self).decode()

    def show(self, console: Console) -> None:
        table = Table(box=None, padding=(0, 2))
        table.add_column("recorded topic", style="dim")
        table.add_column("acked entries", justify="right")
        table.add_column("partly acked batches", justify="right")
        table.add_column("")
        for topic, count in self.entries_equal.items():
            table.add_row(
                topic,
                f"{count:,}",
                f"{self.partial_batches_equal.get(topic, 0):,}",
                Text("equal", style="green"),
            )
        for line in self.differences[:10]:
            table.add_row(Text(line, style="red"), "", "", "")
        note = (
            f"{self.acks:,} recorded acks of real Pulsar consumers, {len(self.kills)} kills, "
            f"recovery {self.recovery_seconds:.2f} s"
        )
        title = (
            "Equal to Pulsar's own cursor" if self.trace_equal else "NOT EQUAL TO PULSAR'S CURSOR"
        )
        console.print(_panel(self.is_good, title, Text(note), Text(""), table))


def _panel(is_good: bool, title: str, *parts: RenderableType) -> Panel:
    style = "green" if is_good else "red"
    return Panel(Group(*parts), title=title, border_style=style, expand=False)


def size(count: float) -> str:
    """Bytes for people."""
    for unit in ("B", "KB", "MB", "GB"):
        if count < 1000 or unit == "GB":
            return f"{count:,.0f} {unit}" if unit == "B" else f"{count:,.1f} {unit}"
        count /= 1000
    raise AssertionError

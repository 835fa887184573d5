"""For who reads or draws the suite's results: every figure by name, in the lines of the plots.

A result is flat JSON. A line of a plot is one key for each of its points, `NAME_POINT`, and the
baselines of a plot are lines beside ours, measured in the same run. What others have published was
not measured here: it is in `PUBLISHED`, with its source.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum

Value = float | int | str
Result = Mapping[str, Value]

HEADLINE = "bytes_per_flush_1000_uniform_100M"
"""Bytes that one flush of 1,000 acks, uniform over a backlog of 100 M entries, writes to
BookKeeper, for each replica.
"""
ABOUT = ("run", "date", "version", "platform", "cores", "load_before", "seconds", "left_out")
"""Which run it was: texts, the load of the machine before it (of one minute), its seconds, and the
cases that are missing with the reason of each, empty if none is.
"""
BACKLOGS = {"1M": 1_000_000, "10M": 10_000_000, "100M": 100_000_000, "1B": 1_000_000_000}
SIZES = {str(size): size for size in (100, 1_000, 4_000, 16_000)}
CURSORS = {str(count): count for count in (100, 300, 1_000, 3_000, 10_000)}
SHARES = {f"p{share:02}": share / 100 for share in (1, 5, 10, 25, 50, 75, 90, 95, 99)}


class Kind(Enum):
    """Whose a line is: this daemon as it is, the same daemon with `format = "pulsar"`, BookKeeper
    through the gateway without a daemon.
    """

    OURS = "ours"
    WHOLE = "whole state"
    RAW = "raw"


@dataclass(frozen=True, slots=True)
class Line:
    """`points`: by their names, where they are on the x axis, or on the y axis of a
    distribution.
    """

    name: str
    label: str
    kind: Kind
    points: Mapping[str, float]
    is_check: bool = False
    """Measured on the whole stack, beside a line that the encoder alone gave."""

    def of(self, result: Result) -> dict[str, float]:
        """The values of a result, by point; those that were left out are missing."""
        found = {point: result.get(self.key(point)) for point in self.points}
        return {point: value for point, value in found.items() if isinstance(value, float | int)}

    def key(self, point: str) -> str:
        return f"{self.name}_{point}"


@dataclass(frozen=True, slots=True)
class Published:
    """What others have published. `is_line`: it is drawn all along the x axis; else it belongs to a
    place far to the left of it.
    """

    plot: str
    label: str
    value: float
    source: str
    is_line: bool = True


@dataclass(frozen=True, slots=True)
class Plot:
    name: str
    title: str
    x: str
    y: str
    unit: str
    lines: tuple[Line, ...]
    note: str = ""
    level: tuple[str, str] = ("", "")
    """A figure of another plot that is drawn all along the x axis, and its label."""
    is_distribution: bool = False


PLOTS = (
    Plot(
        "flush_bytes",
        "What one flush of 1,000 acks writes to BookKeeper",
        "backlog, entries",
        "bytes",
        "B",
        (
            Line("bytes_per_flush_1000_uniform", "CursorKeeper", Kind.OURS, BACKLOGS),
            Line("pulsar_bytes_per_flush", "Pulsar's whole state", Kind.WHOLE, BACKLOGS),
            Line("pulsar_zstd_bytes_per_flush", "whole state with ZSTD", Kind.WHOLE, BACKLOGS),
            Line(
                "pulsar_zstd_few_holes_bytes_per_flush",
                "with ZSTD, 0.1 % holes",
                Kind.WHOLE,
                BACKLOGS,
            ),
            Line("stack_bytes_per_flush", "CursorKeeper, stack", Kind.OURS, BACKLOGS, True),
            Line("stack_pulsar_bytes_per_flush", "whole state, stack", Kind.WHOLE, BACKLOGS, True),
        ),
        "lines: the encoders on a state in memory, 10 % holes unless another share is named; "
        "circles: the real stack",
    ),
    Plot(
        "recovery",
        "After kill -9 of the daemon: opening, until a source has the state",
        "backlog, entries",
        "milliseconds",
        "ms",
        (
            Line("recovery_ms", "CursorKeeper", Kind.OURS, BACKLOGS),
            Line("pulsar_recovery_ms", "whole state", Kind.WHOLE, BACKLOGS),
            Line("raw_read_ms", "raw read of our bytes", Kind.RAW, BACKLOGS),
        ),
        "10 % of the backlog are holes",
    ),
    Plot(
        "acks_per_second",
        "Acks a second of one cursor, from the stream to durable",
        "acks in a message",
        "acks/s",
        "/s",
        (
            Line("acks_per_s", "CursorKeeper", Kind.OURS, SIZES),
            Line("pulsar_acks_per_s", "whole state", Kind.WHOLE, SIZES),
            Line("raw_acks_per_s", "raw adds, one a message", Kind.RAW, SIZES),
        ),
    ),
    Plot(
        "cursors",
        "Many cursors, each with a message of 100 acks a second: to durable, p99",
        "cursors",
        "milliseconds",
        "ms",
        (
            Line("cursors_p99_ms", "CursorKeeper", Kind.OURS, CURSORS),
            Line("cursors_p50_ms", "CursorKeeper, p50", Kind.OURS, CURSORS, True),
            Line("pulsar_cursors_p99_ms", "whole state", Kind.WHOLE, CURSORS),
        ),
        "the whole state is written once a second at most, as Pulsar is shipped",
        ("raw_add_ms_p99", "a raw add, one at a time, p99"),
    ),
    Plot(
        "latency",
        "Light load: from an ack to durable",
        "milliseconds",
        "share of acks",
        "ms",
        (
            Line("ack_ms", "CursorKeeper, 1 ack", Kind.OURS, SHARES),
            Line("flush_1000_ms", "CursorKeeper, 1,000 acks", Kind.OURS, SHARES, True),
            Line("pulsar_flush_1000_ms", "whole state, 1,000 acks", Kind.WHOLE, SHARES),
            Line("raw_add_ms", "raw add", Kind.RAW, SHARES),
        ),
        is_distribution=True,
    ),
)

PUBLISHED = (
    Published(
        "flush_bytes",
        "Kafka share group, 2,000 records in flight: an update",
        154,
        "KIP-1349 (2026), mean on a local cluster of Kafka 4.3.0; 2,000 is the default of "
        "group.share.partition.max.record.locks",
        is_line=False,
    ),
    Published(
        "acks_per_second",
        "RabbitMQ 4.0, one quorum queue",
        83_181,
        "RabbitMQ's blog, AMQP 1.0 Benchmarks (2024-08-21): 4.0.0-beta.5, one node, messages of "
        "12 B sent and accepted",
    ),
)

RATIOS = {
    "ratio_flush_bytes_of_whole_state_100M": (HEADLINE, "pulsar_bytes_per_flush_100M"),
    "ratio_ack_p50_of_raw_add": ("ack_ms_p50", "raw_add_ms_p50"),
    "ratio_ack_p99_of_raw_add": ("ack_ms_p99", "raw_add_ms_p99"),
    "ratio_recovery_of_raw_read_10M": ("recovery_ms_10M", "raw_read_ms_10M"),
    "ratio_recovery_of_raw_read_100M": ("recovery_ms_100M", "raw_read_ms_100M"),
    "ratio_acks_per_s_1000_of_raw_adds": ("acks_per_s_1000", "raw_acks_per_s_1000"),
    "ratio_cursors_1000_p99_of_raw_add_p99": ("cursors_p99_ms_1000", "raw_add_ms_p99"),
}
"""Of two figures of one run: what a busy machine leaves alone, more or less."""


def point_name(point: str) -> str:
    """For people."""
    return f"{int(point):,}" if point.isdigit() else point


def keys() -> Iterator[str]:
    """Every figure that a result may have."""
    for plot in PLOTS:
        for line in plot.lines:
            yield from map(line.key, line.points)
    yield from RATIOS


def ratios(result: Result) -> dict[str, float]:
    """Those whose two figures were measured."""
    found = {}
    for name, (figure, baseline) in RATIOS.items():
        over, under = result.get(figure), result.get(baseline)
        if isinstance(over, float | int) and isinstance(under, float | int) and under:
            found[name] = over / under
    return found

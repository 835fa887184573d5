"""The report's plots as SVG text, for one page. Needs matplotlib.

Owns what is drawn. The same numbers make the same bytes.
"""

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

Facts = Mapping[str, Any]
PULSAR, OURS, QUIET = "#c0392b", "#1e8449", "#5d6d7e"
LIMIT_COLOURS = {
    "entryCap": "#c0392b",
    "rangeCap": "#d35400",
    "batchCap": "#8e44ad",
    "frame": "#7b241c",
    "none": "#aeb6bf",
}
LIMIT_WORDS = {
    "entryCap": "cap of the long array",
    "rangeCap": "cap of the range list",
    "batchCap": "cap of partly acked batches",
    "frame": "largest BookKeeper entry",
    "none": "nothing to store",
}
NAME_MAX = 28
BARS_MAX = 12
_STYLE: Any = {
    "svg.hashsalt": "cursorkeeper",
    "svg.fonttype": "none",
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
}
_PROLOGUE = re.compile(r"^.*?(?=<svg)", re.DOTALL)
_METADATA = re.compile(r"<metadata>.*?</metadata>", re.DOTALL)


def forecast(tenants: Sequence[Facts]) -> str:
    """Entries delivered again by tenant with Pulsar alone: bar = estimate, line = bounds. "" if
    there are none.
    """
    rows = _largest(tenants, "redeliveredAtMost")
    if not rows:
        return ""
    middle = [row["redeliveredEstimate"] for row in rows]
    spread = [
        [m - row["redeliveredAtLeast"] for m, row in zip(middle, rows, strict=True)],
        [row["redeliveredAtMost"] - m for m, row in zip(middle, rows, strict=True)],
    ]
    with mpl.rc_context(_STYLE):
        figure, panel = _bars(rows, middle, xerr=spread, color=PULSAR, ecolor=QUIET, capsize=3)
        panel.set_xscale(
            "symlog", linscale=1.0, linthresh=max(1.0, min(m for m in (*middle, 1e9) if m) / 10)
        )
        panel.set_xlim(left=0)
        panel.set_xlabel(
            "finished messages that Pulsar alone would deliver again (bar: estimate, line: "
            "bounds). CursorKeeper: 0"
        )
        return _svg(figure, "finished messages delivered again, by tenant")


def limits(histogram: Sequence[Facts]) -> str:
    """Cursors by their share of the nearest limit."""
    names = [
        name for name in LIMIT_COLOURS if any(name in bucket["cursors"] for bucket in histogram)
    ]
    if not names:
        return ""
    labels, low = [], 0.0
    for bucket in histogram:
        labels.append("over" if bucket["upTo"] is None else f"{low:.0%} to {bucket['upTo']:.0%}")
        low = bucket["upTo"] or low
    with mpl.rc_context(_STYLE):
        figure, panel = _figure(3.2)
        # side by side: parts of a stack mean nothing on a logarithmic scale
        width = 0.85 / len(names)
        for at, name in enumerate(names):
            counts = [bucket["cursors"].get(name, 0) for bucket in histogram]
            places = [
                bucket + (at - (len(names) - 1) / 2) * width for bucket in range(len(histogram))
            ]
            bars = panel.bar(
                places, counts, width=width, color=LIMIT_COLOURS[name], label=LIMIT_WORDS[name]
            )
            panel.bar_label(
                bars, labels=[f"{count:,}" if count else "" for count in counts], fontsize=8
            )
        panel.set_xticks(range(len(labels)), labels)
        panel.set_yscale("symlog", linthresh=1)
        panel.set_ylim(
            0, 3 * max(max(bucket["cursors"].values(), default=0) for bucket in histogram)
        )
        panel.set_xlabel("share of the nearest limit that is used")
        panel.set_ylabel("cursors")
        figure.legend(loc="outside upper center", ncols=len(names), frameon=False)
        return _svg(figure, "cursors by their share of the nearest limit")


def sizes(rows: Sequence[Facts], frame_bytes: int) -> str:
    """Mean bytes of a state over its backlog, in each form; bars below: how many cursors."""
    decades = sorted({row["backlogDecade"] for row in rows if row["backlogDecade"] >= 0})
    if not decades:
        return ""
    grouped = {
        decade: [row for row in rows if row["backlogDecade"] == decade] for decade in decades
    }
    cursors = [sum(row["cursors"] for row in grouped[d]) for d in decades]
    forms = (
        ("longArrayBytes", "Pulsar, long array", PULSAR),
        ("rangesBytes", "Pulsar, ranges", "#d35400"),
        ("cursorkeeperBytes", "CursorKeeper, snapshot", OURS),
    )
    with mpl.rc_context(_STYLE):
        figure, panel = _figure(3.6)
        for key, label, colour in forms:
            mean = [
                sum(row[key] for row in grouped[d]) / n
                for d, n in zip(decades, cursors, strict=True)
            ]
            panel.plot(
                decades,
                mean,
                marker="o",
                label=label,
                color=colour,
                linewidth=2.5 if colour == OURS else 1.3,
            )
        panel.axhline(
            frame_bytes,
            color="black",
            linewidth=0.8,
            linestyle=":",
            label="largest BookKeeper entry",
        )
        panel.set_yscale("log")
        panel.set_xticks(
            decades,
            [
                f"{_short(10**d)} to {_short(10 ** (d + 1))}\n{n:,} cursor{'' if n == 1 else 's'}"
                for d, n in zip(decades, cursors, strict=True)
            ],
        )
        panel.set_xlabel("backlog, entries")
        panel.set_ylabel("bytes per cursor, mean")
        panel.grid(visible=True, axis="y", linewidth=0.3)
        panel.legend(frameon=False)
        return _svg(figure, "bytes of a state over its backlog")


def growth(tenants: Sequence[Facts]) -> str:
    """Holes per day by tenant."""
    rows = _largest(tenants, "holesPerDay")
    if not rows:
        return ""
    values = [row["holesPerDay"] for row in rows]
    with mpl.rc_context(_STYLE):
        figure, panel = _bars(rows, values, color=[PULSAR if v > 0 else OURS for v in values])
        panel.axvline(0, color="black", linewidth=0.8)
        panel.set_xlabel("un-acked entries between acked ones, more (or fewer) per day")
        return _svg(figure, "holes per day, by tenant")


def _largest(tenants: Sequence[Facts], key: str) -> list[Facts]:
    """The first ones that have something, the last of them first, as bars are drawn."""
    return [row for row in tenants if row[key]][:BARS_MAX][::-1]


def _bars(rows: Sequence[Facts], values: Sequence[float], **drawn: Any) -> tuple[Figure, Any]:
    """A bar for each tenant."""
    figure, panel = _figure(0.9 + 0.38 * len(rows))
    panel.barh([_name(row["tenant"]) for row in rows], values, height=0.6, **drawn)
    return figure, panel


def _figure(height: float) -> tuple[Figure, Any]:
    figure = Figure(figsize=(9, height), layout="constrained")
    return figure, figure.subplots()


def _svg(figure: Figure, title: str) -> str:
    out = io.StringIO()
    figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None, "Title": title})
    text = _METADATA.sub("", _PROLOGUE.sub("", out.getvalue()))
    return text.replace(
        "<svg ", f'<svg role="img" aria-label="{title}" style="max-width:100%;height:auto" ', 1
    )


def _name(text: str) -> str:
    """Never mathtext, never a second line."""
    plain = "".join(c if c.isprintable() else "?" for c in text).replace("$", r"\$")
    return plain if len(plain) <= NAME_MAX else plain[: NAME_MAX - 1] + "…"


def _short(count: int) -> str:
    for unit, letter in ((10**9, "G"), (10**6, "M"), (10**3, "k")):
        if count >= unit:
            return f"{count // unit}{letter}"
    return str(count)

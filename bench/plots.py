"""`python -m bench.plots RESULT.json`: the plots of one result of the suite, as SVG for pages.

Deterministic: the same result makes the same bytes. On white, so that a dark page can show them;
text is text. Needs matplotlib, which only who works on this repository has.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator, PercentFormatter

from bench.figures import BACKLOGS, HEADLINE, PLOTS, PUBLISHED, Kind, Plot, Result, point_name

INK, FAINT = "#222222", "#d5d5d5"
COLOURS = {Kind.OURS: "#3949ab", Kind.WHOLE: "#c2410c", Kind.RAW: "#6b7280"}
PUBLISHED_COLOUR = "#15803d"
DASHES = ("solid", (0, (5, 2)), (0, (1.5, 1.5)))
STYLE: Mapping[Any, Any] = {
    "svg.hashsalt": "cursorkeeper",
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans", "Helvetica", "Arial", "sans-serif"],
    "font.size": 9.5,
    "text.color": INK,
    "axes.edgecolor": FAINT,
    "axes.labelcolor": INK,
    "axes.titlesize": 11,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#ececec",
    "xtick.color": INK,
    "ytick.color": INK,
}
SIZE_INCHES = (7.8, 4.3)
NO_METADATA = dict.fromkeys(("Date", "Creator", "Format", "Type"))
LABELS_APART = 0.052
"""Of the height of the axes, so that names beside lines do not overlap."""
ONE_ENTRY_BYTES = 5 << 20
"""The largest entry that bookies take unless they are told otherwise."""


def draw(result: Result, folder: Path) -> list[Path]:
    """The files; a plot of which nothing was measured is none of them, and its old file goes."""
    files = []
    folder.mkdir(parents=True, exist_ok=True)
    for plot in PLOTS:
        file = folder / f"{plot.name}.svg"
        file.unlink(missing_ok=True)
        if not any(line.of(result) for line in plot.lines):
            continue
        with mpl.rc_context(dict(STYLE)):
            figure = Figure(figsize=SIZE_INCHES, layout="constrained")
            _draw(figure.add_subplot(), plot, result)
            _notes(figure, plot, result)
            figure.savefig(file, metadata=NO_METADATA)
        files.append(file)
    return files


def _draw(axes: Axes, plot: Plot, result: Result) -> None:
    axes.set(xlabel=plot.x, ylabel=plot.y, xscale="log")
    axes.set_title(plot.title, weight="bold")
    ends: list[tuple[float, str, str]] = []
    styles = dict.fromkeys(Kind, 0)
    for line in plot.lines:
        values = line.of(result)
        if not values:
            continue
        colour = COLOURS[line.kind]
        where, measured = [line.points[point] for point in values], list(values.values())
        if line.is_check and plot.name == "flush_bytes":
            axes.plot(where, measured, "o", markersize=9, color=colour, markerfacecolor="none")
            continue
        axes.plot(
            *((measured, where) if plot.is_distribution else (where, measured)),
            label=line.label,
            color=colour,
            linestyle=DASHES[styles[line.kind]],
            marker="" if plot.is_distribution else "o",
            markersize=4,
            linewidth=1.6 if line.kind is not Kind.OURS or styles[line.kind] else 2.6,
        )
        styles[line.kind] += 1
        ends.append((measured[-1], f"{line.label}, {amount(measured[-1], plot.unit)}", colour))
    axes.xaxis.set_minor_locator(NullLocator())
    if plot.is_distribution:
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.xaxis.set_major_formatter(_written(plot.unit))
        axes.set_ylim(0, 1)
        axes.yaxis.set_major_formatter(PercentFormatter(1, 0))
        axes.legend(frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=8.5)
        return
    axes.set_yscale("log")
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(_written(plot.unit))
    points = plot.lines[0].points
    axes.set_xticks(list(points.values()), list(map(point_name, points)))
    _compare(axes, plot, result)
    _name(axes, ends)


def _written(unit: str) -> FuncFormatter:
    return FuncFormatter(lambda value, _: amount(value, unit))


def amount(value: float, unit: str) -> str:
    """Three digits, in a unit that fits."""
    steps: dict[str, tuple[tuple[float, str], ...]] = {
        "B": ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (0, "B")),
        "ms": ((1e3, "s"), (0, "ms")),
        "/s": ((1e6, "M/s"), (1e3, "k/s"), (0, "/s")),
    }
    for size, name in steps.get(unit, ((0.0, ""),)):
        if value >= size:
            return f"{float(f'{value / (size or 1):.3g}'):,g} {name}".strip()
    return f"{value:g}"


def _compare(axes: Axes, plot: Plot, result: Result) -> None:
    """What is not a line of the run: what others have published, a limit, a ratio."""
    for other in PUBLISHED:
        if other.plot == plot.name:
            said = f"{other.label}, {amount(other.value, plot.unit)} (published)"
            (_level if other.is_line else _beyond)(axes, other.value, said, PUBLISHED_COLOUR)
    key, label = plot.level
    level = result.get(key)
    if isinstance(level, float | int):
        _level(axes, level, f"{label}, {amount(level, plot.unit)}", COLOURS[Kind.RAW])
    if plot.name != "flush_bytes":
        return
    said = "largest BookKeeper entry, 5 MiB"
    _level(axes, ONE_ENTRY_BYTES, said, COLOURS[Kind.RAW], "left")
    low, high = result.get(HEADLINE), result.get("pulsar_bytes_per_flush_100M")
    if isinstance(low, float | int) and isinstance(high, float | int):
        at, arrow = BACKLOGS["100M"], {"arrowstyle": "<->", "color": INK}
        axes.annotate("", (at, low * 1.4), (at, high / 1.4), arrowprops=arrow)
        axes.annotate(
            f"1 : {high / low:,.0f} ",
            (at, low * 2.2),
            ha="right",
            weight="bold",
            fontsize=11,
        )


def _level(axes: Axes, value: float, text: str, colour: str, side: str = "right") -> None:
    """A value all along the x axis, with its name at one side."""
    axes.axhline(value, color=colour, linestyle=DASHES[2], linewidth=1.2)
    left, right = axes.get_xlim()
    at, to = (left, 6) if side == "left" else (right, -6)
    axes.annotate(
        text, (at, value), (to, 4), textcoords="offset points", ha=side, color=colour, fontsize=8.5
    )


def _beyond(axes: Axes, value: float, text: str, colour: str) -> None:
    """A value that belongs far to the left of the x axis."""
    left = axes.get_xlim()[0]
    axes.plot([left], [value], "<", color=colour, markersize=8, clip_on=False)
    axes.set_xlim(left=left)
    axes.annotate(
        text, (left, value), (9, -3), textcoords="offset points", color=colour, fontsize=8.5
    )


def _name(axes: Axes, ends: list[tuple[float, str, str]]) -> None:
    """Each line has its name and its last value beside its end, in its colour."""
    bottom, top = (math.log(limit) for limit in axes.get_ylim())
    below = -math.inf
    for value, text, colour in sorted(ends):
        below = max((math.log(value) - bottom) / (top - bottom), below + LABELS_APART)
        axes.annotate(
            text,
            (1, below),
            (8, 0),
            xycoords="axes fraction",
            textcoords="offset points",
            va="center",
            color=colour,
            fontsize=8.5,
        )


def _notes(figure: Figure, plot: Plot, result: Result) -> None:
    notes = [f"published: {other.source}" for other in PUBLISHED if other.plot == plot.name]
    if plot.note:
        notes.insert(0, plot.note)
    machine = f"{result.get('platform', '')}, {result.get('cores', '')} cores"
    notes.append(f"{machine}, {str(result.get('date', ''))[:10]}")
    figure.supxlabel("\n".join(notes), x=0.01, ha="left", fontsize=7, color=COLOURS[Kind.RAW])


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.plots", description="The plots of one result.")
    parser.add_argument("result", type=Path, help="as the suite has written it")
    given = parser.parse_args()
    result = json.loads(given.result.read_text())
    for file in draw(result, given.result.with_suffix("")):
        print(file)


if __name__ == "__main__":
    main()

"""The plot of the table: size over backlog, both logarithmic, one panel per hole density. Needs the
extra `plots`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cursorkeeper.sizes.encodings import ENCODINGS
from cursorkeeper.sizes.measure import Row

FRAME_BYTES = 5_253_120
"""The largest BookKeeper entry at Pulsar's defaults."""
SUFFIXES = (".svg", ".png")
LEFT_OUT = {"dense_heap_bytes"}


class PlotsMissing(Exception):
    """matplotlib is not installed."""


def require() -> None:
    """Raises PlotsMissing."""
    _pyplot()


def draw(rows: Sequence[Row], file: Path) -> None:
    """Writes an SVG or PNG, by the file's suffix. Raises PlotsMissing, OSError."""
    pyplot = _pyplot()
    densities = sorted({row.density for row in rows})
    figure, axes = pyplot.subplots(
        1,
        len(densities),
        figsize=(5.2 * len(densities), 5),
        sharey=True,
        squeeze=False,
        layout="constrained",
    )
    for panel, density in zip(axes[0], densities, strict=True):
        _panel(
            panel,
            sorted((row for row in rows if row.density == density), key=lambda r: r.backlog),
            density,
        )
    axes[0][0].set_ylabel("bytes")
    figure.legend(
        *axes[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False
    )
    figure.suptitle("One acknowledgement state, in each encoding")
    figure.savefig(file, metadata={"Date": None} if file.suffix == ".svg" else None)
    pyplot.close(figure)


def _panel(panel: Any, rows: Sequence[Row], density: float) -> None:
    backlogs = [row.backlog for row in rows]
    for encoding in ENCODINGS:
        if encoding.key in LEFT_OUT:
            continue
        is_ours = encoding.key in ("snapshot_bytes", "delta_bytes")
        panel.plot(
            backlogs,
            [row.bytes_by_key[encoding.key] for row in rows],
            marker="o",
            markersize=4,
            label=encoding.title,
            linewidth=2.5 if is_ours else 1.2,
            linestyle="-" if is_ours else "--",
        )
    panel.axhline(
        FRAME_BYTES,
        color="black",
        linewidth=0.8,
        linestyle=":",
        label="largest BookKeeper entry (5 MB)",
    )
    panel.set_xscale("log")
    panel.set_yscale("log")
    panel.set_xlabel("backlog, entries")
    panel.set_title(f"{100 * density:g} % un-acked")
    panel.grid(visible=True, which="major", linewidth=0.3)


def _pyplot() -> Any:
    try:
        import matplotlib as mpl

        mpl.use("Agg")
        from matplotlib import pyplot
    except ImportError as error:
        raise PlotsMissing("matplotlib is not installed") from error
    return pyplot

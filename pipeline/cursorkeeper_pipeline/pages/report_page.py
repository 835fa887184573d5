"""The report as a page for a tired operator: plain sentences first, then who, how near, how large,
how fast, and what the words mean.

Takes report.json's value. One file, nothing loaded from anywhere; its text is the template
`report.html`, which escapes everything that came from outside; its style is that of the page of
`assess`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from jinja2 import ChoiceLoader, PackageLoader

from cursorkeeper.assess.words import PAGES
from cursorkeeper_pipeline.pages import plots

Facts = Mapping[str, Any]


def page(facts: Facts) -> str:
    loaders = [PackageLoader("cursorkeeper_pipeline.pages"), PackageLoader("cursorkeeper.assess")]
    pages = PAGES.overlay(loader=ChoiceLoader(loaders), keep_trailing_newline=True)
    pages.filters = {**PAGES.filters, "cell": _cell}
    pages.tests = {**PAGES.tests, "is_number_in": _is_number_in}
    told = {"sentences": sentences(facts), "plots": plots}
    return pages.get_template("report.html").render(facts, **told)


def sentences(facts: Facts) -> list[str]:
    """What the page begins with, and what the command says."""
    cursors, alone, limits = facts["cursors"], facts["forecast"]["pulsarAlone"], facts["limits"]
    unknown = facts["forecast"]["cursorKeeper"]["unknownBecauseTruncated"]
    said = [
        f"{_count(cursors['total'], 'cursor')} of "
        f"{_count(facts['forecast']['tenantsCount'], 'tenant')} were read."
    ]
    batches = (
        f", and acks within {alone['batchesRedelivered']:,} batches"
        if alone["batchesRedelivered"]
        else ""
    )
    said.append(
        f"If the brokers died now, Pulsar alone would deliver {_between(alone)} finished messages "
        f"again{batches} ({_count(alone['atRisk'], 'cursor')}); with CursorKeeper it is 0."
        if alone["atRisk"]
        else "If the brokers died now, even Pulsar alone would deliver no message again that "
        "these footers call acked."
    )
    if unknown:
        said.append(
            f"{_count(unknown, 'cursor')} have left acks out of what is written (truncated): for "
            f"these it may be more than 0."
        )
    said.append(
        f"{_count(limits['over'], 'cursor')} may be over a limit of Pulsar "
        f"{facts['pulsar']['version']}, {limits['near']:,} more use "
        f"{limits['nearFrom']:.0%} or more of one."
    )
    if facts["growth"] is not None:
        grown, rate = (facts["growth"]["totals"][key] for key in ("holesGrown", "holesPerDay"))
        said.append(
            f"Since {facts['growth']['since']}: {grown:+,} "
            f"holes{f', {rate:+,.0f} per day' if rate else ''}."
        )
    if cursors["unreadable"]:
        said.append(
            f"{_count(cursors['unreadable'], 'footer')} could not be read: look at these first."
        )
    return said


def _between(alone: Facts) -> str:
    low, middle, high = (alone[f"redelivered{end}"] for end in ("AtLeast", "Estimate", "AtMost"))
    return f"{high:,}" if low == high else f"{low:,} to {high:,} (about {middle:,})"


def _is_number_in(key: str, rows: Sequence[Facts]) -> bool:
    is_number = any(isinstance(row[key], int | float) for row in rows)
    return is_number and not key.endswith("Decade")


def _cell(value: Any, key: str) -> str:
    if value is None:
        return "?"
    if key in ("nearest", "reason"):
        return str(plots.LIMIT_WORDS.get(value, value))
    if key.endswith("Decade"):
        return "none" if value < 0 else f"{10**value:,} to {10 ** (value + 1) - 1:,}"
    if key.endswith("Share"):
        return f"{value:,.0%}"
    if isinstance(value, float):
        return f"{value:,.1f}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _count(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"

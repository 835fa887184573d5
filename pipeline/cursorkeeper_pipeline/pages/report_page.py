"""The report as a page for a tired operator: plain sentences first, then who, how near, how large,
how fast, and what the words mean.

Takes report.json's value. One file, nothing loaded from anywhere; everything that came from outside
is escaped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from cursorkeeper.assess.html import GLOSSARY, STYLE
from cursorkeeper_pipeline.pages import plots

Facts = Mapping[str, Any]
WORDS = (
    (
        "Hole",
        "A message between finished ones that is not finished itself. Holes are what makes a "
        "bookmark large.",
    ),
    (
        "Span",
        "The messages between the oldest unfinished one and the newest finished one: what a "
        "bookmark has to describe.",
    ),
    (
        "Footer",
        "CursorKeeper's small index entry of a subscription in ZooKeeper. All numbers here come "
        "from footers.",
    ),
    (
        "At least, at most",
        "A footer holds counts and not every single acknowledgement, so what Pulsar would lose "
        "is known between two bounds; the estimate takes acknowledgements to be spread evenly.",
    ),
)


def page(facts: Facts) -> str:
    parts = [
        _head(facts),
        _tenants(facts["forecast"]),
        _worst(facts["forecast"]),
        _limits(facts["limits"]),
        _sizes(facts["sizes"], facts["pulsar"]),
        _growth(facts["growth"]),
        _findings(facts["cursors"]),
        _words(),
        _basis(facts),
    ]
    body = "\n".join(part for part in parts if part)
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><meta name="viewport" '
        'content="width=device-width">'
        f"<title>The cursors of the "
        f"fleet</title><style>{STYLE}</style></head><body>\n{body}\n</body></html>\n"
    )


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


def _head(facts: Facts) -> str:
    alone = facts["forecast"]["pulsarAlone"]
    first, *more = sentences(facts)
    colour = "bad" if alone["redeliveredAtMost"] else "good"
    return (
        f"<h1>The cursors of the fleet</h1>\n<p>{escape(first)}</p>\n"
        f'<p class="number {colour}">{alone["redeliveredEstimate"]:,}</p>\n<p '
        f'class="quiet">finished messages that Pulsar alone would '
        'deliver again if its brokers died now (estimate)</p>\n<p class="number good">0</p>\n<p '
        'class="quiet">with CursorKeeper</p>\n'
        + "".join(f"<p>{escape(text)}</p>\n" for text in more)
    )


def _tenants(forecast: Facts) -> str:
    drawn = plots.forecast(forecast["tenants"])
    if not drawn:
        return ""
    return f"<h2>Whom it would hit</h2>\n{drawn}"


def _worst(forecast: Facts) -> str:
    rows = forecast["worst"]
    if not rows:
        return ""
    columns = (
        ("Cursor", "cursor"),
        ("At least", "redeliveredAtLeast"),
        ("Estimate", "redeliveredEstimate"),
        ("At most", "redeliveredAtMost"),
        ("Batches", "batchesRedelivered"),
        ("Why", "reason"),
        ("With CursorKeeper", "cursorkeeperRedelivered"),
    )
    return f"<h2>The {len(rows)} worst with Pulsar alone</h2>\n{_table(columns, rows)}"


def _limits(limits: Facts) -> str:
    drawn = plots.limits(limits["histogram"])
    columns = (
        ("Cursor", "cursor"),
        ("Limit", "nearest"),
        ("Used", "nearestShare"),
        ("Acked", "ackedEntries"),
        ("Ranges, at most", "rangesAtMost"),
        ("Batches", "partialBatches"),
        ("Long array, bytes at most", "longArrayBytesAtMost"),
    )
    worst = (
        _table(columns, limits["worst"]) if limits["worst"] else "<p>No cursor is near a limit.</p>"
    )
    return f"<h2>How near to what Pulsar can store</h2>\n{drawn}\n{worst}"


def _sizes(sizes: Facts, pulsar: Facts) -> str:
    if not sizes["rows"]:
        return ""
    columns = (
        ("Backlog", "backlog"),
        ("Holes", "holes"),
        ("Cursors", "cursors"),
        ("Long array", "longArrayBytes"),
        ("Ranges", "rangesBytes"),
        ("CursorKeeper", "cursorkeeperBytes"),
        ("Over the frame", "overFrame"),
    )
    rows = [
        {**row, "backlog": _decade(row["backlogDecade"]), "holes": _decade(row["holeDecade"])}
        for row in sizes["rows"]
    ]
    ratio = sizes["snapshotEstimateRatio"]
    checked = (
        f" Where snapshots are stored, the estimate of CursorKeeper's is {ratio:.2f} of what is "
        f"stored."
        if ratio is not None
        else ""
    )
    return (
        f"<h2>How large the states are</h2>\n{plots.sizes(sizes['rows'], pulsar['frameBytes'])}\n"
        f'<p class="quiet">Bytes of all cursors of a row together, as closed-form estimates from '
        f"footers (Pulsar issue #25985).{checked} CursorKeeper writes its snapshot once in many "
        f"flushes; Pulsar writes its state with every flush.</p>\n{_table(columns, rows)}"
    )


def _growth(growth: Facts | None) -> str:
    if growth is None:
        return (
            '<h2>Growth</h2>\n<p class="quiet">Compare with an earlier report: --since FOLDER.</p>'
        )
    changes = ", ".join(
        f"{count:,} {change}" for change, count in sorted(growth["changes"].items())
    )
    columns = (
        ("Cursor", "cursor"),
        ("Days", "days"),
        ("Holes", "holeEntries"),
        ("Holes a day", "holesPerDay"),
        ("Span a day", "spanPerDay"),
        ("Data ledgers a day", "ledgersPerDay"),
    )
    fastest = (
        _table(columns, growth["fastest"])
        if growth["fastest"]
        else "<p>No cursor has more holes than before.</p>"
    )
    return (
        f"<h2>Growth since {escape(growth['since'])}</h2>\n<p>Cursors: "
        f"{changes}.</p>\n{plots.growth(growth['tenants'])}\n{fastest}"
    )


def _findings(cursors: Facts) -> str:
    found = ""
    if cursors["unreadableNamed"]:
        rows = cursors["unreadableNamed"]
        columns = (("Cursor", "cursor"), ("Status", "status"), ("What", "error"))
        found += f"<h2>Footers that could not be read</h2>\n{_table(columns, rows)}"
        if cursors["unreadable"] > len(rows):
            found += f"<p>... and {cursors['unreadable'] - len(rows):,} more.</p>"
        found += (
            "<p><b>To do:</b> <code>cursorkeeper verify</code> on each of them, and "
            "<code>cursorkeeper pipeline audit</code>.</p>"
        )
    if cursors["truncatedNamed"]:
        names = "".join(f"<li>{escape(name)}</li>" for name in cursors["truncatedNamed"])
        found += (
            f"<h2>Acks that were left out</h2>\n<p>Written in Pulsar's form, at its limit "
            f"({cursors['truncated']:,}):</p><ul>{names}</ul>"
        )
    return found


def _words() -> str:
    return (
        "<h2>The words</h2>\n<dl>"
        + "".join(f"<dt>{escape(w)}</dt><dd>{escape(t)}</dd>" for w, t in (*GLOSSARY, *WORDS))
        + "</dl>"
    )


def _basis(facts: Facts) -> str:
    source, pulsar = facts["source"], facts["pulsar"]
    chosen = (
        ", ".join(f"{key} {value}" for key, value in source["selection"].items()) or "all cursors"
    )
    return (
        f'<h2>What this rests on</h2>\n<p class="quiet">Footers alone, {escape(chosen)}, read '
        f"{escape(str(facts['read']['readFrom']))} from {escape(source['zookeeper'])} "
        f"{escape(source['root'])}; BookKeeper was not read. A footer's numbers are of when it was "
        "written. Acks that Pulsar's own flush interval leaves unwritten are not counted. Pulsar "
        f"{escape(pulsar['version'])}: "
        "managedLedgerMaxUnackedRangesToPersist="
        f"{pulsar['managedLedgerMaxUnackedRangesToPersist']:,}, "
        f"long array {'on' if pulsar['longArray'] else 'off'}, frame {pulsar['frameBytes']:,} B. A "
        "message here is an entry of the topic; a batch is one entry.</p>"
    )


def _table(columns: Sequence[tuple[str, str]], rows: Sequence[Facts]) -> str:
    numbers = {key for _, key in columns if any(isinstance(row[key], int | float) for row in rows)}
    head = "".join(f"<th{_class(key in numbers)}>{escape(title)}</th>" for title, key in columns)
    body = "\n".join(
        "<tr>"
        + "".join(f"<td{_class(key in numbers)}>{_cell(key, row[key])}</td>" for _, key in columns)
        + "</tr>"
        for row in rows
    )
    return f"<table><tr>{head}</tr>\n{body}\n</table>"


def _class(is_number: bool) -> str:
    return ' class="n"' if is_number else ""


def _cell(key: str, value: Any) -> str:
    if value is None:
        return "?"
    if key in ("nearest", "reason"):
        return escape(plots.LIMIT_WORDS.get(value, value))
    if key.endswith("Share"):
        return f"{value:,.0%}"
    if isinstance(value, float):
        return f"{value:,.1f}"
    return f"{value:,}" if isinstance(value, int) else escape(str(value))


def _decade(decade: int) -> str:
    return "none" if decade < 0 else f"{10**decade:,} to {10 ** (decade + 1) - 1:,}"


def _count(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"

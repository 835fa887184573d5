"""The page for the people who decide: plain sentences first, one number, the worst cursors, what to
do, the words explained.

One file, nothing loaded from anywhere. Everything that came from outside is escaped.
"""

from __future__ import annotations

from html import escape

from cursorkeeper.assess import words
from cursorkeeper.assess.totals import Row, Totals
from cursorkeeper.pulsar_broker.model import Reason
from cursorkeeper.pulsar_broker.settings import PulsarSettings

COLOURS = {
    Reason.ENTRY_CAP: "#c0392b",
    Reason.RANGE_CAP: "#d35400",
    Reason.BATCH_CAP: "#8e44ad",
    Reason.FRAME: "#7b241c",
    Reason.ZNODE: "#2c3e50",
    Reason.LEDGER_GONE: "#000000",
    Reason.WINDOW: "#2980b9",
}
STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem;
  color: #1c2833; background: #fff; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2.2rem; }
.number { font-size: 4rem; font-weight: 700; line-height: 1.1; margin: 1rem 0 0; }
.bad { color: #c0392b; } .good { color: #1e8449; } .quiet { color: #5d6d7e; }
table { border-collapse: collapse; width: 100%; font-size: .92rem; }
th, td { text-align: left; padding: .35rem .6rem; border-bottom: 1px solid #d5d8dc;
  vertical-align: top; overflow-wrap: anywhere; }
th { overflow-wrap: normal; } td:nth-child(2) { min-width: 9rem; }
td.n, th.n { text-align: right; white-space: nowrap; min-width: 0; }
dt { font-weight: 600; margin-top: .6rem; } dd { margin: 0 0 0 1rem; }
@media print { body { margin: 0; } }
"""
GLOSSARY = (
    (
        "Subscription (cursor)",
        "The bookmark of an application in a topic. It remembers which messages the application "
        "has finished.",
    ),
    (
        "Acknowledged message",
        "A message that the application reported as finished. It should never be delivered again.",
    ),
    (
        "Delivered again",
        "After a crash the broker no longer knows that a message was finished and gives it to the "
        "application a second time: "
        "double work, double e-mails, double payments, unless the application guards against it.",
    ),
    (
        "Out-of-order acknowledgement",
        "A later message is finished before an earlier one. One stuck message makes all "
        "later ones out of order.",
    ),
    (
        "Broker, BookKeeper, ZooKeeper",
        "Pulsar's server, the store in which it keeps data, and the small store in "
        "which it keeps its index.",
    ),
    ("Flush", "The moment at which a broker writes its bookmarks from memory to BookKeeper."),
    (
        "Cap",
        "A setting that limits how much of a bookmark is written. What is beyond it lives in the "
        "broker's memory alone.",
    ),
    ("Backlog", "The messages of a topic that are behind the oldest unfinished one."),
)


def page(
    totals: Totals, settings: PulsarSettings, *, when: str, where: str, source: str, exact_with: str
) -> str:
    """The whole page. `when` and `where` are shown as they are; `source` says what the numbers rest
    on, `exact_with` what would make lower bounds exact.
    """
    body = "\n".join(
        [
            _head(totals, exact_with),
            _plot(totals),
            _worst(totals, settings),
            _reasons(totals, settings),
            _errors(totals),
            _glossary(),
            _basis(settings, when, where, source),
        ]
    )
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><meta name="viewport" '
        'content="width=device-width">'
        f"<title>What would be delivered "
        f"again</title><style>{STYLE}</style></head><body>\n{body}\n</body></html>\n"
    )


def _head(totals: Totals, exact_with: str) -> str:
    colour = "bad" if totals.at_risk else "good"
    return (
        f"<h1>What would be delivered again</h1>\n<p>{_first(totals)}</p>\n"
        f'<p class="number {colour}">{words.headline(totals)}</p>\n'
        '<p class="quiet">finished messages that would be delivered again</p>\n'
        + "".join(f"<p>{text}</p>\n" for text in _more(totals, exact_with))
    )


def _first(totals: Totals) -> str:
    """The sentence above the number."""
    subscriptions = f"{totals.cursors:,} subscription{'s' if totals.cursors != 1 else ''}"
    if totals.redelivered:
        return (
            f"If the brokers of this cluster stopped without warning now, "
            f"<b>{words.headline(totals)}</b> messages that applications have "
            f"already finished would be delivered to them again. {totals.at_risk:,} of "
            f"{subscriptions} would be affected."
        )
    if totals.beyond_cap:
        return (
            f"{totals.at_risk:,} of {subscriptions} have reached a limit: acknowledgements "
            f"beyond it are not stored, and would be lost if "
            "the brokers stopped without warning."
        )
    if totals.flush_forgets:
        return (
            f"All is stored now, but {totals.at_risk:,} of {subscriptions} hold more "
            f"acknowledgements than the limits let brokers write: "
            f"the next write would leave out {totals.flush_forgets:,}, and brokers that stop "
            f"without warning after it forget them."
        )
    if totals.at_risk:
        return (
            f"{totals.at_risk:,} of {subscriptions} would lose acknowledgements inside "
            f"batches if the brokers stopped without warning."
        )
    return (
        f"Of {subscriptions} none is known to lose an acknowledgement if the brokers stopped "
        f"without warning now."
    )


def _more(totals: Totals, exact_with: str) -> list[str]:
    """The sentences below the number."""
    more = []
    if totals.beyond_cap:
        more.append(
            f"{totals.beyond_cap:,} messages lie beyond a limit that was reached: each of them "
            f"that was finished would come back."
        )
    if totals.flush_forgets and (totals.redelivered or totals.beyond_cap):
        more.append(
            f"{totals.flush_forgets:,} more are stored now, and left out by the next write."
        )
    if totals.lower_bounds:
        more.append(
            f"For {totals.lower_bounds:,} of the subscriptions only what is stored could be read, "
            f"so their numbers are lower bounds: {escape(exact_with)}."
        )
    if totals.if_all_acked:
        more.append(
            "If applications finished everything except the oldest message of each subscription, "
            f"it would be {totals.if_all_acked:,} at that time."
        )
    if totals.errors_count:
        more.append(f"{totals.errors_count:,} could not be judged; they are listed below.")
    return more


def _plot(totals: Totals) -> str:
    total = sum(totals.by_reason.values())
    if not total:
        return ""
    width, x, bars, keys = 900, 0.0, [], []
    reasons = [r for r in Reason if totals.by_reason[r]]
    for at, reason in enumerate(reasons):
        share = totals.by_reason[reason] / total
        wide = max(2.0, share * width)
        title = f"{words.SHORT[reason]}: {totals.by_reason[reason]:,}"
        bars.append(
            f'<rect x="{x:.1f}" y="0" width="{wide:.1f}" height="40" '
            f'fill="{COLOURS[reason]}"><title>{escape(title)}</title></rect>'
        )
        y = 66 + 24 * at
        keys.append(
            f'<rect x="0" y="{y - 12}" width="14" height="14" fill="{COLOURS[reason]}"/><text '
            f'x="22" '
            f'y="{y}">{escape(title)} ({share:.1%})</text>'
        )
        x += wide
    return (
        f'<h2>Why</h2>\n<svg viewBox="0 0 {width + 2 * len(reasons)} {66 + 24 * len(reasons)}" '
        f'width="100%" '
        f'role="img" aria-label="reasons" '
        f'font-family="system-ui, sans-serif" font-size="15">{"".join(bars + keys)}</svg>'
    )


def _worst(totals: Totals, settings: PulsarSettings) -> str:
    rows = [row for row in totals.worst if row.verdict is not None and row.verdict.is_at_risk]
    if not rows:
        return ""
    compare = any(row.verdict is not None and row.verdict.native_bytes is not None for row in rows)
    head = (
        '<th>Topic</th><th>Subscription</th><th class="n">Delivered again</th><th '
        'class="n">Backlog</th><th>Why</th>'
    )
    head += '<th class="n">With CursorKeeper</th>' if compare else ""
    return (
        f"<h2>The {len(rows)} worst</h2>\n<table><tr>{head}</tr>\n"
        + "\n".join(_row(row, compare) for row in rows)
        + "\n</table>"
    )


def _row(row: Row, compare: bool) -> str:
    v = row.verdict
    assert v is not None
    cells = f"<td>{escape(row.topic)}</td><td>{escape(row.subscription)}</td>"
    cells += (
        f'<td class="n">{words.number(v)}</td><td '
        f'class="n">{v.backlog:,}</td><td>{escape(words.why(v))}</td>'
    )
    if compare:
        cells += f'<td class="n">0, in {v.native_bytes or 0:,} B</td>'
    return f"<tr>{cells}</tr>"


def _reasons(totals: Totals, settings: PulsarSettings) -> str:
    present = [r for r in Reason if totals.by_reason[r]]
    if (totals.beyond_cap or totals.flush_forgets) and not present:
        present = [Reason.ENTRY_CAP if settings.long_array else Reason.RANGE_CAP]
    if not present:
        return (
            "<h2>What to do</h2>\n<p>Nothing now. Run this again when the backlog of a shared "
            "subscription grows.</p>"
        )
    items = "".join(
        f"<dt>{escape(words.SHORT[r]).capitalize()}</dt>"
        f"<dd>{escape(words.long_reason(r, settings))}<br>"
        f"<b>To do:</b> {escape(words.remedy(r, settings))}</dd>"
        for r in present
    )
    unload = (
        f"<p>A planned restart would deliver {totals.unload_redelivered:,} finished messages "
        f"again: a broker that stops in an orderly "
        "way writes its bookmarks once more, within the same limits.</p>"
    )
    return (
        f"<h2>What to do</h2>\n<dl>{items}</dl>\n{unload}\n<p>CursorKeeper has none of these "
        "limits: every acknowledgement it confirmed survives, whatever the backlog. "
        "<code>cursorkeeper import-pulsar</code> takes subscriptions over.</p>"
    )


def _errors(totals: Totals) -> str:
    if not totals.errors:
        return ""
    rows = "".join(
        f"<tr><td>{escape(r.topic)}</td><td>{escape(r.subscription)}</td><td>{escape(r.error)}</td><td>{escape(r.remedy)}</td></tr>"
        for r in totals.errors
    )
    more = (
        f"<p>... and {totals.errors_count - len(totals.errors):,} more</p>"
        if totals.errors_count > len(totals.errors)
        else ""
    )
    head = "<tr><th>Topic</th><th>Subscription</th><th>What is wrong</th><th>What to do</th></tr>"
    return f"<h2>Not judged</h2>\n<table>{head}{rows}</table>{more}"


def _glossary() -> str:
    return (
        "<h2>The words</h2>\n<dl>"
        + "".join(f"<dt>{escape(w)}</dt><dd>{escape(t)}</dd>" for w, t in GLOSSARY)
        + "</dl>"
    )


def _basis(settings: PulsarSettings, when: str, where: str, source: str) -> str:
    return (
        f'<h2>What this rests on</h2>\n<p class="quiet">{escape(source)} Read {escape(when)} '
        f"from {escape(where)}, without changing or disturbing anything. Settings of Pulsar "
        f"{escape(settings.version)}: "
        f"managedLedgerMaxUnackedRangesToPersist={settings.ranges_max:,}, long array "
        f"{'on' if settings.long_array else 'off'}, frame {settings.frame_bytes_max:,} B. A "
        "message here is an entry of the topic; a batch is one entry.</p>"
    )

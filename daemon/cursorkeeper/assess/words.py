"""What people are told of a verdict, in one place for table and page; what the page alone says of
reasons and remedies is in its templates.
"""

from __future__ import annotations

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape

from cursorkeeper.assess.judge import Verdict
from cursorkeeper.assess.totals import Row, Totals
from cursorkeeper.pulsar_broker.model import KeptForm, Reason

PAGES = Environment(
    loader=PackageLoader("cursorkeeper.assess"),
    autoescape=select_autoescape(),
    trim_blocks=True,
    undefined=StrictUndefined,
)
PAGES.filters["n"] = "{:,}".format
SHORT = {
    Reason.ENTRY_CAP: "cap of the long array",
    Reason.RANGE_CAP: "cap of the range list",
    Reason.BATCH_CAP: "cap of partly acked batches",
    Reason.FRAME: "too large for BookKeeper",
    Reason.ZNODE: "too large for ZooKeeper",
    Reason.LEDGER_GONE: "cursor ledger gone",
    Reason.WINDOW: "not flushed yet",
}
"""Reasons in a few words, for table cells and the plot."""
COLUMNS = ("cursor", "delivered again", "backlog", "next flush", "why")
COMPARED = "CursorKeeper"
NUMBERS = ("delivered again", "backlog", COMPARED)
"""Columns of the table that hold numbers."""


def number(verdict: Verdict) -> str:
    """The count, or what is known of it."""
    return f"{verdict.redelivered:,}" if verdict.is_exact else f"at least {verdict.redelivered:,}"


def headline(totals: Totals) -> str:
    """The sum, or what is known of it. Where nothing is known to be lost but a cap was reached,
    what lies beyond it; where all is stored but the next flush would not hold it, that.
    """
    if not totals.redelivered and totals.beyond_cap:
        return f"possibly {totals.beyond_cap:,}"
    if not totals.redelivered and totals.flush_forgets:
        return f"0 now, {totals.flush_forgets:,} after the next flush"
    return f"{totals.redelivered:,}" if totals.is_exact else f"at least {totals.redelivered:,}"


def cells(row: Row) -> list[str]:
    """A judged cursor's row of the table; the last cell is for `COMPARED`."""
    v = row.verdict
    assert v is not None
    flush = v.next_flush
    fits = f"{flush.form.value} {flush.bytes:,} B" if flush.bytes else "nothing fits"
    native = f"0, in {v.native.bytes:,} B" if v.native else ""
    name = f"{row.topic}|{row.subscription}"
    return [name, number(v), f"{v.backlog:,}", fits, why(v), native]


def why(verdict: Verdict) -> str:
    """One line: the reasons with their counts, then what else is known."""
    parts = [f"{SHORT[reason]} {n:,}" for reason, n in verdict.by_reason.items()]
    if verdict.batches:
        parts.append(f"{verdict.batches:,} partly acked batches")
    if verdict.beyond_cap:
        parts.append(
            f"a cap was reached: of {verdict.beyond_cap:,} messages beyond it no ack is stored"
        )
    flush = verdict.next_flush
    if flush.forgets:
        parts.append(f"all is stored until the next flush, which would leave out {flush.forgets:,}")
    if flush.form is KeptForm.NOTHING:
        parts.append(f"an entry of {flush.tried_bytes:,} B fits nowhere: nothing is written")
    scenario = verdict.if_all_acked
    if not verdict.is_exact and scenario is not None and scenario.redelivered:
        parts.append(
            f"if all but the oldest were acked: {scenario.redelivered:,} of {scenario.acked:,}"
        )
    return "; ".join(parts) or "all acked messages are stored"

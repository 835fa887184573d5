"""The page for the people who decide: plain sentences first, one number, the worst cursors, what to
do, the words explained.

One file, nothing loaded from anywhere; its text is the template `page.html`. Everything that came
from outside is escaped.
"""

from __future__ import annotations

from typing import Any

from cursorkeeper.assess import words
from cursorkeeper.assess.totals import Totals
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


def page(totals: Totals, settings: PulsarSettings, **told: str) -> str:
    """The whole page. `told`: `when` and `where` are shown as they are; `source` says what the
    numbers rest on, `exact_with` what would make lower bounds exact.
    """
    to_do = totals.reasons
    if not to_do and (totals.beyond_cap or totals.flush_forgets):
        to_do = [Reason.ENTRY_CAP if settings.long_array else Reason.RANGE_CAP]
    given: dict[str, Any] = {
        "totals": totals,
        "settings": settings,
        "to_do": to_do,
        "worst": [row for row in totals.worst if row.verdict and row.verdict.is_at_risk],
        "words": words,
        "glossary": GLOSSARY,
        "colours": COLOURS,
    }
    return words.PAGES.get_template("page.html").render(given, **told)

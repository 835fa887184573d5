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
    }
    return words.PAGES.get_template("page.html").render(given, **told)

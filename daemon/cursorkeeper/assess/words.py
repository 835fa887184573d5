"""What people are told of a verdict: reasons, remedies and where they come from, in one place for
table and page.
"""

from __future__ import annotations

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape

from cursorkeeper.assess.judge import Verdict
from cursorkeeper.assess.totals import Totals
from cursorkeeper.pulsar_broker.model import KeptForm, Reason
from cursorkeeper.pulsar_broker.settings import PulsarSettings

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


def long_reason(reason: Reason, settings: PulsarSettings) -> str:
    """A sentence for the page."""
    return {
        Reason.ENTRY_CAP: (
            f"Pulsar stops writing acknowledged messages once more than {settings.ranges_max:,} of "
            "them are written. The setting is documented as a number of ranges, but in the "
            "compact form (long array) it is compared with the number of messages. Nothing warns."
        ),
        Reason.RANGE_CAP: f"Pulsar writes at most {settings.ranges_max:,} ranges of acknowledged "
        f"messages; later ones stay in memory only.",
        Reason.BATCH_CAP: f"Pulsar writes at most {settings.batches_max:,} partly acknowledged "
        f"batches; the others stay in memory only.",
        Reason.FRAME: (
            f"The whole state is written as one entry, and it is larger than BookKeeper accepts "
            f"({settings.frame_bytes_max:,} bytes). "
            "The copy in ZooKeeper does not fit either, so nothing is written any more."
        ),
        Reason.ZNODE: f"ZooKeeper does not take it ({settings.znode_bytes_max:,} bytes), or "
        f"Pulsar does not read it back from there.",
        Reason.LEDGER_GONE: "The ledger that holds the bookmark is gone; Pulsar goes back to the "
        "last position in ZooKeeper and forgets the rest.",
        Reason.WINDOW: (
            f"Acknowledged since the last write. Pulsar writes about every {settings.window_s:g} s "
            f"while acknowledgements arrive, and within {settings.idle_window_s:g} s after they "
            "stop."
        ),
    }[reason]


def remedy(reason: Reason, settings: PulsarSettings) -> str:
    """What an operator can do within Pulsar, and where that ends."""
    return {
        Reason.ENTRY_CAP: (
            "Raise managedLedgerMaxUnackedRangesToPersist to the largest number of messages that "
            "can be acknowledged out of order (tens of millions). It helps up to about 30 million "
            "messages of backlog; then the entry no longer fits BookKeeper."
        ),
        Reason.RANGE_CAP: "Raise managedLedgerMaxUnackedRangesToPersist, or turn "
        "managedLedgerPersistIndividualAckAsLongArray on.",
        Reason.BATCH_CAP: "Raise managedLedgerMaxBatchDeletedIndexToPersist.",
        Reason.FRAME: "Find the consumer that leaves the oldest message unacknowledged; raise "
        "the frame on brokers and bookies alike; or move the state out of Pulsar.",
        Reason.ZNODE: "Set managedCursorInfoCompressionType=LZ4 or ZSTD; lower "
        "managedLedgerMaxUnackedRangesToPersistInMetadataStore so that BookKeeper is used.",
        Reason.LEDGER_GONE: "Do not restart or unload these topics: while the broker lives it "
        "knows more. Restore the ledger, or let the backlog be consumed first.",
        Reason.WINDOW: "Part of Pulsar's design: small and passing. A larger "
        "managedLedgerDefaultMarkDeleteRateLimit makes it shorter and writes more.",
    }[reason]


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


def summary(totals: Totals, settings: PulsarSettings, exact_with: str) -> list[str]:
    """Lines for a terminal. `exact_with`: what would make lower bounds exact."""
    told = {"totals": totals, "version": settings.version, "exact_with": exact_with}
    text = PAGES.get_template("summary.txt")
    return text.render(told, short=SHORT, headline=headline(totals)).splitlines()


def why(verdict: Verdict) -> str:
    """One line: the reasons with their counts, then what else is known."""
    parts = [f"{SHORT[reason]} {n:,}" for reason, n in verdict.by_reason.items()]
    if verdict.batches:
        parts.append(f"{verdict.batches:,} partly acked batches")
    if verdict.beyond_cap:
        parts.append(
            f"a cap was reached: of {verdict.beyond_cap:,} messages beyond it no ack is stored"
        )
    if verdict.flush_forgets:
        parts.append(
            f"all is stored until the next flush, which would leave out {verdict.flush_forgets:,}"
        )
    if verdict.flush_form is KeptForm.NOTHING:
        parts.append(f"an entry of {verdict.tried_bytes:,} B fits nowhere: nothing is written")
    scenario = verdict.if_all_acked
    if not verdict.is_exact and scenario is not None and scenario.redelivered:
        parts.append(
            f"if all but the oldest were acked: {scenario.redelivered:,} of {scenario.acked:,}"
        )
    return "; ".join(parts) or "all acked messages are stored"

"""What the tables `checks` and `ledgers` say is wrong, as findings.

A ledger that was just dropped by its footer is garbage for a moment, until its owner's deletion is
through, however old it is. So an orphan is what is garbage at two looks with a pause between them,
and older than the grace; a footer is in doubt in the same way. Everything else is said of facts
that cannot change any more, or of a cursor whose footer was read after its ledgers were listed: a
footer never vanishes.
"""

from __future__ import annotations

from datetime import datetime

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from cursorkeeper_pipeline import schemas
from cursorkeeper_pipeline.transforms.shape import shaped, total

SWEEP = (
    "`cursorkeeper gc --dry-run` says the same, `cursorkeeper gc` deletes it; a running "
    "daemon does so by itself every gc_interval_s"
)
OWNER = (
    "an owner of that epoch existed and the footer is older than it: the footer was restored from "
    "a backup or overwritten. Do not open the cursor and delete nothing before it is known which "
    "one is right: `cursorkeeper inspect` shows the footer, and `cursorkeeper restore-footer` "
    "puts the *latest* bytes back, after comparing them"
)
FOOTER = (
    "a cursor's footer outlives the cursor, so somebody removed the znode: put its *latest* "
    "bytes back with `cursorkeeper restore-footer`. "
    "Garbage collection never touches a ledger without a footer"
)

ROOT = (
    "if another root shares this BookKeeper and this one is new, nothing is wrong. Else the root "
    "was removed and made anew, or it is another one than that of the daemons: restore it, with "
    "its data, from ZooKeeper's backup, or correct --root; delete no ledger before"
)

_OF_CURSORS = f"kind in ('{schemas.CHECKED}', '{schemas.UNCHECKED}')"
"""Rows of cursors themselves, and not of findings."""
_IN_DOUBT = "doubt is not null and verdict != 'unknown'"


def damage(checks: DataFrame) -> DataFrame:
    """FINDINGS that are in single cursors."""
    return shaped(checks.where(f"not {_OF_CURSORS}"), schemas.FINDINGS)


def unchecked(checks: DataFrame) -> DataFrame:
    """Cursors that could not be read: cursor, message."""
    return checks.where(F.col("kind") == schemas.UNCHECKED).select("cursor", "message")


def counts(checks: DataFrame) -> DataFrame:
    """One row: how many cursors, ledgers, records and bytes were read."""
    of_cursors = F.expr(_OF_CURSORS)
    return checks.agg(
        F.count_if(of_cursors).alias("cursors"),
        F.count_if(of_cursors & F.col("at_least")).alias("live"),
        F.count_if(F.col("kind") == schemas.UNCHECKED).alias("unchecked"),
        *map(total, ("ledgers", "records", "stored_bytes")),
    )


def garbage(ledgers: DataFrame, before: datetime) -> DataFrame:
    """Ledgers of this deployment that no footer can name any more, created before a time: orphans,
    if they still are.
    """
    return _ours(ledgers, before).where(F.col("verdict") == "garbage")


def orphans(first: DataFrame, second: DataFrame) -> DataFrame:
    """FINDINGS: garbage at both looks. `first` is what `garbage` gave, `second` the table again,
    later.
    """
    still = second.where(F.col("verdict") == "garbage")
    said = F.format_string(
        "no footer names it or ever can: it is of epoch %d, %s, %d bytes, created %s",
        "epoch",
        "state",
        "bytes",
        F.date_format("created", "yyyy-MM-dd'T'HH:mm:ssXXX"),
    )
    return _of_ledgers(first.join(still, "ledger_id", "left_semi"), "orphan_ledger", said, SWEEP)


def doubtful(ledgers: DataFrame, before: datetime) -> DataFrame:
    """Ledgers of this deployment, created before a time, that put their cursor's footer in doubt,
    by the rule of `cursorkeeper gc`. Not of a cursor whose footer cannot be read: that is a finding
    already.
    """
    return _ours(ledgers, before).where(_IN_DOUBT)


def doubts(first: DataFrame, second: DataFrame) -> DataFrame:
    """FINDINGS, in the words of `cursorkeeper gc`: in doubt at both looks, because a ledger is made
    before the footer that will name it. `first` is what `doubtful` gave, `second` the table again,
    later.
    """
    still = second.where(_IN_DOUBT)
    return _of_ledgers(
        first.join(still, "ledger_id", "left_semi"), "epoch_without_owner", F.col("doubt"), OWNER
    )


def without_footer(ledgers: DataFrame, checks: DataFrame, before: datetime) -> DataFrame:
    """FINDINGS: ledgers, created before a time, of a cursor that has no footer. `checks` must have
    been read after `ledgers`.
    """
    read = checks.where(_OF_CURSORS)
    lost = _ours(ledgers, before).where(F.col("verdict") == "unknown")
    said = F.format_string("is of epoch %d of a cursor that has no footer", "epoch")
    return _of_ledgers(lost.join(read, "cursor_key", "left_anti"), "footer_missing", said, FOOTER)


def root_lost(ledgers: DataFrame, checks: DataFrame, root: str) -> DataFrame:
    """FINDINGS: one, of the root, where there are ledgers of this application and none of this
    deployment, and no cursor either.

    `checks` must have been read after `ledgers`. A deployment whose root is gone has none that says
    `ours`: no other finding can see it.
    """
    of_ledgers = ledgers.agg(F.count("*").alias("listed"), F.count_if("ours").alias("ours"))
    both = of_ledgers.crossJoin(checks.agg(F.count("*").alias("checks")))
    said = F.format_string(
        "has no cursor, and none of the %d ledgers of this application that were listed is its own",
        "listed",
    )
    found = both.where("listed > 0 and ours = 0 and checks = 0").withColumns(
        {
            "cursor_key": F.lit(None),
            "cursor": F.lit(None),
            "kind": F.lit("root_lost"),
            "place": F.lit(root),
            "message": said,
            "remedy": F.lit(ROOT),
        }
    )
    return shaped(found, schemas.FINDINGS)


def _ours(ledgers: DataFrame, before: datetime) -> DataFrame:
    """Of this deployment, created before a time."""
    return ledgers.where(F.col("ours") & (F.col("created") < F.lit(before)))


def _of_ledgers(found: DataFrame, kind: str, message: Column, remedy: str) -> DataFrame:
    place = F.format_string("ledger %d", "ledger_id")
    told = found.withColumns(
        {"kind": F.lit(kind), "place": place, "message": message, "remedy": F.lit(remedy)}
    )
    return shaped(told, schemas.FINDINGS)

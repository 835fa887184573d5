"""What `import-pulsar` and `export-pulsar` share: the journal, the bar, the last line.

Every cursor ends as one `Outcome`: one that fails harms no other. Exit code: 0 all are done; 1 some
failed or were refused; 3 if all that failed did so because a system is away.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path

from cursorkeeper.migration.cluster import Selection
from cursorkeeper.migration.journal import Journal, journal_of
from cursorkeeper.migration.outcome import Reporter
from cursorkeeper.migration.patience import Patience
from cursorkeeper.problems import Kind
from cursorkeeper.settings import Settings
from cursorkeeper.terminal.failure import AWAY, NO
from cursorkeeper.terminal.output import Bar, say, show


def ended(reporter: Reporter, chosen: Selection, began_s: float) -> int:
    """The last line; the exit code."""
    reporter.summary(chosen, time.monotonic() - began_s)
    if not reporter.statuses:
        say(
            "no cursor matches. What to do: check the names, and the chroot of --pulsar-zookeeper",
            err=True,
        )
        return NO
    if not reporter.failures:
        return 0
    return AWAY if reporter.failures == {Kind.AWAY} else NO


def named(journal: Path) -> None:
    """Of a journal that this run has begun."""
    say(f"journal: {journal}; if this is interrupted, go on with --resume {journal}", err=True)


@contextmanager
def begun(
    command: str,
    chosen: Selection,
    ours: Settings,
    pulsar: Settings,
    *,
    resume: Path | None,
    dry_run: bool,
    as_json: bool,
) -> Iterator[tuple[Bar, Journal | None, Reporter, Patience]]:
    """What a run is watched by and told to; there is no journal for a dry run, or for a lone cursor
    that is not resumed. Raises ProblemError.
    """
    doing = f"{command.partition('-')[0]}ing"
    target = {
        "pulsarZookeeper": pulsar.systems.zookeeper,
        "zookeeper": ours.systems.zookeeper,
        "root": ours.systems.root,
    }
    is_lone = resume is None and chosen.topic and chosen.subscription
    journals = journal_of(resume, command, target, named)
    with nullcontext() if dry_run or is_lone else journals as journal, Bar(doing, 0) as bar:
        patience = Patience(say=lambda what: bar.say(what or doing))
        yield bar, journal, Reporter(bar, journal, partial(show, as_json=as_json)), patience

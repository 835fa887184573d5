"""What `import-pulsar` and `export-pulsar` share: which cursors, the Pulsar cluster, a bounded
number at once, the report.

Every cursor ends as one `Outcome`: one that fails harms no other. Exit code: 0 all are done; 1 some
failed or were refused; 3 if all that failed did so because a system is away.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from cursorkeeper.migration.cluster import Selection
from cursorkeeper.migration.journal import Journal
from cursorkeeper.migration.outcome import JOBS_MAX, Reporter
from cursorkeeper.migration.patience import Patience
from cursorkeeper.problems import Kind, ProblemError
from cursorkeeper.settings import Settings
from cursorkeeper.terminal import cursor_name
from cursorkeeper.terminal.failure import AWAY, NO
from cursorkeeper.terminal.output import Bar, say, show

PANEL = {"rich_help_panel": "Which cursors"}
_WHERE = {"rich_help_panel": "Where"}

PulsarZookeeper = Annotated[
    str | None, "Pulsar's metadata store, host:port[/chroot]; default: as --zookeeper.", _WHERE
]
PulsarBrokerConf = Annotated[
    Path | None,
    "Pulsar's broker.conf: its ZooKeeper, password, limits; default: --broker-conf.",
    {"metavar": "FILE", **_WHERE},
]
DryRun = Annotated[bool, "Read and report everything, write nothing."]
Resume = Annotated[
    Path | None,
    "The journal of an earlier run, or of this one: what it says is done is not done again.",
    {"metavar": "FILE"},
]
Jobs = Annotated[int, "Cursors at once.", {"min": 1, "max": JOBS_MAX}]


def selection_of(
    topic: Annotated[
        str | None,
        typer.Argument(
            help="persistent://tenant/namespace/topic; a partitioned one means all its partitions."
        ),
    ] = None,
    subscription: Annotated[
        str | None, typer.Argument(help="One of its subscriptions; default: all of them.")
    ] = None,
    tenant: Annotated[str | None, "All cursors of a tenant.", PANEL] = None,
    namespace: Annotated[str | None, "All cursors of tenant/namespace.", PANEL] = None,
    all: Annotated[bool, "All cursors of the cluster.", PANEL] = False,
) -> Selection:
    """Exactly one of them. Raises ProblemError."""
    given = [topic is not None, tenant is not None, namespace is not None, all]
    if sum(given) != 1:
        remedy = "give TOPIC [SUBSCRIPTION], or one of --tenant, --namespace and --all"
        raise ProblemError(
            "which cursors?" if not any(given) else "more than one choice of cursors",
            remedy,
            Kind.USAGE,
        )
    try:
        if topic is not None:
            name, *after = [topic] if subscription else cursor_name.split(topic)
            return Selection.of_topic(name, subscription or "".join(after))
        if tenant is not None:
            return Selection.of_tenant(tenant)
        return (
            Selection.of_namespace(namespace) if namespace is not None else Selection.everything()
        )
    except ValueError as e:
        raise ProblemError(
            str(e),
            "write persistent://tenant/namespace/topic; names of tenants and namespaces without it",
            Kind.USAGE,
        ) from None


Chosen = Annotated[Selection, selection_of]
"""A parameter of a command: which cursors."""


# ---- the run


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


@contextmanager
def journal_of(
    resume: Path | None,
    command: str,
    selection: Selection,
    target: Mapping[str, Any],
    *,
    dry_run: bool,
) -> Iterator[Journal | None]:
    """The given one, or a new one in this folder; None for a dry run, or a lone cursor without one.
    Raises ProblemError.

    A new one is named at once, on standard error: a run that is interrupted has no last line that
    could.
    """
    if dry_run or (resume is None and selection.topic and selection.subscription):
        yield None
        return
    is_new = resume is None
    if resume is None:
        now = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
        resume = Path(f"cursorkeeper-{command}-{now}-{os.getpid()}.jsonl")
    journal = Journal.open(resume, command, target)
    with closing(journal):
        if is_new:
            say(
                f"journal: {resume}; if this is interrupted, go on with --resume {resume}", err=True
            )
        yield journal


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
    """What a run is watched by and told to. Raises ProblemError."""
    doing = f"{command.partition('-')[0]}ing"
    target = {"pulsarZookeeper": pulsar.zookeeper, "zookeeper": ours.zookeeper, "root": ours.root}
    lasting = journal_of(resume, command, chosen, target, dry_run=dry_run)
    with lasting as journal, Bar(doing, 0) as bar:
        patience = Patience(say=lambda what: bar.say(what or doing))
        yield bar, journal, Reporter(bar, journal, partial(show, as_json=as_json)), patience

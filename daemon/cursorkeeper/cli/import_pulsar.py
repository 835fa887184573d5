"""`cursorkeeper import-pulsar`: cursors of a Pulsar cluster, live or stopped, become ours. See
`migration.importer`.
"""

from __future__ import annotations

import time
from typing import Annotated

from cursorkeeper import connections
from cursorkeeper.cli import migration
from cursorkeeper.inspection import roots
from cursorkeeper.migration.importer import KIND, Import, import_all
from cursorkeeper.migration.pulsar_systems import pulsar_ports
from cursorkeeper.terminal import options
from cursorkeeper.terminal import pulsar as pulsar_options
from cursorkeeper.terminal.output import say


@options.command
async def import_pulsar(
    *,
    chosen: pulsar_options.Chosen,
    dry_run: pulsar_options.DryRun = False,
    replace: Annotated[
        bool,
        "Where ours exists and differs: take it over, delete it, and make it anew from Pulsar's.",
    ] = False,
    roll_back_unreadable: Annotated[
        bool, "Where a cursor ledger is unreadable: back to the znode's mark-delete, as Pulsar."
    ] = False,
    resume: pulsar_options.Resume = None,
    jobs: pulsar_options.Jobs = 4,
    systems: pulsar_options.Systems,
    as_json: options.Json = False,
) -> int:
    """Make cursors from Pulsar's own: of a subscription, a topic, a namespace, a tenant, or the
    whole cluster.

    Pulsar's are only read, and without recovery: a live broker is not disturbed, and the report
    says how fresh each state is. What was made is read back and compared. A cursor that is here
    already is left alone if it is the same, and refused without --replace if not. Stop it at any
    time and run it again: it ends in the same result. Exit code 0: all done, 1: some failed or were
    refused, 3: a system is away.
    """
    settings, pulsar, _ = systems
    began_s = time.monotonic()
    role = "reader" if dry_run else "writer"
    own = not dry_run  # a writer may not read Pulsar's
    async with (
        connections.ports(settings, role) as ports,
        pulsar_ports(settings, pulsar, ports, "reader", own=own) as theirs,
    ):
        if new := await roots.told_if_new(ports.zookeeper, settings.systems):
            say(new, err=True)
        run = migration.begun(
            KIND, chosen, settings, pulsar, resume=resume, dry_run=dry_run, as_json=as_json
        )
        with run as (bar, journal, reporter, patience):
            importing = Import(
                ports,
                theirs,
                settings,
                bar,
                journal,
                replace,
                dry_run,
                roll_back_unreadable,
                patience,
            )
            await import_all(importing, chosen, reporter, jobs=jobs)
            return migration.ended(reporter, chosen, began_s)

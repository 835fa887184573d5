"""`cursorkeeper export-pulsar`: our cursors become Pulsar's. See `migration.exporter`."""

from __future__ import annotations

import time
from typing import Annotated

from cursorkeeper import connections
from cursorkeeper.cli import migration
from cursorkeeper.inspection import roots
from cursorkeeper.migration.exporter import (
    KIND_OF_RUN,
    Export,
    Rules,
    export_all,
    ledger_spec,
    target_of,
)
from cursorkeeper.migration.leftovers import RunMark
from cursorkeeper.migration.pulsar_systems import pulsar_ports
from cursorkeeper.pulsar_broker.settings import DEFAULT_VERSION, of_version, with_broker_conf
from cursorkeeper.terminal import options
from cursorkeeper.terminal import pulsar as pulsar_options


@options.command
async def export_pulsar(
    *,
    chosen: pulsar_options.Chosen,
    dry_run: pulsar_options.DryRun = False,
    replace: Annotated[bool, "Put ours in the place of a Pulsar cursor that differs."] = False,
    replace_newer: Annotated[
        bool, "Also one that Pulsar itself changed since a broker with the plugin held it."
    ] = False,
    live: Annotated[bool, "Also open cursors of ours: what is durable when they are read."] = False,
    broker_is_stopped: Annotated[
        bool, "Whatever ledgers and bundles look like: no broker has these topics."
    ] = False,
    allow_loss: Annotated[
        bool, "Also what Pulsar's own next flush or unload would drop because of its limits."
    ] = False,
    target_version: Annotated[
        str,
        "The Pulsar that will open them; decides defaults of its limits and forms.",
        {"metavar": "VERSION"},
    ] = DEFAULT_VERSION,
    resume: pulsar_options.Resume = None,
    jobs: pulsar_options.Jobs = 4,
    systems: pulsar_options.Systems,
    as_json: options.Json = False,
) -> int:
    """Write our cursors back into a Pulsar cluster, so that Pulsar opens them with the same acked
    messages.

    Unload the topics first. A small state goes into the cursor's znode, a larger one into a new
    cursor ledger that the znode then names. Refused with the numbers: a state that Pulsar cannot
    hold, or that its own limits would drop at its next flush. Ours stay as they are. Exit code 0:
    all done, 1: some failed or were refused, 3: a system is away.
    """
    settings, pulsar, conf = systems
    limits, spec = with_broker_conf(of_version(target_version), conf), ledger_spec(conf)
    began_s = time.monotonic()
    role = "reader" if dry_run else "migrator"
    async with (
        connections.ports(settings, "reader") as ports,
        pulsar_ports(settings, pulsar, ports, role, own=True) as theirs,
    ):
        await roots.check_root(ports.zookeeper, settings.systems)
        target = await target_of(limits, pulsar, theirs.ledgers)
        run = migration.begun(
            KIND_OF_RUN, chosen, settings, pulsar, resume=resume, dry_run=dry_run, as_json=as_json
        )
        with run as (bar, journal, reporter, patience):
            exporting = Export(
                ports,
                theirs,
                settings,
                target,
                spec,
                bar,
                journal,
                Rules(replace, replace_newer, live, broker_is_stopped, allow_loss),
                dry_run,
                patience,
                run=RunMark(journal.path.name, journal.token)
                if journal is not None and journal.token
                else None,
            )
            await export_all(exporting, chosen, reporter, jobs=jobs)
            return migration.ended(reporter, chosen, began_s)

"""`cursorkeeper set-acl`: every node of a deployment gets the ACL that `zookeeper_acl` says. For
operators whose footers were there before their ZooKeeper knew users.

Which nodes, and what each has and gets: `repair.acls`. Owns the options, the question and the exit
code.
"""

from __future__ import annotations

from typing import Annotated, Any

from cursorkeeper import connections
from cursorkeeper.inspection import roots
from cursorkeeper.repair.acls import Walk, Wanted, open_at
from cursorkeeper.settings import Settings
from cursorkeeper.terminal import options
from cursorkeeper.terminal.failure import NO
from cursorkeeper.terminal.output import Bar, say, show, tell
from cursorkeeper.terminal.prompt import confirmed
from cursorkeeper.zookeeper import acl as access

TEMPLATES = "repair/templates"


async def look(settings: Settings) -> dict[str, Any]:
    """What would be done, and whom it is about. Raises ProblemError, ZooKeeperError."""
    systems = settings.systems
    async with connections.zookeeper(systems) as keeper:
        await roots.check_root(keeper, systems, needs_id=True)
        with Bar("looking at nodes", 0) as bar:
            found = await Walk(keeper, wanted_of(settings), bar, dry_run=True).over(systems.root)
        is_closing = systems.zookeeper_acl != "open" and found.changed
        footers = connections.footer_store(keeper, settings)
        daemons = await open_at(keeper, footers, systems.root) if is_closing else {}
    return {**found.as_json(), "openAt": dict(daemons)}


def wanted_of(settings: Settings) -> Wanted:
    """Raises SettingsError, also for an ACL that would shut this user out."""
    acl = connections.zookeeper_settings(settings.systems).acl
    return Wanted(acl, connections.user_of(settings.systems))


@options.command
async def set_acl(
    *,
    dry_run: Annotated[bool, "Only say what would be changed."] = False,
    yes: options.Yes = False,
    settings: options.HereWithoutGateway,
    as_json: options.Json = False,
) -> int:
    """Give every node of this deployment in ZooKeeper the ACL that `zookeeper_acl` says.

    Nodes keep the ACL that they were made with. This looks at the root, every footer, and the
    records of the pipeline's runs, says what is otherwise and who loses access, asks, and changes
    it: with `open`, back to everybody. Data and versions stay as they are, so daemons that are the
    same user go on; give all of them the new settings before. Nodes of another user are counted as
    refused. A run that was cut off is gone on with by the same command. Exit code 1: nodes were
    refused, or nothing was written.
    """
    systems, wanted = settings.systems, wanted_of(settings)
    said = {"acl": ", ".join(one.who for one in wanted.acl), "root": systems.root}
    if wanted.acl == access.CREATOR and wanted.user is not None:
        said["acl"] = wanted.user.who
    found = await look(settings)
    is_written = False
    if not dry_run and found["changed"]:
        if not as_json:
            tell(f"{TEMPLATES}/acls_wanted.txt", {**said, **found})
        question = f"change the ACL of {found['changed']:,} nodes?"
        if not confirmed(question, yes=yes, as_json=as_json):
            if as_json:
                show({**said, "written": False, **found}, "", as_json=True)
            say("cursorkeeper: nothing was written", err=True)
            say("What to do: add --yes", err=True)
            return NO
        async with connections.zookeeper(systems) as keeper:
            with Bar("changing nodes", 0) as bar:
                done = await Walk(keeper, wanted, bar, dry_run=False).over(systems.root)
        found, is_written = {**found, **done.as_json()}, True
    told = {**said, "written": is_written, **found}
    show(told, f"{TEMPLATES}/acls.txt", as_json=as_json)
    if found["refused"] or found["unseen"]:
        tell(f"{TEMPLATES}/acls_refused.txt", told, err=True)
        return NO
    return 0

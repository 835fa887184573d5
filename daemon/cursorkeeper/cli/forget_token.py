"""`cursorkeeper forget-token`: a cursor that was opened with a fencing token may be opened without
one again. For operators, on the way back to sources that have none.

The only write that lowers a token. One compare-and-set on the footer that was shown, of a cursor
that nobody has open: a claim that leaves everything else as it is. Its answer may be lost: the same
bytes at the same version again, until it is decided.
"""

from __future__ import annotations

import secrets
from typing import Any

from cursorkeeper import connections
from cursorkeeper.cli.frame import not_written, opened, written_json
from cursorkeeper.inspection.footer_view import footer_json, footer_lines
from cursorkeeper.repair.token import Seen, forget, look
from cursorkeeper.terminal import cursor_name, options
from cursorkeeper.terminal.output import json_line, labelled, say
from cursorkeeper.terminal.prompt import confirmed


def as_json(seen: Seen, version: int | None) -> dict[str, Any]:
    head = {"cursor": seen.name.display, "fencingToken": seen.footer.fencing_token}
    return {**head, "footer": footer_json(seen.footer, seen.version), **written_json(version)}


@options.command
async def forget_token(
    *,
    cursor: cursor_name.Cursor,
    yes: options.Yes = False,
    settings: options.Here,
    json: options.Json = False,
) -> int:
    """Let sources without fencing tokens open a cursor again, after showing its footer.

    A source that gives a fencing token leaves it in the cursor's footer for good, so that a broker
    which was replaced while it stood still takes nothing back: without a token, or with a lower
    one, it is refused as FENCED. On the way back to sources without tokens this sets it to 0, for a
    cursor that is closed, or deleted.

    Be sure that no broker of before is left that stood still: it could open the cursor again, too.
    """
    name = cursor_name.parse(cursor)
    async with opened(settings, "reading", needs_id=True) as (ports, _):
        seen = await look(ports, name)
    if not json:
        labelled(name.display, 12, footer_lines(seen.footer, seen.version))
    if not seen.footer.fencing_token:
        if json:
            json_line(as_json(seen, None))
        else:
            say("it has no fencing token: nothing is to be done")
        return 0
    seen.check()
    version = None
    if confirmed("set its fencing token to 0?", yes=yes, as_json=json):
        writer = f"{settings.daemon.identity}/forget-token/{secrets.token_hex(8)}"
        async with connections.ports(settings) as ports:
            version = await forget(ports, seen, writer)
    if json:
        json_line(as_json(seen, version))
    elif version is not None:
        say(f"written as version {version}: fencing token {seen.footer.fencing_token} is forgotten")
    return not_written(name) if version is None else 0

"""`cursorkeeper inspect`: one cursor's footer, its ledgers and every record, without claiming or
fencing anything.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Annotated

import typer

from cursorkeeper.cli import cursor_name
from cursorkeeper.cli.frame import CursorOrTopic, Subscription, opened
from cursorkeeper.connections import Ports
from cursorkeeper.core.errors import DamageError
from cursorkeeper.core.footer import Footer
from cursorkeeper.core.names import CursorName
from cursorkeeper.inspection import reader, record_view, state_entries
from cursorkeeper.inspection.footer_view import footer_json, footer_lines, ledger_json, roles
from cursorkeeper.inspection.reader import End
from cursorkeeper.inspection.record_view import RecordView
from cursorkeeper.inspection.state_entries import StateEntry
from cursorkeeper.runtime import pulsar_ledger
from cursorkeeper.terminal import options
from cursorkeeper.terminal.failure import NO
from cursorkeeper.terminal.output import Bar, Table, json_line, say
from cursorkeeper.zookeeper import errors as zk

PAGE_ROWS = 1_000
"""Records per table: a long chain is shown as it is read."""
RAW_BYTES_MAX = 2_000


async def show(
    ports: Ports, name: CursorName, root: str, bar: Bar, *, records: bool, as_json: bool
) -> int:
    """Prints everything; returns how many records are bad. Raises ProblemError, DamageError."""
    try:
        footer, version = await reader.read_footer(ports.footers, name)
    except DamageError:
        await _show_raw(ports, name.path(root), as_json=as_json)
        raise
    ends = await reader.ends_of(ports.ledgers, footer, missing_ok=True)
    _show_footer(name, footer, version, ends, as_json=as_json)
    if not records:
        return 0
    bar.grow(sum(end.last_entry + 1 for end in ends.values()))
    bad = sum(end.info is None for end in ends.values())
    whole = reader.whole_state_ledgers(footer)
    for ledger, end in ends.items():
        if end.info is None:
            continue  # counted as missing
        rows_of, kind = (_states, state_entries) if ledger in whole else (_records, record_view)
        try:
            rows = rows_of(ports, name, ledger, end, bar)
        except DamageError as e:
            bad += 1
            _show_problem(ledger, e.message, as_json=as_json)
            continue
        bad += await _show_rows(rows, kind.COLUMNS, kind.NUMBERS, bar, as_json=as_json)
    return bad


def _show_footer(
    name: CursorName, footer: Footer, version: int, ends: dict[int, End], *, as_json: bool
) -> None:
    if as_json:
        json_line({"type": "footer", "cursor": name.display, **footer_json(footer, version)})
        for ledger, end in ends.items():
            json_line(
                {
                    "type": "ledger",
                    "ledger": ledger,
                    "roles": roles(footer, ledger),
                    **ledger_json(end.info, end.last_entry, is_final=end.is_final),
                }
            )
        return
    say(name.display, bold=True)
    for label, text in footer_lines(footer, version):
        say(f"  {label:<13} {text}")
    if ends:
        made = Table(
            ("ledger", "named as", "last entry", "state", "bytes", "quorums"),
            right=("ledger", "last entry", "bytes"),
        )
        for ledger, end in ends.items():
            info = end.info
            if info is None:
                made.add_row(str(ledger), ", ".join(roles(footer, ledger)), "", "MISSING", "", "")
                continue
            last = str(end.last_entry) if end.is_final else f"{end.last_entry} or more"
            quorums = f"{info.ensemble}/{info.write_quorum}/{info.ack_quorum} {info.digest.name}"
            made.add_row(
                str(ledger),
                ", ".join(roles(footer, ledger)),
                last,
                info.state.name,
                f"{info.length:,}",
                quorums,
            )
        say("")
        made.show()


async def _records(
    ports: Ports, name: CursorName, ledger: int, end: End, bar: Bar
) -> AsyncIterator[RecordView | StateEntry]:
    async for entry, payload in reader.entries(ports.ledgers, ledger, end.last_entry, say=bar.say):
        yield record_view.view(ledger, entry, payload, name.record_hash)


def _states(
    ports: Ports, name: CursorName, ledger: int, end: End, bar: Bar
) -> AsyncIterator[RecordView | StateEntry]:
    """Of a ledger of whole states: what each entry is, by its size and the footer behind it. Raises
    DamageError.
    """
    assert end.info is not None
    written = pulsar_ledger.written_by(end.info.custom_metadata, name)
    entries = reader.entries(
        ports.ledgers, ledger, end.last_entry, say=bar.say, unconfirmed=not end.is_final
    )
    return state_entries.StateEntries(ledger, written).views(entries)


async def _show_rows(
    rows: AsyncIterator[RecordView | StateEntry],
    columns: Sequence[str],
    numbers: Sequence[str],
    bar: Bar,
    *,
    as_json: bool,
) -> int:
    """Each as it is read, in tables of some length; returns how many are bad."""
    bad = 0
    page = Table(columns, right=numbers)
    async for shown in rows:
        bad += not shown.is_good
        bar.advance()
        if as_json:
            json_line(shown.as_json())
            continue
        page.add_row(*shown.as_row())
        if len(page) == PAGE_ROWS:
            page.show()
            page = Table(columns, right=numbers)
    if len(page):
        say("")
        page.show()
    return bad


def _show_problem(ledger: int, problem: str, *, as_json: bool) -> None:
    if as_json:
        json_line({"type": "ledger_problem", "ledger": ledger, "ok": False, "problem": problem})
    else:
        say(f"ledger {ledger}: {problem}")


async def _show_raw(ports: Ports, path: str, *, as_json: bool) -> None:
    """The bytes of a footer that cannot be read."""
    try:
        node = await ports.zookeeper.get(path)
    except zk.ZooKeeperError:
        return
    text = node.data[:RAW_BYTES_MAX].decode(errors="backslashreplace")
    if as_json:
        json_line(
            {
                "type": "raw",
                "path": path,
                "version": node.version,
                "bytes": len(node.data),
                "text": text,
            }
        )
    else:
        say(f"{path}, version {node.version}, {len(node.data)} bytes:")
        say(text)


@options.command
async def inspect(
    *,
    cursor: CursorOrTopic,
    subscription: Subscription = None,
    records: Annotated[
        bool, typer.Option("--records/--no-records", help="Read and check every record.")
    ] = True,
    settings: options.Here,
    as_json: options.Json = False,
) -> int:
    """Show a cursor's footer, its ledgers, and every record with its sizes and whether its checksum
    is right.

    Changes nothing: the ledgers are read without recovery, so an owner at work is not disturbed; of
    a ledger that is still written, the newest entries may not be visible yet ("or more"). Exit code
    1 if a record is bad.
    """
    name = cursor_name.parse(cursor, subscription)
    async with opened(settings, "reading records") as (ports, bar):
        bad = await show(ports, name, settings.root, bar, records=records, as_json=as_json)
    if bad:
        say(
            f"{bad} record(s) or ledgers are bad. What to do: `cursorkeeper verify` says what "
            f"that means for the cursor",
            err=True,
        )
        return NO
    return 0

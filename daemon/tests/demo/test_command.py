"""The command's own part: what a person reads, also when a process does not start."""

from __future__ import annotations

import io
from pathlib import Path

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text
from typer.testing import CliRunner

from cursorkeeper.cli.main import app
from cursorkeeper.demo.plays import STACK, THE_BAD_CASE, THE_TRACE, UP
from cursorkeeper.demo.report import Report, TraceReport


def test_why_the_demo_could_not_run_is_said_as_it_is(tmp_path: Path) -> None:
    """Paths stand in it, and a bracket in one is no markup."""
    java = tmp_path / "[red]" / "java"
    java.parent.mkdir()
    java.write_text("#!/no/such/interpreter\n")
    java.chmod(0o755)
    ended = CliRunner().invoke(app, ["demo"], env={"PATH": str(java.parent)})
    assert ended.exit_code == 3 and ended.stderr.startswith(
        f"the demo could not run: {java} cannot be run: "
    ), ended.stderr


WIDTH = 80


def lines_of(output: str) -> list[str]:
    return [line for line in output.splitlines() if line.strip()]


def test_every_line_of_the_demo_fits_a_terminal_of_80_columns() -> None:
    for heading in (THE_BAD_CASE, THE_TRACE):
        assert Text.from_markup(heading).cell_len <= WIDTH
    assert cell_len("  " + UP.format(bookies=3, seconds=100.0)) <= WIDTH


def test_every_line_of_a_report_fits_a_terminal_of_80_columns() -> None:
    kills = ["daemon", STACK, "daemon again"]
    whole = Report(
        entries=50_000_000,
        data_ledgers=1_000,
        acked=49_950_000,
        confirmed=49_950_000,
        kills=kills,
        flushes=1_000,
        flush_bytes_p50=20_000,
        flush_bytes_p99=999_900_000,
        bytes_per_ack=0.135,
        ack_to_durable_ms_p50=1_000.0,
        ack_to_durable_ms_p99=10_000.0,
        longest_outage_s=100.0,
        acks_per_second=1e7,
        acks_per_second_without_outages=1e7,
        snapshots=1_000,
        snapshot_bytes=999_900_000,
        recovery_seconds=100.0,
        pulsar_long_array_bytes=99_990_000,
    )
    trace = TraceReport(
        acks=551_902,
        kills=kills,
        entries_equal={"cumulative": 275_761},
        recovery_seconds=100.0,
        trace_equal=True,
    )
    for report in (whole, trace):
        console = Console(width=200, record=True, file=io.StringIO())
        report.show(console)
        assert max(map(cell_len, lines_of(console.export_text()))) <= WIDTH

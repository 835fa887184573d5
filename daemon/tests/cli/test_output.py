"""The bar shows itself after two seconds, on a terminal only."""

from __future__ import annotations

import io

import pytest
from cursorkeeper.cli.output import PIPE_COLUMNS, Bar, console, json_line, printable, table
from rich.console import Console


class Clock:
    now_s = 10.0

    def __call__(self) -> float:
        return self.now_s


def test_a_bar_after_two_seconds() -> None:
    clock, out = Clock(), io.StringIO()
    with Bar("reading", 10, err=Console(file=out, force_terminal=True, width=100), clock=clock) as bar:
        bar.advance(2)
        clock.now_s += 1.9
        bar.advance()
        assert not bar.is_shown
        clock.now_s += 0.2
        bar.say("replaying")
        bar.grow(5)
        bar.advance()
        assert bar.is_shown
    assert "replaying" in out.getvalue() and "4/15" in out.getvalue()


def test_what_is_written_to_a_pipe_meanwhile_does_not_go_to_the_bars_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    clock, out = Clock(), io.StringIO()
    with Bar("reading", err=Console(file=out, force_terminal=True, width=100), clock=clock) as bar:
        clock.now_s += 3
        bar.advance()
        assert bar.is_shown
        json_line({"a": 1})
    assert capsys.readouterr().out == '{"a":1}\n' and '"a"' not in out.getvalue()


def test_no_bar_where_nobody_looks() -> None:
    clock, out = Clock(), io.StringIO()
    with Bar("reading", err=Console(file=out), clock=clock) as bar:
        clock.now_s += 100
        bar.advance()
        assert not bar.is_shown
    assert out.getvalue() == ""


def test_a_table_in_a_pipe_is_not_cut(capsys: object) -> None:
    made = table("t", ("cursor", "n"), right=("n",))
    made.add_row("x" * 150, "1")
    out = console()
    assert out.width == PIPE_COLUMNS
    with out.capture() as shown:
        out.print(made)
    assert "x" * 150 in shown.get()


def test_names_are_shown_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    """Subscriptions may be called anything: what looks like markup, an emoji, an escape sequence, two lines."""
    made = table("", ["cursor"])
    for name in ("[/x]", "[red]r[/red]", ":smile:", printable("two\nlines \x1b[31m \x9b")):
        made.add_row(name)
    console().print(made)
    console().print("[/y] :smile:")
    out = capsys.readouterr().out
    assert [line.strip() for line in out.splitlines()] == [
        "cursor", "[/x]", "[red]r[/red]", ":smile:", "two\\x0alines \\x1b[31m \\x9b", "[/y] :smile:",
    ]  # fmt: skip
    assert printable("störung ☃") == "störung ☃"

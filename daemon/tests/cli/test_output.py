"""The bar shows itself after two seconds, on a terminal only; names are shown whole, in one line,
and obeyed by nobody.
"""

from __future__ import annotations

import io
import json
import re
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from cursorkeeper.problems import ProblemError
from cursorkeeper.terminal import output
from cursorkeeper.terminal.failure import show
from cursorkeeper.terminal.files import write_lines
from cursorkeeper.terminal.output import Bar, Table, json_line, say
from cursorkeeper.terminal.printable import printable, printable_json


class Clock:
    now_s = 10.0

    def __call__(self) -> float:
        return self.now_s


def test_a_bar_after_two_seconds() -> None:
    clock, out = Clock(), io.StringIO()
    with Bar(
        "reading", 10, err=Console(file=out, force_terminal=True, width=100), clock=clock
    ) as bar:
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


def test_what_is_written_to_a_pipe_meanwhile_does_not_go_to_the_bars_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
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


HOSTILE = "persistent://t/ns/a\x1b[31mb\x9b2Jc\u202ed\u2066\r\ne\u200bf\u2028g\ud800h"
SHOWN = r"persistent://t/ns/a\x1b[31mb\x9b2Jc\u202ed\u2066\x0d\x0ae\u200bf\u2028g\ud800h"


def test_a_terminal_is_told_nothing_by_a_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert printable(HOSTILE) == SHOWN and printable("tópico/ä|訂閱") == "tópico/ä|訂閱"
    say(f"damaged: {HOSTILE}")
    say(HOSTILE, err=True)
    show(ProblemError(f"{HOSTILE}: refused", f"look at {HOSTILE}").problem)
    told = capsys.readouterr()
    assert told.out == f"damaged: {SHOWN}\n"
    # an error is one line: its line ends are blanks, and everything else is spelled out
    assert (
        told.err.splitlines()[0] == SHOWN
        and len(told.err.splitlines()) == 3
        and not set("\x1b\x9b\u202e") & set(told.err)
    )


@given(st.text())
def test_json_on_a_terminal_tells_it_nothing_and_means_the_same(name: str) -> None:
    text = msgspec.json.encode({name: [name]}).decode()
    assert json.loads(printable_json(text)) == json.loads(text)
    assert printable_json(text).isprintable()


def test_json_of_commands_is_printed_so(capsys: pytest.CaptureFixture[str]) -> None:
    name = HOSTILE.replace("\ud800", "\U000e0041")
    line = msgspec.json.encode({"topic": name})
    json_line({"topic": name})
    with Bar("writing") as bar:
        write_lines([line + b"\n"], None, bar)
    told = capsys.readouterr().out.splitlines()
    assert len(told) == 2 and told[0] == told[1]
    assert told[0].isprintable() and json.loads(told[0]) == {"topic": name}


def test_a_bar_obeys_no_name_either() -> None:
    clock, out = Clock(), io.StringIO()
    with Bar("reading", err=Console(file=out, force_terminal=True, width=300), clock=clock) as bar:
        clock.now_s += 3
        bar.say(f"reading {HOSTILE}|[red]a[/b]")  # what rich takes for markup is legal in a name
        bar.advance()
    assert f"reading {SHOWN}|[red]a[/b]" in out.getvalue()


@pytest.mark.parametrize("columns", ["80", "20", ""])
def test_a_row_is_one_line_however_narrow_the_terminal_is(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, columns: str
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    long = "persistent://tenant/namespace/" + "x" * 300 + "|subscription"
    made = Table(("cursor", "holes", "why"), right=("holes",))
    made.add_row(long, "1,234", "because of this")
    made.add_row(HOSTILE, "5", "訂閱")
    assert len(made) == 2
    made.show()
    head, first, second = capsys.readouterr().out.splitlines()
    assert first == f"{long}  1,234  because of this"
    assert second.startswith(SHOWN) and second.endswith("      5  訂閱")
    assert head.startswith("cursor ") and head.endswith("holes  why")


def test_one_long_name_does_not_move_the_rows_of_others(capsys: pytest.CaptureFixture[str]) -> None:
    made = Table(("cursor", "state"))
    for name in ("a", "x" * 900, "b" * 30):
        made.add_row(name, "open")
    made.show()
    room = " " * 29
    assert capsys.readouterr().out.splitlines()[1:] == [
        f"a{room}  open",
        f"{'x' * 900}  open",
        f"{'b' * 30}  open",
    ]


def test_commands_speak_to_people_by_one_function() -> None:
    """Whatever they say, a name in it is spelled out. Others write JSON, or nothing from outside; a
    long list is columns with tabs.
    """
    own = {"output.py", "printable.py", "main.py", "run.py", "health.py"}
    for file in sorted(Path(output.__file__).parent.glob("*.py")):
        said = re.findall(r"\b(?:typer\.s?echo|print|console)\(.*", file.read_text())
        assert file.name in own or all('("\\t".join(' in line for line in said), (file.name, said)


def test_names_are_shown_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    """Subscriptions may be called anything, also what looks like markup or an emoji."""
    made = Table(["cursor"])
    for name in ("[/x]", "[red]r[/red]", ":smile:", "störung ☃"):
        made.add_row(name)
    made.show()
    say("[/y] :smile:")
    assert capsys.readouterr().out.splitlines() == [
        "cursor",
        "[/x]",
        "[red]r[/red]",
        ":smile:",
        "störung ☃",
        "[/y] :smile:",
    ]


def test_every_template_that_is_named_is_there_and_every_one_is_named() -> None:
    package = Path(output.__file__).parents[1]
    named = {
        name
        for file in package.rglob("*.py")
        for name in re.findall(r"""[\w/}]*/(\w+\.txt)["']""", file.read_text())
    }
    assert named == {file.name for file in package.rglob("templates/*.txt")}


def test_sentences_of_a_template_show_foreign_text_in_one_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    told = {"skipped": HOSTILE, "reason": "odd"}
    output.show(told, "migration/templates/skipped.txt", as_json=False)
    assert capsys.readouterr().out == f"skipped {SHOWN}: odd\n"

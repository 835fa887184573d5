"""`cursorkeeper sizes` as people call it."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from cursorkeeper.cli.main import app
from cursorkeeper.cli.sizes import densities, numbers
from cursorkeeper.sizes.encodings import ENCODINGS

SMALL = ["sizes", "--backlogs", "20k,100k", "--holes", "1%,10%"]


def run(*arguments: str, code: int = 0) -> tuple[str, str]:
    done = CliRunner().invoke(app, list(arguments))
    assert done.exit_code == code, done.output
    return done.stdout, done.stderr


def test_the_table_names_every_encoding() -> None:
    out, _ = run(*SMALL)
    for encoding in ENCODINGS:
        assert encoding.title in out and encoding.what in out
    assert "100,000" in out


def test_json_is_a_line_per_row_in_bytes() -> None:
    out, _ = run(*SMALL, "--json")
    rows = [json.loads(line) for line in out.splitlines()]
    assert [(r["backlog"], r["density"]) for r in rows] == [
        (20_000, 0.01),
        (20_000, 0.1),
        (100_000, 0.01),
        (100_000, 0.1),
    ]
    assert all(set(r["bytes"]) == {e.key for e in ENCODINGS} for r in rows)
    assert rows[3]["bytes"]["dense_bytes"] == pytest.approx(100_000 / 64 * 10.9, rel=0.01)
    assert rows[0]["dataLedgers"] == 1 and rows[2]["dataLedgers"] == 2


def test_the_same_seed_gives_the_same_table() -> None:
    assert run(*SMALL, "--json", "--seed", "5") == run(*SMALL, "--json", "--seed", "5")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--backlogs", "many"], "'many' is not a number"),
        (["--backlogs", "0"], "a backlog of 0 entries"),
        (["--backlogs", "5G"], "a backlog of 5000000000 entries"),
        (["--holes", "all"], "'all' is not a share"),
        (["--holes", "80%"], "at most 0.5"),
    ],
)
def test_what_makes_no_sense_is_usage(arguments: list[str], said: str) -> None:
    _, err = run("sizes", *arguments, code=2)
    assert said in err and "What to do" in err


def test_numbers_and_shares() -> None:
    assert numbers("1M, 2.5k,7", "x") == [1_000_000, 2_500, 7]
    assert densities("0.1%,0.25") == [0.001, 0.25]

"""docs/reference/requirements.md against the tests: every requirement has one that names it, and
every such test is on the page.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from cursorkeeper.settings import ALIASES, SETTINGS

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs/reference/requirements.md"
COUNT = 25
ROW = re.compile(r"^\| R(\d+) \|(.*)\|$", re.MULTILINE)
SETTING = re.compile(r"^\| `(\w+)` \| [^|]+ \| `(\w+)` \| ([^|]+) \|$", re.MULTILINE)
CITED = re.compile(r"`(test_\w+)`")
FUNCTION = re.compile(r"^ *(?:async )?def (test_r(\d\d)_\w+)\(", re.MULTILINE)


def rows() -> dict[int, list[str]]:
    """Requirement -> the cells behind its number."""
    found = {
        int(number): [cell.strip() for cell in cells.split("|")]
        for number, cells in ROW.findall(PAGE.read_text())
    }
    assert list(found) == list(range(1, COUNT + 1)), "one row for each, in order"
    return found


def cited() -> dict[int, list[str]]:
    return {number: CITED.findall(cells[-1]) for number, cells in rows().items()}


def named() -> dict[str, int]:
    """Every test that names a requirement, in every tracked Python file."""
    out = subprocess.run(
        ["git", "ls-files", "-z", "*.py"], cwd=ROOT, capture_output=True, check=True
    ).stdout.decode()
    files = [ROOT / name for name in out.split("\0") if name and (ROOT / name).is_file()]
    return {
        name: int(number) for file in files for name, number in FUNCTION.findall(file.read_text())
    }


def test_every_requirement_cites_a_test_of_its_own() -> None:
    bare = [
        f"R{number}"
        for number, names in cited().items()
        if not any(n.startswith(f"test_r{number:02}_") for n in names)
    ]
    assert not bare, f"no test_rNN_... is cited for {bare}"


def test_every_cited_test_exists_and_stands_in_its_row() -> None:
    known = named()
    for number, names in cited().items():
        assert len(names) == len(set(names)), f"R{number} cites a test twice"
        for name in names:
            assert name in known, f"R{number} cites {name}: there is no such test"
            assert known[name] == number, f"R{number} cites {name}"


def test_every_test_that_names_a_requirement_is_on_the_page() -> None:
    on_the_page = {name for names in cited().values() for name in names}
    missing = sorted(
        f"R{number}: `{name}`" for name, number in named().items() if name not in on_the_page
    )
    assert not missing, "add to docs/reference/requirements.md:\n" + "\n".join(missing)


def test_every_row_says_what_it_asks_for_whence_and_where_it_is_met() -> None:
    for number, cells in rows().items():
        assert len(cells) == 4, f"R{number}: requirement, source, where, tests"
        assert all(cells), f"R{number}: an empty cell"


def test_r05_the_page_names_every_setting_of_pulsar_with_its_default() -> None:
    """PIP-381's and PIP-299's names, and the released ones, of what is kept of acks; the defaults
    are those declared.
    """
    found = SETTING.findall(PAGE.read_text())
    of_acks = {
        theirs: ours for theirs, ours in ALIASES.items() if not theirs.startswith(("tls", "token"))
    }
    assert {theirs: ours for theirs, ours, _ in found} == of_acks
    for theirs, ours, default in found:
        value = SETTINGS[ours].default
        assert default == (str(value).lower() if isinstance(value, bool) else str(value)), theirs


def test_r05_the_defaults_are_those_of_the_documents() -> None:
    """Not those of later releases (200,000 ranges, LZ4)."""
    asked = {
        "managedLedgerMaxUnackedRangesToPersist": 10_000,
        "persistentUnackedRangesWithMultipleEntriesEnabled": False,
        "persistentUnackedRangesMaxEntrySize": 1024 * 1024,
        "cursorInfoCompressionType": "NONE",
        "managedLedgerMaxAckStateInBytesToPersist": 5 * 1024 * 1024,
    }
    assert {theirs: SETTINGS[ALIASES[theirs]].default for theirs in asked} == asked

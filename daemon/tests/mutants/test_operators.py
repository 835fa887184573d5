"""What `make mutants` takes away and what it keeps from one run to the next, and that its list of
equivalent mutants names what is there.
"""

from __future__ import annotations

import pickle
from pathlib import Path
from types import FunctionType, SimpleNamespace
from typing import Any

import pytest

from cursorkeeper.compiled import VARIABLE
from tools.mutants.__main__ import Journal, all_mutants, chosen, equivalent, main, report
from tools.mutants.operators import Mutant, code_of, mutants_of
from tools.mutants.trial import Baseline, Measured, Session, Verdict


@pytest.fixture(autouse=True)
def of_the_source(monkeypatch: pytest.MonkeyPatch) -> None:
    """As `main` sets it, which would else be so for the tests after these."""
    monkeypatch.setenv(VARIABLE, "no")


SOURCE = """
class Door:
    def open(self, key: int | None, tries: int = 0) -> str:
        if key is None or tries > 3:
            return "shut"
        self.count += 1
        self.tell(max(key, tries))
        self.close()
        return "open"
"""

EXPECTED = {
    "guard removed: if key is None or tries > 3",
    "condition dropped: key is None of key is None or tries > 3",
    "condition dropped: tries > 3 of key is None or tries > 3",
    "boundary moved: tries > 3",
    "assignment skipped: self.count += 1",
    "call skipped: self.tell(max(key, tries))",
    "join changed: max(key, tries)",
    "call skipped: self.close()",
    "order swapped: self.tell(max(key, tries)) / self.close()",
}


def test_every_rule_of_a_function_has_its_mutants() -> None:
    assert {f"{m.operator}: {m.source}" for m in mutants_of("door", SOURCE)} == EXPECTED


@pytest.mark.parametrize(
    ("said", "heard"),
    [
        ("guard removed: if key is None or tries > 3", ["tell 9", "close"]),
        ("call skipped: self.close()", []),
        ("order swapped: self.tell(max(key, tries)) / self.close()", []),
    ],
)
def test_a_mutant_is_the_function_without_one_rule(said: str, heard: list[str]) -> None:
    mutant = next(m for m in mutants_of("door", SOURCE) if f"{m.operator}: {m.source}" == said)
    told: list[str] = []

    class Room:
        count = 0

        def tell(self, key: int) -> None:
            told.append(f"tell {key}")

        def close(self) -> None:
            told.append("close")

    answer = FunctionType(code_of(mutant, SOURCE, "door.py"), {})(Room(), 2, 9)
    assert (answer, told) == (("open", heard) if heard else ("shut", []))


def test_a_mutant_of_words_that_are_gone_is_not_found() -> None:
    with pytest.raises(LookupError):
        code_of(Mutant("door", "Door.open", "call skipped", "self.lock()", 1), SOURCE, "door.py")


def test_what_is_listed_as_equivalent_is_in_the_source() -> None:
    known = equivalent()
    assert not sorted(known.keys() - {m.key for m in all_mutants()})
    assert all(len(why) > 20 for why in known.values())


def test_survivors_and_stale_entries_are_said_in_eighty_columns(
    capsys: pytest.CaptureFixture[str],
) -> None:
    mutant = Mutant(
        "cursorkeeper.core.door",
        "Door.open",
        "guard removed",
        f"if {' or '.join(['self.is_shut(key)'] * 9)}",
        12,
    )
    assert report([Verdict(mutant, "a test", 1.0)], []) == 0
    assert report([Verdict(mutant, "", 1.0)], []) == 1
    assert report([Verdict(mutant, "a test", 1.0)], [mutant.key]) == 1
    out, problems = capsys.readouterr()
    assert max(map(len, (out + problems).splitlines())) <= 80
    assert (
        "daemon/cursorkeeper/core/door.py:12" in out
        and "names what is not in the source any more" in problems
    )
    assert " ".join(mutant.key.split()) in " ".join(problems.split())


def test_a_name_that_no_mutant_has_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--only", "no such function"]) == 2
    assert "no such function" in capsys.readouterr().err


def test_a_sample_is_of_each_module_and_the_same_every_time() -> None:
    mutants = [
        Mutant(module, "f", "call skipped", f"call({i})", i)
        for module in ("a", "b")
        for i in range(9)
    ]
    taken = chosen(mutants, [], 0, 3, 1)
    assert [m.module for m in taken] == ["a"] * 3 + ["b"] * 3
    assert taken == chosen(mutants, [], 0, 3, 1)
    assert chosen(mutants, ["b:"], 2, 0, 1) == chosen(mutants[9:], [], 2, 0, 1)


def test_what_a_journal_says_was_killed_is_not_tried_again_and_survivors_come_last(
    tmp_path: Path,
) -> None:
    killed, survivor, other = (Mutant("a", "f", "call skipped", f"call({i})", i) for i in range(3))
    journal = Journal(tmp_path / "journal")
    assert journal.left([killed, survivor, other]) == [killed, survivor, other]
    journal.add(Verdict(survivor, "", 1.0))
    journal.add(Verdict(killed, "a test", 1.0))
    assert Journal(tmp_path / "journal").left([killed, survivor, other]) == [other, survivor]
    journal.add(Verdict(survivor, "a new test", 1.0))
    assert Journal(tmp_path / "journal").left([killed, survivor, other]) == [other]


def test_only_what_has_changed_is_measured_again(tmp_path: Path) -> None:
    (tmp_path / "daemon").mkdir()
    (tmp_path / "pyproject.toml").touch()
    files = [tmp_path / "daemon" / f"{name}.py" for name in ("test_a", "test_b", "code")]
    for file in files:
        file.write_text("")
    items: list[Any] = [SimpleNamespace(nodeid=file.stem, path=file) for file in files[:2]]

    def session() -> Session:
        return Session(items, [(1, "native")], tmp_path, tmp_path / "kept")

    first = session()
    assert first.remember() == 3
    measured = {
        name: Measured(first._version_of(name), 1.0, frozenset())
        for name in (*first.tests, *first.seeds)
    }
    first.kept.write_bytes(pickle.dumps(Baseline(first.baseline.version, measured)))
    assert session().remember() == 0
    files[0].write_text("# changed")
    again = session()
    assert again.remember() == 1 and "test_a" not in again.baseline.measured
    files[2].write_text("# changed")
    assert session().remember() == 3

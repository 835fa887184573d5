"""What `make mutants` takes away, and that its list of equivalent mutants names what is there."""

from __future__ import annotations

from types import FunctionType

import pytest

from tools.mutants.__main__ import all_mutants, equivalent
from tools.mutants.operators import Mutant, code_of, mutants_of

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
    assert not sorted(known.keys() - {m.key for m in all_mutants([])})
    assert all(len(why) > 20 for why in known.values())

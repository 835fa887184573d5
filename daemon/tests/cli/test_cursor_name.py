"""Names as they are typed: every name can be, and what may be two is refused with both of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cursorkeeper.core.names import CursorName
from cursorkeeper.problems import ProblemError
from cursorkeeper.terminal import cursor_name

TEXTS = st.text(alphabet="a|\\/: '%\n", min_size=1, max_size=12)


@given(TEXTS, TEXTS)
def test_every_name_can_be_typed_as_one_argument(topic: str, subscription: str) -> None:
    name = CursorName(topic, subscription)
    assert cursor_name.parse(cursor_name.typed(name)) == name
    assert cursor_name.parse(topic, subscription) == name


@pytest.mark.parametrize(
    ("given_", "topic", "subscription"),
    [
        ("t|s", "t", "s"),
        (r"t\|u|s", "t|u", "s"),
        (r"t|s\|2", "t", "s|2"),
        (r"a\b|c", r"a\b", "c"),
        (r"a\\|c", "a\\", "c"),
    ],
)
def test_a_bar_of_a_name_is_written_with_a_backslash(
    given_: str, topic: str, subscription: str
) -> None:
    assert cursor_name.parse(given_) == CursorName(topic, subscription)


def test_what_may_be_two_cursors_is_refused_with_both() -> None:
    with pytest.raises(ProblemError) as refused:
        cursor_name.parse("t|s|2")
    assert "more than one |" in refused.value.problem.message
    assert r"'t\|s|2' or 't|s\|2'" in refused.value.problem.remedy
    assert cursor_name.parse(r"t\|s|2").topic == "t|s" and cursor_name.parse(r"t|s\|2").topic == "t"


@pytest.mark.parametrize("given_", ["", "t", "|s", "t|", "|", "||", r"t\|s"])
def test_what_is_no_name_is_refused(given_: str) -> None:
    with pytest.raises(ProblemError) as refused:
        cursor_name.parse(given_)
    assert "TOPIC|SUBSCRIPTION" in refused.value.problem.remedy

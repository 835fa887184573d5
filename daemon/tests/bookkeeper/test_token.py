"""The token that is shown to the gateway, while its file changes."""

from __future__ import annotations

from pathlib import Path

from cursorkeeper.bookkeeper.token import LOOK_EVERY_S, Token


def test_a_file_that_changes_is_read_again_at_the_next_look(tmp_path: Path) -> None:
    now = [0.0]
    file = tmp_path / "token"
    file.write_text("first\n")
    token = Token("first", str(file), lambda: now[0])
    file.write_text("second token\n")
    assert token.current() == "first", "it was looked at a moment ago"
    now[0] += LOOK_EVERY_S
    assert token.current() == "second token"
    for broken in (b"", b" \n", b"\xff"):
        file.write_bytes(broken)
        now[0] += LOOK_EVERY_S
        assert token.current() == "second token"
    file.unlink()
    now[0] += LOOK_EVERY_S
    assert token.current() == "second token"
    file.write_text("third")
    now[0] += LOOK_EVERY_S
    assert token.current() == "third"


def test_without_a_file_it_stays() -> None:
    assert Token("given").current() == "given"
    assert Token("").current() == ""

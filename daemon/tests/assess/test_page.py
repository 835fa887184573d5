"""The page for people who decide, and the table: what they say, and that nothing foreign gets into
them.
"""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from cursorkeeper.assess import html, words
from cursorkeeper.assess.judge import Stored, judge
from cursorkeeper.assess.totals import Row, Totals
from cursorkeeper.cli.assess import exit_code, show
from cursorkeeper.core.positions import Position
from cursorkeeper.format.pulsar.values import PositionInfo
from cursorkeeper.migration.cluster import Selection
from cursorkeeper.problems import NotFound
from cursorkeeper.pulsar_broker.model import Reason, what_pulsar_keeps
from cursorkeeper.pulsar_broker.settings import PulsarSettings, of_version
from cursorkeeper.terminal.files import whole_file
from cursorkeeper.terminal.output import lines
from daemon.tests.assess.states import backlog, layout_of

DEFAULT = of_version("4.2.4")
TOPIC = "persistent://t/ns/orders"


def totals(*, known: bool = True, evil: str = "") -> Totals:
    """The bad case, a window, a cursor that is well, one that cannot be judged."""
    found = Totals()
    memory = backlog(1_000_000)
    kept = what_pulsar_keeps(memory, DEFAULT).state
    assert kept is not None
    found.add(
        Row(
            TOPIC + evil,
            "billing" + evil,
            judge(Stored(kept), memory if known else None, layout_of(1_000_000), DEFAULT),
        )
    )
    well = PositionInfo(Position(7, 9))
    found.add(
        Row(
            TOPIC,
            "mail",
            judge(
                Stored(well), PositionInfo(Position(7, 12)) if known else None, {7: 100}, DEFAULT
            ),
        )
    )
    found.add(Row(TOPIC, "audit", judge(Stored(well), well if known else None, {7: 100}, DEFAULT)))
    found.add(
        Row(TOPIC, "broken" + evil, error="ledger 5: gone" + evil, remedy="restore it" + evil)
    )
    return found


def page_of(found: Totals) -> str:
    return html.page(
        found,
        DEFAULT,
        when="2026-11-21 08:00 UTC",
        where="zk:2181",
        source="Asked.",
        exact_with="ask <them>",
    )


def summary(found: Totals, settings: PulsarSettings, exact_with: str) -> list[str]:
    """The lines for a terminal."""
    told = {"totals": found, "version": settings.version, "exact_with": exact_with, "words": words}
    return lines("assess/templates/summary.txt", told)


class Checker(HTMLParser):
    """Every tag that is opened is closed, in order; remembers what is loaded and the text."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.loads: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in ("meta", "br", "rect"):
            self.open.append(tag)
        self.loads += [
            value or "" for name, value in attrs if name in ("src", "href", "action")
        ] + [tag] * (tag in ("script", "link", "img"))

    def handle_endtag(self, tag: str) -> None:
        if tag != "rect":
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def read(page: str) -> str:
    """Its text, with single spaces. Checks the form."""
    checker = Checker()
    checker.feed(page)
    assert checker.open == [] and checker.loads == []
    assert not re.search(r"https?://|url\(|@import", page), "nothing is loaded from anywhere"
    return " ".join(checker.text.split())


def test_the_page_begins_with_a_sentence_and_the_number() -> None:
    text = read(page_of(totals()))
    assert (
        "at least 950,003 messages that applications have already finished would be delivered to "
        "them again. 2 of 4 subscriptions" in text
    )
    assert (
        text.index("950,003")
        < text.index("The 2 worst")
        < text.index("What to do")
        < text.index("The words")
    )
    assert "cap of the long array: 950,000" in text and "not flushed yet: 3" in text
    assert "managedLedgerMaxUnackedRangesToPersist" in text and "2026-11-21 08:00 UTC" in text


def test_without_the_brokers_word_the_page_says_so() -> None:
    text = read(page_of(totals(known=False)))
    assert "1 of 4 subscriptions have reached a limit" in text
    assert (
        "possibly 950,000" in text
        and "950,000 messages lie beyond a limit" in text
        and "lower bounds" in text
    )
    assert summary(totals(known=False), DEFAULT, "ask")[2].startswith(
        "If the brokers died now: possibly 950,000 acked"
    )


def test_lower_bounds_come_with_what_makes_them_exact() -> None:
    assert "For 3 of the subscriptions only what is stored could be read" in read(
        page_of(totals(known=False))
    )
    assert "lower bounds: ask <them>." in read(page_of(totals(known=False)))
    assert "Of 3 cursor(s) only what is stored is known: ask them" in summary(
        totals(known=False), DEFAULT, "ask them"
    )
    assert not any("only what is stored" in line for line in summary(totals(), DEFAULT, "ask them"))


def test_what_the_next_flush_forgets_is_no_loss_yet_and_no_good_news() -> None:
    found, memory = Totals(), backlog(1_000_000)
    found.add(
        Row(
            TOPIC,
            "billing",
            judge(Stored(memory, inline=True), memory, layout_of(1_000_000), DEFAULT),
        )
    )
    text = read(page_of(found))
    assert (
        "All is stored now, but 1 of 1 subscription hold more" in text
        and "0 now, 950,000 after the next flush" in text
    )
    assert "Raise managedLedgerMaxUnackedRangesToPersist" in text
    said = summary(found, DEFAULT, "ask")
    assert (
        "0 now, 950,000 after the next flush acked messages" not in said[0]
        and "(1 of 1 cursors at risk" in said[0]
    )
    assert any(line.startswith("  950,000 are stored until the next flush") for line in said)


def test_no_cursor_at_all_is_no_good_news() -> None:
    with pytest.raises(NotFound, match="tenant acmee: there is no such Pulsar cursor"):
        exit_code(Totals(), Selection.of_tenant("acmee"))
    assert exit_code(totals(), Selection.everything()) == 1


def test_nothing_at_risk_is_said_plainly() -> None:
    found = Totals()
    found.add(
        Row(
            TOPIC,
            "audit",
            judge(
                Stored(PositionInfo(Position(7, 9))), PositionInfo(Position(7, 9)), {7: 10}, DEFAULT
            ),
        )
    )
    text = read(page_of(found))
    assert (
        "Of 1 subscription none is known to lose an acknowledgement" in text
        and "Nothing now." in text
    )
    assert exit_code(found, Selection.everything()) == 0


def test_names_and_errors_are_escaped() -> None:
    evil = '<script>alert("&")</script><img src=x>'
    page = page_of(totals(evil=evil))
    assert "<script" not in page and "<img" not in page
    assert evil in " ".join(read(page).split())


def test_every_reason_has_its_words_and_colour() -> None:
    told: Any = words.PAGES.get_template("reasons.html").make_module({"settings": DEFAULT})
    for reason in Reason:
        assert (
            words.SHORT[reason]
            and told.long_reason(reason).strip()
            and told.remedy(reason).strip()
            and told.colours[reason]
        )


def test_the_table_for_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    show(totals(), DEFAULT, "ask")
    out = capsys.readouterr().out
    assert re.search(
        r"orders\|billing +950,000 +1,000,000 +longArray 8,613 B +cap of the long array 950,000",
        out,
    )
    assert "NOT JUDGED persistent://t/ns/orders|broken: ledger 5: gone" in out
    assert "If the brokers died now: at least 950,003 acked messages" in out
    assert "2 of 4 cursors at risk" in summary(totals(), DEFAULT, "ask")[2]


def test_names_in_the_table_are_what_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    show(totals(evil="[/x]\n\x1b[31m"), DEFAULT, "ask")
    out = capsys.readouterr().out
    assert "orders[/x]\\x0a\\x1b[31m|billing[/x]\\x0a\\x1b[31m " in out
    assert "ledger 5: gone[/x]\\x0a\\x1b[31m\n           What to do: restore it[/x]\\x0a" in out


def test_a_page_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    file = tmp_path / "page.html"

    def write(*parts: str) -> None:
        with whole_file(file) as out:
            for part in parts:
                out.write(part.encode())

    write("one")
    write("two")
    assert file.read_text() == "two" and list(tmp_path.iterdir()) == [file]
    with pytest.raises(UnicodeEncodeError):
        write("three", "\ud800")
    assert file.read_text() == "two" and list(tmp_path.iterdir()) == [file]


def test_a_page_has_the_rights_that_any_file_would_have(tmp_path: Path) -> None:
    plain, page = tmp_path / "plain", tmp_path / "page.html"
    plain.touch()
    for expected in (plain.stat().st_mode, 0o100640):
        with whole_file(page) as out:
            out.write(b"page")
        assert page.stat().st_mode == expected
        page.chmod(0o640)


def test_two_who_write_the_same_page_do_not_disturb_each_other(tmp_path: Path) -> None:
    page = tmp_path / ("a" * 250)
    with whole_file(page) as first, whole_file(page) as second:
        first.write(b"first")
        second.write(b"second")
    assert page.read_text() == "first" and list(tmp_path.iterdir()) == [page]

"""What a page of the runbook quotes from the programs: log lines in fenced blocks, names in
backticks, exit codes.

Owns how pages are read. A block is ```daemon (lines of the daemon's log), ```source (what a source
is told), ```gateway (lines that the jar's own code writes), ```broker (of the plugin, in a broker's
log) or ```bookkeeper (lines of the libraries in the jar). `…` stands for what differs from time to
time.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PAIR = re.compile(r'"(\w+)":("[^"]*"|\["…"\]|…)')
EXIT_CODES = re.compile(
    r"[Ee]xit codes? ([\d, and]+) of the (daemon|gateway|bookie|ZooKeeper server)"
)
MORE_EXIT_CODES = re.compile(r"(\d+)\s+of the (gateway|daemon|bookie)\b")
PIECE_MIN = 4
"""Shorter pieces of a line are punctuation between two variable parts."""


@dataclass(frozen=True)
class Page:
    """One page."""

    path: Path

    @property
    def text(self) -> str:
        """All of it."""
        return self.path.read_text()

    def lines(self, kind: str) -> list[str]:
        """The lines of all blocks of a kind."""
        return [
            line
            for found, body in BLOCK.findall(self.text)
            if found == kind
            for line in body.splitlines()
            if line.strip()
        ]

    @property
    def names(self) -> set[str]:
        """Everything in backticks outside of blocks."""
        return set(re.findall(r"`([^`\n]+)`", BLOCK.sub("", self.text)))

    @property
    def links(self) -> set[str]:
        """Files and anchors that it links to."""
        return set(re.findall(r"\]\(([^)\s]+)\)", self.text))

    def exit_codes(self) -> set[tuple[str, int]]:
        """(of which program, code)."""
        text = " ".join(BLOCK.sub("", self.text).split())
        several = {
            (who, int(code))
            for codes, who in EXIT_CODES.findall(text)
            for code in re.findall(r"\d+", codes)
        }
        return several | {(who, int(code)) for code, who in MORE_EXIT_CODES.findall(text)}


def pieces(text: str) -> list[str]:
    """What is fixed in a quoted text."""
    return [piece.strip() for piece in text.split("…") if len(piece.strip()) >= PIECE_MIN]


def fields(line: str) -> dict[str, str]:
    """Key -> quoted value of a JSON line of the log; empty if it is none."""
    return (
        {key: value.strip('"') for key, value in PAIR.findall(line)} if line.startswith("{") else {}
    )

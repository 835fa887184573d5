"""The tables of docs/reference/settings.md, for operators: made of what `cursorkeeper run --help`
says.

`python tools/settings_page.py` writes them; a test compares. The text around them is written by
hand.
"""

from __future__ import annotations

import re
from pathlib import Path

from cursorkeeper.cli.main import load

PAGE = Path(__file__).resolve().parents[1] / "docs/reference/settings.md"
TABLES = re.compile(r"(?<=<!-- made by tools/settings_page.py -->\n).*(?=<!-- end -->)", re.DOTALL)
SAID = re.compile(r"^(.*?) ?\((?:Pulsar's name: (.*?); )?default: (.*)\)$", re.DOTALL)


def tables() -> str:
    """One for each group of settings, in the order of the help."""
    groups: dict[str, list[str]] = {}
    for option in load("run").params:
        panel = getattr(option, "rich_help_panel", None)
        if panel is None or getattr(option, "hidden", False) or not panel.startswith("Settings: "):
            continue
        found = SAID.match(getattr(option, "help", ""))
        assert found is not None, option.name
        text, pulsars, default = (part or "" for part in found.groups())
        named = (
            f"{text} Pulsar's name: {' or '.join(f'`{each}`' for each in pulsars.split(' or '))}."
            if pulsars
            else text
        )
        groups.setdefault(panel.removeprefix("Settings: "), []).append(
            f"| `{option.name}` | {default} | {escaped(named)} |"
        )
    return (
        "".join(
            f"\n## {name[0].upper()}{name[1:]}\n\n| setting | default | what it is |\n| --- | "
            f"--- | --- |\n" + "\n".join(rows) + "\n"
            for name, rows in groups.items()
        )
        + "\n"
    )


def escaped(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(TABLES.sub(lambda _: tables(), PAGE.read_text()))

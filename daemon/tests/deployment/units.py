"""systemd's unit files, read strictly: sections, and every directive in its order.

Owns: the syntax as far as these units use it (comments, continued lines, repeated directives). A
line that is none of it is an
error: systemd would only warn about it in the journal.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

from daemon.tests.deployment.places import SYSTEMD

SECTIONS = ("Unit", "Service", "Install")
_UNITS = {"": 1.0, "s": 1.0, "min": 60.0, "h": 3600.0}
_BYTES = {"M": 1, "G": 1024}


class UnitError(Exception):
    """A line that is no directive, or a directive outside of its section."""


@dataclass(frozen=True)
class Unit:
    """One unit file: (section, directive) -> its values in their order."""

    name: str
    values: dict[tuple[str, str], list[str]]

    @classmethod
    def of(cls, name: str, form: str = "") -> Unit:
        """The file of that name in deploy/systemd, with the drop-in of a form. Raises UnitError."""
        values = _parse(SYSTEMD / f"{name}.service")
        if form:
            _parse(SYSTEMD / form / f"{name}.conf", values)
        return cls(name, values)

    def all(self, directive: str, section: str = "Service") -> list[str]:
        """Every value of a directive."""
        return self.values.get((section, directive), [])

    def one(self, directive: str, section: str = "Service") -> str:
        """Its only value. ValueError if it has none or several."""
        (value,) = self.all(directive, section)
        return value

    def seconds(self, directive: str, section: str = "Service") -> float:
        """A time."""
        form = re.fullmatch(r"(\d+)(\w*)", self.one(directive, section))
        assert form is not None
        return int(form[1]) * _UNITS[form[2]]

    def mebibytes(self, directive: str) -> int:
        """A size."""
        text = self.one(directive)
        return int(text[:-1]) * _BYTES[text[-1]]

    def command(self) -> list[str]:
        """ExecStart in words."""
        return shlex.split(self.one("ExecStart"))

    def environment(self) -> dict[str, str]:
        """Of its own Environment= lines."""
        pairs = [pair for value in self.all("Environment") for pair in shlex.split(value)]
        return dict(pair.split("=", 1) for pair in pairs)

    def credentials(self) -> dict[str, str]:
        """LoadCredential: name -> file."""
        return dict(value.split(":", 1) for value in self.all("LoadCredential"))


def _parse(
    file: Path, before: dict[tuple[str, str], list[str]] | None = None
) -> dict[tuple[str, str], list[str]]:
    """`before`: what a drop-in is added to. An empty value takes those before it away."""
    values = {} if before is None else before
    section = ""
    text = file.read_text().replace("\\\n", " ")
    for line in (line.strip() for line in text.splitlines()):
        if not line or line.startswith("#"):
            continue
        if heading := re.fullmatch(r"\[(\w+)\]", line):
            section = heading[1]
            if section not in SECTIONS:
                raise UnitError(f"{file.name}: [{section}]")
            continue
        form = re.fullmatch(r"([A-Z]\w+)=(.*)", line)
        if form is None or not section:
            raise UnitError(f"{file.name}: {line}")
        given = values.setdefault((section, form[1]), [])
        if not form[2] and before is not None:
            given.clear()
        else:
            given.append(" ".join(form[2].split()))
    return values


def environment_file(name: str) -> dict[str, str]:
    """What an example of an environment file sets; its commented lines that set something, too."""
    lines = (SYSTEMD / name).read_text().splitlines()
    pairs = [line.lstrip("#") for line in lines if re.fullmatch(r"#?[A-Z_]+=.*", line)]
    return dict(pair.split("=", 1) for pair in pairs)


def properties(name: str, form: str = "") -> dict[str, str]:
    """Of an example of a properties file. `form`: a folder of deploy/systemd."""
    lines = [
        line
        for line in (SYSTEMD / form / name).read_text().splitlines()
        if line and not line.startswith("#")
    ]
    return dict(line.split("=", 1) for line in lines)

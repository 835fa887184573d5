"""A lock file of uv: what is pinned, where it is installed, and what asked for it.

Serves the bills of Python distributions and the audit. Reads what `uv pip compile
--generate-hashes` writes, and nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tools.supply_chain.document import SupplyChainError

_PIN = re.compile(r"^([\w.-]+)==([^\s;\\]+)(?: ; ([^\\]+?))? \\$")
_HASH = re.compile(r"^    (--hash=sha256:[0-9a-f]{64})(?: \\)?$")
_VIA = re.compile(r"^    #(?: via)?(?:  )? ?(\S.*)?$")
_WORDLESS = ("-c ", "-r ")


@dataclass(frozen=True)
class Pin:
    """A version of a library that a lock names. `where`: the marker of the environments that get
    it, or nothing. `askers`: the libraries and projects that need it, as the lock writes them.
    """

    name: str
    version: str
    where: str
    hashes: tuple[str, ...]
    askers: tuple[str, ...]

    @property
    def purl(self) -> str:
        """Its name everywhere."""
        return f"pkg:pypi/{self.name}@{self.version}"

    def line(self) -> str:
        """As pip reads it."""
        marker = f" ; {self.where}" if self.where else ""
        return " ".join([f"{self.name}=={self.version}{marker}", *self.hashes])


def read(lock: Path) -> list[Pin]:
    """Every pin. Raises SupplyChainError for a line that is none of a lock's."""
    pins: list[Pin] = []
    for number, line in enumerate(lock.read_text().splitlines(), 1):
        if found := _PIN.match(line):
            name, version, where = found.groups()
            pins.append(Pin(name, version, where or "", (), ()))
        elif pins and (found := _HASH.match(line)):
            pins[-1] = _with(pins[-1], hashes=(*pins[-1].hashes, found[1]))
        elif pins and (found := _VIA.match(line)):
            said = found[1] or ""
            if said not in ("", "via") and not said.startswith(_WORDLESS):
                pins[-1] = _with(pins[-1], askers=(*pins[-1].askers, said.partition(" ")[0]))
        elif line and not line.startswith("# "):  # at its end a lock says what it leaves out
            raise SupplyChainError(
                f"{lock.name}, line {number}: {line!r} is no pin, hash or comment of a lock. "
                "What to do: make the lock again as CONTRIBUTING.md says"
            )
    return pins


def _with(pin: Pin, hashes: tuple[str, ...] = (), askers: tuple[str, ...] = ()) -> Pin:
    return Pin(pin.name, pin.version, pin.where, hashes or pin.hashes, askers or pin.askers)


def asked_for_by(pins: Iterable[Pin], projects: Iterable[str]) -> list[Pin]:
    """Those that these projects need, and what those need: a lock may be for tests, too."""
    left, wanted = list(pins), set(projects)
    taken: list[Pin] = []
    while more := [pin for pin in left if wanted.intersection(pin.askers)]:
        taken += more
        wanted.update(pin.name for pin in more)
        left = [pin for pin in left if pin not in more]
    return sorted(taken, key=lambda pin: (pin.name, pin.version))

"""`python -m tools.supply_chain.audit`: what is known against the libraries of our locks and jars.

Serves who watches a release (`make audit`). Three sources are asked: the index by pip-audit, the
index's page of a project (which speaks of its newest version only), and OSV. Invariants: a library
counts as looked at only if a source answered for this very version; one that none answered for is
named, and then the exit code is never 0. Everything has a limit of time.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tools.supply_chain import java_bill, locks
from tools.supply_chain.document import SupplyChainError, all_components
from tools.supply_chain.java_bill import JAVA, RESOLVED

ROOT = Path(__file__).resolve().parents[2]
OSV_URL = "https://api.osv.dev"
PROJECT_URL = "https://pypi.org/pypi"
NOTHING_KNOWN, SOMETHING_KNOWN, COULD_NOT_LOOK = 0, 1, 3
"""Exit codes."""
REQUEST_MAX_S = 15.0
ALL_MAX_S = 300.0
ANSWER_MAX_BYTES = 64 * 1024 * 1024
OSV_BATCH = 500
ASKED_AT_ONCE = 8
NAMED_MAX = 12
"""Libraries that one sentence names."""


@dataclass
class Findings:
    """What is known: by the purl of a library the identifiers, empty where a source answered that
    there are none; and why a source could not be asked, by its name.
    """

    known: dict[str, set[str]] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)

    def answered(self, purl: str, identifiers: Iterable[str]) -> None:
        """A source spoke of this very version."""
        self.known.setdefault(purl, set()).update(identifiers)

    def join(self, other: Findings) -> None:
        """Of another source."""
        for purl, identifiers in other.known.items():
            self.answered(purl, identifiers)
        for source, why in other.failures.items():
            self.failures.setdefault(source, why)


class Clock:
    """What is left of the time for all of it."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    def left(self, at_most: float = ALL_MAX_S) -> float:
        """Seconds, at least a tenth of one, which any source needs more than."""
        return max(0.1, min(at_most, self._end - time.monotonic()))


def rounds(pins: Iterable[locks.Pin]) -> list[list[locks.Pin]]:
    """Lists in which a library is there in one version: pip-audit takes no other."""
    made: list[dict[str, locks.Pin]] = []
    for pin in sorted({pin.purl: pin for pin in pins}.values(), key=lambda pin: pin.purl):
        free = next((names for names in made if pin.name not in names), None)
        if free is None:
            made.append(free := {})
        free[pin.name] = pin
    return [list(names.values()) for names in made]


def of_pip_audit(text: str, pins: Iterable[locks.Pin]) -> Findings:
    """What its JSON says. A library that it skipped is not in `known`: it ends with 0 and "no known
    vulnerabilities" after skipping everything.
    """
    found, purls = Findings(), {(pin.name, pin.version): pin.purl for pin in pins}
    skipped = []
    for said in json.loads(text)["dependencies"]:
        if "skip_reason" in said:
            skipped.append(str(said["skip_reason"]))
        elif purl := purls.get((said["name"], said["version"])):
            found.answered(purl, (vulnerability["id"] for vulnerability in said["vulns"]))
    if skipped:
        found.failures["the index, by pip-audit"] = f"{len(skipped)} skipped, as: {skipped[0]}"
    return found


def ask_pip_audit(pins: list[locks.Pin], clock: Clock) -> Findings:
    """About one round. Markers are left out: it would leave out what another machine gets."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "pins.txt"
        file.write_text("".join(f"{pin.name}=={pin.version}\n" for pin in pins))
        options = ("--no-deps", "--disable-pip", "--progress-spinner", "off", "--format", "json")
        limits = ("--cache-dir", folder, "--timeout", str(int(REQUEST_MAX_S)))
        try:
            done = subprocess.run(
                [sys.executable, "-m", "pip_audit", "-r", str(file), *options, *limits],
                capture_output=True,
                text=True,
                timeout=clock.left(),
                check=False,
            )
            return of_pip_audit(done.stdout, pins)
        except subprocess.TimeoutExpired as e:
            why = f"no answer within {e.timeout:.0f} s"
        except (json.JSONDecodeError, KeyError, TypeError):
            lines = done.stderr.strip().splitlines() or ["it said nothing"]
            why = f"pip-audit ended with {done.returncode}: {lines[-1][:300]}"
    return Findings(failures={"the index, by pip-audit": why})


def ask_project_pages(pins: list[locks.Pin], clock: Clock) -> Findings:
    """An index may have no page for each version, and one for each project. It speaks of the newest
    version, so it is an answer for those pins that are the newest. The first failure ends it.
    """
    found, source = Findings(), "the index's pages of projects"
    if not pins:
        return found

    def ask(pin: locks.Pin) -> Any:
        return None if found.failures else _asked(f"{PROJECT_URL}/{pin.name}/json", None, clock)

    with ThreadPoolExecutor(ASKED_AT_ONCE) as side_by_side:
        for pin, asking in [(pin, side_by_side.submit(ask, pin)) for pin in pins]:
            try:
                said = asking.result()
                if said is not None and said["info"]["version"] == pin.version:
                    found.answered(pin.purl, (each["id"] for each in said["vulnerabilities"]))
            except (OSError, ValueError, KeyError, TypeError) as e:
                found.failures[source] = f"{pin.name}: {_reason(e)}"
    return found


def ask_osv(purls: Iterable[str], url: str, clock: Clock) -> Findings:
    """Of every kind of library, in batches."""
    found, left = Findings(), sorted(set(purls))
    for begin in range(0, len(left), OSV_BATCH):
        batch = left[begin : begin + OSV_BATCH]
        question = {"queries": [{"package": {"purl": _plain(purl)}} for purl in batch]}
        try:
            answers = _asked(f"{url}/v1/querybatch", question, clock)["results"]
            if len(answers) != len(batch):
                raise ValueError(f"{len(answers)} answers to {len(batch)} questions")
            for purl, answer in zip(batch, answers, strict=True):
                found.answered(purl, (each["id"] for each in answer.get("vulns", ())))
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as e:
            found.failures["OSV"] = f"{url}: {_reason(e)}"
            break
    return found


def _asked(url: str, question: Any, clock: Clock) -> Any:
    body = None if question is None else json.dumps(question).encode()
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=clock.left(REQUEST_MAX_S)) as answer:
        text = answer.read(ANSWER_MAX_BYTES + 1)
    if len(text) > ANSWER_MAX_BYTES:
        raise ValueError(f"an answer of more than {ANSWER_MAX_BYTES} bytes")
    return json.loads(text)


def _plain(purl: str) -> str:
    """Without what OSV does not compare."""
    return purl.partition("?")[0]


def _kind(purl: str) -> str:
    return purl.removeprefix("pkg:").partition("/")[0]


def _reason(error: Exception) -> str:
    cause = error.reason if isinstance(error, urllib.error.URLError) else error
    return str(cause) or type(cause).__name__


def of_jars() -> list[str]:
    """The purls of what Maven resolved for our jars, with what these embed. Raises
    SupplyChainError.
    """
    purls = []
    for module in RESOLVED:
        file = JAVA / module / "target/sbom.json"
        if not file.is_file():
            raise SupplyChainError(f"there is no {file}. What to do: make audit, which makes it")
        files = java_bill.files_of(module)
        for part in all_components(json.loads(file.read_text())):
            purls.append(str(part["purl"]))
            for hashed in part.get("hashes", ()):
                if found := files.get(hashed["content"]):
                    purls += [str(inner["purl"]) for inner in java_bill.embedded(part, found)]
    return purls


def report(asked: Mapping[str, list[str]], found: Findings) -> tuple[list[str], int]:
    """Sentences, and the exit code. `asked`: by the purl of a library where it is named."""
    lines = [
        f"KNOWN: {purl} ({', '.join(asked[purl])}): {', '.join(sorted(identifiers))}"
        for purl, identifiers in sorted(found.known.items())
        if identifiers
    ]
    dark = sorted(set(asked) - set(found.known))
    code = SOMETHING_KNOWN if lines else COULD_NOT_LOOK if dark else NOTHING_KNOWN
    lines.append(
        f"looked at {len(asked) - len(dark)} of {len(asked)} libraries; something is known "
        f"against {len(lines)}"
    )
    if dark:
        for kind in sorted({_kind(purl) for purl in dark}):
            of_kind = [_plain(purl).split("/", 1)[1] for purl in dark if _kind(purl) == kind]
            more = ", ..." if len(of_kind) > NAMED_MAX else ""
            lines.append(
                f"COULD NOT LOOK at {len(of_kind)} libraries of {kind}: "
                f"{', '.join(of_kind[:NAMED_MAX])}{more}"
            )
        lines += [f"  {source}: {why}" for source, why in sorted(found.failures.items())]
        lines.append(
            "What to do: run it where PyPI and OSV can be reached, or name a mirror of OSV's API "
            "(make audit OSV_URL=...). Until then nobody knows about these"
        )
    return lines, code


def main(arguments: list[str] | None = None) -> int:
    """The command. Returns its exit code."""
    parser = argparse.ArgumentParser(prog="python -m tools.supply_chain.audit")
    parser.add_argument("--osv-url", default=OSV_URL, help="of OSV's API, or of a mirror")
    parser.add_argument(
        "--locks", type=Path, nargs="*", help="those of the repository, if not said"
    )
    said = parser.parse_args(arguments)
    clock = Clock(ALL_MAX_S)
    asked: dict[str, list[str]] = {}
    pins: dict[str, locks.Pin] = {}
    found = Findings()
    try:
        for lock in said.locks or sorted(ROOT.glob("requirements*.lock")):
            for pin in locks.read(lock):
                pins[pin.purl] = pin
                asked.setdefault(pin.purl, []).append(lock.name)
        for purl in [] if said.locks else of_jars():
            asked.setdefault(purl, ["jars"])
    except (SupplyChainError, OSError) as e:
        print(f"COULD NOT LOOK: {e}", file=sys.stderr)
        return COULD_NOT_LOOK
    for each in rounds(pins.values()):
        found.join(ask_pip_audit(each, clock))
    left = [pin for purl, pin in sorted(pins.items()) if purl not in found.known]
    found.join(ask_project_pages(left, clock))
    found.join(ask_osv(asked, said.osv_url.rstrip("/"), clock))
    lines, code = report(asked, found)
    print("\n".join(lines))
    return code


if __name__ == "__main__":
    sys.exit(main())

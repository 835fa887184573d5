"""An audit says what it found, and never that nothing is known where it could not look."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tools.supply_chain import audit, locks
from tools.supply_chain.audit import COULD_NOT_LOOK, NOTHING_KNOWN, SOMETHING_KNOWN, Findings

ROOT = Path(__file__).resolve().parents[3]
LOCK = "requirements-client.lock"


@pytest.fixture
def closed_port() -> Iterator[int]:
    """Nobody listens there, and nobody else gets it meanwhile."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


@contextmanager
def osv(knows: dict[str, list[str]], *, answers: int | None = None) -> Iterator[str]:
    """The address of something that speaks OSV's way of asking in batches. `answers`: how many it
    gives, if not one for each question.
    """

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["queries"]
            said = [
                {"vulns": [{"id": each} for each in found]} if found else {}
                for found in (knows.get(each["package"]["purl"]) for each in asked)
            ]
            text = json.dumps({"results": said[:answers]}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    serving = threading.Thread(target=server.serve_forever)
    serving.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        serving.join(10)
        server.server_close()


def run(osv_url: str, closed_port: int) -> subprocess.CompletedProcess[str]:
    """The command on one lock, where the index is behind a proxy that is not there."""
    proxy = f"http://127.0.0.1:{closed_port}"
    around = {name: value for name, value in os.environ.items() if "proxy" not in name.lower()}
    around |= {"HTTPS_PROXY": proxy, "https_proxy": proxy}
    return subprocess.run(
        [sys.executable, "-m", "tools.supply_chain.audit", "--osv-url", osv_url, "--locks", LOCK],
        cwd=ROOT,
        env=around,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def pins() -> list[locks.Pin]:
    return locks.read(ROOT / LOCK)


def test_where_no_source_can_be_reached_it_says_that_it_could_not_look(closed_port: int) -> None:
    ran = run(f"http://127.0.0.1:{closed_port}", closed_port)
    assert ran.returncode == COULD_NOT_LOOK, ran.stderr
    count = len(pins())
    assert f"looked at 0 of {count} libraries" in ran.stdout
    assert f"COULD NOT LOOK at {count} libraries of pypi: grpcio@" in ran.stdout
    assert "OSV: http://127.0.0.1" in ran.stdout and "the index, by pip-audit: " in ran.stdout
    assert "What to do: run it where PyPI and OSV can be reached" in ran.stdout
    assert "no known" not in ran.stdout.lower()


def test_one_source_that_answers_is_enough(closed_port: int) -> None:
    with osv({}) as url:
        ran = run(url, closed_port)
    assert (ran.returncode, "COULD NOT" in ran.stdout) == (NOTHING_KNOWN, False), ran.stdout


def test_what_is_known_is_named_with_its_lock(closed_port: int) -> None:
    (grpcio,) = (pin for pin in pins() if pin.name == "grpcio")
    with osv({grpcio.purl: ["GHSA-aaaa-bbbb-cccc"]}) as url:
        ran = run(url, closed_port)
    assert ran.returncode == SOMETHING_KNOWN
    assert f"KNOWN: {grpcio.purl} ({LOCK}): GHSA-aaaa-bbbb-cccc" in ran.stdout


def test_an_answer_that_is_too_short_is_none(closed_port: int) -> None:
    with osv({}, answers=2) as url:
        ran = run(url, closed_port)
    assert ran.returncode == COULD_NOT_LOOK and "2 answers to" in ran.stdout


def test_what_pip_audit_skips_was_not_looked_at() -> None:
    """It ends with 0 then, and says that no vulnerability is known."""
    one, two, three = (locks.Pin(name, "1", "", (), ()) for name in ("one", "two", "three"))
    text = json.dumps(
        {
            "dependencies": [
                {"name": "one", "skip_reason": "Dependency not found on PyPI"},
                {"name": "two", "version": "1", "vulns": []},
                {"name": "three", "version": "1", "vulns": [{"id": "PYSEC-1", "fix_versions": []}]},
            ],
            "fixes": [],
        }
    )
    found = audit.of_pip_audit(text, [one, two, three])
    assert found.known == {two.purl: set(), three.purl: {"PYSEC-1"}}
    assert "1 skipped" in found.failures["the index, by pip-audit"]
    lines, code = audit.report({pin.purl: ["a.lock"] for pin in (one, two, three)}, found)
    assert code == SOMETHING_KNOWN
    assert lines[0] == f"KNOWN: {three.purl} (a.lock): PYSEC-1"
    assert any(line.startswith("COULD NOT LOOK at 1 libraries of pypi: one@1") for line in lines)


def test_two_versions_of_a_library_are_asked_about_one_after_the_other() -> None:
    made = audit.rounds(pins())
    assert [len({pin.name for pin in each}) for each in made] == [len(each) for each in made]
    assert sorted(pin.purl for each in made for pin in each) == sorted(pin.purl for pin in pins())
    assert len(made) == 2, "the lock has two versions of numpy, for two kinds of Python"


def test_sources_join_what_they_know() -> None:
    a, b, c = (f"pkg:maven/group/{name}@1" for name in "abc")
    found = Findings({a: {"one"}, b: set()})
    found.join(Findings({a: {"two"}}, {"OSV": "away"}))
    assert found.known == {a: {"one", "two"}, b: set()}
    assert audit.report({a: [], c: []}, found)[1] == SOMETHING_KNOWN
    assert audit.report({b: [], c: []}, Findings({b: set()}))[1] == COULD_NOT_LOOK
    assert audit.report({b: []}, Findings({b: set()}))[1] == NOTHING_KNOWN

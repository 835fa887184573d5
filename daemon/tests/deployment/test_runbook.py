"""Every log line, metric, setting, flag, alert, exit code, test and link in the runbook exists: a
page that quotes words which the programs no longer say sends an operator searching for nothing.
"""

from __future__ import annotations

import re
import zipfile
from bisect import bisect_left
from functools import cache

import pytest
import yaml

from cursorkeeper.cli.main import LAZY
from cursorkeeper.core.table import State
from cursorkeeper.settings import Settings
from cursorkeeper.terminal import failure
from daemon.tests.deployment import code_facts
from daemon.tests.deployment.places import DOCS, ROOT
from daemon.tests.deployment.quoted import Page, fields, pieces

RUNBOOK = DOCS / "runbook"
PAGES = {path.stem: Page(path) for path in sorted(RUNBOOK.glob("*.md"))}
INDEX = PAGES["index"]
RUNNING = {
    f"run/{name}": Page(DOCS / f"run/{name}.md")
    for name in ("index", "install", "containers", "security", "upgrades")
}
WITH_NAMES = {**PAGES, **RUNNING}
"""Pages whose names and links are checked."""
JAR = ROOT / "java/gateway/target/cursorkeeper-gateway.jar"
KILLED, TERMINATED, JVM_OUT_OF_MEMORY = 128 + 9, 128 + 15, 3
SHOUTED = {
    *("SIGKILL", "SIGTERM", "NOT_SERVING", "SERVING", "BASE_IMAGE"),
    # variables of a broker and of any JVM, and kinds of key files
    *("PULSAR_EXTRA_OPTS", "JAVA_TOOL_OPTIONS", "PEM", "JKS"),
}
BOOKKEEPERS_OWN = {
    "forceReadOnlyBookie",
    "openLedgerRereplicationGracePeriod",
    "lostBookieRecoveryDelay",
    "decommissionbookie",
    "bookieAuthProviderFactoryClass",
}
PULSARS_OWN = {
    "dispatcherPauseOnAckStatePersistentEnabled",
    "brokerClientCertificateFilePath",
    "brokerClientKeyFilePath",
    "brokerClientTrustCertsFilePath",
    "tlsCertificateFilePath",
    "tlsTrustCertsFilePath",
}
BETWEEN = " .,:;()"
"""Stands between two templates, or between a template and a value."""
TEMPLATE_MIN = 20
"""Any word is somewhere in the source; some in a row are a template. So is a code, and what ends in
a colon.
"""
each_page = pytest.mark.parametrize("page", PAGES.values(), ids=list(PAGES))
each_with_names = pytest.mark.parametrize("page", WITH_NAMES.values(), ids=list(WITH_NAMES))


@cache
def program_words() -> str:
    """All source, with strings that are cut over lines put together, and escapes as people read
    them.
    """
    python = re.sub(r'"\s*\n\s*f?"', "", code_facts.python_source())
    java = re.sub(r'"\s*\+\s*"', "", code_facts.java_source() + code_facts.broker_source())
    return f"{python}\n{java}".replace('\\"', '"')


def is_said(text: str) -> bool:
    """Whether it is made of what the programs say: a line is put together from templates, each of
    which is in the source as it is.
    """
    rest = text.strip(BETWEEN)
    while rest := rest.removeprefix("What to do: "):
        longest = bisect_left(
            range(1, len(rest) + 1), True, key=lambda n: rest[:n] not in program_words()
        )
        while (
            longest
            and longest < len(rest)
            and rest[longest].isalnum()
            and rest[longest - 1].isalnum()
        ):
            longest -= 1  # whole words
        template = rest[:longest]
        if (
            longest < min(TEMPLATE_MIN, len(rest))
            and not template.isupper()
            and not template.endswith((": ", ", "))
        ):
            return False
        rest = rest[longest:].lstrip(BETWEEN)
    return True


def test_words_that_nobody_says_are_noticed() -> None:
    assert is_said("BookKeeper: creating a ledger: CONNECTION_LOST, UNKNOWN:")
    assert not is_said("BookKeeper: making a ledger: CONNECTION_LOST") and not is_said(
        "the gateway has gone away for good"
    )


@each_page
def test_what_the_daemon_logs_is_what_it_logs(page: Page) -> None:
    for line in page.lines("daemon"):
        found = fields(line)
        for key, value in found.items():
            assert (
                f'"{key}"' in program_words()
                or f"{key}=" in program_words()
                or re.search(rf"\b{key}\b", program_words())
            ), key
            for piece in pieces(value):
                assert is_said(piece), f"{page.path.name}: no code says {piece!r} (in {line})"
        if found:
            assert f'"{found["event"].partition(":")[0]}' in program_words()
            assert found.get("level", "info") in ("info", "warning")
        else:
            assert all(is_said(piece) for piece in pieces(line)), f"{page.path.name}: {line}"


@each_page
def test_what_others_say_is_what_they_say(page: Page) -> None:
    for line in (*page.lines("source"), *page.lines("gateway"), *page.lines("broker")):
        assert all(is_said(piece) for piece in pieces(line)), (
            f"{page.path.name}: nobody says {line!r}"
        )


@pytest.mark.jvm
def test_what_the_libraries_in_the_jar_say_is_in_the_jar() -> None:
    wanted = {
        (page.path.name, line) for page in PAGES.values() for line in page.lines("bookkeeper")
    }
    missing = dict.fromkeys(line for _, line in wanted)
    with zipfile.ZipFile(JAR) as jar:
        for name in jar.namelist():
            if name.endswith(".class") and name.startswith(
                ("org/apache/bookkeeper/", "org/apache/zookeeper/")
            ):
                data = jar.read(name)
                for line in [line for line in missing if line.encode() in data]:
                    del missing[line]
    assert wanted and not missing


@each_with_names
async def test_names_in_backticks_exist(page: Page) -> None:
    metrics = await code_facts.daemon_metrics() | code_facts.gateway_metrics()
    for name in page.names:
        bare = name.partition("{")[0]
        if re.fullmatch(r"(cursorkeeper|process)_\w+", bare):
            assert bare in metrics, f"{page.path.name}: no metric {bare}"
            for label, value in re.findall(r'(\w+)="(\w+)"', name):
                assert value in {str(s) for s in State} or f'"{value}' in program_words(), (
                    f"{page.path.name}: {label}={value}"
                )
        elif re.fullmatch(r"pulsar_cursorkeeper_\w+", bare):
            assert bare in code_facts.plugin_metrics(), f"{page.path.name}: no metric {bare}"
        elif name.startswith("cursorKeeper"):
            assert name.partition("=")[0] in code_facts.plugin_settings(), (
                f"{page.path.name}: the plugin has no setting {name}"
            )
        elif re.fullmatch(r"[a-z]+(_[a-z0-9]+)+", name):
            assert name in code_facts.settings(), f"{page.path.name}: no setting {name}"
        elif re.fullmatch(r"CursorKeeper[A-Z]\w+", name):
            assert name in alerts(), f"{page.path.name}: no alert {name}"
        elif re.fullmatch(r"[A-Z]+(_[A-Z]+)*", name):
            assert name in SHOUTED or f'"{name}"' in program_words(), (
                f"{page.path.name}: {name} is no state, code or reason"
            )
        elif name.startswith("--"):
            flag = name[2:].partition(" ")[0]
            assert flag in code_facts.jar_flags() or flag.replace("-", "_") in program_words(), (
                f"{page.path.name}: no flag {name}"
            )
        elif name.startswith("cursorkeeper "):
            command = name.split()[1]
            assert command in LAZY or command == "--version", f"{page.path.name}: no command {name}"
        elif re.fullmatch(r"[\w./]+\.py|[\w./]+/", name):
            assert (ROOT / name).exists(), f"{page.path.name}: no {name}"
        elif re.fullmatch(r"[a-z]+[A-Z]\w*", name):
            assert (
                name in BOOKKEEPERS_OWN | PULSARS_OWN or f'"{name}"' in code_facts.java_source()
            ), f"{page.path.name}: nobody reads {name}"


@each_page
def test_exit_codes_are_those_of_the_programs(page: Page) -> None:
    main = code_facts.java(code_facts.JAVA / "io/cursorkeeper/gateway/Main.java")
    jar = {int(code) for code in re.findall(r"halt\((\d)", main)}
    assert jar == {1, 2} and "ExitOnOutOfMemoryError" in (ROOT / "java/Dockerfile").read_text()
    known = {
        "daemon": {0, failure.NO, failure.USAGE, failure.AWAY, failure.BUG, KILLED},
        "gateway": jar | {JVM_OUT_OF_MEMORY, TERMINATED, KILLED},
        "bookie": jar,
        "ZooKeeper server": jar,
    }
    for who, code in page.exit_codes():
        assert code in known[who], f"{page.path.name}: exit code {code} of the {who}"


def test_exit_codes_are_found_at_all() -> None:
    assert {code for who, code in PAGES["daemon"].exit_codes() if who == "daemon"} == {
        0,
        1,
        2,
        3,
        137,
    }
    assert {code for who, code in PAGES["gateway"].exit_codes() if who == "gateway"} >= {
        1,
        2,
        3,
        137,
        143,
    }


@each_with_names
def test_links_lead_somewhere(page: Page) -> None:
    for link in page.links:
        file, _, anchor = link.partition("#")
        target = (page.path.parent / file).resolve() if file else page.path
        assert target.exists(), f"{page.path.name}: {link}"
        if anchor:
            headings = re.findall(r"^#+ (.*)$", target.read_text(), re.MULTILINE)
            assert anchor in {
                re.sub(r"[^\w -]", "", h).strip().lower().replace(" ", "-") for h in headings
            }, link


@each_page
def test_a_page_says_what_is_seen_what_happens_what_to_do_and_when_it_is_over(page: Page) -> None:
    if page is INDEX:
        return
    text = page.text
    assert (
        "What you see" in text
        and "itself" in text
        and "\n## What to do\n" in text
        and "\n## How to know it is over\n" in text
    )
    assert "\nShown by `" in text, "a page without a test is a guess"
    assert len(text.splitlines()) < 120


def test_the_index_has_every_page_and_every_alert() -> None:
    assert INDEX.links >= {f"{name}.md" for name in PAGES if name != "index"}
    assert {name for name in INDEX.names if name.startswith("CursorKeeper")} == alerts().keys()


def test_an_alert_leads_to_a_page_that_speaks_of_it() -> None:
    for name, rule in alerts().items():
        text = (ROOT / rule["annotations"]["runbook"]).read_text()
        assert name in text or "pulsar-mode" in rule["annotations"]["runbook"], (
            f"{name} is not on {rule['annotations']['runbook']}"
        )


@cache
def alerts() -> dict[str, dict[str, dict[str, str]]]:
    """Name -> rule."""
    groups = yaml.safe_load((ROOT / "deploy/prometheus/alerts.yaml").read_text())["groups"]
    return {rule["alert"]: rule for group in groups for rule in group["rules"]}


def test_the_ports_of_the_page_are_those_of_the_images_and_settings() -> None:
    table = re.findall(r"^\| (\d{4}) \| (\w+) \|", RUNNING["run/index"].text, re.MULTILINE)
    daemon, jar = ((ROOT / file).read_text() for file in ("Dockerfile", "java/Dockerfile"))
    exposed = {
        port: who
        for who, file in (("daemon", daemon), ("jar", jar))
        for line in exposes(file)
        for port in line.split()
    }
    assert {port for port, _ in table} == set(exposed)
    assert all((who == "daemon") == (exposed[port] == "daemon") for port, who in table)
    assert (
        Settings.of().daemon.listen.endswith(":7650")
        and Settings.of().daemon.metrics_listen.endswith(":7652")
        and Settings.of().systems.gateway.endswith(":7651")
    )


def exposes(file: str) -> list[str]:
    return re.findall(r"^EXPOSE (.*)$", file, re.MULTILINE)

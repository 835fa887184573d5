"""What the pages say is true: the diagram is the table's, cited files exist, and nothing names a
machine or an index.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from cursorkeeper.cli.main import LAZY, load
from cursorkeeper.core.table import diagrams
from cursorkeeper.settings import SETTINGS
from cursorkeeper_pipeline.cli import JOBS
from cursorkeeper_pipeline.cli import command as job
from tools import settings_page

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    "README.md",
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "docs/migrate/assess.md",
    "docs/migrate/migration.md",
    "docs/reference/data-format.md",
    "docs/reference/pulsar-format.md",
    "docs/reference/pulsar-mode.md",
    "docs/reference/requirements.md",
    "docs/reference/fleet-tables.md",
    "docs/run/pipeline.md",
]
CITED = re.compile(r"`((?:[\w.-]+/)+[\w.*-]*)`|\]\(([\w./-]+)\)")
LINK = re.compile(r"\]\((?!\w+:)([^)\s]+)\)")
FENCED = re.compile(r"^( *)```.*?^\1```$", re.MULTILINE | re.DOTALL)
BLOCK = re.compile(r"^ *```(\w*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
CALL = re.compile(
    r"(?:^|[\s$(]|bin/)cursorkeeper ((?:pipeline )?(?!not found)[a-z][a-z-]+)(?=\s|$)([^|>#;\n]*)"
)
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)
BUILT = ("java/gateway/target/", ".build/")


def tracked() -> list[str]:
    out = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True
    ).stdout
    return [name for name in out.decode().split("\0") if name]


def test_the_diagrams_of_phases_are_the_tables() -> None:
    page = (ROOT / "ARCHITECTURE.md").read_text()
    shown = re.findall(r"```mermaid\n(stateDiagram-v2\n.*?)\n```", page, re.DOTALL)
    assert shown == list(diagrams().values())


def test_every_rule_that_code_cites_is_on_the_page() -> None:
    page = (ROOT / "ARCHITECTURE.md").read_text()
    rules = [int(n) for n in re.findall(r"^- \*\*Rule (\d+)\.\*\* ", page, re.MULTILINE)]
    assert rules == list(range(1, len(rules) + 1))
    cited = re.compile(r"\bARCHITECTURE(?:\.md)?,? rules? (\d+(?:(?:, | and | to )\d+)*)")
    elsewhere = re.compile(r"\b(?!ARCHITECTURE)[A-Z]{4,} rules? \d")
    guilty = {}
    citations = 0
    for name in tracked():
        if not name.endswith((".py", ".java", ".proto")) or not (ROOT / name).is_file():
            continue
        text = " ".join((ROOT / name).read_text().split())
        if elsewhere.search(text):
            guilty[name] = "a rule of another page"
        for numbers in cited.findall(text):
            citations += 1
            if missing := {int(n) for n in re.findall(r"\d+", numbers)} - set(rules):
                guilty[name] = f"no rule {missing}"
    assert not guilty
    assert citations >= 15, "the code cites the rules in another way than this test looks for"


@pytest.mark.parametrize("page", PAGES)
def test_cited_files_exist(page: str) -> None:
    text = (ROOT / page).read_text()
    cited = [a or b for a, b in CITED.findall(text)]
    missing = [
        c
        for c in cited
        if not (ROOT / c).exists()
        and not ((ROOT / page).parent / c).exists()
        and not c.startswith(BUILT)
    ]
    assert not missing


@pytest.mark.parametrize("name", [name for name in tracked() if name.endswith(".md")])
def test_links_lead_somewhere(name: str) -> None:
    missing = []
    for link in LINK.findall(FENCED.sub("", (ROOT / name).read_text())):
        file, _, anchor = link.partition("#")
        found = ((ROOT / name).parent / file) if file else ROOT / name
        if not found.exists() or (anchor and anchor not in anchors(found)):
            missing.append(link)
    assert not missing


def anchors(page: Path) -> set[str]:
    """Of its headings, as repository hosts and the site make them."""
    headings = HEADING.findall(FENCED.sub("", page.read_text()))
    return {
        re.sub(r"[^\w -]", "", re.sub(r"\]\([^)]*\)", "", heading))
        .strip()
        .lower()
        .replace(" ", "-")
        for heading in headings
    }


@pytest.mark.parametrize(
    "name", [name for name in tracked() if name.startswith("docs/") and name.endswith(".md")]
)
def test_the_site_reads_lists_as_repository_hosts_do(name: str) -> None:
    """It wants an empty line before a list, and four spaces before what belongs to an item."""
    text = (ROOT / name).read_text()
    prose = FENCED.sub("", text)
    item = r"(?:[-*]|\d+\.) "
    glued = re.findall(rf"^(?![ #|])(?!{item}).+\n{item}.*$", prose, re.MULTILINE)
    shallow = re.findall(r"\n\n {1,3}[^ \n].*$", prose, re.MULTILINE)
    fences = re.findall(r"^ {1,3}```.*$", text, re.MULTILINE)
    assert not [*glued, *shallow, *fences]


def test_no_index_hosts_and_no_machine_paths_in_tracked_files() -> None:
    bad = re.compile(rb"https?://[^\s\")]+/(?:simple|maven2|packages)/|[\s\"'=(](?:/home/|/root/)")
    guilty = [
        n
        for n in tracked()
        if (ROOT / n).is_file() and not n.endswith(".gz") and bad.search((ROOT / n).read_bytes())
    ]
    assert not guilty


def test_locks_have_hashes_and_no_urls() -> None:
    for name in sorted(ROOT.glob("requirements*.lock")):
        text = name.read_text()
        assert "--hash=sha256:" in text
        assert not re.search(r"http|file:|^-e|^\S+ @", text, re.MULTILINE)


@pytest.mark.parametrize("others", ["docs", "release"])
def test_the_programs_of_site_and_release_fit_beside_the_tests(others: str) -> None:
    """All locks are installed into one environment."""
    ours, theirs, sites = (
        dict(
            re.findall(
                r"^([\w.-]+)==(\S+)", (ROOT / f"requirements-{name}.lock").read_text(), re.MULTILINE
            )
        )
        for name in ("dev", others, "docs")
    )
    known = sites | ours
    assert {
        name: version for name, version in theirs.items() if known.get(name, version) != version
    } == {}


def test_the_settings_are_those_of_the_help() -> None:
    page = settings_page.PAGE.read_text()
    found = settings_page.TABLES.search(page)
    assert found is not None
    assert found[0] == settings_page.tables(), "run tools/settings_page.py"


def calls(text: str) -> list[tuple[str, list[str]]]:
    """(command, its flags) of every call of the tool on a page, in blocks and in backticks."""
    code = [body for _, body in BLOCK.findall(text)] + re.findall(
        r"`([^`\n]+)`", BLOCK.sub("", text)
    )
    found = []
    for line in "\n".join(code).replace("\\\n", " ").splitlines():
        for command, rest in CALL.findall(line):
            found.append(
                (command, re.findall(r"(?<= )--?[a-z][\w-]*", " " + rest.partition(" -- ")[0]))
            )
    return found


@pytest.mark.parametrize(
    "name", [name for name in tracked() if name.endswith(".md") and name != "CHANGELOG.md"]
)
def test_commands_and_flags_are_the_tools(name: str) -> None:
    for command, flags in calls((ROOT / name).read_text()):
        words = command.split()
        assert words[0] in LAZY, f"no command {command}"
        assert len(words) == 1 or words[1] in JOBS, f"no job {words[1]}"
        program = load(words[0]) if len(words) == 1 else job(words[1])
        known = {"-h", "--help"}.union(
            *((*param.opts, *param.secondary_opts) for param in program.params)
        )
        assert set(flags) <= known, f"{command}: {set(flags) - known}"


def test_targets_of_make_exist() -> None:
    targets = set(
        re.findall(r"^([a-z][a-z-]*):(?!=)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    )
    for name, text in pages():
        code = [body for _, body in BLOCK.findall(text)] + re.findall(
            r"`([^`\n]+)`", BLOCK.sub("", text)
        )
        named = {
            target
            for line in "\n".join(code).splitlines()
            for target in re.findall(r"^ *make ([a-z][a-z-]*)(?=\s|$)", line)
        }
        assert named <= targets, f"{name}: {named - targets}"


def test_calls_are_found_at_all() -> None:
    text = (
        "```\n.venv/bin/cursorkeeper ls --json | head -3\ncursorkeeper pipeline report \\\n  "
        "--out=x\n```\n`cursorkeeper gc --grace 3`"
    )
    assert calls(text) == [("ls", ["--json"]), ("pipeline report", ["--out"]), ("gc", ["--grace"])]
    assert len([call for _, text in pages() for call in calls(text)]) > 80


def test_the_page_of_the_ack_stream_has_every_code_and_no_other_name() -> None:
    page, proto = (
        (ROOT / name).read_text() for name in ("docs/reference/ack-stream.md", "proto/acks.proto")
    )
    codes = re.search(r"enum RefusedCode \{(.*?)\n\}", proto, re.DOTALL)
    assert codes is not None
    table = page[page.index("| code of `Refused` |") :]
    assert set(re.findall(r"^\| `([A-Z_]+)` \|", table, re.MULTILINE)) == set(
        re.findall(r"^ +([A-Z_]+) = [1-9]", codes[1], re.MULTILINE)
    )
    named = set(re.findall(r"`([A-Za-z_]+)`", page)) - {"sources", "listen", "cursorkeeper_client"}
    assert not {
        name for name in named if not re.search(rf"\b{name}\b", proto) and name not in SETTINGS
    }


def pages() -> list[tuple[str, str]]:
    """Every page and its text."""
    return [
        (name, (ROOT / name).read_text())
        for name in tracked()
        if name.endswith(".md") and (ROOT / name).is_file()
    ]


def test_pages_install_the_wheel_and_from_no_index() -> None:
    bare = re.compile(r"pip install ['\"]?cursorkeeper(?!(?:_\w+)?-[\dV])")
    assert not [name for name, text in pages() if bare.search(text)]
    version = re.search(
        r'^version = "(.*)"$', (ROOT / "daemon/pyproject.toml").read_text(), re.MULTILINE
    )
    assert version is not None
    for name in (
        "README.md",
        "docs/start/try-it.md",
        "docs/run/install.md",
        "docs/migrate/migration.md",
        "docs/run/pipeline.md",
    ):
        assert f"cursorkeeper-{version[1]}-py3-none-any.whl" in (ROOT / name).read_text(), name


def test_all_pages_name_the_same_root_and_no_chroot() -> None:
    """Behind another chroot, what one page has made would not be seen by what the next page
    says.
    """
    chroot = re.compile(
        r"--(?:pulsar-)?zookeeper[= "
        r"](?:ZK|[\w.,-]+:\d+)/\w+|CURSORKEEPER_ZOOKEEPER=\S+:\d+/\w+|^zookeeper = \"[^\"/]+/\w+",
        re.MULTILINE,
    )
    files = [
        *pages(),
        *(
            (name, (ROOT / name).read_text())
            for name in tracked()
            if name.startswith("deploy/") and name.endswith(".toml")
        ),
    ]
    assert not [(name, found[0]) for name, text in files if (found := chroot.search(text))]


def test_what_the_plugin_can_do_and_what_not_is_said_on_top() -> None:
    for name, limit in (
        ("README.md", "not yet"),
        ("docs/migrate/migration.md", "only by the plugin"),
    ):
        top = " ".join((ROOT / name).read_text().split())[:1_500]
        assert "today" in top and "plugin" in top and limit in top, name

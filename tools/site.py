"""What `make docs` does beyond MkDocs, for readers of the site: pages that lie beside their code
are on it, too, and links to other files of the repository lead to copies of them.

Invariant: nothing on the site is loaded from elsewhere.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
DOCS = "docs/"
BESIDE_CODE = (
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "bench/README.md",
    "clients/README.md",
    "java/README.md",
    "java/pulsar-plugin/README.md",
    "java/pulsar-receipts/README.md",
)
LINK = re.compile(r"(?<=\]\()(?!\w+:)([^)#\s]+)(?=[)#])")
DIAGRAM = re.compile(r"^```mermaid\nstateDiagram-v2\n(.*?)^```$", re.MULTILINE | re.DOTALL)
MOVE = re.compile(r"^ *(\w+) --> (\w+): (.*)$", re.MULTILINE)
LOADED = re.compile(
    r"<(?:script|img|iframe|source)\b[^>]*?\ssrc=[\"']?(?:https?:)?//|<link\b(?![^>]*rel=\"?canonical)[^>]*?\shref=[\"']?(?:https?:)?//"
)


def target(page: str, link: str) -> str:
    """The file in the repository that a link of a page leads to; both by their path from the
    root.
    """
    return posixpath.normpath(posixpath.join(posixpath.dirname(page), link))


def links(page: str) -> set[str]:
    return {target(page, link) for link in LINK.findall((ROOT / page).read_text())}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds what lies outside docs/: the pages, and every file that a page links to. Raises
    PluginError for a folder.
    """
    pages = [*BESIDE_CODE, *(DOCS + file.src_uri for file in files.documentation_pages())]
    named = {name for page in pages for name in links(page) if not name.startswith((DOCS, ".."))}
    for name in sorted({*BESIDE_CODE, *named} - {"README.md"}):
        if (ROOT / name).is_dir():
            raise PluginError(f"a page links to the folder {name}: link to a file, or only name it")
        if (ROOT / name).is_file():
            inclusion = (
                InclusionLevel.INCLUDED if name in BESIDE_CODE else InclusionLevel.NOT_IN_NAV
            )
            files.append(
                File.generated(config, name, abs_src_path=str(ROOT / name), inclusion=inclusion)
            )
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Links as they are in the repository become links between the places on the site."""
    here = page.file.src_uri
    origin = here if page.file.generated_by else DOCS + here

    def moved(link: re.Match[str]) -> str:
        name = target(origin, link[1])
        place = "index.md" if name == "README.md" else name.removeprefix(DOCS)
        return posixpath.relpath(place, posixpath.dirname(here) or ".")

    return LINK.sub(moved, DIAGRAM.sub(lambda found: table_of(found[1]), markdown))


def table_of(diagram: str) -> str:
    """A diagram of states as a table: what would draw it in a browser is no part of the site."""
    rows = [f"| {before} | {after} | {when} |" for before, after, when in MOVE.findall(diagram)]
    return "\n".join(["| from | to | when |", "| --- | --- | --- |", *rows])


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """Raises PluginError for a page that loads anything from elsewhere."""
    if found := LOADED.search(output):
        raise PluginError(f"{page.file.src_uri} loads something from elsewhere: {found[0]}")
    return output

"""docs/reference/data-format.md is what the code does: its example is decoded from the page itself,
its numbers are compared.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

from cursorkeeper.core import sizes
from cursorkeeper.core.footer import Truncation
from cursorkeeper.core.names import CursorName
from cursorkeeper.core.values import CursorProperties, LayoutState, Stamp
from cursorkeeper.format import footer, record
from cursorkeeper.format.codec import Codec
from cursorkeeper.format.fields import Field
from cursorkeeper.format.sections import Mode
from daemon.tests.format.bounds import CONTAINERS_PER_SEGMENT
from daemon.tests.format.described import record_of
from daemon.tests.format.test_footer import PLAIN

PAGE = (Path(__file__).parents[3] / "docs/reference/data-format.md").read_text()


def block(kind: str) -> str:
    found = re.findall(rf"```{kind}\n(.*?)```", PAGE, re.DOTALL)
    assert len(found) == 1
    return str(found[0])


def example() -> bytes:
    return b"".join(bytes.fromhex(line.partition("#")[0]) for line in block("hex").splitlines())


def section(title: str) -> str:
    return PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def test_the_example_is_the_record_it_describes() -> None:
    value = record_of(json.loads(block("json")))
    assert record.decode(example(), value.cursor_hash) == value
    assert record.encode(value) == example()


def test_the_example_is_told_right() -> None:
    entry = example()
    assert f"One delta record of {len(entry)} bytes" in PAGE
    assert f"crc32c {record.peek(entry).crc32c:08x}" in block("hex")
    name = CursorName("persistent://public/default/orders", "billing")
    assert (
        f"`{name.canonical}`, whose SHA-256 begins `{name.record_hash.to_bytes(8, 'little').hex()}`"
        in PAGE
    )


def test_every_line_of_the_header_table_is_where_it_says() -> None:
    rows = re.findall(r"^\| (\d+) \| (\w[\w ]*) \| (\d+) \|", section("Record"), re.MULTILINE)
    assert [name for _, name, _ in rows] == [
        "magic",
        "version",
        "kind",
        "flags",
        "reserved",
        "cursor",
        "epoch",
        "generation",
        "sequence",
        "body length",
        "crc32c",
    ]
    at = 0
    for offset, _, size in rows:
        assert int(offset) == at
        at += int(size)
    assert at == sizes.RECORD_HEADER_BYTES


def test_numbers_and_names_are_those_of_the_code() -> None:
    kinds = ", ".join(f"{kind.value} {kind.name.lower()}" for kind in record.Kind).replace(
        "3 segment", "3 snapshot segment"
    )
    assert kinds.replace("snapshot_end", "snapshot end") in PAGE
    assert ", ".join(f"{codec.value} {codec.name.lower()}" for codec in Codec) in PAGE
    assert ", ".join(f"{state.value} {state.name.lower()}" for state in LayoutState) in PAGE
    for mode in Mode:
        assert f"| {mode.value} {mode.name} |" in PAGE
    rows = re.findall(r"^\| (\d) \| ([\w -]+) \|", section("Fields of a body"), re.MULTILINE)
    names = [
        "mark-delete",
        "mark-delete properties",
        "cursor properties",
        "layout",
        "acks",
        "partly acked batches",
    ]
    assert rows == [(str(bit), name) for bit, name in enumerate(names)]
    assert [field.value for field in Field] == [1 << bit for bit in range(len(names))]
    assert f"{CONTAINERS_PER_SEGMENT * 65_536:,} entries" in PAGE
    assert record.BODY_BYTES_MAX == 4 << 20
    assert footer.FOOTER_BYTES_MAX == 16 << 10


def test_the_footer_table_names_every_member_in_its_order() -> None:
    column = re.findall(r"^\| (`[^|]*`) \|", section("Footer"), re.MULTILINE)
    told = [name for cell in column for name in re.findall(r"`(\w+)`", cell)]
    properties = CursorProperties(Stamp(1, 1), {})
    everything = replace(
        PLAIN, cursor_properties=properties, truncated=Truncation(0, 0, 0, ""), fencing_token=1
    ).written_at(5)
    assert told == list(json.loads(footer.encode(everything)))


def test_it_stands_alone() -> None:
    assert "../" not in PAGE
    for target in re.findall(r"\]\(#([\w-]+)\)", PAGE):
        titles = {
            re.sub(r"[^\w -]", "", title).lower().replace(" ", "-")
            for title in re.findall(r"^## (.*)$", PAGE, re.MULTILINE)
        }
        assert target in titles
